//! What the simulated driver tells beside its answers: what is alive, and which bugs it saw. Nothing on a real one.

use cuirass_call::simulator;

/// What is alive, as it writes it: `{"stream":1,"event":0,…}`; `None` on a real driver.
pub fn census() -> Option<String> {
    simulator::text(simulator::Text::Census)
}

/// The number that its next report will have; `None` on a real driver.
pub fn mark() -> Option<u64> {
    simulator::reports_mark()
}

/// Its reports from a mark on, one JSON object each: bugs of the program that hardware may hide, and what it does not
/// simulate.
pub fn reports_since(mark: Option<u64>) -> Vec<String> {
    let text = mark.and_then(simulator::reports_since).unwrap_or_default();
    text.lines().map(ToOwned::to_owned).collect()
}

/// The reports from a mark on that are of mistakes: all but kernels' faults, and a private call of the real compiler's,
/// which the simulated driver refuses.
pub fn bugs_since(mark: Option<u64>) -> Vec<String> {
    let expected = ["\"kind\":\"fault\"", "\"kind\":\"unsupported\",\"call\":\"cuGetExportTable\""];
    let mut reports = reports_since(mark);
    reports.retain(|report| !expected.iter().any(|expected| report.contains(expected)));
    reports
}
