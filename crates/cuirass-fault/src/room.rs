//! Memory of a size that a user's argument decides: asked for, since it may not be there, and an error where it is not.

use crate::Failure;
use std::fmt;

/// The items as a list.
///
/// # Errors
/// That there is no memory "for …".
pub fn list<T>(items: impl IntoIterator<Item = T>, what_for: &str) -> Result<Vec<T>, Failure> {
    let items = items.into_iter();
    let mut list = empty(items.size_hint().0, what_for)?;
    for item in items {
        if list.len() == list.capacity() && list.try_reserve(1).is_err() {
            return Err(Failure::no_memory(what_for));
        }
        list.push(item);
    }
    Ok(list)
}

/// An empty list that has room for so many items.
///
/// # Errors
/// That there is no memory "for …".
pub fn empty<T>(count: usize, what_for: &str) -> Result<Vec<T>, Failure> {
    let mut list = Vec::new();
    match list.try_reserve_exact(count) {
        Ok(()) => Ok(list),
        Err(_none) => Err(Failure::no_memory(what_for)),
    }
}

/// The parts one behind the other.
///
/// # Errors
/// That there is no memory "for …".
pub fn bytes(parts: &[&[u8]], what_for: &str) -> Result<Vec<u8>, Failure> {
    let length = parts.iter().fold(0_usize, |length, part| length.saturating_add(part.len()));
    let mut bytes = empty(length, what_for)?;
    parts.iter().for_each(|part| bytes.extend_from_slice(part));
    Ok(bytes)
}

/// A copy of a text.
///
/// # Errors
/// That there is no memory "for …".
pub fn text(text: &str, what_for: &str) -> Result<String, Failure> {
    let mut copy = String::new();
    match copy.try_reserve_exact(text.len()) {
        Ok(()) => {
            copy.push_str(text);
            Ok(copy)
        }
        Err(_none) => Err(Failure::no_memory(what_for)),
    }
}

/// The beginning of a user's text, for a message.
pub struct Short<'a>(pub &'a str);

/// So much of a text is told.
const TOLD: usize = 300;

impl fmt::Display for Short<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.len() <= TOLD {
            return f.write_str(self.0);
        }
        let end = (0..=TOLD).rev().find(|at| self.0.is_char_boundary(*at)).unwrap_or(0);
        write!(f, "{}… ({} bytes)", self.0.get(..end).unwrap_or(""), self.0.len())
    }
}

impl fmt::Debug for Short<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.len() <= TOLD { fmt::Debug::fmt(self.0, f) } else { write!(f, "\"{self}\"") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused<T: fmt::Debug>(result: Result<T, Failure>) -> String {
        result.map_err(Failure::raise).expect_err("there is memory").to_string()
    }

    #[test]
    fn what_there_is_no_memory_for_is_an_error() {
        assert_eq!(refused(empty::<u64>(usize::MAX / 8, "for a test")), "there is no memory for a test");
        assert_eq!(
            refused(list([0_u8; 4].iter().cycle().take(usize::MAX), "for a test")),
            "there is no memory for a test"
        );
        let same = list(1..4, "for a test").map_err(Failure::answered);
        assert_eq!(
            (same, bytes(&[b"ab", b"", b"c"], "").map_err(Failure::answered)),
            (Ok(vec![1, 2, 3]), Ok(b"abc".to_vec()))
        );
        assert_eq!(text("abc", "").map_err(Failure::answered), Ok("abc".to_owned()));
    }

    #[test]
    fn a_long_text_is_told_in_short() {
        assert_eq!(format!("{} {:?}", Short("abc"), Short("a\"b")), "abc \"a\\\"b\"");
        let long = format!("a{}", "ß".repeat(1000));
        let told = format!("{:?}", Short(&long));
        assert!(told.starts_with("\"aß") && told.ends_with("ß… (2001 bytes)\"") && told.len() < 330, "{told}");
    }
}
