//! The gauntlet's engine for the operations of the package: what `python/tests/gauntlet` rests on. Built with the
//! feature `gauntlet` alone, which no wheel that is shipped has.
//!
//! The sweep, the ledger and the judge are those of the Rust gauntlet (`cuirass-testkit`). An operation is a Python
//! object; what its exceptions and warnings say is read from them as a program would see it.

use cuirass_testkit::instrument::Instrument;
use cuirass_testkit::judge::Reported;
use cuirass_testkit::operation::{Allowed, Caller, Ends, Operation, Prepared};
use cuirass_testkit::sweep::{Extent, Sweep, World};
use cuirass_testkit::told::{Told, status_of_name};
use cuirass_testkit::{raw, runner};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::any::Any;
use std::process::Command;

/// Adds it to the module.
pub fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(_gauntlet_sweep, module)?)?;
    module.add_function(wrap_pyfunction!(_gauntlet_run, module)?)?;
    module.add_function(wrap_pyfunction!(_gauntlet_slice, module)?)?;
    module.add_function(wrap_pyfunction!(_gauntlet_current, module)?)?;
    module.add_function(wrap_pyfunction!(_gauntlet_waiting, module)?)?;
    module.add_function(wrap_pyfunction!(_gauntlet_waits_held, module)?)
}

/// The handle of what is current on this thread, asked past everything.
#[pyfunction]
fn _gauntlet_current() -> u64 {
    raw::current()
}

/// What waits to be released: what each is, and its handle.
#[pyfunction]
fn _gauntlet_waiting() -> Vec<(&'static str, u64)> {
    cuirass::testing::waiting_releases()
}

/// A mistake to be planted: a call that waits, made with the interpreter held.
#[pyfunction]
fn _gauntlet_waits_held(py: Python<'_>) -> PyResult<()> {
    crate::error::ask(py, || cuirass::Device::new(0)?.synchronize())
}

/// What `CUIRASS_GAUNTLET` asks for: a seed and one in how many; `None` for all.
#[pyfunction]
fn _gauntlet_slice() -> Option<(u64, u64)> {
    match runner::extent() {
        Extent::Full => None,
        Extent::Slice(seed, one_in) => Some((seed, one_in)),
    }
}

/// Runs jobs, each a command's arguments by its name, in processes of their own; prints the reproducers and totals, and
/// returns how many violations there were.
#[pyfunction]
fn _gauntlet_run(py: Python<'_>, what: &str, jobs: Vec<(String, Vec<String>)>) -> usize {
    py.detach(|| {
        let names: Vec<String> = jobs.iter().map(|(name, _)| name.clone()).collect();
        let (totals, violations) = runner::run_jobs(&names, |job| {
            let arguments = jobs.iter().find(|(name, _)| name == job).map(|(_, arguments)| arguments.as_slice());
            let (program, rest) = arguments.and_then(<[String]>::split_first).unzip();
            let mut command = Command::new(program.map_or("", String::as_str));
            command.args(rest.unwrap_or_default());
            command
        });
        runner::print(what, &totals, &violations);
        violations.len()
    })
}

/// Sweeps operations in this process. `whole`: all of each, whatever part was asked for. `told`: what comes of it is
/// told to the runner, and not printed. `fault`: loses the context of each first. Returns whether all was well.
#[pyfunction]
fn _gauntlet_sweep(
    py: Python<'_>,
    what: &str,
    operations: Vec<Py<PyAny>>,
    world: Py<PyAny>,
    whole: bool,
    told: bool,
    fault: Option<Py<PyAny>>,
) -> PyResult<bool> {
    let operations: Vec<Operation> =
        operations.into_iter().map(|operation| registered(operation.bind(py), &world)).collect::<PyResult<_>>()?;
    let announce: Box<dyn Fn(&str)> = if told { Box::new(runner::announce) } else { Box::new(|_run| {}) };
    let extent = if whole { Extent::Full } else { runner::extent() };
    let mut sweep = Sweep::new(
        Instrument::start_in(Box::new(crate::report::attachment(py)?)),
        world_of(py, &world),
        extent,
        announce,
    );
    let run = |sweep: &mut Sweep, operation: &Operation| match &fault {
        None => sweep.operation(operation),
        Some(fault) => sweep.faulted(operation, || method(&world, fault, "__call__").map(drop)),
    };
    if told {
        runner::child(sweep, &operations, run);
        return Ok(true);
    }
    for operation in &operations {
        run(&mut sweep, operation);
    }
    runner::print(what, &sweep.totals, &sweep.violations);
    Ok(sweep.violations.is_empty() && sweep.totals.operations > 0)
}

/// Calls a method; what it raises is read by the world's `told`, and is gone when this returns.
fn method(world: &Py<PyAny>, object: &Py<PyAny>, name: &str) -> Result<Py<PyAny>, Told> {
    Python::attach(|py| {
        let result = object.bind(py).call_method0(name);
        result.map(Bound::unbind).map_err(|error| told_of(py, world, error))
    })
}

/// What an exception tells: `(call, status, text, notes, sticky)`.
fn told_of(py: Python<'_>, world: &Py<PyAny>, error: PyErr) -> Told {
    type Facts = (String, Option<u32>, String, Vec<String>, bool);
    let text = error.to_string();
    let exception = error.into_value(py);
    let read =
        |exception: Py<PyAny>| -> PyResult<Facts> { world.bind(py).call_method1("told", (exception,))?.extract() };
    match read(exception.into_any()) {
        Ok((call, code, text, notes, is_sticky)) => Told { call, code, text, notes, is_sticky },
        Err(error) => Told::of(format!("{text}; reading it: {error}")),
    }
}

fn world_of(py: Python<'_>, world: &Py<PyAny>) -> World {
    let (contexts, resting, reporting) = (world.clone_ref(py), world.clone_ref(py), world.clone_ref(py));
    let context = move |caller| {
        let name = match caller {
            Caller::Nothing => return 0,
            Caller::Other => "other",
            Caller::Primary => "primary",
        };
        // A context that cannot be had is one that no driver has: making it current says so.
        Python::attach(|py| contexts.bind(py).call_method1("context", (name,))?.extract::<u64>()).unwrap_or(1)
    };
    World {
        context: Box::new(context),
        rest: Box::new(move || method(&resting, &resting, "rest").map(drop)),
        forget_pool: cuirass::testing::forget_imported_pool,
        reports: Some(Box::new(move || Python::attach(|py| reports_of(py, &reporting)))),
    }
}

/// The warnings since the last time, each with what was current while it was shown; whatever else Python was told past
/// its exceptions is there too, with no call, so that it is found.
fn reports_of(py: Python<'_>, world: &Py<PyAny>) -> Vec<Reported> {
    type Facts = (String, Option<String>, String, Vec<String>, u64);
    let reports = world.bind(py).call_method0("reports").and_then(|reports| reports.extract::<Vec<Facts>>());
    let reported = |(call, status, text, notes, current): Facts| {
        let code = status.as_deref().and_then(status_of_name);
        Reported { report: Told { call, code, text, notes, is_sticky: false }, current }
    };
    match reports {
        Ok(reports) => reports.into_iter().map(reported).collect(),
        Err(error) => vec![Reported { report: Told::of(format!("reading the reports: {error}")), current: 0 }],
    }
}

/// An operation with the objects that it needs, in Python.
struct Objects {
    world: Py<PyAny>,
    objects: Py<PyAny>,
}

impl Prepared for Objects {
    fn operate(&mut self) -> Result<Box<dyn Any>, Told> {
        method(&self.world, &self.objects, "operate").map(|made| Box::new(made) as Box<dyn Any>)
    }

    fn follow_up(&self) -> Result<(), Told> {
        method(&self.world, &self.objects, "follow_up").map(drop)
    }

    fn remarks(&mut self) -> Vec<String> {
        let texts = method(&self.world, &self.objects, "remarks");
        let read = |texts: Py<PyAny>| Python::attach(|py| texts.extract::<Vec<String>>(py));
        match texts.map(read) {
            Ok(Ok(texts)) => texts,
            Ok(Err(error)) => vec![error.to_string()],
            Err(told) => vec![told.text],
        }
    }
}

/// A Python operation as the sweep takes it. Names are kept for the process, which ends with the sweep.
fn registered(operation: &Bound<'_, PyAny>, world: &Py<PyAny>) -> PyResult<Operation> {
    let py = operation.py();
    let (object, keeper) = (operation.clone().unbind(), world.clone_ref(py));
    let prepare = move || {
        let objects = method(&keeper, &object, "prepare")?;
        let world = Python::attach(|py| keeper.clone_ref(py));
        Ok(Box::new(Objects { world, objects }) as Box<dyn Prepared>)
    };
    let mut made = Operation::prepared(text(operation, "name")?, prepare);
    made.case = text(operation, "case")?;
    made.ends = match text(operation, "ends")? {
        "raises" => Ends::Raises,
        "reports" => Ends::Reports,
        "makes no call" => Ends::MakesNoCall,
        other => return Err(PyValueError::new_err(format!("no operation ends so: {other}"))),
    };
    made.submits = operation.getattr("submits")?.extract()?;
    made.needs = operation.getattr("needs")?.extract()?;
    let callers: Vec<String> = operation.getattr("callers")?.extract()?;
    made.callers = callers.iter().map(|name| caller(name)).collect::<PyResult<_>>()?;
    for allowed in operation.getattr("allowed")?.try_iter()? {
        let (what, names, reason): (String, Vec<String>, String) = allowed?.extract()?;
        made.allowed.push((allow(&what, names)?, kept(reason)));
    }
    Ok(made)
}

fn caller(name: &str) -> PyResult<Caller> {
    match name {
        "nothing" => Ok(Caller::Nothing),
        "other" => Ok(Caller::Other),
        "primary" => Ok(Caller::Primary),
        other => Err(PyValueError::new_err(format!("no caller has {other} current"))),
    }
}

fn allow(what: &str, names: Vec<String>) -> PyResult<Allowed> {
    let words = names.join(" ");
    let names: Vec<&'static str> = names.into_iter().map(kept).collect();
    match what {
        "reported" => Ok(Allowed::Reported(names.leak())),
        "stays" => Ok(Allowed::Stays(names.leak())),
        "sets current" => Ok(Allowed::SetsCurrent),
        "leaks together" => Ok(Allowed::LeaksTogether(kept(words))),
        "says" => Ok(Allowed::Says(kept(words))),
        "keeps answers" => Ok(Allowed::KeepsAnswers),
        other => Err(PyValueError::new_err(format!("nothing is let pass as {other}"))),
    }
}

fn text(operation: &Bound<'_, PyAny>, name: &str) -> PyResult<&'static str> {
    Ok(kept(operation.getattr(name)?.extract()?))
}

fn kept(text: String) -> &'static str {
    text.leak()
}
