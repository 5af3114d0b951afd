//! The runner: a process for each family, so that one that ends is a finding and not the end of the gauntlet.

use crate::judge::Finding;
use crate::operation::Operation;
use crate::sweep::{Extent, Sweep, Totals, Violation};
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// How long one run may take before it is said to hang.
const PATIENCE: Duration = Duration::from_secs(60);

/// Sweeps operations in this process, or does with them what `how` says, and tells the runner on stdout.
pub fn child(mut sweep: Sweep, operations: &[Operation], how: impl Fn(&mut Sweep, &Operation)) {
    for operation in operations {
        how(&mut sweep, operation);
        for violation in sweep.violations.drain(..) {
            tell(&line_of(&violation));
        }
    }
    let Totals { operations, calls, faults, without_census } = sweep.totals;
    tell(&format!("totals\t{operations}\t{calls}\t{faults}\t{without_census}"));
}

/// Tells the runner which run comes next.
pub fn announce(run: &str) {
    tell(&format!("run\t{}", escaped(run)));
}

fn tell(line: &str) {
    let mut out = std::io::stdout().lock();
    // Without a runner nobody is told.
    drop(writeln!(out, "{line}").and_then(|()| out.flush()));
}

/// Runs jobs, each in a process of its own, made by `command`; as many at once as there are processors.
pub fn run_jobs(jobs: &[String], command: impl Fn(&str) -> Command + Sync) -> (Totals, Vec<Violation>) {
    let queue = Mutex::new(jobs.iter());
    let found = Mutex::new((Totals::default(), Vec::new()));
    let workers = thread::available_parallelism().map_or(1, usize::from).min(jobs.len());
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let next = queue.lock().unwrap_or_else(PoisonError::into_inner).next();
                    let Some(job) = next else { return };
                    let (totals, violations) = run_job(job, command(job));
                    let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                    found.0.operations += totals.operations;
                    found.0.calls += totals.calls;
                    found.0.faults += totals.faults;
                    found.0.without_census += totals.without_census;
                    found.1.extend(violations);
                }
            });
        }
    });
    found.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn run_job(job: &str, mut command: Command) -> (Totals, Vec<Violation>) {
    let mut child = match command.stdout(Stdio::piped()).spawn() {
        Ok(child) => child,
        Err(error) => return (Totals::default(), vec![ended(job, "starting", &error.to_string())]),
    };
    let (send, lines) = mpsc::channel();
    let reader = child.stdout.take().map(|out| {
        thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    return;
                }
            }
        })
    });
    let (mut totals, mut violations, mut last, mut complete) = (Totals::default(), Vec::new(), String::new(), false);
    loop {
        match lines.recv_timeout(PATIENCE) {
            Ok(line) => {
                let parts: Vec<&str> = line.split('\t').collect();
                match parts.as_slice() {
                    ["run", run] => last = unescaped(run),
                    ["totals", numbers @ ..] => {
                        let number = |at: usize| numbers.get(at).and_then(|text| text.parse().ok()).unwrap_or(0);
                        let (operations, calls, faults) = (number(0), number(1), number(2));
                        totals = Totals { operations, calls, faults, without_census: number(3) };
                        complete = true;
                    }
                    ["violation", fields @ ..] => violations.extend(violation_of(fields)),
                    _ => println!("{line}"),
                }
            }
            Err(RecvTimeoutError::Timeout) => {
                violations.push(ended(job, &last, &format!("it hangs for {} seconds", PATIENCE.as_secs())));
                complete = true;
                if child.kill().is_err() {
                    break;
                }
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    let status = wait(&mut child);
    if let Some(reader) = reader
        && reader.join().is_err()
    {
        violations.push(ended(job, &last, "reading what it said panicked"));
    }
    if !complete {
        violations.push(ended(job, &last, &status));
    }
    (totals, violations)
}

fn wait(child: &mut Child) -> String {
    child.wait().map_or_else(|error| error.to_string(), |status| format!("the process ended: {status}"))
}

/// A process that ended, or hangs: check 6.
fn ended(job: &str, run: &str, how: &str) -> Violation {
    let operation = run.split("; ").next().filter(|name| !name.is_empty()).unwrap_or(job).to_owned();
    let finding = Finding { check: 6, expected: "the process lives".to_owned(), seen: how.to_owned() };
    Violation { operation, run: run.to_owned(), order: (0, 0), finding }
}

/// Prints the shortest reproducer of each kind of violation, and the totals.
pub fn print(what: &str, totals: &Totals, violations: &[Violation]) {
    let mut kinds: BTreeMap<(&str, u8), Vec<&Violation>> = BTreeMap::new();
    for violation in violations {
        kinds.entry((&violation.operation, violation.finding.check)).or_default().push(violation);
    }
    for ((operation, check), mut all) in kinds {
        all.sort_by_key(|violation| (violation.order, violation.run.len()));
        let Some(shortest) = all.first() else { continue };
        println!("\nviolation of check {check} in {operation} ({} runs); the shortest:", all.len());
        println!("  run:      {}", shortest.run);
        println!("  expected: {}", shortest.finding.expected);
        println!("  seen:     {}", shortest.finding.seen.replace('\n', "\n            "));
    }
    if totals.without_census > 0 {
        println!(
            "{} runs without the census and the simulator's reports: a real driver has none",
            totals.without_census
        );
    }
    let Totals { operations, calls, faults, .. } = totals;
    println!("{what}: {operations} operations, {calls} calls, {faults} faults, {} violations", violations.len());
}

/// What the environment variable `CUIRASS_GAUNTLET` asks for: `full`, or `slice:SEED`, about one run in three, which is
/// the default; `slice:SEED/20` is one run in twenty, for a real driver, where making a context takes long.
pub fn extent() -> Extent {
    let wanted = std::env::var("CUIRASS_GAUNTLET").unwrap_or_default();
    if wanted == "full" || (wanted.is_empty() && std::env::var_os("CUIRASS_SOAK").is_some()) {
        return Extent::Full;
    }
    let slice = wanted.strip_prefix("slice:").unwrap_or("1");
    let (seed, one_in) = slice.split_once('/').unwrap_or((slice, "3"));
    Extent::Slice(seed.parse().unwrap_or(1), one_in.parse().unwrap_or(3).max(1))
}

fn line_of(violation: &Violation) -> String {
    let Violation { operation, run, order, finding } = violation;
    let [operation, run, expected, seen] = [operation, run, &finding.expected, &finding.seen].map(|text| escaped(text));
    format!("violation\t{operation}\t{run}\t{}\t{}\t{}\t{expected}\t{seen}", order.0, order.1, finding.check)
}

fn violation_of(fields: &[&str]) -> Option<Violation> {
    let [operation, run, faults, first, check, expected, seen] = fields else { return None };
    let finding = Finding { check: check.parse().ok()?, expected: unescaped(expected), seen: unescaped(seen) };
    let order = (faults.parse().ok()?, first.parse().ok()?);
    Some(Violation { operation: unescaped(operation), run: unescaped(run), order, finding })
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\n").replace('\t', "\\t")
}

fn unescaped(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        plain.push(match (c, c == '\\') {
            (_, true) => match rest.next() {
                Some('n') => '\n',
                Some('t') => '\t',
                Some(other) => other,
                None => break,
            },
            (c, false) => c,
        });
    }
    plain
}
