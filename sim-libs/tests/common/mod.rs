//! The simulated driver through its C ABI, and the recorded scenes.

#![allow(dead_code, unreachable_pub, clippy::missing_safety_doc, missing_docs)]

pub mod pair;

use serde_json::Value;
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{CStr, c_void};
use std::path::PathBuf;
use std::process::Command;

/// The library that cargo built beside this test.
pub fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let found = test.ancestors().skip(1).map(|folder| folder.join("libcuda.so")).find(|path| path.exists());
    found.expect("libcuda.so is built beside the tests")
}

/// The loaded driver.
pub struct Driver {
    library: libloading::os::unix::Library,
    found: RefCell<HashMap<&'static str, *mut c_void>>,
    /// Modules that a test could not unload at once.
    pub modules: RefCell<Vec<usize>>,
}

// SAFETY: [test] the table is only used from one thread at a time: each thread makes its own Driver.
unsafe impl Send for Driver {}

/// Arguments of a C call.
pub trait Args {
    unsafe fn call(self, function: *mut c_void) -> u32;
}

macro_rules! args {
    ($($name:ident)*) => {
        #[allow(non_snake_case)]
        impl<$($name),*> Args for ($($name,)*) {
            unsafe fn call(self, function: *mut c_void) -> u32 {
                // SAFETY: [test] the test names a function of these arguments.
                unsafe {
                    let function: unsafe extern "C" fn($($name),*) -> u32 = std::mem::transmute(function);
                    let ($($name,)*) = self;
                    function($($name),*)
                }
            }
        }
    };
}
args!();
args!(A);
args!(A B);
args!(A B C);
args!(A B C D);
args!(A B C D E);
args!(A B C D E F);
args!(A B C D E F G);
args!(A B C D E F G H);
args!(A B C D E F G H I);
args!(A B C D E F G H I J);
args!(A B C D E F G H I J K);

/// A null pointer of any kind.
pub const NULL: usize = 0;

impl Driver {
    /// Loads it; `cuInit` is left to the test.
    pub fn load() -> Self {
        // SAFETY: [test] the library has no initialiser that does anything.
        let library = unsafe { libloading::os::unix::Library::new(library()) }.unwrap();
        Self { library, found: RefCell::default(), modules: RefCell::default() }
    }

    /// Loads it, initialises it, and makes the primary context of device 0 current.
    pub fn ready() -> (Self, usize) {
        let driver = Self::load();
        driver.ok("cuInit", (0u32,));
        let context = driver.get("cuDevicePrimaryCtxRetain", |out| (out, 0i32));
        driver.ok("cuCtxSetCurrent", (context,));
        (driver, context)
    }

    /// The address of a function.
    pub fn address(&self, name: &'static str) -> *mut c_void {
        *self.found.borrow_mut().entry(name).or_insert_with(|| {
            // SAFETY: [test] only the address is taken.
            let symbol = unsafe { self.library.get::<*mut c_void>(name.as_bytes()) };
            symbol.unwrap_or_else(|_| panic!("{name} is not exported")).into_raw()
        })
    }

    /// The code that a call answers.
    pub fn code(&self, name: &'static str, args: impl Args) -> u32 {
        // SAFETY: [test] the test passes what the call wants.
        unsafe { args.call(self.address(name)) }
    }

    /// The status that a call answers, without `CUDA_ERROR_`.
    pub fn call(&self, name: &'static str, args: impl Args) -> String {
        let code = self.code(name, args);
        self.status(code)
    }

    /// The name of a code, without `CUDA_ERROR_`.
    pub fn status(&self, code: u32) -> String {
        let mut text: *const i8 = std::ptr::null();
        assert_eq!(self.code("cuGetErrorName", (code, &raw mut text)), 0, "{code} has no name");
        // SAFETY: [test] the driver's text lives for ever.
        let text = unsafe { CStr::from_ptr(text.cast()) }.to_str().unwrap();
        text.trim_start_matches("CUDA_ERROR_").trim_start_matches("CUDA_").to_owned()
    }

    /// A call that must succeed.
    pub fn ok(&self, name: &'static str, args: impl Args) {
        assert_eq!(self.call(name, args), "SUCCESS", "{name}");
    }

    /// A call that must succeed and gives a pointer-sized value.
    pub fn get<A: Args>(&self, name: &'static str, args: impl FnOnce(*mut usize) -> A) -> usize {
        let mut value = 0;
        self.ok(name, args(&raw mut value));
        value
    }

    /// A new stream; `flags` 1 is non-blocking.
    pub fn stream(&self, flags: u32) -> usize {
        self.get("cuStreamCreate", |out| (out, flags))
    }

    /// A new event.
    pub fn event(&self, flags: u32) -> usize {
        self.get("cuEventCreate", |out| (out, flags))
    }

    /// New device memory.
    pub fn memory(&self, bytes: usize) -> usize {
        self.get("cuMemAlloc_v2", |out| (out, bytes))
    }

    /// The capture status of a stream.
    pub fn capturing(&self, stream: usize) -> (String, Value) {
        let mut status = 9u32;
        let answer = self.call("cuStreamIsCapturing", (stream, &raw mut status));
        let name = ["NONE", "ACTIVE", "INVALIDATED"].get(status as usize).copied();
        (answer, name.map_or(Value::Null, Value::from))
    }

    /// The reports so far.
    pub fn reports(&self) -> String {
        self.reports_since(0)
    }

    /// The reports from a mark on.
    pub fn reports_since(&self, mark: u64) -> String {
        self.text(|text, room| {
            // SAFETY: [test] the signature is the documented one.
            unsafe {
                let reports: unsafe extern "C" fn(u64, *mut u8, usize) -> usize =
                    std::mem::transmute(self.address("cuirass_sim_reports"));
                reports(mark, text, room)
            }
        })
    }

    /// The census.
    pub fn census(&self) -> Value {
        self.facts("cuirass_sim_census")
    }

    /// Configuration, devices and contexts.
    pub fn state(&self) -> Value {
        self.facts("cuirass_sim_state")
    }

    fn facts(&self, name: &'static str) -> Value {
        let text = self.text(|text, room| {
            // SAFETY: [test] the signature is the documented one.
            unsafe {
                let facts: unsafe extern "C" fn(*mut u8, usize) -> usize = std::mem::transmute(self.address(name));
                facts(text, room)
            }
        });
        serde_json::from_str(&text).unwrap()
    }

    fn text(&self, read: impl Fn(*mut u8, usize) -> usize) -> String {
        let mut bytes = vec![0; read(std::ptr::null_mut(), 0) + 1];
        let len = read(bytes.as_mut_ptr(), bytes.len());
        bytes.truncate(len);
        String::from_utf8(bytes).unwrap()
    }
}

/// Runs a test in a process of its own: the driver's state belongs to the process.
pub fn alone(name: &str, config: &str, body: impl FnOnce()) {
    const MARK: &str = "CUIRASS_SIM_TEST";
    if std::env::var(MARK).is_ok_and(|running| running == name) {
        body();
        return;
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args([name, "--exact", "--nocapture", "--test-threads=1"]).env(MARK, name);
    child.env("CUIRASS_SIM", if config.is_empty() { "quiet=1".to_owned() } else { format!("quiet=1,{config}") });
    let output = child.output().unwrap();
    assert!(
        output.status.success(),
        "{name}: {}\n{}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// The facts' folder.
pub fn facts() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../facts")
}

/// The entries of the list of intended differences.
pub fn differences() -> Vec<String> {
    let text = std::fs::read_to_string(facts().join("differences.toml")).unwrap();
    text.split("[[difference]]").skip(1).map(str::to_owned).collect()
}

/// A recorded scene, compared step by step.
pub struct Scene {
    name: &'static str,
    steps: std::vec::IntoIter<Value>,
    wrong: Vec<String>,
}

impl Scene {
    pub fn new(name: &'static str) -> Self {
        let text = std::fs::read_to_string(facts().join("scenes.jsonl")).unwrap();
        let scenes = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let scene = scenes.into_iter().find(|scene| scene["scene"] == name).expect("the scene is recorded");
        let steps = scene["steps"].as_array().unwrap().clone().into_iter();
        Self { name, steps, wrong: Vec::new() }
    }

    /// A step that answers a status.
    pub fn step(&mut self, step: &str, status: String) {
        self.with(step, status, None);
    }

    /// A step that answers a status and a value.
    pub fn value(&mut self, step: &str, status: String, value: impl Into<Value>) {
        self.with(step, status, Some(value.into()));
    }

    fn with(&mut self, step: &str, status: String, value: Option<Value>) {
        let want = self.steps.next().unwrap_or_else(|| panic!("{}: no step {step}", self.name));
        assert_eq!(want["step"], step, "{}: steps are replayed in order", self.name);
        if want["status"] != status.as_str() {
            self.wrong.push(format!("{step}: {status}, the real driver {}", want["status"]));
        }
        if let Some(wanted) = want.get("value")
            && value.as_ref() != Some(wanted)
        {
            self.wrong.push(format!("{step}: value {value:?}, the real driver {wanted}"));
        }
    }

    /// Leaves a step out, which the list of differences must name.
    pub fn skip(&mut self, step: &str) {
        let want = self.steps.next().unwrap();
        assert_eq!(want["step"], step, "{}: steps are replayed in order", self.name);
        let listed = differences().into_iter().find(|entry| entry.contains(&format!("scene = {:?}", self.name)));
        assert!(
            listed.is_some_and(|entry| entry.contains(&format!("{step:?}"))),
            "{}: {step} is not listed",
            self.name
        );
    }

    /// All steps were there, and all answered alike.
    pub fn end(mut self) {
        let left: Vec<Value> = self.steps.by_ref().collect();
        assert!(left.is_empty(), "{}: not replayed: {left:?}", self.name);
        assert!(self.wrong.is_empty(), "{}:\n  {}", self.name, self.wrong.join("\n  "));
    }
}
