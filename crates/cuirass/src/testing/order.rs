//! What the simulated driver finds about the order of work on different streams.

use crate::driver::initialized;
use crate::{Outcome, Result};
use cuirass_call::simulator as call;
use cuirass_fault::{Failure, Misuse};

/// A use of memory that no order between streams makes safe.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OrderFinding {
    /// Which rule it breaks: `race`, `use before ready` (memory of a pool in a stream that does not wait for its
    /// allocation), `use after release`, `release too early`, `host read too early`, `host write too early`.
    pub rule: String,
    /// The call that it is about.
    pub call: String,
    /// A sentence that names both places.
    pub text: String,
}

/// While it lives the simulated driver compares what the work on each stream touches, byte by byte. Two uses of the same
/// memory, one of which writes, are found where nothing puts them in order (an event that one stream records and the other
/// waits for, a wait of the host between the two, the legacy default stream, an edge of a graph), even if one happened to
/// run after the other this time. What counts, and what is not seen, is in Python's `cuirass.sim.check_order`.
///
/// ```no_run
/// use cuirass::testing::OrderCheck;
/// # fn main() -> cuirass::Result<()> {
/// # let device = cuirass::Device::new(0)?;
/// # let (one, other) = (device.create_stream(&Default::default())?, device.create_stream(&Default::default())?);
/// # let buffer = device.memory_resource()?.allocate(256, &one)?;
/// # one.synchronize()?;
/// let check = OrderCheck::start()?;
/// buffer.fill(1, &one)?;
/// // The other stream does not wait for that.
/// # #[allow(unsafe_code)]
/// unsafe { buffer.fill_unordered(&[2], &other)? };
/// assert_eq!(check.end()?[0].rule, "race");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "nothing is checked any more when this is dropped"]
pub struct OrderCheck {
    mark: u64,
    is_on: bool,
}

impl OrderCheck {
    /// Begins to check; what is under way already is not looked at. Checks may overlap.
    ///
    /// # Errors
    /// [`ErrorKind::State`](crate::ErrorKind::State) on a driver that is not the simulated one; what `cuInit` answers.
    pub fn start() -> Result<OrderCheck> {
        initialized()?;
        turn(true)?;
        Ok(OrderCheck { mark: call::reports_mark().unwrap_or(0), is_on: true })
    }

    /// What was found since it began, by the work that has run.
    pub fn findings(&self) -> Vec<OrderFinding> {
        let reports = call::reports_since(self.mark).unwrap_or_default();
        reports.lines().filter_map(finding).collect()
    }

    /// Waits until all work is done, or has had 10 seconds, and returns what was found.
    ///
    /// # Errors
    /// [`ErrorKind::State`](crate::ErrorKind::State) if the simulated driver refuses.
    pub fn end(mut self) -> Result<Vec<OrderFinding>> {
        self.is_on = false;
        turn(false)?;
        Ok(self.findings())
    }
}

impl Drop for OrderCheck {
    fn drop(&mut self) {
        if self.is_on
            && let Err(failure) = turn(false)
        {
            failure.report("ending a check of the order between streams");
        }
    }
}

fn turn(on: bool) -> Outcome<()> {
    let message = match call::check_order(on) {
        Some(0) => return Ok(()),
        Some(other) => format!("the simulated driver answered {other} where its checker was to be turned on or off"),
        None => {
            "the order between streams is checked by the simulated driver alone, and another one is in use".to_owned()
        }
    };
    Err(Failure::misuse(Misuse::State, message))
}

/// What a report says, `{"number":0,"kind":"order","call":"…","text":"RULE: …"}`, if it is of the checker.
fn finding(report: &str) -> Option<OrderFinding> {
    let (_number, rest) = report.split_once("\"kind\":\"order\",\"call\":\"")?;
    let (call, text) = rest.strip_suffix("\"}")?.split_once("\",\"text\":\"")?;
    let text = unescaped(text);
    let (rule, text) = text.split_once(": ").unwrap_or(("", &text));
    Some(OrderFinding { rule: rule.to_owned(), call: unescaped(call), text: text.to_owned() })
}

/// What a JSON string says.
fn unescaped(string: &str) -> String {
    let (mut text, mut rest) = (String::with_capacity(string.len()), string.chars());
    while let Some(letter) = rest.next() {
        let meant = match letter {
            '\\' => match rest.next() {
                Some('n') => Some('\n'),
                Some('r') => Some('\r'),
                Some('t') => Some('\t'),
                Some('u') => {
                    let digits: String = rest.by_ref().take(4).collect();
                    u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32)
                }
                other => other,
            },
            letter => Some(letter),
        };
        text.extend(meant);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_as_it_was_written() {
        let report = r#"{"number":7,"kind":"order","call":"cuMemsetD8Async","text":"race: \"a\"\\b\n\u0007c: d"}"#;
        let read = finding(report).map(|found| (found.rule, found.call, found.text));
        let wanted = ("race".to_owned(), "cuMemsetD8Async".to_owned(), "\"a\"\\b\n\u{7}c: d".to_owned());
        assert_eq!(read, Some(wanted));
        assert_eq!(finding(r#"{"number":7,"kind":"bug","call":"cuInit","text":"race: no"}"#), None);
    }
}
