//! Each way to say it, each refusal by what it names, and that whatever is said comes out again.

use std::path::Path;

use super::environment::Environment;
use super::*;

/// No part of it may stand in a message.
const PASSWORD: &str = "not-a-real-password";

fn settings(url: &str) -> Settings {
    Settings { database_url: Some(url.into()), ..Settings::default() }
}

fn of(url: &str) -> Connection {
    Connection::of(&settings(url)).unwrap_or_else(|error| panic!("{url}: {error}"))
}

fn refusal(settings: &Settings) -> String {
    let refusal = match Connection::of(settings) {
        Ok(connection) => panic!("accepted: {connection:?}"),
        Err(error) => error.to_string(),
    };
    assert!(!refusal.contains(PASSWORD) && !refusal.contains("secret"), "{refusal}");
    refusal
}

fn with(variables: &[(&str, &str)], settings: Settings) -> Settings {
    let said =
        |name: &str| variables.iter().find(|(variable, _)| *variable == name).map(|(_, text)| (*text).to_owned());
    Settings { environment: Environment::read(said), ..settings }
}

fn hosts(connection: &Connection) -> String {
    connection.hosts.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

#[test]
fn hosts_are_read_from_urls_and_pairs_alike() {
    for (text, expected) in [
        ("postgresql://u@db.example", "db.example:5432"),
        ("postgres://u@db.example:6432/d", "db.example:6432"),
        (" postgresql://u@db.example/d\n", "db.example:5432"),
        ("postgresql://u@h1:1,h2:2/d", "h1:1 h2:2"),
        ("postgresql://u@h1:1,h2/d", "h1:1 h2:5432"),
        ("postgresql://u@h1,h2/d?port=7", "h1:7 h2:7"),
        ("postgresql://u@127.0.0.1:1,[::1]:2,[fe80::1]/d", "127.0.0.1:1 [::1]:2 [fe80::1]:5432"),
        ("postgresql://u@%2Frun%2Fpostgresql:6432/d", "/run/postgresql/.s.PGSQL.6432"),
        ("postgresql://u@/d?host=/run/postgresql", "/run/postgresql/.s.PGSQL.5432"),
        ("postgresql:///d?host=/run/postgresql/&user=u", "/run/postgresql/.s.PGSQL.5432"),
        ("postgresql://u@:6432/d?host=db.example", "db.example:6432"),
        ("postgresql://?user=u&host=db.example", "db.example:5432"),
        ("postgresql://u@db.example?host=", "db.example:5432"),
        ("postgresql://u@%EC%A3%BC%EB%AC%B8.example/d", "주문.example:5432"),
        ("host=db.example user=u", "db.example:5432"),
        ("host = 'h1 , ::1' port=' 1, 2' user=u", "h1:1 [::1]:2"),
        ("user=u\n\thost=/run/postgresql,localhost\n", "/run/postgresql/.s.PGSQL.5432 localhost:5432"),
    ] {
        assert_eq!(hosts(&of(text)), expected, "{text}");
    }
    assert_eq!(of("host=localhost user=u").hosts[0].place, Place::Name("localhost".into()));
}

#[test]
fn a_password_of_odd_characters_is_read_whole() {
    for (text, expected) in [
        ("postgresql://me:what?a=b@h/d", "what?a=b"),
        ("postgresql://me:a:b#c+d&e=f@h/d", "a:b#c+d&e=f"),
        ("postgresql://me:p%40ss%2F%3F%25%20w@h/d", "p@ss/?% w"),
        ("postgresql://me:%EB%B9%84%EB%B0%80@h/d", "비밀"),
        ("postgresql://me:비밀@h/d", "비밀"),
        ("postgresql://me@h/d?password=a%26b%40c", "a&b@c"),
        ("host=h user=me password=a@b%41?/", "a@b%41?/"),
        ("host=h user=me password='비 밀'", "비 밀"),
        (r"host=h user=me password='it\'s \\'", r"it's \"),
        (r"host=h user=me password=a\ b\'", "a b'"),
        ("host=h user=me password=postgresql://x", "postgresql://x"),
    ] {
        assert_eq!(of(text).password, Password::Given(expected.into()), "{text}");
    }
    for text in ["postgresql://me@h/d", "postgresql://me:@h/d", "host=h user=me password=''"] {
        assert_eq!(of(text).password, Password::None, "{text}");
    }
}

#[test]
fn user_database_and_name_have_defaults() {
    let connection = of("postgresql://u@h");
    assert_eq!((connection.user.as_str(), connection.dbname.as_str()), ("u", "u"));
    assert_eq!(connection.application_name, "call-budget");
    let connection = of("postgresql://a%40b@h/%EC%98%88%EC%82%B0?application_name=x%20y");
    assert_eq!((connection.user.as_str(), connection.dbname.as_str()), ("a@b", "예산"));
    assert_eq!(connection.application_name, "x y");
    let bare = settings("postgresql://h/d");
    assert!(refusal(&bare).contains("set user (CALL_BUDGET_USER)"));
    assert_eq!(Connection::of(&with(&[("LOGNAME", "me")], bare.clone())).unwrap().user, "me");
    assert_eq!(Connection::of(&with(&[("USER", "me"), ("PGUSER", "you")], bare)).unwrap().user, "you");
}

#[test]
fn a_setting_counts_before_database_url_before_a_variable() {
    let variables = [
        ("PGHOST", "pg"),
        ("PGPORT", "1"),
        ("PGUSER", "pg"),
        ("PGPASSWORD", "pg"),
        ("PGDATABASE", "pg"),
        ("PGSSLMODE", "disable"),
        ("PGSSLROOTCERT", "/pg"),
        ("PGSSLCERT", "/pgc"),
        ("PGSSLKEY", "/pgk"),
        ("PGAPPNAME", "pg"),
    ];
    let connection = Connection::of(&with(&variables, Settings::default())).unwrap();
    assert_eq!(hosts(&connection), "pg:1");
    assert_eq!((connection.user.as_str(), connection.dbname.as_str()), ("pg", "pg"));
    assert_eq!((connection.password, connection.application_name.as_str()), (Password::Given("pg".into()), "pg"));
    let client = Some(ClientCertificate { cert: "/pgc".into(), key: "/pgk".into() });
    assert_eq!(connection.tls, Tls { mode: TlsMode::Disable, root_cert: Some("/pg".into()), client });

    let url = "postgresql://url:url@url:2/url?sslmode=verify-full&sslrootcert=/url&sslcert=/urlc&sslkey=/urlk&application_name=url";
    let connection = Connection::of(&with(&variables, settings(url))).unwrap();
    assert_eq!(hosts(&connection), "url:2");
    assert_eq!((connection.user.as_str(), connection.dbname.as_str()), ("url", "url"));
    assert_eq!((connection.password, connection.application_name.as_str()), (Password::Given("url".into()), "url"));
    let client = Some(ClientCertificate { cert: "/urlc".into(), key: "/urlk".into() });
    assert_eq!(connection.tls, Tls { mode: TlsMode::VerifyFull, root_cert: Some("/url".into()), client });

    let own = Settings {
        host: Some("own".into()),
        port: Some("3".into()),
        user: Some("own".into()),
        password: Some("own".into()),
        dbname: Some("own".into()),
        sslmode: Some("verify-ca".into()),
        sslrootcert: Some("/own".into()),
        sslcert: Some("/ownc".into()),
        sslkey: Some("/ownk".into()),
        application_name: "own".into(),
        ..settings(url)
    };
    let connection = Connection::of(&with(&variables, own)).unwrap();
    assert_eq!(hosts(&connection), "own:3");
    assert_eq!((connection.user.as_str(), connection.dbname.as_str()), ("own", "own"));
    assert_eq!((connection.password, connection.application_name.as_str()), (Password::Given("own".into()), "own"));
    let client = Some(ClientCertificate { cert: "/ownc".into(), key: "/ownk".into() });
    assert_eq!(connection.tls, Tls { mode: TlsMode::VerifyCa, root_cert: Some("/own".into()), client });

    // Word by word: what the stronger one does not say is taken from the weaker.
    let connection = Connection::of(&with(&variables, settings("host=url sslmode=''"))).unwrap();
    assert_eq!((hosts(&connection).as_str(), connection.tls.mode), ("url:1", TlsMode::Disable));
}

#[test]
fn a_password_has_one_source_and_a_setting_for_it_counts_before_the_url() {
    let url = "postgresql://u:url@h/d";
    let file = Settings { password_file: Some("/run/secrets/db".into()), ..settings(url) };
    assert_eq!(Connection::of(&file).unwrap().password, Password::File("/run/secrets/db".into()));
    let command = Settings { password_command: Some("pass db".into()), ..settings(url) };
    assert_eq!(Connection::of(&command).unwrap().password, Password::Command("pass db".into()));
    let both = Settings { password: Some(PASSWORD.into()), ..file.clone() };
    assert!(refusal(&both).contains("password and password_file are all set"));
    let all = Settings { password_command: Some("pass db".into()), ..both };
    assert!(refusal(&all).contains("password and password_file and password_command"));
    let empty = Settings { password: Some("".into()), password_command: Some(String::new()), ..file };
    assert_eq!(Connection::of(&empty).unwrap().password, Password::File("/run/secrets/db".into()));
}

#[test]
fn tls_is_never_less_than_what_was_said() {
    let root = Some(Path::new("/ca.pem"));
    for (text, mode, root_cert) in [
        ("", TlsMode::VerifyFull, None),
        ("sslrootcert=system", TlsMode::VerifyFull, None),
        ("sslrootcert=/ca.pem", TlsMode::VerifyFull, root),
        ("sslmode=disable", TlsMode::Disable, None),
        ("sslmode=require", TlsMode::Require, None),
        ("sslmode=require sslrootcert=/ca.pem", TlsMode::VerifyCa, root),
        ("sslmode=verify-ca sslrootcert=/ca.pem", TlsMode::VerifyCa, root),
        ("sslmode=verify-full", TlsMode::VerifyFull, None),
        ("sslmode=verify-full sslrootcert=system", TlsMode::VerifyFull, None),
    ] {
        let tls = of(&format!("host=h user=u {text}")).tls;
        assert_eq!((tls.mode, tls.root_cert.as_deref(), tls.client), (mode, root_cert, None), "{text}");
    }
    assert_eq!(of("host=/run user=u").tls.mode, TlsMode::Disable);
    assert_eq!(of("host=/run,h user=u").tls.mode, TlsMode::VerifyFull);
    let client = of("host=h user=u sslcert=/c sslkey=/k").tls.client.unwrap();
    assert_eq!((client.cert.as_path(), client.key.as_path()), (Path::new("/c"), Path::new("/k")));
}

#[test]
fn what_is_wrong_with_the_text_is_said_without_the_text() {
    for (text, expected) in [
        ("mysql://me:secret@h/d", "must begin with postgresql://"),
        ("jdbc:postgresql://me:secret@h/d", "must begin with postgresql://"),
        ("POSTGRESQL://me:secret@h/d", "must begin with postgresql://"),
        ("postgresql://me:secret@h:x/d", "port that is not a number"),
        ("postgresql://me:secret@h:0/d", "port in database_url has a port that is not a number from 1 to 65535"),
        ("postgresql://me:secret@h:65536/d", "port in database_url"),
        ("postgresql://me:p@secret@h/d", "percent-encode"),
        ("postgresql://me:p/secret@h/d", "percent-encode"),
        ("postgresql://me:5/secret@h/d", "percent-encode"),
        ("postgresql://me:5/x?secret=y@h/d", "percent-encode"),
        ("postgresql://me:p@s?secret=y@h/d", "percent-encode"),
        ("postgresql://h?secret=a@b/d", "percent-encode"),
        ("postgresql://h/d?secret=a@b", "percent-encode"),
        ("postgresql://me:%secret@h/d", "%25"),
        ("postgresql://me:%+1secret@h/d", "%25"),
        ("postgresql://me:secret%FF@h/d", "not UTF-8"),
        ("postgresql://me:secret%00@h/d", "zero byte in password"),
        ("postgresql://me:secret@[::1/d", "has a [ without its ]"),
        ("postgresql://me:secret@[::1]5432/d", "[::1]:5432"),
        ("postgresql://me:secret@::1/d", "without brackets"),
        ("postgresql://me:secret@h1,,h2/d", "empty host"),
        ("postgresql://me:secret@h1:1,h2:2/d?port=1", "says port twice"),
        ("postgresql://me:secret@h/d?host=other", "says host twice"),
        ("postgresql://me:secret@h/d?password=secret", "says password twice"),
        ("postgresql://me:secret@h/d?sslmode", "parameter without a value"),
        ("postgresql://me:secret@h/d?sslmod=disable", "\"sslmod\" that is unknown: did you mean \"sslmode\"?"),
        ("postgresql://me:secret@h/d?zzz=1", "\"zzz\" that is unknown: known are host, port"),
        ("postgresql://me@h/d?password=a&secret=1", "unknown key after the password"),
        ("postgresql://me:secret@h/d?connect_timeout=5", "one deadline"),
        ("host=h user=me password=my secret", "word without its ="),
        ("host=h user=me password=my secret=x", "unknown key after the password"),
        ("host=h user=me password='my secret", "single quote without its end"),
        ("host=h user=me password=secret password=x", "says password twice"),
        ("secret", "word without its ="),
        ("host=@abstract user=me", "abstract socket"),
        ("host=fe80::1%eth0 user=me", "zone"),
        ("host=h:5432 user=me", "the port goes into port"),
        ("host='a b' user=me", "no name, no address"),
        ("host=h1,h2,h3 port=1,2 user=me", "2 ports and host in database_url names 3 hosts"),
        ("host=h port=1,2 user=me", "2 ports"),
        ("host=h port=+1 user=me", "1 to 65535"),
        ("host=h port=5432x user=me", "1 to 65535"),
        ("host=a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q user=me", "17 hosts: at most 16"),
        ("host=h user=me sslmode=prefer", "may fall back to plain text"),
        ("host=h user=me sslmode=allow", "may fall back to plain text"),
        ("host=h user=me sslmode=verify_full", "did you mean \"verify-full\"?"),
        ("host=h user=me sslmode=1", "none of disable, require, verify-ca, verify-full"),
        ("host=h user=me sslmode=require sslrootcert=system", "use sslmode=verify-full"),
        ("host=h user=me sslmode=verify-ca", "name the file"),
        ("host=h user=me sslcert=/c", "sslcert in database_url is set without sslkey"),
        ("host=h user=me sslkey=/k", "sslkey in database_url is set without sslcert"),
    ] {
        let refusal = refusal(&settings(text));
        assert!(refusal.contains("database_url"), "{text}: {refusal}");
        assert!(refusal.contains(expected), "{text}: {refusal}");
    }
}

#[test]
fn what_libpq_knows_and_is_not_read_here_is_refused_by_name_with_a_reason() {
    for key in [
        "hostaddr",
        "options",
        "connect_timeout",
        "tcp_user_timeout",
        "keepalives",
        "keepalives_idle",
        "keepalives_interval",
        "keepalives_count",
        "target_session_attrs",
        "load_balance_hosts",
        "passfile",
        "service",
        "channel_binding",
        "require_auth",
        "sslnegotiation",
        "sslcrl",
        "sslcrldir",
        "sslpassword",
        "sslcertmode",
        "sslcompression",
        "sslsni",
        "ssl_min_protocol_version",
        "ssl_max_protocol_version",
        "gssencmode",
        "krbsrvname",
        "gsslib",
        "gssdelegation",
        "requirepeer",
        "requiressl",
        "replication",
        "client_encoding",
        "fallback_application_name",
        "sslkeylogfile",
    ] {
        for text in [format!("host=h user=u {key}=1"), format!("postgresql://u:secret@h/d?{key}=1")] {
            let refusal = refusal(&settings(&text));
            assert!(refusal.contains(&format!("\"{key}\" that is not supported: ")), "{refusal}");
        }
    }
    for (variable, key) in keys::REFUSED_VARIABLES {
        let refusal = refusal(&with(&[(variable, "secret")], settings("host=h user=u")));
        assert!(refusal.contains(variable) && refusal.contains("unset it"), "{refusal}");
        assert!(refusal.ends_with(keys::why_not(key).unwrap()), "{refusal}");
    }
    let other = [("PGDATA", "/data"), ("PGCONNECT_TIMEOUT", "10"), ("PGSERVICE", "")];
    Connection::of(&with(&other, settings("host=h user=u sslmode=disable"))).unwrap();
}

#[test]
fn a_refusal_says_which_source_was_read() {
    let url = || settings("host=h user=u");
    for (settings, expected) in [
        (Settings { sslmode: Some("prefer".into()), ..url() }, "the setting sslmode is prefer"),
        (with(&[("PGSSLMODE", "prefer")], url()), "the variable PGSSLMODE is prefer"),
        (Settings { port: Some("0".into()), ..url() }, "the setting port has a port"),
        (
            Settings { port: Some("1,2".into()), ..url() },
            "the setting port names 2 ports and host in database_url names 1",
        ),
        (with(&[("PGPORT", "x")], url()), "the variable PGPORT has"),
        (Settings { sslcert: Some("/c".into()), ..url() }, "the setting sslcert is set without sslkey"),
        (Settings { user: Some("a\0b".into()), ..url() }, "the setting user has a zero byte"),
    ] {
        let refusal = refusal(&settings);
        assert!(refusal.starts_with(expected), "{refusal}");
    }
}

#[test]
fn no_host_is_refused_and_no_socket_is_guessed() {
    for text in ["", "user=u", "postgresql://u@/d", "postgresql://u@:5432/d"] {
        let refusal = refusal(&Settings { enabled: true, ..settings(text) });
        for named in ["call_budget_enabled", "database_url", "CALL_BUDGET_DATABASE_URL", "host (CALL_BUDGET_HOST)"] {
            assert!(refusal.contains(named), "{text}: {refusal}");
        }
        assert!(!self::refusal(&settings(text)).contains("call_budget_enabled"), "a command needs no switch");
    }
}

#[test]
fn nameservers_are_addresses_with_port_53_where_none_is_said() {
    let asked = |list: &[&str]| Settings {
        nameservers: list.iter().map(ToString::to_string).collect(),
        ..settings("host=h user=u")
    };
    let connection = Connection::of(&asked(&["127.0.0.1:5353", " 10.0.0.2", "::1", "[::1]", "[::1]:5353"])).unwrap();
    let shown: Vec<_> = connection.nameservers.iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["127.0.0.1:5353", "10.0.0.2:53", "[::1]:53", "[::1]:53", "[::1]:5353"]);
    for wrong in ["dns.example", "10.0.0.2:0", "10.0.0.2:x", "", "10.0.0"] {
        assert!(refusal(&asked(&[wrong])).contains("nameservers"), "{wrong}");
    }
    assert!(refusal(&asked(&["10.0.0.2"; 9])).contains("at most 8"));
}

#[test]
fn neither_settings_nor_connection_show_a_password() {
    let url = format!("postgresql://u:{PASSWORD}@h/d");
    let own = Settings { password: Some(PASSWORD.into()), ..settings(&url) };
    let all = with(&[("PGPASSWORD", PASSWORD)], own);
    assert!(!format!("{all:?} {:?} {:?}", Connection::of(&all).unwrap(), of(&url)).contains(PASSWORD));
    assert!(!serde_json::to_string(&all).unwrap().contains(PASSWORD));
}

#[test]
fn another_url_takes_nothing_along_that_was_meant_for_the_first_server() {
    let first = Settings {
        host: Some("first".into()),
        password: Some(PASSWORD.into()),
        sslmode: Some("disable".into()),
        nameservers: vec!["10.0.0.2".into()],
        ..settings("postgresql://first:secret@first/first")
    };
    let connection = Connection::of(&with(&[("PGUSER", "u")], first).at("postgresql://second")).unwrap();
    assert_eq!((hosts(&connection).as_str(), connection.password), ("second:5432", Password::None));
    assert_eq!((connection.user.as_str(), connection.tls.mode), ("u", TlsMode::VerifyFull));
    assert_eq!(connection.nameservers.len(), 1);
}

#[test]
fn whatever_is_said_comes_out_again_of_a_url_and_of_pairs() {
    let seed = fastrand::u64(..);
    let mut random = fastrand::Rng::with_seed(seed);
    for round in 0..2000 {
        let mut word = |odd: bool| -> String {
            let alphabet: Vec<char> =
                if odd { "aZ09-_.~@:/?#[]%&=+,;'\"\\ \t\n가비é😀" } else { "abcXYZ019-." }.chars().collect();
            (0..random.usize(1..12)).map(|_| alphabet[random.usize(..alphabet.len())]).collect()
        };
        let host = format!("h{}", word(false));
        let (user, password, dbname, name) = (word(true), word(true), word(true), word(true));
        let (root, cert, key) = (format!("/{}", word(true)), word(true), word(true));
        let port = random.u16(1..);
        let mut encoded =
            |text: &str| -> String { text.bytes().map(|byte| percent(byte, &mut random.fork())).collect() };
        let quoted = |text: &str| format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"));
        let parameters = [("application_name", &name), ("sslrootcert", &root), ("sslcert", &cert), ("sslkey", &key)];
        let query: Vec<_> = parameters.iter().map(|(key, text)| format!("{key}={}", encoded(text))).collect();
        let url = format!(
            "postgresql://{}:{}@{host}:{port}/{}?{}",
            encoded(&user),
            encoded(&password),
            encoded(&dbname),
            query.join("&")
        );
        let port_text = port.to_string();
        let pairs: Vec<_> =
            [("host", &host), ("port", &port_text), ("user", &user), ("password", &password), ("dbname", &dbname)]
                .iter()
                .chain(&parameters)
                .map(|(key, text)| format!("{key} = {}", quoted(text)))
                .collect();
        for text in [url, pairs.join(" ")] {
            let read = Connection::of(&settings(&text))
                .unwrap_or_else(|error| panic!("seed {seed}, {round}: {text:?}: {error}"));
            let client = Some(ClientCertificate { cert: cert.as_str().into(), key: key.as_str().into() });
            assert_eq!(hosts(&read), format!("{host}:{port}"), "seed {seed}, round {round}: {text:?}");
            assert_eq!(
                (&read.user, &read.password, &read.dbname, &read.application_name),
                (&user, &Password::Given(password.as_str().into()), &dbname, &name),
                "seed {seed}, round {round}: {text:?}"
            );
            assert_eq!(
                read.tls,
                Tls { mode: TlsMode::VerifyFull, root_cert: Some(root.as_str().into()), client },
                "{text:?}"
            );
        }
    }
}

/// One byte of a URL; letters are encoded now and then, which is as good.
fn percent(byte: u8, random: &mut fastrand::Rng) -> String {
    if byte.is_ascii_alphanumeric() && random.bool() { char::from(byte).into() } else { format!("%{byte:02x}") }
}

#[test]
fn no_text_however_broken_makes_it_panic_or_show_the_password() {
    let seed = fastrand::u64(..);
    let mut random = fastrand::Rng::with_seed(seed);
    let pieces = [
        "postgresql://",
        "u",
        ":",
        "@",
        "/",
        "?",
        "&",
        "=",
        "%",
        "%4",
        "'",
        "\\",
        " ",
        "[",
        "]",
        ",",
        "host",
        "port",
        "가",
        "1",
    ];
    for _ in 0..20_000 {
        let mut text = String::from(if random.bool() { "postgresql://u:" } else { "password=" });
        text.push_str(PASSWORD);
        for _ in 0..random.usize(..12) {
            text.push_str(pieces[random.usize(..pieces.len())]);
        }
        match Connection::of(&settings(&text)) {
            Ok(connection) => assert!(!format!("{connection:?}").contains(PASSWORD), "seed {seed}: {text:?}"),
            Err(error) => assert!(!error.to_string().contains(PASSWORD), "seed {seed}: {text:?}: {error}"),
        }
    }
}

#[test]
fn a_panic_that_shows_all_settings_shows_no_secret() {
    for text in [
        format!("database_url = \"postgresql://u:{PASSWORD}@h/d\""),
        format!("host = \"h\"\nuser = \"u\"\npassword = \"{PASSWORD}\""),
        format!("database_url = \"host=h user=u password={PASSWORD}\""),
    ] {
        let settings = Settings::of_toml(&text, Path::new("")).unwrap();
        let connection = Connection::of(&settings).unwrap();
        let panicked = std::panic::catch_unwind(|| panic!("{settings:?} {connection:?}")).unwrap_err();
        let message = panicked.downcast_ref::<String>().unwrap();
        assert!(message.contains("Settings") && !message.contains(PASSWORD), "{message}");
    }
}
