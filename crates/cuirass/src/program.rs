//! Programs: CUDA C++ source, compiled by NVRTC.

use crate::device::Device;
use crate::module::{CodeKind, ObjectCode};
use crate::{Outcome, Result};
use cuirass_call::owner::{Kind, Owned};
use cuirass_call::program as call;
use cuirass_call::sys::nvrtc::nvrtcProgram;
use cuirass_fault::{Failure, Misuse, room};
use smallvec::SmallVec;
use std::collections::HashMap;
use std::ffi::{CStr, CString};

struct ProgramKind;

impl Kind for ProgramKind {
    const NAME: &'static str = "a program";
    type Raw = nvrtcProgram;
    type Parent = ();

    fn release(program: nvrtcProgram, (): ()) -> Outcome<()> {
        call::destroy_program(program)
    }
}

/// How a program is compiled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgramOptions {
    /// The name that messages have.
    pub name: Option<String>,
    /// `sm_90`, `compute_90`, …; without it, NVRTC's own default.
    pub arch: Option<String>,
    /// NVRTC's own options, one text each: `--std=c++17`, `-I…`, `-DNAME=1`.
    pub options: Vec<String>,
    /// Headers that the source may include: names and texts.
    pub headers: Vec<(String, String)>,
    /// Expressions whose names in the code are wanted: `scale<float>`.
    pub name_expressions: Vec<String>,
}

impl ProgramOptions {
    /// For the architecture of a device.
    ///
    /// # Errors
    /// What the driver answers to the question for it.
    pub fn for_device(device: Device) -> Result<ProgramOptions> {
        let (major, minor) = device.compute_capability()?;
        Ok(ProgramOptions { arch: Some(format!("sm_{major}{minor}")), ..ProgramOptions::default() })
    }
}

/// A program: source that has been given to NVRTC.
pub struct Program {
    owned: Owned<ProgramKind>,
    name: String,
    arguments: Vec<CString>,
    name_expressions: Vec<(String, CString)>,
}

/// What a compilation made.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// The code.
    pub code: ObjectCode,
    /// The compiler's log, warnings among it; empty where it had nothing to say.
    pub log: String,
}

impl Program {
    /// Gives source to NVRTC (`nvrtcCreateProgram`). Nothing is compiled yet.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) without NVRTC;
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for a text with NUL in it.
    pub fn new(source: &str, options: &ProgramOptions) -> Result<Program> {
        Ok(Program::create(source, options)?)
    }

    fn create(source: &str, options: &ProgramOptions) -> Outcome<Program> {
        crate::deferred::before_creating()?;
        let name = room::text(options.name.as_deref().unwrap_or("default_program"), FOR_A_COPY)?;
        let mut headers = room::empty(options.headers.len(), FOR_A_COPY)?;
        for (name, text) in &options.headers {
            headers.push((c_text(&[name], "a header's name")?, c_text(&[text], "a header")?));
        }
        let mut arguments = room::empty(options.options.len().saturating_add(1), FOR_A_COPY)?;
        if let Some(arch) = &options.arch {
            arguments.push(c_text(&["-arch=", arch], "the architecture")?);
        }
        for option in &options.options {
            arguments.push(c_text(&[option], "an option")?);
        }
        let mut name_expressions = room::empty(options.name_expressions.len(), FOR_A_COPY)?;
        for expression in &options.name_expressions {
            name_expressions.push((room::text(expression, FOR_A_COPY)?, c_text(&[expression], "a name expression")?));
        }
        let pairs = headers.iter().map(|(name, text)| (name.as_c_str(), text.as_c_str()));
        let pairs: Vec<(&CStr, &CStr)> = room::list(pairs, FOR_A_COPY)?;
        let raw = call::create_program(&c_text(&[source], "the source")?, &c_text(&[&name], "the name")?, &pairs)?;
        let owned = Owned::new(raw, ());
        for (_, expression) in &name_expressions {
            if let Err(failure) = call::add_name_expression(raw, expression) {
                return Err(match owned.close() {
                    Ok(()) => failure,
                    Err(undoing) => undoing.attach_to(failure, "the program was not undone"),
                });
            }
        }
        Ok(Program { owned, name, arguments, name_expressions })
    }

    /// The driver's handle.
    pub fn as_raw(&self) -> nvrtcProgram {
        self.owned.raw()
    }

    /// Compiles to PTX.
    ///
    /// # Errors
    /// [`ErrorKind::Compiler`](crate::ErrorKind::Compiler), with the whole log.
    pub fn compile_to_ptx(&self) -> Result<ObjectCode> {
        Ok(self.compile(CodeKind::Ptx)?.code)
    }

    /// Compiles to a device's native code; the PTX that goes with it is kept for the simulated device.
    ///
    /// # Errors
    /// As [`compile_to_ptx`](Program::compile_to_ptx).
    pub fn compile_to_cubin(&self) -> Result<ObjectCode> {
        Ok(self.compile(CodeKind::Cubin)?.code)
    }

    /// Compiles, and returns the compiler's log too.
    ///
    /// # Errors
    /// As [`compile_to_ptx`](Program::compile_to_ptx); [`ErrorKind::Value`](crate::ErrorKind::Value) for a kind that
    /// NVRTC does not make.
    pub fn compile(&self, kind: CodeKind) -> Result<Compiled> {
        Ok(self.compile_inner(kind)?)
    }

    fn compile_inner(&self, kind: CodeKind) -> Outcome<Compiled> {
        let raw = self.owned.raw();
        let lto = c"-dlto";
        let mut arguments: Vec<&CStr> = room::list(self.arguments.iter().map(CString::as_c_str), FOR_A_COPY)?;
        match kind {
            CodeKind::Ptx | CodeKind::Cubin => {}
            CodeKind::LtoIr => {
                if !arguments.contains(&lto) {
                    arguments.push(lto);
                }
            }
            other => {
                return Err(Failure::misuse(
                    Misuse::Value,
                    format!("NVRTC makes ptx, cubin and ltoir, not {}", other.name()),
                ));
            }
        }
        let compiled = call::compile_program(raw, &arguments);
        let log = call::get_program_log(raw).map(|log| text_of(&log));
        let log = match (compiled, log) {
            (Ok(()), log) => log?,
            (Err(failure), Ok(log)) => {
                let failure = if log.contains(NO_HEADER) { failure.note(WHERE_HEADERS_ARE) } else { failure };
                return Err(failure.log(log));
            }
            (Err(failure), Err(reading)) => return Err(reading.attach_to(failure, "the log could not be read")),
        };
        let (bytes, ptx) = match kind {
            CodeKind::Ptx => (without_nul(call::get_ptx(raw)?), None),
            CodeKind::LtoIr => (call::get_ltoir(raw)?, None),
            _ => {
                let ptx = without_nul(call::get_ptx(raw)?);
                (call::get_cubin(raw)?, Some(ptx))
            }
        };
        let mut symbols = HashMap::new();
        if symbols.try_reserve(self.name_expressions.len()).is_err() {
            return Err(Failure::no_memory("for the names of the symbols"));
        }
        for (expression, text) in &self.name_expressions {
            symbols.insert(room::text(expression, FOR_A_COPY)?, call::get_lowered_name(raw, text)?);
        }
        Ok(Compiled { code: ObjectCode::compiled(kind, bytes, ptx, &self.name, symbols), log })
    }

    /// Gives the program back to NVRTC.
    ///
    /// # Errors
    /// What `nvrtcDestroyProgram` answers.
    pub fn close(self) -> Result<()> {
        Ok(self.owned.close()?)
    }
}

/// NVRTC's version: major and minor.
///
/// # Errors
/// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) without NVRTC.
pub fn compiler_version() -> Result<(i32, i32)> {
    Ok(call::version()?)
}

/// What NVRTC says of a header that it does not find.
const NO_HEADER: &str = "could not open source file";
const WHERE_HEADERS_ARE: &str = "the compiler looks for headers only where it is told to: include_path in Python's \
                                 ProgramOptions, \"-I...\" among the options in Rust; those of the toolkit are in its \
                                 folder include";

const FOR_A_COPY: &str = "for a copy of the program";

/// The parts as one text for the compiler.
fn c_text(parts: &[&str], what: &str) -> Outcome<CString> {
    let whole = parts.iter().map(|part| part.as_bytes());
    let whole: SmallVec<[&[u8]; 3]> = whole.chain(std::iter::once(&[0_u8][..])).collect();
    CString::from_vec_with_nul(room::bytes(&whole, FOR_A_COPY)?)
        .map_err(|_nul| Failure::misuse(Misuse::Value, format!("{what} has a NUL in it")))
}

fn without_nul(mut bytes: Vec<u8>) -> Vec<u8> {
    if bytes.last() == Some(&0) {
        bytes.truncate(bytes.len() - 1);
    }
    bytes
}

fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_end_matches('\0').trim().to_owned()
}
