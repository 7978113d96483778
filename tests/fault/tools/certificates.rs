//! Certificates made for one test: good ones, and one for each way in which a certificate can be wrong. They live in a
//! temporary folder as PEM files, private keys as PKCS#8 that only their owner may read.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use openssl::asn1::Asn1Time;
use openssl::bn::{BigNum, MsbOption};
use openssl::ec::{EcGroup, EcKey};
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::x509::extension::{
    AuthorityKeyIdentifier, BasicConstraints, ExtendedKeyUsage, KeyUsage, SubjectAlternativeName, SubjectKeyIdentifier,
};
use openssl::x509::{X509, X509Builder, X509Name, X509NameBuilder};
use tempfile::TempDir;

/// The certificates of one test. The folder goes with the value.
pub struct Certificates {
    folder: TempDir,
}

/// The files of one certificate and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// What a server shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// For localhost, 127.0.0.1, ::1 and the names given, signed by the authority, in force.
    Good,
    /// As good, with another key: the next one after a rotation.
    Renewed,
    /// For `elsewhere.example` and 192.0.2.1.
    WrongHost,
    /// As good, but its time ended in 2020.
    Expired,
    /// As good, but signed by an authority that is in no file for clients.
    UnknownAuthority,
}

impl Certificates {
    /// Makes them all. `names` are host names or addresses for which the good ones hold too.
    pub fn make(names: &[&str]) -> Self {
        let folder = tempfile::Builder::new().prefix("call-budget-certificates-").tempdir();
        let made = Self { folder: folder.unwrap_or_else(|error| panic!("no temporary folder: {error}")) };
        let authority = Authority::new("Test authority", Until::NextMonth);
        let stranger = Authority::new("Stranger authority", Until::NextMonth);
        made.write("authority.pem", &authority.certificate.to_pem().unwrap(), PUBLIC);
        made.write("bundle.pem", bundle(&authority).as_bytes(), PUBLIC);
        let good: Vec<&str> = ["localhost", "127.0.0.1", "::1"].iter().chain(names).copied().collect();
        for (shown, signer, names, until) in [
            (Shown::Good, &authority, &good[..], Until::NextMonth),
            (Shown::Renewed, &authority, &good, Until::NextMonth),
            (Shown::WrongHost, &authority, &["elsewhere.example", "192.0.2.1"], Until::NextMonth),
            (Shown::Expired, &authority, &good, Until::February2020),
            (Shown::UnknownAuthority, &stranger, &good, Until::NextMonth),
        ] {
            made.write_identity(shown.file(), &signer.sign(names[0], Purpose::Server(names), until));
        }
        made.write_identity("client", &authority.sign("client", Purpose::Client, Until::NextMonth));
        made.write_identity("stranger-client", &stranger.sign("client", Purpose::Client, Until::NextMonth));
        made
    }

    /// The authority's certificate: what `sslrootcert` names.
    pub fn authority(&self) -> PathBuf {
        self.folder.path().join("authority.pem")
    }

    /// A file as providers ship it: [`BUNDLED`] authorities, of which the last is the right one.
    pub fn bundle(&self) -> PathBuf {
        self.folder.path().join("bundle.pem")
    }

    pub fn server(&self, shown: Shown) -> Identity {
        self.identity(shown.file())
    }

    /// A client's certificate that the authority signed (`sslcert`, `sslkey`).
    pub fn client(&self) -> Identity {
        self.identity("client")
    }

    /// A client's certificate from somebody else's authority.
    pub fn stranger_client(&self) -> Identity {
        self.identity("stranger-client")
    }

    fn identity(&self, name: &str) -> Identity {
        let file = |ending: &str| self.folder.path().join(format!("{name}.{ending}"));
        Identity { certificate: file("pem"), key: file("key") }
    }

    fn write_identity(&self, name: &str, (certificate, key): &(X509, PKey<Private>)) {
        self.write(&format!("{name}.pem"), &certificate.to_pem().unwrap(), PUBLIC);
        self.write(&format!("{name}.key"), &key.private_key_to_pem_pkcs8().unwrap(), SECRET);
    }

    fn write(&self, name: &str, content: &[u8], mode: u32) {
        write(&self.folder.path().join(name), content, mode);
    }
}

/// How many certificates [`Certificates::bundle`] holds.
pub const BUNDLED: usize = 120;

/// Writes a new file or over an old one; `mode` is that of a new one.
pub fn write(path: &Path, content: &[u8], mode: u32) {
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(path);
    file.and_then(|mut file| file.write_all(content))
        .unwrap_or_else(|error| panic!("{} could not be written: {error}", path.display()));
}

/// The certificate in a PEM file.
pub fn read(path: &Path) -> X509 {
    let text = fs::read(path).unwrap_or_else(|error| panic!("{} could not be read: {error}", path.display()));
    X509::from_pem(&text).unwrap_or_else(|error| panic!("{} holds no certificate: {error}", path.display()))
}

impl Shown {
    fn file(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Renewed => "renewed",
            Self::WrongHost => "wrong-host",
            Self::Expired => "expired",
            Self::UnknownAuthority => "unknown-authority",
        }
    }
}

struct Authority {
    certificate: X509,
    key: PKey<Private>,
}

enum Purpose<'a> {
    Server(&'a [&'a str]),
    Client,
}

/// Until when a certificate holds. All began in 2020.
#[derive(Clone, Copy)]
enum Until {
    NextMonth,
    February2020,
}

impl Authority {
    fn new(name: &str, until: Until) -> Self {
        let (key, name) = (new_key(), common_name(name));
        let mut builder = begun(&name, &name, &key, until);
        builder.append_extension(BasicConstraints::new().critical().ca().build().unwrap()).unwrap();
        builder.append_extension(KeyUsage::new().critical().key_cert_sign().crl_sign().build().unwrap()).unwrap();
        let itself = SubjectKeyIdentifier::new().build(&builder.x509v3_context(None, None)).unwrap();
        builder.append_extension(itself).unwrap();
        builder.sign(&key, MessageDigest::sha256()).unwrap();
        Self { certificate: builder.build(), key }
    }

    fn sign(&self, name: &str, purpose: Purpose<'_>, until: Until) -> (X509, PKey<Private>) {
        let key = new_key();
        let mut builder = begun(&common_name(name), self.certificate.subject_name(), &key, until);
        builder.append_extension(BasicConstraints::new().critical().build().unwrap()).unwrap();
        let signer = builder.x509v3_context(Some(&self.certificate), None);
        let signer = AuthorityKeyIdentifier::new().keyid(true).build(&signer).unwrap();
        builder.append_extension(signer).unwrap();
        let usage = match purpose {
            Purpose::Server(names) => {
                let mut alternatives = SubjectAlternativeName::new();
                for name in names {
                    match name.parse::<IpAddr>() {
                        Ok(_) => alternatives.ip(name),
                        Err(_) => alternatives.dns(name),
                    };
                }
                let alternatives = alternatives.build(&builder.x509v3_context(Some(&self.certificate), None)).unwrap();
                builder.append_extension(alternatives).unwrap();
                ExtendedKeyUsage::new().server_auth().build()
            }
            Purpose::Client => ExtendedKeyUsage::new().client_auth().build(),
        };
        builder.append_extension(usage.unwrap()).unwrap();
        builder.sign(&self.key, MessageDigest::sha256()).unwrap();
        (builder.build(), key)
    }
}

fn begun(subject: &X509Name, issuer: &openssl::x509::X509NameRef, key: &PKey<Private>, until: Until) -> X509Builder {
    let mut serial = BigNum::new().unwrap();
    serial.rand(127, MsbOption::MAYBE_ZERO, false).unwrap();
    let mut builder = X509::builder().unwrap();
    builder.set_version(2).unwrap();
    builder.set_serial_number(&serial.to_asn1_integer().unwrap()).unwrap();
    builder.set_subject_name(subject).unwrap();
    builder.set_issuer_name(issuer).unwrap();
    builder.set_pubkey(key).unwrap();
    let end = match until {
        Until::NextMonth => Asn1Time::days_from_now(30),
        Until::February2020 => Asn1Time::from_str("20200201000000Z"),
    };
    builder.set_not_before(&Asn1Time::from_str("20200101000000Z").unwrap()).unwrap();
    builder.set_not_after(&end.unwrap()).unwrap();
    builder
}

fn common_name(name: &str) -> X509Name {
    let mut builder = X509NameBuilder::new().unwrap();
    builder.append_entry_by_nid(Nid::COMMONNAME, name).unwrap();
    builder.build()
}

fn new_key() -> PKey<Private> {
    let curve = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).unwrap();
    PKey::from_ec_key(EcKey::generate(&curve).unwrap()).unwrap()
}

/// With a title over each, as in the bundles of operating systems.
fn bundle(last: &Authority) -> String {
    let others = (1..BUNDLED).map(|n| Authority::new(&format!("Other authority {n}"), Until::NextMonth).certificate);
    others.chain([last.certificate.clone()]).enumerate().fold(String::new(), |mut text, (n, certificate)| {
        let pem = String::from_utf8(certificate.to_pem().unwrap()).unwrap();
        writeln!(text, "# Authority {} of {BUNDLED}\n{pem}", n + 1).expect("a String takes everything");
        text
    })
}

const PUBLIC: u32 = 0o644;
const SECRET: u32 = 0o600;
