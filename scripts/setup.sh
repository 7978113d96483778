# Sourced by the scripts that start something: what they need from the machine, and how it gets there.
#   need postgresql python compiler    installs what is missing where that is allowed, else shows the one command

fail() {
    echo "$(basename "$0"): $*" >&2
    exit 1
}

has() { command -v "$1" >/dev/null 2>&1; }

# Debian and Homebrew keep the server's programs outside PATH; with Docker the image does instead.
has_postgresql() {
    [ -n "${DATABASE_URL:-}" ] || [ -n "${PG_BIN:-}" ] || has initdb || has pg_config ||
        ls /usr/lib/postgresql/*/bin/initdb /opt/homebrew/opt/postgresql@*/bin/initdb \
            /usr/local/opt/postgresql@*/bin/initdb >/dev/null 2>&1 ||
        { has docker && docker info >/dev/null 2>&1; }
}

# With pip and venv, which Debian ships apart: they fetch psycopg, PostgreSQL 18, mypy, schemathesis, selenium.
has_python() { has python3 && python3 -m pip --version >/dev/null 2>&1 && python3 -c "import ensurepip, venv" 2>/dev/null; }

has_compiler() { has cc; }

has_patch() { has patch; }

# The program, for docker-compose.yml's certificates.
has_openssl() { has openssl; }

# For the bench: the server's program under either of its names.
has_redis() { has redis-server || has redis-check-rdb; }

# OpenSSL's headers: on Linux native-tls links the system's. Elsewhere the system brings its own TLS.
has_tls() { [ "$(uname)" != Linux ] || { has pkg-config && pkg-config --exists openssl; }; }

# With its driver. Chrome will do.
has_chromium() { { has chromium || has chromium-browser || has google-chrome; } && has chromedriver; }

# A font for Korean, for pictures of it.
has_hangul() { has fc-list && fc-list :lang=ko | grep -q .; }

# What the fault suite starts. Debian keeps PgBouncer and what makes namespaces outside the PATH of plain users.
has_pgbouncer() { has pgbouncer || [ -x /usr/sbin/pgbouncer ]; }

has_faketime() {
    [ "$(uname)" != Linux ] || ls /usr/lib/*/faketime/libfaketime.so.1 /usr/lib*/faketime/libfaketime.so.1 \
        2>/dev/null | grep -q .
}

# Elsewhere there are none: the suite says so itself.
has_namespaces() {
    [ "$(uname)" != Linux ] ||
        { has unshare && { has ip || [ -x /usr/sbin/ip ]; } && { has nft || [ -x /usr/sbin/nft ]; }; }
}

# Cargo fetches over HTTPS.
has_certificates() {
    [ "$(uname)" = Darwin ] || [ -n "${SSL_CERT_FILE:-}" ] || [ -e /etc/ssl/certs/ca-certificates.crt ] ||
        [ -e /etc/pki/tls/certs/ca-bundle.crt ] || [ -e /etc/ssl/cert.pem ]
}

has_curl() { has curl; }

# For an image's base that cannot be fetched.
has_debootstrap() { has debootstrap || [ -x /usr/sbin/debootstrap ]; }

apt_packages() {
    case $1 in
        debootstrap) echo debootstrap ;;
        curl) echo curl ;;
        postgresql) echo postgresql postgresql-client ;;
        python) echo python3 python3-pip python3-venv ;;
        compiler) echo gcc libc6-dev ;;
        patch) echo patch ;;
        openssl) echo openssl ;;
        certificates) echo ca-certificates ;;
        tls) echo pkg-config libssl-dev ;;
        pgbouncer) echo pgbouncer ;;
        faketime) echo faketime ;;
        namespaces) echo util-linux iproute2 nftables ;;
        redis) echo redis-tools ;;
        chromium) echo chromium chromium-driver ;;
        hangul) echo fontconfig fonts-noto-cjk ;;
    esac
}

brew_packages() {
    case $1 in
        postgresql) echo postgresql@18 ;;
        python) echo python ;;
        compiler) echo gcc ;;
        patch) echo gpatch ;;
        openssl) echo openssl ;;
        certificates) echo ca-certificates ;;
        pgbouncer) echo pgbouncer ;;
        redis) echo redis ;;
        chromium) echo chromium chromedriver ;;
        hangul) echo fontconfig font-noto-sans-cjk-kr ;;
    esac
}

need() {
    has cargo || { [ -x "$HOME/.cargo/bin/cargo" ] && PATH=$HOME/.cargo/bin:$PATH; } ||
        fail "Rust is missing: install it from https://rustup.rs and run this again"
    apt= brew=
    for thing in certificates compiler tls "$@"; do
        "has_$thing" || { apt="$apt $(apt_packages "$thing")" brew="$brew $(brew_packages "$thing")"; }
    done
    [ -n "$apt" ] || return 0
    if ! has apt-get; then
        fail "missing here:$brew. Install with: brew install$brew"
    elif [ "$(id -u)" = 0 ]; then
        install env
    elif [ "${CI:-}" = true ] && has sudo; then
        install "sudo env"
    else
        fail "missing here:$apt. Install with: sudo apt-get install --yes$apt"
    fi
}

install() {
    echo "installing$apt" >&2
    # The lock's timeout: two runs at once take turns.
    get="$1 DEBIAN_FRONTEND=noninteractive apt-get --quiet --quiet --option DPkg::Lock::Timeout=300"
    { $get update && $get install --yes --no-install-recommends $apt; } >&2 || fail "apt-get could not install$apt"
}
