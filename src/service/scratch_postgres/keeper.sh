# Keeps one throw-away PostgreSQL. Takes orders on stdin and answers each with a line, `ok` or `failed`. When stdin ends,
# for whatever reason, whoever held the other end is gone: the server is stopped and the folder removed.
#
# Arguments: `local` and a bin directory, or `docker` and an image; then the folder, the address and the server's settings.
# Orders:    prepare | copy HOST PORT | start PORT | halt SIGNAL (INT: fast, QUIT: like a crash, KILL)
place=$1 source=$2 folder=$3 address=$4
shift 4
data=$folder/data
container=${folder##*/}
server=

prepare_local() {
    "$source/initdb" --pgdata="$data" --username=postgres --pwfile="$folder/password" --auth=scram-sha-256 \
        --encoding=UTF8 --locale=C --no-sync
}

# As a standby of the server there.
copy_local() {
    PGPASSWORD=$(cat "$folder/password") PGCONNECT_TIMEOUT=10 "$source/pg_basebackup" --pgdata="$data" --host="$1" \
        --port="$2" --username=postgres --write-recovery-conf --checkpoint=fast --no-sync
}

# Only the server gets the variables: the shell that reads them becomes the server.
start_local() {
    ! runs || return 1
    port=$1
    shift
    (
        . "$folder/environment"
        exec "$source/postgres" -D "$data" -p "$port" -h "$address" -c unix_socket_directories= "$@"
    ) &
    server=$!
    wait_for 1200 serves_local || { halt_local QUIT; return 1; }
}

# The server's own word, in the file that begins with its process id: after a crash the file is still the old one.
serves_local() {
    runs || return 2
    case $(sed -n '1p;8p' "$data/postmaster.pid" | tr -d '\n ') in
        "${server}ready" | "${server}standby") ;;
        *) return 1 ;;
    esac
}

runs() { [ -n "$server" ] && kill -s 0 "$server" 2>/dev/null; }

# Each gentler signal gets ten seconds.
halt_local() {
    for signal in "$1" QUIT KILL; do
        runs && kill -s "$signal" "$server"
        wait_for 200 gone_local && break
    done
    wait "$server"
    server=
}

gone_local() { ! runs; }

prepare_docker() { docker image inspect "$source" >/dev/null || docker pull "$source"; }

start_docker() {
    port=$1
    shift
    if ! docker start "$container"; then
        docker run --detach --name "$container" --publish "127.0.0.1:$port:5432" \
            --env POSTGRES_PASSWORD="$(cat "$folder/password")" "$source" "$@" || { end_docker; return 1; }
    fi
    wait_for 1200 serves_docker
}

# Over TCP: the server that the image runs to set itself up listens on a socket only.
serves_docker() {
    [ "$(docker inspect --format '{{.State.Running}}' "$container")" = true ] || { docker logs "$container"; return 2; }
    docker exec "$container" pg_isready -q -h 127.0.0.1 -U postgres || return 1
}

halt_docker() {
    docker kill --signal "$1" "$container"
    wait_for 200 gone_docker || docker kill "$container"
}

gone_docker() { [ "$(docker inspect --format '{{.State.Running}}' "$container")" != true ]; }

end_local() {
    ! runs || halt_local QUIT
    gave_back || wait_for 40 gives_back
}

# A killed server leaves shared memory of the machine behind. Only its next start gives it back, and removes the file.
gave_back() { [ ! -e "$data/postmaster.pid" ]; }

gives_back() {
    "$source/postgres" --single -D "$data" postgres </dev/null
    gave_back
}

end_docker() { docker rm --force --volumes "$container"; }

# wait_for TURNS CONDITION: true as soon as the condition is, false after so many turns of 50 ms or when it returns 2.
wait_for() {
    turns=$1
    while [ "$turns" -gt 0 ]; do
        "$2"
        case $? in 0) return 0 ;; 2) return 1 ;; esac
        turns=$((turns - 1))
        sleep 0.05
    done
    return 1
}

exec 3>&1 >>"$folder/log" 2>&1
trap 'end_$place; rm -rf "$folder"' EXIT
trap exit HUP TERM
while read -r order argument more; do
    case $order in
        prepare) prepare_"$place" ;;
        copy) copy_"$place" "$argument" "$more" ;;
        start) start_"$place" "$argument" "$@" ;;
        halt) halt_"$place" "$argument" ;;
    esac && echo ok >&3 || echo failed >&3
done
