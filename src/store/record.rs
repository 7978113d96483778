//! A row in one piece: PostgreSQL's binary form of a composite value, as its `record_send` makes it.
//!
//! Why: thirteen columns cost a caller about 30 us more than one column that holds the same thirteen values. The server
//! looks each of them up, describes it and puts it through a tuple store, and the client reads all that.

use tokio_postgres::types::{FromSql, Type};

/// The values that are still to be read, in the order of the composite type. Each was sent with the OID of its type.
pub(super) struct Record<'a>(&'a [u8]);

/// It is no record, it ends too early, or a value has another type.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed;

impl<'a> Record<'a> {
    pub fn read(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut record = Self(bytes);
        // How many there are. What is missing is seen where it is read; what is too many belongs to a later release.
        record.int4()?;
        Ok(record)
    }

    /// The next value. `None` is NULL.
    pub fn next<T: FromSql<'a>>(&mut self) -> Result<Option<T>, Malformed> {
        let oid = self.int4()?.cast_unsigned();
        let of_type = Type::from_oid(oid).filter(T::accepts).ok_or(Malformed)?;
        let Ok(length) = usize::try_from(self.int4()?) else { return Ok(None) };
        let value = self.take(length)?;
        T::from_sql(&of_type, value).map(Some).map_err(|_| Malformed)
    }

    fn int4(&mut self) -> Result<i32, Malformed> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or(Malformed)?;
        self.0 = rest;
        Ok(i32::from_be_bytes(*bytes))
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(values: &[(Type, Option<&[u8]>)]) -> Vec<u8> {
        let mut bytes = i32::try_from(values.len()).unwrap().to_be_bytes().to_vec();
        for (of_type, value) in values {
            bytes.extend(of_type.oid().to_be_bytes());
            bytes.extend(value.map_or(-1, |value| i32::try_from(value.len()).unwrap()).to_be_bytes());
            bytes.extend(value.unwrap_or_default());
        }
        bytes
    }

    #[test]
    fn values_come_in_order_and_null_is_none() {
        let bytes = record(&[
            (Type::INT4, Some(&7_i32.to_be_bytes())),
            (Type::TEXT, None),
            (Type::TEXT, Some(b"paused")),
            (Type::INT8, Some(&(-1_i64).to_be_bytes())),
        ]);
        let mut record = Record::read(&bytes).unwrap();
        assert_eq!(record.next::<i32>(), Ok(Some(7)));
        assert_eq!(record.next::<&str>(), Ok(None));
        assert_eq!(record.next::<&str>(), Ok(Some("paused")));
        assert_eq!(record.next::<i64>(), Ok(Some(-1)));
        assert_eq!(record.next::<i64>(), Err(Malformed), "there is no fifth");
    }

    #[test]
    fn another_type_is_refused_even_as_null() {
        for value in [Some(&[0, 0, 0, 1][..]), None] {
            let bytes = record(&[(Type::INT4, value)]);
            assert_eq!(Record::read(&bytes).unwrap().next::<i64>(), Err(Malformed), "{value:?}");
        }
        let unknown = [1_i32.to_be_bytes(), i32::MAX.to_be_bytes(), 0_i32.to_be_bytes()].concat();
        assert_eq!(Record::read(&unknown).unwrap().next::<i64>(), Err(Malformed));
    }

    #[test]
    fn wherever_it_is_cut_off_it_is_refused() {
        let bytes = record(&[(Type::INT8, Some(&1_i64.to_be_bytes()))]);
        for end in 0..bytes.len() {
            let read = Record::read(&bytes[..end]).and_then(|mut record| record.next::<i64>());
            assert_eq!(read, Err(Malformed), "{end} bytes");
        }
    }
}
