//! Which processes are alive.

use std::io;
use std::sync::OnceLock;

/// When a process was started, in the system's ticks: with its number that names it for good. `None` if it has ended.
///
/// # Errors
/// What keeps this process from asking.
pub fn started(process: u32) -> io::Result<Option<u64>> {
    let about = match std::fs::read_to_string(format!("/proc/{process}/stat")) {
        Ok(about) => about,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(None),
        Err(error) => return Err(error),
    };
    // The name, in parentheses, may hold anything.
    let mut fields = about.rsplit_once(')').map_or("", |(_, fields)| fields).split_ascii_whitespace();
    let ended = matches!(fields.next(), Some("Z" | "X" | "x"));
    let started = fields.nth(18).and_then(|started| started.parse().ok());
    let started = started.ok_or(io::ErrorKind::InvalidData)?;
    Ok((!ended).then_some(started))
}

/// When this process was started, if it can be told.
pub fn own_start() -> Option<u64> {
    static OWN: OnceLock<u64> = OnceLock::new();
    if OWN.get().is_none()
        && let Ok(Some(started)) = started(std::process::id())
    {
        OWN.get_or_init(|| started);
    }
    OWN.get().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_has_ended_is_not_alive_before_it_is_waited_for_either() {
        let me = started(std::process::id()).unwrap().unwrap();
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert!(started(child.id()).unwrap().is_some_and(|started| started >= me));
        child.kill().unwrap();
        let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while started(child.id()).unwrap().is_some() {
            assert!(std::time::Instant::now() < until, "a process that was killed still runs");
        }
        child.wait().unwrap();
        assert_eq!(started(child.id()).unwrap(), None);
    }
}
