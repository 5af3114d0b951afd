//! Finding and loading the libraries. Nothing is loaded before a call needs it, and a failed attempt leaves no trace:
//! the next one fails, or succeeds, on its own.

use crate::table::{CallInfo, in_forked_child};
use cuirass_fault::{Absence, Library};
use libloading::os::unix::{Library as Shared, RTLD_LOCAL, RTLD_NOW};
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::{Mutex, OnceLock, PoisonError};

/// The oldest driver that cuirass works with: CUDA 12.0, the first with `cuGetProcAddress_v2`.
pub const OLDEST_DRIVER: u32 = 12000;

const DRIVER_NAMES: [&str; 2] = ["libcuda.so.1", "libcuda.so"];
const NVRTC_NAMES: [&str; 3] = ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"];
/// An export that only the simulated driver has.
const SIMULATOR_MARK: &str = "cuirass_sim_version";

/// Which driver is to be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The system's driver.
    Gpu,
    /// The simulated driver; the path of its library, or where it is found by itself.
    Simulator(Option<PathBuf>),
}

struct Loaded {
    library: Shared,
    path: String,
    version: u32,
    is_simulator: bool,
    /// `cuGetProcAddress_v2`; none for a library that is asked by name.
    get_proc_address: Option<GetProcAddress>,
    describe: Option<Describe>,
}

type GetProcAddress = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64, *mut c_int) -> u32;
type DescribeDriver = unsafe extern "C" fn(u32, *mut *const c_char) -> u32;
type DescribeNvrtc = unsafe extern "C" fn(u32) -> *const c_char;

#[derive(Clone, Copy)]
enum Describe {
    Driver(DescribeDriver),
    Nvrtc(DescribeNvrtc),
}

static DRIVER: OnceLock<Loaded> = OnceLock::new();
static NVRTC: OnceLock<Loaded> = OnceLock::new();
/// Held while a library is being loaded, so that it is loaded once; nothing else is done under it.
static LOADING: Mutex<()> = Mutex::new(());
static CHOICE: Mutex<Option<Choice>> = Mutex::new(None);
static NVRTC_PATH: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Chooses the driver; before the first call. False: a driver of the other kind is loaded already.
pub fn choose_driver(choice: Choice) -> bool {
    if let Some(loaded) = DRIVER.get() {
        return loaded.is_simulator == matches!(choice, Choice::Simulator(_));
    }
    *CHOICE.lock().unwrap_or_else(PoisonError::into_inner) = Some(choice);
    true
}

/// Which driver will be, or is, used: what was chosen, else what `CUIRASS_DRIVER` says.
pub fn choice() -> Result<Choice, Absence> {
    if let Some(choice) = CHOICE.lock().unwrap_or_else(PoisonError::into_inner).clone() {
        return Ok(choice);
    }
    match std::env::var_os("CUIRASS_DRIVER").as_deref().and_then(OsStr::to_str) {
        None | Some("" | "gpu") => Ok(Choice::Gpu),
        Some("sim") => Ok(Choice::Simulator(None)),
        Some(other) => {
            Err(Absence::Library(format!("CUIRASS_DRIVER={other}: it can be 'gpu' or 'sim' (the simulated driver)")))
        }
    }
}

/// Where NVRTC is, told before its first use. It goes before every other place.
pub fn set_nvrtc_path(path: PathBuf) {
    *NVRTC_PATH.lock().unwrap_or_else(PoisonError::into_inner) = Some(path);
}

/// The library that is loaded: its path, its CUDA version if it has one, whether it is the simulated driver. Loads
/// nothing.
pub fn loaded(library: Library) -> Option<(String, u32, bool)> {
    let slot = match library {
        Library::Driver => &DRIVER,
        _ => &NVRTC,
    };
    slot.get().map(|loaded| (loaded.path.clone(), loaded.version, loaded.is_simulator))
}

/// Whether the driver, which is loaded if it is not yet, is of this version or newer: 12030 for 12.3.
#[inline]
pub(crate) fn is_since(version: u32) -> bool {
    match DRIVER.get() {
        Some(loaded) => loaded.version >= version,
        None => driver_version().is_ok_and(|found| found >= version),
    }
}

/// The version of the driver, which is loaded if it is not yet: 12030 for 12.3.
pub fn driver_version() -> Result<u32, Absence> {
    Ok(driver()?.version)
}

/// A function of the simulated driver's own, by name; `None` on a real driver.
pub fn simulator_symbol(name: &str) -> Option<NonNull<c_void>> {
    let loaded = driver().ok().filter(|loaded| loaded.is_simulator)?;
    symbol(&loaded.library, name)
}

/// The library's own text for a status; `None` while the library is not loaded.
pub fn description(library: Library, code: u32) -> Option<String> {
    let slot = if library == Library::Driver { &DRIVER } else { &NVRTC };
    let mut text: *const c_char = std::ptr::null();
    match slot.get()?.describe? {
        Describe::Driver(describe) => {
            // SAFETY: [entry-signature] cuGetErrorString, looked up by name; `text` is written on success.
            if unsafe { describe(code, &raw mut text) } != 0 {
                return None;
            }
        }
        // SAFETY: [entry-signature] nvrtcGetErrorString, looked up by name.
        Describe::Nvrtc(describe) => text = unsafe { describe(code) },
    }
    if text.is_null() {
        return None;
    }
    // SAFETY: [library-text] the libraries return texts of their own that live as long as they are loaded.
    Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// Looks a call up.
pub(crate) fn entry_point(call: &CallInfo) -> Result<NonNull<()>, Absence> {
    let loaded = if call.library == Library::Driver { driver()? } else { nvrtc()? };
    let missing = || Absence::EntryPoint { needs: call.since, found: loaded.version };
    let Some(get_proc_address) = loaded.get_proc_address else {
        return symbol(&loaded.library, call.name).map(NonNull::cast).ok_or_else(missing);
    };
    if call.since > loaded.version {
        return Err(missing());
    }
    let name = CString::new(call.symbol).map_err(|_nul| missing())?;
    let mut found: *mut c_void = std::ptr::null_mut();
    let mut query = 0;
    let version = c_int::try_from(call.since).map_err(|_range| missing())?;
    // SAFETY: [entry-signature] cuGetProcAddress_v2, looked up by name; the two results are written on success.
    let code = unsafe { get_proc_address(name.as_ptr(), &raw mut found, version, 0, &raw mut query) };
    if code != 0 { Err(missing()) } else { NonNull::new(found).map(NonNull::cast).ok_or_else(missing) }
}

fn driver() -> Result<&'static Loaded, Absence> {
    once(&DRIVER, load_driver)
}

fn nvrtc() -> Result<&'static Loaded, Absence> {
    once(&NVRTC, load_nvrtc)
}

fn once(
    slot: &'static OnceLock<Loaded>,
    load: impl FnOnce() -> Result<Loaded, Absence>,
) -> Result<&'static Loaded, Absence> {
    if let Some(loaded) = slot.get() {
        return Ok(loaded);
    }
    let _loading = LOADING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(loaded) = slot.get() {
        return Ok(loaded);
    }
    let loaded = load()?;
    Ok(slot.get_or_init(|| loaded))
}

fn load_driver() -> Result<Loaded, Absence> {
    let (library, path) = match choice()? {
        Choice::Gpu => open_first(DRIVER_NAMES.iter().map(PathBuf::from)).map_err(|tried| {
            Absence::Library(format!(
                "no CUDA driver was found ({tried}). Install NVIDIA's driver, or use the simulated driver, which needs \
                 no GPU: set CUIRASS_DRIVER=sim in the environment"
            ))
        })?,
        Choice::Simulator(path) => open_simulator(path)?,
    };
    let version = driver_library_version(&library, &path)?;
    let get_proc_address = symbol(&library, "cuGetProcAddress_v2");
    let (Some(get_proc_address), OLDEST_DRIVER..) = (get_proc_address, version) else {
        return Err(Absence::Library(format!(
            "the CUDA driver {path} is of CUDA {}.{}; cuirass needs 12.0 or newer",
            version / 1000,
            version % 1000 / 10
        )));
    };
    // SAFETY: [entry-signature] the exported functions of these names have had these signatures since they exist.
    let (get_proc_address, describe) = unsafe {
        (
            std::mem::transmute::<*mut c_void, GetProcAddress>(get_proc_address.as_ptr()),
            symbol(&library, "cuGetErrorString").map(|describe| {
                Describe::Driver(std::mem::transmute::<*mut c_void, DescribeDriver>(describe.as_ptr()))
            }),
        )
    };
    let is_simulator = symbol(&library, SIMULATOR_MARK).is_some();
    // SAFETY: [fork-handler] the handler only stores to atomics.
    let registered = unsafe { libc::pthread_atfork(None, None, Some(in_forked_child)) };
    if registered != 0 {
        return Err(Absence::Library(format!("pthread_atfork failed ({registered}): out of memory")));
    }
    Ok(Loaded { library, path, version, is_simulator, get_proc_address: Some(get_proc_address), describe })
}

fn driver_library_version(library: &Shared, path: &str) -> Result<u32, Absence> {
    let Some(get_version) = symbol(library, "cuDriverGetVersion") else {
        return Err(Absence::Library(format!("{path} is no CUDA driver: it has no cuDriverGetVersion")));
    };
    let mut version: c_int = 0;
    // SAFETY: [entry-signature] cuDriverGetVersion, looked up by name; it may be called before cuInit.
    let code = unsafe {
        let get_version: unsafe extern "C" fn(*mut c_int) -> u32 = std::mem::transmute(get_version.as_ptr());
        get_version(&raw mut version)
    };
    if code == 0 {
        Ok(u32::try_from(version).unwrap_or(0))
    } else {
        let configured = std::env::var("CUIRASS_SIM").ok().filter(|_| symbol(library, SIMULATOR_MARK).is_some());
        Err(Absence::Library(match configured {
            Some(words) => format!("the simulated driver refused CUIRASS_SIM={words}; its report on stderr says why"),
            None => format!("{path}: cuDriverGetVersion returned {code}"),
        }))
    }
}

fn open_simulator(path: Option<PathBuf>) -> Result<(Shared, String), Absence> {
    if let Some(other) = already_open("libcuda.so.1") {
        return match symbol(&other, SIMULATOR_MARK) {
            Some(_) => Ok((other, "libcuda.so.1".to_owned())),
            None => Err(Absence::Library(
                "the simulated driver was asked for, but another libcuda.so.1 is loaded in this process; choose it \
                 before anything else loads CUDA"
                    .to_owned(),
            )),
        };
    }
    let places = match path.or_else(|| std::env::var_os("CUIRASS_SIM_LIBRARY").map(PathBuf::from)) {
        Some(path) => vec![path],
        None => beside_executable(),
    };
    open_first(places.into_iter()).map_err(|tried| {
        Absence::Library(format!(
            "the simulated driver's library was not found ({tried}). The Python package brings it; in the repository, \
             `cargo build -p cuirass-sim-libs` makes target/debug/libcuda.so. Set CUIRASS_SIM_LIBRARY to its path"
        ))
    })
}

/// Where cargo puts it: beside the program, or above it for tests and examples.
fn beside_executable() -> Vec<PathBuf> {
    let Ok(program) = std::env::current_exe() else { return Vec::new() };
    program.ancestors().skip(1).take(3).map(|folder| folder.join("libcuda.so")).collect()
}

fn load_nvrtc() -> Result<Loaded, Absence> {
    let mut places = Vec::new();
    places.extend(NVRTC_PATH.lock().unwrap_or_else(PoisonError::into_inner).clone());
    let told = std::env::var_os("CUIRASS_NVRTC").filter(|path| !path.is_empty()).map(PathBuf::from);
    places.extend(told.clone().filter(|told| !places.contains(told)));
    if told.is_none() {
        for home in ["CUDA_PATH", "CUDA_HOME"] {
            if let Some(home) = std::env::var_os(home) {
                places.extend(NVRTC_NAMES.iter().map(|name| Path::new(&home).join("lib64").join(name)));
            }
        }
        places.extend(NVRTC_NAMES.iter().map(PathBuf::from));
        places.extend(in_virtual_environment());
    }
    let (library, path) = open_first(places.into_iter()).map_err(|tried| {
        Absence::Library(match &told {
            // What was asked for and is not there is not replaced by something else.
            Some(_) => format!(
                "the compiler library NVRTC was not found: CUIRASS_NVRTC names what cannot be loaded ({tried}). It is \
                 the path of libnvrtc.so.13 or libnvrtc.so.12; what pip install nvidia-cuda-nvrtc installs is found \
                 without it"
            ),
            None => format!(
                "the compiler library NVRTC was not found ({tried}). Install it (pip install nvidia-cuda-nvrtc), and set \
                 CUIRASS_NVRTC to the path of libnvrtc.so.13 where it is not found by itself"
            ),
        })
    })?;
    if symbol(&library, "nvrtcVersion").is_none() {
        let by = if told.is_some_and(|told| told == Path::new(&path)) { ", which CUIRASS_NVRTC names," } else { "" };
        return Err(Absence::Library(format!(
            "{path}{by} is no NVRTC: it has no nvrtcVersion. CUIRASS_NVRTC is the path of libnvrtc.so.13 or libnvrtc.so.12"
        )));
    }
    open_builtins(Path::new(&path));
    // SAFETY: [entry-signature] nvrtcGetErrorString and nvrtcVersion have these signatures in every version.
    let describe = symbol(&library, "nvrtcGetErrorString").map(|describe| unsafe {
        Describe::Nvrtc(std::mem::transmute::<*mut c_void, DescribeNvrtc>(describe.as_ptr()))
    });
    let mut version = 0;
    if let Some(get_version) = symbol(&library, "nvrtcVersion") {
        let (mut major, mut minor): (c_int, c_int) = (0, 0);
        // SAFETY: [entry-signature] as above; both results are written.
        let code = unsafe {
            let get_version: unsafe extern "C" fn(*mut c_int, *mut c_int) -> u32 =
                std::mem::transmute(get_version.as_ptr());
            get_version(&raw mut major, &raw mut minor)
        };
        if code == 0 {
            version = u32::try_from(major * 1000 + minor * 10).unwrap_or(0);
        }
    }
    Ok(Loaded { library, path, version, is_simulator: false, get_proc_address: None, describe })
}

/// Where pip puts NVRTC in an active virtual environment.
fn in_virtual_environment() -> Vec<PathBuf> {
    let Some(root) = std::env::var_os("VIRTUAL_ENV") else { return Vec::new() };
    let Ok(entries) = std::fs::read_dir(Path::new(&root).join("lib")) else { return Vec::new() };
    let folders = entries.flatten().map(|entry| entry.path().join("site-packages/nvidia/cu13/lib"));
    folders.map(|folder| folder.join(NVRTC_NAMES[0])).filter(|path| path.exists()).collect()
}

/// NVRTC opens a second library, of built-in functions, by its bare name when it first compiles: it is put where that
/// finds it. Where there is none beside NVRTC, it has to be on the loader's path, and NVRTC says so if it is not.
fn open_builtins(nvrtc: &Path) {
    let Some(folder) = nvrtc.parent().filter(|folder| folder.is_absolute()) else { return };
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let is_builtins = name.to_str().is_some_and(|name| name.starts_with("libnvrtc-builtins.so."));
        if !is_builtins {
            continue;
        }
        // SAFETY: [library-load] the library that belongs to the NVRTC beside it.
        if let Ok(library) = unsafe { Shared::open(Some(entry.path()), RTLD_NOW | RTLD_LOCAL) } {
            // It stays loaded, as NVRTC does.
            let _handle = library.into_raw();
        }
    }
}

fn open_first(places: impl Iterator<Item = PathBuf>) -> Result<(Shared, String), String> {
    let mut tried = Vec::new();
    for place in places {
        // SAFETY: [library-load] the places name CUDA libraries; their initialisers have no preconditions.
        match unsafe { Shared::open(Some(&place), RTLD_NOW | RTLD_LOCAL) } {
            Ok(library) => return Ok((library, place.display().to_string())),
            Err(error) => tried.push(format!("{}: {}", place.display(), cause(&error))),
        }
    }
    Err(if tried.is_empty() { "nowhere to look".to_owned() } else { tried.join("; ") })
}

/// What the loader said, without libloading's own words around it.
fn cause(error: &libloading::Error) -> String {
    let text = std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
    match text.split_once(": ") {
        // The loader begins with the name, which the caller has said already.
        Some((name, rest)) if name.contains(".so") || name.starts_with('/') => rest.to_owned(),
        _ => text,
    }
}

fn already_open(name: &str) -> Option<Shared> {
    // SAFETY: [library-load] nothing is loaded; a library that is there already is only held.
    unsafe { Shared::open(Some(name), RTLD_NOW | libc::RTLD_NOLOAD) }.ok()
}

fn symbol(library: &Shared, name: &str) -> Option<NonNull<c_void>> {
    // SAFETY: [library-load] only the address is taken; who uses it states its type.
    let found = unsafe { library.get::<*mut c_void>(name.as_bytes()) }.ok()?;
    NonNull::new(found.as_raw_ptr())
}

/// The number of the calling thread: what `pthread_self` says.
pub fn thread_number() -> u64 {
    // SAFETY: [own-thread] it reads the calling thread's own pointer.
    unsafe { libc::pthread_self() as u64 }
}
