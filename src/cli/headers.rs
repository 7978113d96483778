//! The headers that a call needs. Their values may be keys: no message shows one.

use std::path::{Path, PathBuf};

use clap::Args;
use hyper::header::{HeaderName, HeaderValue};
use hyper::http::HeaderMap;

use super::command_error::CommandError;

/// Options of a command that calls a vendor.
#[derive(Args)]
pub struct Headers {
    /// 'name: value', may be repeated; values are never printed
    #[arg(long = "header", value_name = "HEADER")]
    headers: Vec<String>,
    /// A file with a header on each line, so that no process list shows a key
    #[arg(long, value_name = "FILE")]
    header_file: Option<PathBuf>,
}

impl Headers {
    /// Those that were given. What is none is refused by its place.
    pub fn read(&self) -> Result<HeaderMap, CommandError> {
        read(&self.headers, self.header_file.as_deref())
    }
}

/// Those of the command line and then those of the file, which may have empty lines and lines that begin with `#`.
fn read(given: &[String], file: Option<&Path>) -> Result<HeaderMap, CommandError> {
    let mut headers = HeaderMap::new();
    for (index, text) in given.iter().enumerate() {
        add(&mut headers, text).map_err(|why| wrong(&format!("--header number {} {why}", index + 1)))?;
    }
    if let Some(path) = file {
        let text = std::fs::read_to_string(path)
            .map_err(|error| CommandError::usage(format!("the header file {path:?} cannot be read: {error}")))?;
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if !line.is_empty() && !line.starts_with('#') {
                add(&mut headers, line).map_err(|why| wrong(&format!("line {} of {path:?} {why}", index + 1)))?;
            }
        }
    }
    Ok(headers)
}

fn add(headers: &mut HeaderMap, text: &str) -> Result<(), &'static str> {
    let (name, value) = text.split_once(':').ok_or("has no colon")?;
    let name = HeaderName::try_from(name.trim()).map_err(|_| "has a name that no header can have")?;
    let mut value = HeaderValue::try_from(value.trim()).map_err(|_| "has a value that no header can have")?;
    value.set_sensitive(true);
    headers.append(name, value);
    Ok(())
}

fn wrong(what: &str) -> CommandError {
    CommandError::usage(what).hint("write 'name: value'")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_come_from_the_command_line_and_from_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("headers");
        std::fs::write(&file, "# KIS\n\nappkey: not-a-real-key\nx:  a:b \n").unwrap();
        let headers = read(&["tr_id: FHKST01010100".into()], Some(&file)).unwrap();
        assert_eq!(
            (headers["tr_id"].as_bytes(), headers["appkey"].as_bytes()),
            (&b"FHKST01010100"[..], &b"not-a-real-key"[..])
        );
        assert_eq!(headers["x"], "a:b");
        assert!(!format!("{headers:?}").contains("not-a-real-key"));
    }

    #[test]
    fn what_is_no_header_is_named_by_its_place_and_never_shown() {
        for text in ["not-a-real-key", "bad name: not-a-real-key", "name: not-a-real-key\u{7}"] {
            let error = read(&["a: b".into(), text.into()], None).unwrap_err().to_string();
            assert!(error.contains("--header number 2") && !error.contains("not-a-real-key"), "{error}");
        }
    }
}
