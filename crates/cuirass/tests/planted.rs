//! The gauntlet finds what it is there for: six mistakes, each planted in a copy of the sources, each found with a
//! message that names it. `make gauntlet` runs this; it compiles the crate once for each, which takes a minute.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use cuirass_testkit::calls::repository;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A mistake, and how the gauntlet has to find it.
struct Planted {
    /// What is wrong.
    what: &'static str,
    /// The file, and what is replaced in it, by what.
    file: &'static str,
    original: &'static str,
    mistaken: &'static str,
    /// The operation that shows it, and what the gauntlet says.
    operation: &'static str,
    says: [&'static str; 2],
}

const PLANTED: [Planted; 6] = [
    Planted {
        what: "drops a status",
        file: "stream.rs",
        original: "Ok(call::synchronize(self.as_raw())?)",
        mistaken: "call::synchronize(self.as_raw()).unwrap_or_else(Failure::answered);\n        Ok(())",
        operation: "Stream::synchronize",
        says: ["violation of check 1 in Stream::synchronize", "CUDA_ERROR_UNKNOWN of cuStreamSynchronize raised"],
    },
    Planted {
        what: "forgets a restore",
        file: "context/scope.rs",
        original: "    let result = operation();\n    match entered.restore() {\n        Ok(()) => result,\n        \
                   Err(restoring) => not_kept(",
        mistaken: "    let result = operation();\n    if result.is_err() {\n        return result;\n    }\n    \
                   match entered.restore() {\n        Ok(()) => result,\n        Err(restoring) => not_kept(",
        operation: "Event::create",
        says: ["violation of check 2 in Event::create", "context 0x0 current"],
    },
    Planted {
        what: "leaks on a failed step",
        file: "context/scope.rs",
        original: "Err(undone(target, failure, || undo(made)))",
        mistaken: "Err(if false { undone(target, failure, || undo(made)) } else { failure })",
        operation: "Event::create",
        says: ["violation of check 3 in Event::create", "still alive: event 0x"],
    },
    Planted {
        what: "reports before restoring",
        file: "context/scope.rs",
        original: "    let Some(entered) = entered else { return operation() };\n    let result = operation();\n",
        mistaken: "    let Some(entered) = entered else { return operation() };\n    let result = operation();\n    \
                   if let Err(failure) = result {\n        failure.report(\"releasing something\");\n        \
                   return entered.restore();\n    }\n",
        operation: "Buffer (dropped)",
        says: ["violation of check 2 in Buffer (dropped)", "was current while it was reported: "],
    },
    Planted {
        what: "destroys twice",
        file: "event.rs",
        original: "        call::destroy(event)\n    }",
        mistaken: "        call::destroy(event).or_else(|failure| {\n            failure.answered();\n            \
                   call::destroy(event)\n        })\n    }",
        operation: "Event::close",
        says: ["violation of check 4 in Event::close", "cuEventDestroy_v2 releases event 0x"],
    },
    Planted {
        what: "blames a later call",
        file: "stream.rs",
        original: "Ok(call::query(self.as_raw())?)",
        mistaken: "static PARKED: cuirass_fault::lock::Mutex<Option<Failure>> = cuirass_fault::lock::Mutex::new(None);\n        \
                   let earlier = PARKED.lock().take();\n        \
                   if let Some(earlier) = earlier {\n            return Err(earlier.raise());\n        }\n        \
                   match call::query(self.as_raw()) {\n            Ok(done) => Ok(done),\n            \
                   Err(failure) => {\n                *PARKED.lock() = Some(failure);\n                \
                   Ok(false)\n            }\n        }",
        operation: "Stream::is_done",
        says: ["violation of check 1 in Stream::is_done", "success: nothing failed"],
    },
];

#[test]
#[ignore = "compiles six patched copies: make gauntlet"]
fn planted_mistakes_are_found() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("planted");
    let tree = copy_of_the_sources(&folder);
    let (found, text) = gauntlet(&tree, &folder, "Event::close");
    assert!(found, "the copy itself is well:\n{text}");
    for planted in &PLANTED {
        let file = tree.join("crates/cuirass/src").join(planted.file);
        let source = fs::read_to_string(&file).unwrap();
        assert_eq!(
            source.matches(planted.original).count(),
            1,
            "{}: {} does not have its text once: bring this test up to date",
            planted.what,
            planted.file
        );
        fs::write(&file, source.replace(planted.original, planted.mistaken)).unwrap();
        let (well, text) = gauntlet(&tree, &folder, planted.operation);
        fs::write(&file, source).unwrap();
        assert!(!well, "nobody saw that the source {}", planted.what);
        for says in planted.says {
            assert!(text.contains(says), "{}: {says:?} is not in\n{text}", planted.what);
        }
        let message = text.lines().skip_while(|line| !line.contains(planted.says[0])).take(4);
        println!("{}:\n{}\n", planted.what, message.collect::<Vec<_>>().join("\n"));
    }
}

/// Runs one operation's sweep in the copy: whether it found nothing, and what it said.
fn gauntlet(tree: &Path, folder: &Path, operation: &str) -> (bool, String) {
    let output = Command::new(env!("CARGO"))
        .args(["test", "--offline", "--quiet", "-p", "cuirass", "--test", "gauntlet", "--", "--operation", operation])
        .current_dir(tree)
        .env("CARGO_TARGET_DIR", folder.join("target"))
        .env("CUIRASS_SIM_LIBRARY", simulator())
        .env("CUIRASS_SIM", "quiet=1")
        .env_remove("CUIRASS_DRIVER")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("gauntlet: "), "it did not run:\n{text}");
    (output.status.success(), text)
}

/// The simulated driver that this very test would use.
fn simulator() -> PathBuf {
    if let Some(path) = std::env::var_os("CUIRASS_SIM_LIBRARY") {
        return PathBuf::from(path);
    }
    let program = std::env::current_exe().unwrap();
    let beside = program.ancestors().skip(1).take(3).map(|folder| folder.join("libcuda.so"));
    beside.into_iter().find(|path| path.exists()).expect("cargo build -p cuirass-sim-libs")
}

/// The crates that the gauntlet is made of, as a workspace of their own.
fn copy_of_the_sources(folder: &Path) -> PathBuf {
    const CRATES: [&str; 5] = ["cuirass", "cuirass-call", "cuirass-fault", "cuirass-sys", "cuirass-testkit"];
    let (from, to) = (repository(), folder.join("tree"));
    for name in CRATES {
        copy(&from.join("crates").join(name), &to.join("crates").join(name));
    }
    copy(&from.join("families"), &to.join("families"));
    copy(&from.join("python/cuirass/demo_kernels.cu"), &to.join("python/cuirass/demo_kernels.cu"));
    copy(&from.join("Cargo.lock"), &to.join("Cargo.lock"));
    let workspace = fs::read_to_string(from.join("Cargo.toml")).unwrap();
    let (head, rest) = workspace.split_once("members = [").unwrap();
    let (_, rest) = rest.split_once(']').unwrap();
    fs::write(to.join("Cargo.toml"), format!("{head}members = [\"crates/*\"]{rest}")).unwrap();
    to
}

/// Makes a file or a folder the same as another. What is so already is left alone, so that it is not compiled again.
fn copy(from: &Path, to: &Path) {
    if from.is_dir() {
        fs::create_dir_all(to).unwrap();
        for entry in fs::read_dir(to).unwrap() {
            let there = entry.unwrap().path();
            if !from.join(there.file_name().unwrap()).exists() {
                if there.is_dir() { fs::remove_dir_all(there).unwrap() } else { fs::remove_file(there).unwrap() }
            }
        }
        for entry in fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            copy(&entry.path(), &to.join(entry.file_name()));
        }
        return;
    }
    let Ok(bytes) = fs::read(from) else { return };
    if fs::read(to).is_ok_and(|there| there == bytes) {
        return;
    }
    fs::create_dir_all(to.parent().unwrap()).unwrap();
    fs::write(to, bytes).unwrap();
}
