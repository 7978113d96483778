//! The bytes of protocol 3.0: what the server says, and how it reads what the client says.

use super::script::Report;
use super::{Ask, Column, Row};

pub const SSL_REQUEST: i32 = 80_877_103;
pub const CANCEL_REQUEST: i32 = 80_877_102;
pub const GSS_REQUEST: i32 = 80_877_104;
pub const PROTOCOL_3: i32 = 196_608;

pub const INT4: i32 = 23;
pub const INT8: i32 = 20;
pub const TEXT: i32 = 25;
pub const BYTEA: i32 = 17;
pub const INT8_ARRAY: i32 = 1016;

/// One message: its tag, its length, its body.
fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let length = i32::try_from(body.len() + 4).expect("a short message");
    [&[tag][..], &length.to_be_bytes(), body].concat()
}

pub fn authentication_ok() -> Vec<u8> {
    message(b'R', &0_i32.to_be_bytes())
}

pub fn password_request() -> Vec<u8> {
    message(b'R', &3_i32.to_be_bytes())
}

/// The parameters that a server tells after login, and the key for a CancelRequest.
pub fn greeting(connection: usize) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in [
        ("server_version", "18.0"),
        ("server_encoding", "UTF8"),
        ("client_encoding", "UTF8"),
        ("standard_conforming_strings", "on"),
        ("in_hot_standby", "off"),
        ("default_transaction_read_only", "off"),
    ] {
        out.extend(message(b'S', format!("{name}\0{value}\0").as_bytes()));
    }
    let id = i32::try_from(connection).expect("a small number").to_be_bytes();
    out.extend(message(b'K', &[id, id].concat()));
    out
}

pub fn ready(status: u8) -> Vec<u8> {
    message(b'Z', &[status])
}

pub fn complete(tag: &str) -> Vec<u8> {
    message(b'C', format!("{tag}\0").as_bytes())
}

pub fn report(tag: u8, report: &Report) -> Vec<u8> {
    let mut body = Vec::new();
    let detail = report.detail.as_deref().map(|detail| (b'D', detail));
    let fields = [
        (b'S', report.shown_severity.as_str()),
        (b'V', report.severity),
        (b'C', report.sqlstate.as_str()),
        (b'M', report.message.as_str()),
    ];
    for (field, value) in fields.into_iter().chain(detail) {
        body.push(field);
        body.extend_from_slice(value.as_bytes());
        body.push(0);
    }
    body.push(0);
    message(tag, &body)
}

/// ParseComplete, BindComplete, ParameterDescription of the acquire, and what the columns are.
pub fn described(columns: &[Column]) -> Vec<u8> {
    let mut out = message(b'1', &[]);
    out.extend(message(b'2', &[]));
    out.extend(message(b't', &0_i16.to_be_bytes()));
    let mut body = count(columns.len()).to_vec();
    for column in columns {
        body.extend_from_slice(column.name.as_bytes());
        body.extend_from_slice(&[0; 7]); // End of the name; table and column of origin: none.
        body.extend_from_slice(&column.oid.to_be_bytes());
        body.extend_from_slice(&(-1_i16).to_be_bytes()); // Size: varies.
        body.extend_from_slice(&(-1_i32).to_be_bytes()); // Modifier: none.
        body.extend_from_slice(&0_i16.to_be_bytes());
    }
    out.extend(message(b'T', &body));
    out
}

pub fn data(row: &Row) -> Vec<u8> {
    let mut body = count(row.columns().len()).to_vec();
    for column in row.columns() {
        put(&mut body, column);
    }
    message(b'D', &body)
}

/// The binary form of a composite value.
pub fn record(columns: &[Column]) -> Vec<u8> {
    let mut out = i32::try_from(columns.len()).expect("few columns").to_be_bytes().to_vec();
    for column in columns {
        out.extend_from_slice(&column.oid.to_be_bytes());
        put(&mut out, column);
    }
    out
}

fn put(out: &mut Vec<u8>, column: &Column) {
    match &column.value {
        None => out.extend_from_slice(&(-1_i32).to_be_bytes()),
        Some(value) => {
            out.extend_from_slice(&i32::try_from(value.len()).expect("a short value").to_be_bytes());
            out.extend_from_slice(value);
        }
    }
}

pub fn int8_array(values: &[i64]) -> Vec<u8> {
    let mut out = i32::from(!values.is_empty()).to_be_bytes().to_vec();
    out.extend_from_slice(&0_i32.to_be_bytes());
    out.extend_from_slice(&INT8.to_be_bytes());
    if !values.is_empty() {
        out.extend_from_slice(&i32::try_from(values.len()).expect("a short array").to_be_bytes());
        out.extend_from_slice(&1_i32.to_be_bytes());
        for value in values {
            out.extend_from_slice(&8_i32.to_be_bytes());
            out.extend_from_slice(&value.to_be_bytes());
        }
    }
    out
}

fn count(n: usize) -> [u8; 2] {
    i16::try_from(n).expect("few columns").to_be_bytes()
}

/// Reads a client's message from the front. Every step is `None` where the bytes end too early.
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(taken)
    }

    pub fn int2(&mut self) -> Option<usize> {
        let bytes = self.take(2)?.try_into().ok()?;
        usize::try_from(i16::from_be_bytes(bytes)).ok()
    }

    pub fn int4(&mut self) -> Option<i32> {
        Some(i32::from_be_bytes(self.take(4)?.try_into().ok()?))
    }

    pub fn text(&mut self) -> Option<String> {
        let end = self.0.iter().position(|byte| *byte == 0)?;
        let text = self.take(end)?;
        self.take(1)?;
        Some(String::from_utf8_lossy(text).into_owned())
    }
}

/// The pairs of a startup message, after its version.
pub fn startup_parameters(body: &[u8]) -> Vec<(String, String)> {
    let mut reader = Reader(body);
    let mut pairs = Vec::new();
    while let Some(name) = reader.text().filter(|name| !name.is_empty()) {
        pairs.push((name, reader.text().unwrap_or_default()));
    }
    pairs
}

/// The parameters of a Bind message, as they came.
pub fn bound(body: &[u8]) -> Option<Vec<Option<Vec<u8>>>> {
    let mut reader = Reader(body);
    reader.text()?;
    reader.text()?;
    let formats = reader.int2()?;
    reader.take(formats * 2)?;
    (0..reader.int2()?)
        .map(|_| match usize::try_from(reader.int4()?) {
            Ok(length) => Some(Some(reader.take(length)?.to_vec())),
            Err(_) => Some(None),
        })
        .collect()
}

/// The arguments of `call_budget_acquire`, from their binary form.
pub fn ask(parameters: &[Option<Vec<u8>>]) -> Option<Ask> {
    let [budget, class, lane, costs, patience_us, nonce] = parameters else { return None };
    let text = |value: &Option<Vec<u8>>| String::from_utf8(value.clone()?).ok();
    let int8 = |value: &Option<Vec<u8>>| Some(i64::from_be_bytes(value.as_deref()?.try_into().ok()?));
    Some(Ask {
        budget: text(budget)?,
        class: text(class)?,
        lane: int8(lane)?,
        costs: int4_array(costs.as_deref()?)?,
        patience_us: int8(patience_us)?,
        nonce: int8(nonce)?,
    })
}

fn int4_array(bytes: &[u8]) -> Option<Vec<i32>> {
    let mut reader = Reader(bytes);
    let dimensions = reader.int4()?;
    reader.take(8)?;
    if dimensions == 0 {
        return Some(Vec::new());
    }
    let length = reader.int4()?;
    reader.take(4)?;
    (0..length)
        .map(|_| {
            reader.take(4)?;
            reader.int4()
        })
        .collect()
}
