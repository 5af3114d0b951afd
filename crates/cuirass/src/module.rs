//! Loaded code: object code, kernels and their attributes.
#![allow(unsafe_code)]

use crate::context::{Context, Identity, capture, scope};
use crate::device::Device;
use crate::stream::Stream;
use crate::{Outcome, Result};
use cuirass_call::launch as occupancy;
use cuirass_call::load;
use cuirass_call::module as call;
use cuirass_call::owner::{Kind, Opaque, Owned};
use cuirass_call::status::code;
use cuirass_call::sys::cuda::{CUcontext, CUfunction, CUfunction_attribute, CUkernel, CUlibrary};
use cuirass_fault::{Failure, Library, Misuse, room};
use std::collections::HashMap;
use std::ffi::CString;
use std::sync::{Arc, OnceLock};

const OTHER_NAME: &str = "a kernel that is not declared extern \"C\" has another name in the code than in the source: \
                          compile with its name among the name expressions";

/// An attribute of a kernel: the driver's numbers, by the driver's names.
pub type KernelAttribute = CUfunction_attribute;

/// What object code is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CodeKind {
    /// The virtual machine's text.
    Ptx,
    /// A device's native code.
    Cubin,
    /// Code for the linker's optimiser; it cannot be loaded.
    LtoIr,
    /// Several of these in one.
    Fatbin,
    /// An object file, for the linker.
    Object,
    /// An archive of them, for the linker.
    Library,
}

impl CodeKind {
    /// `ptx`, `cubin`, …
    pub fn name(self) -> &'static str {
        match self {
            CodeKind::Ptx => "ptx",
            CodeKind::Cubin => "cubin",
            CodeKind::LtoIr => "ltoir",
            CodeKind::Fatbin => "fatbin",
            CodeKind::Object => "object",
            CodeKind::Library => "library",
        }
    }
}

struct LibraryKind;

impl Kind for LibraryKind {
    const NAME: &'static str = "loaded code";
    type Raw = CUlibrary;
    type Parent = ();

    fn release(library: CUlibrary, (): ()) -> Outcome<()> {
        capture::release(format_args!("library {library:p}"), || call::library_unload(library))
    }

    fn waits((): &()) -> bool {
        true
    }
}

/// Compiled code. It is loaded when a kernel of it is first asked for, and unloaded with its last kernel.
#[derive(Clone)]
pub struct ObjectCode(Arc<Code>);

struct Code {
    name: String,
    kind: CodeKind,
    bytes: Vec<u8>,
    /// The PTX that was compiled beside a cubin: what the simulated device runs.
    ptx: Option<Vec<u8>>,
    /// Names in the source to names in the code.
    symbols: HashMap<String, String>,
    library: OnceLock<Arc<Owned<LibraryKind>>>,
}

impl ObjectCode {
    /// Object code from its bytes.
    pub fn new(kind: CodeKind, bytes: impl Into<Vec<u8>>) -> ObjectCode {
        ObjectCode::with_symbols(kind, bytes, "", HashMap::new())
    }

    /// Object code with a name of its own, and the names that symbols have in it.
    pub fn with_symbols(
        kind: CodeKind,
        bytes: impl Into<Vec<u8>>,
        name: &str,
        symbols: HashMap<String, String>,
    ) -> ObjectCode {
        ObjectCode::compiled(kind, bytes.into(), None, name, symbols)
    }

    pub(crate) fn compiled(
        kind: CodeKind,
        bytes: Vec<u8>,
        ptx: Option<Vec<u8>>,
        name: &str,
        symbols: HashMap<String, String>,
    ) -> ObjectCode {
        ObjectCode(Arc::new(Code { name: name.to_owned(), kind, bytes, ptx, symbols, library: OnceLock::new() }))
    }

    /// The same code, not loaded yet, with the PTX that was compiled beside it: for code that was stored.
    #[must_use]
    pub fn with_companion_ptx(self, ptx: Option<Vec<u8>>) -> ObjectCode {
        match Arc::try_unwrap(self.0) {
            Ok(code) => ObjectCode(Arc::new(Code { ptx, library: OnceLock::new(), ..code })),
            Err(code) => ObjectCode::compiled(code.kind, code.bytes.clone(), ptx, &code.name, code.symbols.clone()),
        }
    }

    /// What it is.
    pub fn kind(&self) -> CodeKind {
        self.0.kind
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0.bytes
    }

    /// The PTX that was compiled beside a cubin, if it was.
    pub fn companion_ptx(&self) -> Option<&[u8]> {
        self.0.ptx.as_deref()
    }

    /// Names in the source to names in the code.
    pub fn symbols(&self) -> &HashMap<String, String> {
        &self.0.symbols
    }

    /// The driver's handle of the loaded library; loads it.
    ///
    /// # Errors
    /// As [`kernel`](ObjectCode::kernel).
    pub fn as_raw(&self) -> Result<CUlibrary> {
        Ok(self.library()?.raw())
    }

    fn library(&self) -> Outcome<&Arc<Owned<LibraryKind>>> {
        let code = &*self.0;
        if let Some(library) = code.library.get() {
            return Ok(library);
        }
        if !matches!(code.kind, CodeKind::Ptx | CodeKind::Cubin | CodeKind::Fatbin) {
            return Err(Failure::misuse(
                Misuse::State,
                format!("{} code cannot be loaded, only ptx, cubin and fatbin can; link it first", code.kind.name()),
            ));
        }
        crate::driver::initialized()?;
        crate::deferred::before_creating()?;
        let simulated = load::loaded(Library::Driver).is_some_and(|(_, _, is_simulator)| is_simulator);
        let image = match &code.ptx {
            Some(ptx) if simulated => ptx,
            _ => &code.bytes,
        };
        let raw = load_image(image)?;
        // Of two threads that load it at once, one keeps its library and the other gives its own back.
        Ok(code.library.get_or_init(|| Arc::new(Owned::new(raw, ()))))
    }

    /// `cuLibraryGetModule`: the module of the loaded library in the current context.
    ///
    /// # Errors
    /// As [`kernel`](ObjectCode::kernel).
    pub fn module_raw(&self) -> Result<cuirass_call::sys::cuda::CUmodule> {
        Ok(call::library_get_module(self.library()?.raw())?)
    }

    /// A kernel, by its name in the code, which is that in the source where it is `extern "C"`, or by a name expression
    /// that the program was compiled with.
    ///
    /// # Errors
    /// `CUDA_ERROR_NOT_FOUND` when there is none of that name; what the driver answers to loading;
    /// [`ErrorKind::State`](crate::ErrorKind::State) for code that cannot be loaded.
    pub fn kernel(&self, name: &str) -> Result<Kernel> {
        let library = self.library()?;
        let mangled = self.0.symbols.get(name).map_or(name, String::as_str);
        let text = c_name(mangled, "a kernel's name has no NUL in it")?;
        let raw = call::library_get_kernel(library.raw(), &text).map_err(|failure| match failure.status() {
            Some(code::NOT_FOUND) => failure.note(OTHER_NAME),
            _ => failure,
        })?;
        Ok(Kernel::new(raw, Some(library.clone()), Some(mangled.to_owned())))
    }

    /// `cuLibraryGetGlobal`: a global variable in a device's primary context: its address and its size in bytes.
    ///
    /// # Errors
    /// `CUDA_ERROR_NOT_FOUND` when there is none of that name.
    pub fn global(&self, name: &str, device: Device) -> Result<(u64, usize)> {
        let library = self.library()?;
        let mangled = self.0.symbols.get(name).map_or(name, String::as_str);
        let text = c_name(mangled, "a variable's name has no NUL in it")?;
        let context = device.context()?;
        Ok(scope::read(context.raw(), || call::library_get_global(library.raw(), &text))?)
    }

    /// Gives up this share. If no other share and no kernel is left the code is unloaded, and the driver's answer
    /// returned.
    ///
    /// # Errors
    /// What `cuLibraryUnload` answers.
    pub fn close(self) -> Result<()> {
        let library = Arc::into_inner(self.0).and_then(|code| code.library.into_inner());
        match library.and_then(Arc::into_inner) {
            Some(owned) => Ok(owned.close()?),
            None => Ok(()),
        }
    }
}

fn c_name(name: &str, wrong: &str) -> Outcome<CString> {
    CString::from_vec_with_nul(room::bytes(&[name.as_bytes(), &[0]], "for a copy of the name")?)
        .map_err(|_nul| Failure::misuse(Misuse::Value, wrong))
}

fn load_image(image: &[u8]) -> Outcome<CUlibrary> {
    const ELF: &[u8] = b"\x7fELF";
    const FATBIN: &[u8] = &[0x50, 0xed, 0x55, 0xba];
    if image.starts_with(ELF) || image.starts_with(FATBIN) || image.ends_with(&[0]) {
        if image.len() < 64 {
            return Err(Failure::misuse(Misuse::Value, format!("{} bytes are too few for object code", image.len())));
        }
        // SAFETY: [code-image] a cubin or fatbin by its mark, or text that ends in NUL.
        return unsafe { call::library_load_data(image) };
    }
    let text = room::bytes(&[image, &[0]], "for a copy of the code")?;
    // SAFETY: [code-image] text that ends in NUL.
    unsafe { call::library_load_data(&text) }
}

/// One parameter of a kernel: where it is in the parameter block, and its size, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParameterInfo {
    /// From the start of the parameter block.
    pub offset: usize,
    /// Its size.
    pub size: usize,
}

/// A kernel: an entry point of loaded code, which it keeps loaded.
#[derive(Clone)]
pub struct Kernel(Arc<KernelInner>);

struct KernelInner {
    raw: Opaque<CUkernel>,
    name: Option<String>,
    /// Read by the first launch, since the driver wants a context for that; none where it cannot tell them (older than
    /// CUDA 12.4).
    parameters: OnceLock<Option<Box<[ParameterInfo]>>>,
    /// Its functions in the contexts that it was first launched in, from the first on.
    functions: [OnceLock<FunctionIn>; 8],
    library: Option<Arc<Owned<LibraryKind>>>,
}

/// The function that a kernel is in a context. It is as good as the context: whoever launches holds that by the stream,
/// and of a context that has ended no stream is left.
struct FunctionIn {
    context: Identity,
    function: Opaque<CUfunction>,
}

impl Kernel {
    fn new(raw: CUkernel, library: Option<Arc<Owned<LibraryKind>>>, name: Option<String>) -> Kernel {
        let functions = Default::default();
        Kernel(Arc::new(KernelInner { raw: Opaque(raw), name, parameters: OnceLock::new(), functions, library }))
    }

    /// A kernel of another library's.
    ///
    /// # Safety
    /// The handle is a `CUkernel` that stays loaded as long as this lives.
    pub unsafe fn borrow_raw(raw: CUkernel) -> Kernel {
        Kernel::new(raw, None, None)
    }

    /// The driver's handle.
    #[inline]
    pub fn as_raw(&self) -> CUkernel {
        self.0.raw.0
    }

    /// The handle of the library that it keeps loaded; `None` for a borrowed kernel.
    pub fn library_raw(&self) -> Option<CUlibrary> {
        self.0.library.as_ref().map(|library| library.raw())
    }

    /// Its name in the code.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) for a borrowed kernel and a driver before CUDA 12.3.
    pub fn name(&self) -> Result<String> {
        match &self.0.name {
            Some(name) => Ok(name.clone()),
            None => Ok(call::kernel_get_name(self.as_raw())?),
        }
    }

    pub(crate) fn name_or_handle(&self) -> String {
        self.0.name.clone().unwrap_or_else(|| format!("{:p}", self.as_raw()))
    }

    /// Its parameters, as far as they have been read and the driver can tell them. Makes no call.
    #[inline]
    pub fn known_parameters(&self) -> Option<&[ParameterInfo]> {
        self.0.parameters.get().and_then(Option::as_deref)
    }

    /// Its parameters, for a launch on a stream; `None` where the driver cannot tell them (before CUDA 12.4). The first
    /// time they are read from the driver, in the stream's context.
    ///
    /// # Errors
    /// What the driver answers.
    #[inline]
    pub fn parameters_on(&self, stream: &Stream) -> Result<Option<&[ParameterInfo]>> {
        Ok(self.parameters_for(stream)?)
    }

    #[inline]
    pub(crate) fn parameters_for(&self, stream: &Stream) -> Outcome<Option<&[ParameterInfo]>> {
        match self.0.parameters.get() {
            Some(known) => Ok(known.as_deref()),
            None => self.read_parameters(stream.context().map_err(Failure::from)?.raw()),
        }
    }

    #[cold]
    fn read_parameters(&self, context: CUcontext) -> Outcome<Option<&[ParameterInfo]>> {
        let kernel = self.as_raw();
        let read = if load::driver_version().is_ok_and(|version| version < 12040) {
            None
        } else {
            let mut parameters = Vec::new();
            scope::read(context, || {
                while let Some((offset, size)) = call::kernel_get_param_info(kernel, parameters.len())? {
                    parameters.push(ParameterInfo { offset, size });
                }
                Ok(())
            })?;
            Some(parameters.into())
        };
        Ok(self.0.parameters.get_or_init(|| read).as_deref())
    }

    /// What a launch on the stream is made by: the kernel's function in the stream's context, which the driver needs not
    /// look up, or where that is not known the kernel itself.
    #[inline]
    pub(crate) fn function_for(&self, stream: &Stream) -> Outcome<CUfunction> {
        let Some(context) = stream.own_context() else { return Ok(self.as_raw().cast()) };
        match self.0.functions[0].get() {
            Some(known) if known.context.is(context) => Ok(known.function.0),
            _ => self.function_in(context),
        }
    }

    /// Whether [`function_for`](Kernel::function_for) makes no call, as far as is seen at a glance.
    #[inline]
    pub(crate) fn has_function_for(&self, stream: &Stream) -> bool {
        match (stream.own_context(), self.0.functions[0].get()) {
            (Some(context), Some(known)) => known.context.is(context),
            _ => false,
        }
    }

    /// The function in a context that is not the first one.
    #[inline(never)]
    fn function_in(&self, context: &Context) -> Outcome<CUfunction> {
        for known in &self.0.functions {
            match known.get() {
                Some(known) if known.context.is(context) => return Ok(known.function.0),
                Some(_other) => {}
                None => return self.find_function(context),
            }
        }
        Ok(self.as_raw().cast())
    }

    /// Asks for the function in a context, and keeps it where there is room. The first launch would load the code, and
    /// this does: it fails for the reasons that the launch would.
    #[cold]
    #[inline(never)]
    fn find_function(&self, context: &Context) -> Outcome<CUfunction> {
        let function = scope::read(context.raw(), || call::kernel_get_function(self.as_raw()))?;
        let mut found = FunctionIn { context: context.identity(), function: Opaque(function) };
        for place in &self.0.functions {
            // Another thread may take a place meanwhile, for the same context even.
            match place.set(found) {
                Ok(()) => break,
                Err(_) if place.get().is_some_and(|known| known.context.is(context)) => break,
                Err(back) => found = back,
            }
        }
        Ok(function)
    }

    /// Its parameters, in order (`cuKernelGetParamInfo`).
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) for a driver before CUDA 12.4.
    pub fn parameters(&self) -> Result<&[ParameterInfo]> {
        if let Some(known) = self.known_parameters() {
            return Ok(known);
        }
        // The driver wants some context to be current; it does not matter which.
        let context = Context::current_or_primary()?;
        match self.read_parameters(context.raw())? {
            Some(parameters) => Ok(parameters),
            None => match call::kernel_get_param_info(self.as_raw(), 0) {
                Err(failure) => Err(failure.raise()),
                Ok(_) => Err(Failure::internal("parameters that could not be read can be read now").raise()),
            },
        }
    }

    /// `cuKernelGetAttribute`, on a device.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn attribute(&self, attribute: KernelAttribute, device: Device) -> Result<i32> {
        // Measured: no context has to be current.
        Ok(call::kernel_get_attribute(self.as_raw(), attribute, device.as_raw())?)
    }

    /// `cuKernelSetAttribute`, on a device.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn set_attribute(&self, attribute: KernelAttribute, value: i32, device: Device) -> Result<()> {
        // Measured: no context has to be current.
        Ok(call::kernel_set_attribute(self.as_raw(), attribute, value, device.as_raw())?)
    }

    /// How many blocks of `block_size` threads, each with this much dynamic shared memory, fit on a multiprocessor.
    ///
    /// # Errors
    /// What `cuOccupancyMaxActiveBlocksPerMultiprocessor` answers.
    pub fn max_active_blocks(&self, block_size: i32, dynamic_shared_bytes: usize, device: Device) -> Result<i32> {
        let context = device.context()?;
        Ok(scope::read(context.raw(), || {
            occupancy::occupancy_max_active_blocks_per_multiprocessor(
                self.as_raw().cast(),
                block_size,
                dynamic_shared_bytes,
            )
        })?)
    }

    /// The smallest grid that fills the device, and the block size for it; no block is larger than
    /// `block_size_limit`, where that is not 0.
    ///
    /// # Errors
    /// What `cuOccupancyMaxPotentialBlockSize` answers.
    pub fn max_potential_block_size(
        &self,
        dynamic_shared_bytes: usize,
        block_size_limit: i32,
        device: Device,
    ) -> Result<(i32, i32)> {
        let context = device.context()?;
        Ok(scope::read(context.raw(), || {
            occupancy::occupancy_max_potential_block_size(self.as_raw().cast(), dynamic_shared_bytes, block_size_limit)
        })?)
    }

    /// How much dynamic shared memory a block may have, in bytes, for `blocks` blocks to fit on a multiprocessor.
    ///
    /// # Errors
    /// What `cuOccupancyAvailableDynamicSMemPerBlock` answers.
    pub fn available_dynamic_shared_bytes(&self, blocks: i32, block_size: i32, device: Device) -> Result<usize> {
        let context = device.context()?;
        Ok(scope::read(context.raw(), || {
            occupancy::occupancy_available_dynamic_smem_per_block(self.as_raw().cast(), blocks, block_size)
        })?)
    }
}

impl PartialEq for Kernel {
    fn eq(&self, other: &Kernel) -> bool {
        self.as_raw() == other.as_raw()
    }
}

impl Eq for Kernel {}

impl std::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Kernel({})", self.name_or_handle())
    }
}

impl std::fmt::Debug for ObjectCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ObjectCode({}, {} bytes)", self.0.kind.name(), self.0.bytes.len())
    }
}
