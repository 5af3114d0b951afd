//! Which processes are alive.

use std::sync::OnceLock;

/// When a process was started, in the system's ticks, if it still runs: with its number that names it for good.
pub fn started(process: u32) -> Option<u64> {
    let about = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name, in parentheses, may hold anything.
    let mut fields = about.rsplit_once(')')?.1.split_ascii_whitespace();
    let runs = !matches!(fields.next()?, "Z" | "X" | "x");
    let started = fields.nth(18)?.parse().ok()?;
    runs.then_some(started)
}

/// When this process was started.
pub fn own_start() -> Option<u64> {
    static OWN: OnceLock<Option<u64>> = OnceLock::new();
    *OWN.get_or_init(|| started(std::process::id()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_has_ended_is_not_alive_before_it_is_waited_for_either() {
        let me = started(std::process::id()).unwrap();
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert!(started(child.id()).is_some_and(|started| started >= me));
        child.kill().unwrap();
        let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while started(child.id()).is_some() {
            assert!(std::time::Instant::now() < until, "a process that was killed still runs");
        }
        child.wait().unwrap();
        assert_eq!(started(child.id()), None);
    }
}
