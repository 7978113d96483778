use std::fs;
use std::os::unix::fs::PermissionsExt;

use openssl::pkey::PKey;
use openssl::stack::Stack;
use openssl::x509::store::X509StoreBuilder;
use openssl::x509::verify::X509VerifyParam;
use openssl::x509::{X509, X509StoreContext};

use crate::tools::certificates::{BUNDLED, Certificates, Shown, read};

#[test]
fn each_certificate_is_wrong_in_its_own_way_and_in_no_other() {
    let made = Certificates::make(&["db.test", "127.0.0.2"]);
    let trusted = [read(&made.authority())];
    let verdict = |shown, host: &str| verdict(&read(&made.server(shown).certificate), &trusted, host);
    for host in ["localhost", "127.0.0.1", "::1", "db.test", "127.0.0.2"] {
        assert_eq!(verdict(Shown::Good, host), FINE, "{host}");
        assert_eq!(verdict(Shown::Renewed, host), FINE, "{host}");
        assert_eq!(verdict(Shown::Expired, host), HAS_EXPIRED, "{host}");
        assert_eq!(verdict(Shown::UnknownAuthority, host), ISSUER_NOT_FOUND, "{host}");
    }
    assert_eq!(verdict(Shown::WrongHost, "localhost"), HOST_MISMATCH);
    assert_eq!(verdict(Shown::WrongHost, "127.0.0.1"), ADDRESS_MISMATCH);
    assert_eq!(verdict(Shown::Good, "other.test"), HOST_MISMATCH);
    assert_eq!(verdict(Shown::WrongHost, "elsewhere.example"), FINE, "nothing else is wrong with it");
    let der = |shown| read(&made.server(shown).certificate).to_der().unwrap();
    assert_ne!(der(Shown::Good), der(Shown::Renewed));
}

#[test]
fn the_bundle_holds_many_and_only_its_last_signed_the_good_one() {
    let made = Certificates::make(&[]);
    let bundled = X509::stack_from_pem(&fs::read(made.bundle()).unwrap()).unwrap();
    assert_eq!(bundled.len(), BUNDLED);
    let good = read(&made.server(Shown::Good).certificate);
    assert_eq!(verdict(&good, &bundled, "localhost"), FINE);
    assert_eq!(verdict(&good, &bundled[..BUNDLED - 1], "localhost"), ISSUER_NOT_FOUND);
}

#[test]
fn keys_are_pkcs8_fit_their_certificate_and_are_readable_by_their_owner_alone() {
    let made = Certificates::make(&[]);
    let shown = [Shown::Good, Shown::Renewed, Shown::WrongHost, Shown::Expired, Shown::UnknownAuthority];
    for identity in shown.map(|shown| made.server(shown)).into_iter().chain([made.client(), made.stranger_client()]) {
        let pem = fs::read(&identity.key).unwrap();
        assert!(pem.starts_with(b"-----BEGIN PRIVATE KEY-----"), "{identity:?}");
        let key = PKey::private_key_from_pem(&pem).unwrap();
        assert!(read(&identity.certificate).public_key().unwrap().public_eq(&key), "{identity:?}");
        assert_eq!(fs::metadata(&identity.key).unwrap().permissions().mode() & 0o777, 0o600, "{identity:?}");
    }
    let folder = made.authority().parent().unwrap().to_owned();
    drop(made);
    assert!(!folder.exists());
}

/// OpenSSL's number for what it thinks of the certificate.
fn verdict(certificate: &X509, trusted: &[X509], host: &str) -> i32 {
    let mut parameters = X509VerifyParam::new().unwrap();
    match host.parse() {
        Ok(address) => parameters.set_ip(address).unwrap(),
        Err(_) => parameters.set_host(host).unwrap(),
    }
    let mut store = X509StoreBuilder::new().unwrap();
    for authority in trusted {
        store.add_cert(authority.clone()).unwrap();
    }
    store.set_param(&parameters).unwrap();
    let mut context = X509StoreContext::new().unwrap();
    let judged = context.init(&store.build(), certificate, &Stack::new().unwrap(), |context| {
        context.verify_cert()?;
        Ok(context.error())
    });
    judged.unwrap().as_raw()
}

const FINE: i32 = 0;
const HAS_EXPIRED: i32 = 10;
const ISSUER_NOT_FOUND: i32 = 20;
const HOST_MISMATCH: i32 = 62;
const ADDRESS_MISMATCH: i32 = 64;
