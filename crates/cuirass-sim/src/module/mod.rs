//! Loaded code: modules, libraries, kernels, functions and their attributes. The calls are in the files beside this one.
//!
//! A device's native code is PTX. A module is code with its variables placed in one context; a library is code that
//! becomes a module of each context in which it is used.

mod attributes;
mod function;
mod image;
mod kernel;
mod library;
mod load;

pub use attributes::{Settings, most_threads};
pub use function::*;
pub use kernel::*;
pub use library::*;
pub use load::*;

use crate::handle::{Handle, Kind, Table};
use crate::memory::Origin;
use crate::state::State;
use crate::status::{Answer, CONTEXT_IS_DESTROYED, INVALID_HANDLE, INVALID_PTX, INVALID_VALUE, NOT_FOUND};
use cuirass_ptx::{Kernel, Loaded, Space};
use std::collections::HashMap;
use std::sync::Arc;

/// Parsed code.
#[derive(Debug)]
pub struct Code {
    /// The code itself.
    pub module: Arc<cuirass_ptx::Module>,
    /// Bytes of its constant variables.
    pub constant_bytes: u64,
    kernels: Vec<String>,
}

impl Code {
    fn new(module: cuirass_ptx::Module) -> Self {
        let constants = module.globals().iter().filter(|global| global.space == Space::Const);
        let constant_bytes = constants.map(|global| global.size).sum();
        let kernels = module.kernels().map(|kernel| kernel.name().to_owned()).collect();
        Self { module: Arc::new(module), constant_bytes, kernels }
    }

    fn index(&self, name: &str) -> Answer<usize> {
        self.kernels.iter().position(|kernel| kernel == name).ok_or(NOT_FOUND)
    }

    fn kernel(&self, index: usize) -> Answer<&Kernel> {
        self.kernels.get(index).and_then(|name| self.module.kernel(name)).ok_or(INVALID_VALUE)
    }

    /// How many kernels it has.
    pub fn len(&self) -> usize {
        self.kernels.len()
    }

    /// Whether it has no kernel.
    pub fn is_empty(&self) -> bool {
        self.kernels.is_empty()
    }
}

/// A kernel that can be run: its code, and where the variables are that it uses.
#[derive(Debug)]
pub struct Callable {
    /// The kernel.
    pub kernel: Kernel,
    /// Its module, with addresses.
    pub loaded: Arc<Loaded>,
}

/// A module of one context.
pub struct Module {
    /// Its context.
    pub context: Handle,
    code: Arc<Code>,
    loaded: Arc<Loaded>,
    variables: Vec<(String, u64, u64)>,
    functions: HashMap<usize, Handle>,
    library: Option<Handle>,
}

/// A library.
pub struct Library {
    /// Its code, or why there is none: that comes out when something is looked up, as code is loaded when it is used.
    code: Answer<Arc<Code>>,
    kernels: HashMap<usize, Handle>,
    modules: HashMap<Handle, Handle>,
    settings: HashMap<(usize, usize), Settings>,
}

impl Library {
    fn code(&self) -> Answer<&Arc<Code>> {
        self.code.as_ref().map_err(|status| *status)
    }
}

/// A kernel of a library.
pub struct LibraryKernel {
    library: Handle,
    index: usize,
    /// Its name, closed by a zero, where the caller may read it.
    name: Arc<std::ffi::CStr>,
}

/// A kernel of a module.
pub struct Function {
    module: Handle,
    index: usize,
    callable: Arc<Callable>,
    settings: Settings,
    name: Arc<std::ffi::CStr>,
}

/// All loaded code.
pub struct Modules {
    modules: Table<Module>,
    libraries: Table<Library>,
    kernels: Table<LibraryKernel>,
    functions: Table<Function>,
}

impl Modules {
    /// Nothing loaded.
    pub fn new() -> Self {
        Self {
            modules: Table::new(Kind::Module),
            libraries: Table::new(Kind::Library),
            kernels: Table::new(Kind::Kernel),
            functions: Table::new(Kind::Function),
        }
    }

    fn own(&self) -> impl Iterator<Item = (Handle, &Module)> {
        self.modules.iter().filter(|(_, module)| module.library.is_none())
    }

    /// What is alive, by kind.
    pub fn census(&self) -> Vec<(&'static str, u64)> {
        vec![("module", self.own().count() as u64), ("library", self.libraries.len() as u64)]
    }

    /// Names everything that is alive: kind, handle, context.
    pub fn objects(&self, line: &mut impl FnMut(&str, Handle, Handle)) {
        self.own().for_each(|(handle, module)| line("module", handle, module.context));
        self.libraries.iter().for_each(|(handle, _)| line("library", handle, Handle::NULL));
    }
}

impl Default for Modules {
    fn default() -> Self {
        Self::new()
    }
}

/// What a launch needs to know of a function or kernel.
pub struct Found {
    /// What is run.
    pub callable: Arc<Callable>,
    /// What the program has set for it.
    pub settings: Settings,
    /// Its context.
    pub context: Handle,
}

impl State {
    /// Places code in a context.
    fn instantiate_code(&mut self, context: Handle, code: &Arc<Code>, library: Option<Handle>) -> Answer<Handle> {
        let mut variables = Vec::new();
        let answer = self.place_variables(context, code, &mut variables);
        let loaded = answer.and_then(|()| {
            let addresses: Vec<(String, u64)> =
                variables.iter().map(|(name, start, _)| (name.clone(), *start)).collect();
            Loaded::new(code.module.clone(), &addresses).or(Err(INVALID_PTX))
        });
        let loaded = match loaded {
            Ok(loaded) => Arc::new(loaded),
            Err(status) => {
                variables.iter().for_each(|(_, start, _)| self.release(*start));
                return Err(status);
            }
        };
        for (index, (_, start, _)) in variables.iter().enumerate() {
            let image = loaded.image_of(index);
            if let Some(host) = crate::memory::live::LIVE.host_of(*start, image.len() as u64) {
                crate::host::write(host, &image);
            }
        }
        let code = code.clone();
        let module = Module { context, code, loaded, variables, functions: HashMap::new(), library };
        self.modules.modules.insert(module)
    }

    fn place_variables(&mut self, context: Handle, code: &Code, placed: &mut Vec<(String, u64, u64)>) -> Answer {
        for global in code.module.globals() {
            let writable = global.space == Space::Global;
            // Memory that was used before is not zero.
            let start = self.allocate(context, global.size, Origin::Variable, writable)?;
            placed.push((global.name.clone(), start, global.size));
            let device = self.context(context)?.device;
            self.arena(device)?.zero(start, global.size);
        }
        Ok(())
    }

    /// The function of a module's kernel.
    fn function_of(&mut self, module: Handle, index: usize) -> Answer<Handle> {
        let known = self.modules.modules.get(module, INVALID_HANDLE)?;
        if let Some(function) = known.functions.get(&index) {
            return Ok(*function);
        }
        let kernel = known.code.kernel(index)?.clone();
        let name = c_name(kernel.name());
        let settings = Settings::new(&kernel);
        let callable = Arc::new(Callable { kernel, loaded: known.loaded.clone() });
        let function = self.modules.functions.insert(Function { module, index, callable, settings, name })?;
        self.modules.modules.get_mut(module, INVALID_HANDLE)?.functions.insert(index, function);
        Ok(function)
    }

    /// The module that a library is in a context.
    fn module_of(&mut self, library: Handle, context: Handle) -> Answer<Handle> {
        let known = self.modules.libraries.get(library, INVALID_HANDLE)?;
        if let Some(module) = known.modules.get(&context) {
            return Ok(*module);
        }
        let code = known.code()?.clone();
        let module = self.instantiate_code(context, &code, Some(library))?;
        self.modules.libraries.get_mut(library, INVALID_HANDLE)?.modules.insert(context, module);
        Ok(module)
    }

    /// The function that a handle names in a context: a function's, or a library kernel's.
    fn function_in(&mut self, handle: Handle, context: Handle) -> Answer<Handle> {
        if self.modules.functions.peek(handle).is_some() {
            return Ok(handle);
        }
        if let Some(kernel) = self.modules.kernels.peek(handle) {
            let (library, index) = (kernel.library, kernel.index);
            let module = self.module_of(library, context)?;
            return self.function_of(module, index);
        }
        if self.modules.kernels.knows(handle) {
            self.modules.kernels.get(handle, INVALID_HANDLE)?;
        }
        self.modules.functions.get(handle, INVALID_HANDLE)?;
        Err(INVALID_HANDLE)
    }

    /// What is behind a handle of a function or library kernel, for a launch in a context.
    ///
    /// # Errors
    /// `INVALID_HANDLE`
    pub fn callable(&mut self, handle: Handle, context: Handle) -> Answer<Found> {
        let handle = self.function_in(handle, context)?;
        let function = self.modules.functions.get(handle, INVALID_HANDLE)?;
        let module = self.modules.modules.get(function.module, INVALID_HANDLE)?;
        let mut settings = function.settings;
        if let Some(library) = module.library.and_then(|library| self.modules.libraries.peek(library)) {
            let device = self.context(module.context)?.device;
            settings = library.settings.get(&(device, function.index)).copied().unwrap_or(settings);
        }
        Ok(Found { callable: function.callable.clone(), settings, context: module.context })
    }

    /// Ends a module with its functions and variables; no work uses it any more.
    fn end_module(&mut self, handle: Handle, later: crate::status::Status) {
        let Some(module) = self.modules.modules.end(handle, later) else { return };
        for function in module.functions.into_values() {
            self.modules.functions.end(function, later);
        }
        for (_, start, _) in module.variables {
            self.release(start);
        }
    }
}

/// A name as C reads it. (A kernel's name has no zero in it.)
fn c_name(name: &str) -> Arc<std::ffi::CStr> {
    std::ffi::CString::new(name).unwrap_or_default().into()
}

/// A context ends, with its modules. Its work is done, and nothing of it runs.
pub fn context_ended(state: &mut State, context: Handle) {
    for module in state.modules.modules.handles(|module| module.context == context) {
        state.end_module(module, CONTEXT_IS_DESTROYED);
    }
    for library in state.modules.libraries.handles(|_| true) {
        if let Some(library) = state.modules.libraries.peek_mut(library) {
            library.modules.remove(&context);
        }
    }
    crate::launch::heap::context_ended(context);
}
