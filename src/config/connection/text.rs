//! A connection as one text: a URL, or `key=value` pairs with libpq's quoting. What it says, word by word; what the words
//! mean is decided by the caller. No message quotes anything that could be a piece of a password.

use std::collections::BTreeMap;
use std::str::Chars;

use super::keys;

/// A key that is read here, and its text.
pub(in crate::config) type Words = BTreeMap<&'static str, String>;

/// Reads the text.
///
/// # Errors
/// What is wrong with it and how to write it, as the end of a sentence that begins with the setting's name.
pub(super) fn words(text: &str) -> Result<Words, String> {
    let url = text.trim();
    if let Some(rest) = ["postgresql://", "postgres://"].iter().find_map(|scheme| url.strip_prefix(scheme)) {
        return of_url(rest);
    }
    match url.split_once("://") {
        Some((scheme, _)) if !scheme.contains(['=', '\'', ' ']) => {
            Err("must begin with postgresql:// (or be written as key=value pairs)".into())
        }
        _ => of_pairs(text),
    }
}

fn of_url(rest: &str) -> Result<Words, String> {
    let mut words = Taken::default();
    // As libpq: what ends with an @ before the first slash is the login, even with a question mark inside.
    let before_slash = rest.find('/').map_or(rest, |slash| &rest[..slash]);
    let rest = match before_slash.find('@') {
        Some(at) => {
            login(&rest[..at], &mut words)?;
            &rest[at + 1..]
        }
        None => rest,
    };
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, dbname) = place.split_once('/').unwrap_or((place, ""));
    // Stricter than libpq: another @ may be the end of a password with a slash or an @ in it, and what was taken for host,
    // database and keys would be pieces of it.
    if rest.contains('@') || dbname.contains('/') {
        return Err(encode("an @ or a / where none can be, perhaps of a password"));
    }
    hosts(authority, &mut words)?;
    words.take("dbname", decoded(dbname)?)?;
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let Some((key, value)) = pair.split_once('=') else {
            return Err("has a parameter without a value after the ?: write ?key=value&key=value".into());
        };
        words.take(&decoded(key)?, decoded(value)?)?;
    }
    Ok(words.taken)
}

fn login(text: &str, words: &mut Taken) -> Result<(), String> {
    let (user, password) = text.split_once(':').unwrap_or((text, ""));
    if user.contains('?') {
        return Err(encode("a user with a ? or a parameter with an @ in it"));
    }
    words.take("user", decoded(user)?)?;
    words.take("password", decoded(password)?)
}

fn hosts(authority: &str, words: &mut Taken) -> Result<(), String> {
    let (mut hosts, mut ports) = (Vec::new(), Vec::new());
    for place in authority.split(',') {
        let (host, port) = if let Some(bracketed) = place.strip_prefix('[') {
            let (address, port) = bracketed.split_once(']').ok_or("has a [ without its ] in the host")?;
            if !port.is_empty() && !port.starts_with(':') {
                return Err("has text between ] and the port: write [::1]:5432".into());
            }
            (address, port.strip_prefix(':').unwrap_or(""))
        } else {
            place.split_once(':').unwrap_or((place, ""))
        };
        if port.contains(':') {
            return Err("has an IPv6 address without brackets: write [::1]:5432".into());
        }
        // Perhaps the beginning of a password with a slash in it: not quoted.
        if !port.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(format!(
                "has a port that is not a number (or {})",
                encode("a password with a / in it").trim_start_matches("has ")
            ));
        }
        hosts.push(decoded(host)?);
        ports.push(port);
    }
    if hosts.iter().any(|host| !host.is_empty()) {
        words.take("host", hosts.join(","))?;
    }
    if ports.iter().any(|port| !port.is_empty()) {
        words.take("port", ports.join(","))?;
    }
    Ok(())
}

fn encode(what: &str) -> String {
    format!("has {what}: percent-encode it (@ is %40, / is %2F, ? is %3F, % is %25)")
}

fn decoded(text: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        rest = tail;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let digits = rest.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits
            .filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
            .and_then(|digits| u8::from_str_radix(digits, 16).ok())
            .ok_or("has a % that no two hexadecimal digits follow: a % itself is written %25")?;
        bytes.push(byte);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).map_err(|_| "has percent-encoded text that is not UTF-8".into())
}

fn of_pairs(text: &str) -> Result<Words, String> {
    let mut words = Taken::default();
    let mut rest = text.chars();
    loop {
        skip_spaces(&mut rest);
        if rest.as_str().is_empty() {
            return Ok(words.taken);
        }
        let end = rest.as_str().find(|c: char| c == '=' || c.is_ascii_whitespace()).unwrap_or(rest.as_str().len());
        let (key, tail) = rest.as_str().split_at(end);
        rest = tail.chars();
        skip_spaces(&mut rest);
        if rest.next() != Some('=') {
            return Err(
                "has a word without its =: write key=value pairs, a value with spaces in single quotes, or a URL \
                        that begins with postgresql://"
                    .into(),
            );
        }
        skip_spaces(&mut rest);
        let value = value(&mut rest)?;
        words.take(key, value)?;
    }
}

fn skip_spaces(rest: &mut Chars) {
    *rest = rest.as_str().trim_ascii_start().chars();
}

/// As libpq reads one: in single quotes or up to the next space, a backslash takes the next character as it is.
fn value(rest: &mut Chars) -> Result<String, String> {
    let quoted = rest.as_str().starts_with('\'');
    if quoted {
        rest.next();
    }
    let mut value = String::new();
    while let Some(c) = rest.next() {
        match c {
            '\\' => value.extend(rest.next()),
            '\'' if quoted => return Ok(value),
            c if !quoted && c.is_ascii_whitespace() => return Ok(value),
            c => value.push(c),
        }
    }
    if quoted {
        return Err("has a single quote without its end: inside quotes a ' is written \\'".into());
    }
    Ok(value)
}

/// What was read so far.
#[derive(Default)]
struct Taken {
    taken: Words,
    /// The key before was the password: what looks like a key may be its second half.
    after_password: bool,
}

impl Taken {
    /// An empty text says nothing, as a variable that is set to nothing.
    fn take(&mut self, key: &str, text: String) -> Result<(), String> {
        if self.after_password && !keys::is_libpqs(key) {
            return Err(
                "has an unknown key after the password: if it is a part of the password, write the password in \
                        single quotes (key=value) or percent-encode its & (URL)"
                    .into(),
            );
        }
        let known = keys::known(key).map_err(|reason| format!("has a key \"{key}\" that {reason}"))?;
        self.after_password = known == "password" && !text.is_empty();
        if text.contains('\0') {
            return Err(format!("has a zero byte in {known}"));
        }
        if !text.is_empty() && self.taken.insert(known, text).is_some() {
            return Err(format!("says {known} twice"));
        }
        Ok(())
    }
}
