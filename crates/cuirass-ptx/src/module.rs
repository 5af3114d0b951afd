//! A parsed module: its kernels, its variables, and the same with addresses.

use std::collections::HashMap;
use std::sync::Arc;

use crate::code::{FUNCTION_BASE, Program};
use crate::error::{ModuleError, ModuleErrorKind, Place};

/// What the text is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The newest `.version` that is understood, major and minor.
    pub max_ptx_version: (u32, u32),
    /// The architecture: 90 for `sm_90`.
    pub arch: u32,
}

/// A parameter of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Param {
    /// Its first byte in the parameter block.
    pub offset: u32,
    /// Its size in bytes.
    pub size: u32,
    /// Its alignment in bytes.
    pub align: u32,
}

/// A kernel.
#[derive(Clone, Debug)]
pub struct Kernel {
    pub(crate) name: String,
    pub(crate) function: u32,
    pub(crate) params: Vec<Param>,
    pub(crate) param_bytes: u32,
    pub(crate) static_shared: u32,
    pub(crate) local_bytes: u32,
    pub(crate) registers: u32,
    pub(crate) max_threads: Option<[u32; 3]>,
    pub(crate) required_threads: Option<[u32; 3]>,
    pub(crate) unsupported: Option<String>,
    pub(crate) dynamic_shared: bool,
}

impl Kernel {
    /// Its name, mangled as in the text.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its parameters in order.
    pub fn params(&self) -> &[Param] {
        &self.params
    }

    /// The size of the parameter block.
    pub fn param_bytes(&self) -> u32 {
        self.param_bytes
    }

    /// Bytes of shared memory that the text asks for.
    pub fn static_shared_bytes(&self) -> u32 {
        self.static_shared
    }

    /// Bytes of local memory of one thread, without those of called functions.
    pub fn local_bytes(&self) -> u32 {
        self.local_bytes
    }

    /// An estimate of the hardware registers of one thread, 8 to 255.
    pub fn registers(&self) -> u32 {
        self.registers
    }

    /// The bound of `.maxntid`.
    pub fn max_threads(&self) -> Option<[u32; 3]> {
        self.max_threads
    }

    /// The demand of `.reqntid`.
    pub fn required_threads(&self) -> Option<[u32; 3]> {
        self.required_threads
    }

    /// The first instruction, of this kernel or of a function it calls, that is not simulated.
    pub fn unsupported(&self) -> Option<&str> {
        self.unsupported.as_deref()
    }

    /// Whether it refers to `.extern .shared` memory.
    pub fn uses_dynamic_shared(&self) -> bool {
        self.dynamic_shared
    }
}

/// The state space of a module-scope variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// `.global`
    Global,
    /// `.const`
    Const,
}

/// A place in an initialiser that holds an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relocation {
    /// Byte offset of the 8-byte word in the variable.
    pub offset: u64,
    /// The variable or function whose address it is.
    pub symbol: String,
    /// What is added to the address.
    pub addend: i64,
    /// Whether the generic address is asked for.
    pub generic: bool,
}

/// A module-scope variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Global {
    /// Its name.
    pub name: String,
    /// Its state space.
    pub space: Space,
    /// Its size in bytes.
    pub size: u64,
    /// Its alignment in bytes.
    pub align: u64,
    /// Its first bytes; the rest, up to `size`, is zero.
    pub init: Vec<u8>,
    /// Where `init` holds addresses.
    pub relocations: Vec<Relocation>,
    /// Whether it is defined elsewhere.
    pub external: bool,
    /// Whether other modules and the host may see it.
    pub visible: bool,
    /// Whether it is `.managed`: the host may use its address.
    pub managed: bool,
}

/// A parsed, checked and lowered module.
#[derive(Debug)]
pub struct Module {
    pub(crate) version: (u32, u32),
    pub(crate) arch: u32,
    pub(crate) kernels: Vec<Kernel>,
    pub(crate) names: HashMap<String, usize>,
    pub(crate) globals: Vec<Global>,
    pub(crate) functions: HashMap<String, u32>,
    pub(crate) program: Program,
}

impl Module {
    /// Parse, check and lower.
    ///
    /// An instruction that is not simulated does not fail here: the kernel that contains or calls
    /// it says so ([`Kernel::unsupported`]).
    ///
    /// # Errors
    /// The first thing that is wrong with the text.
    pub fn parse(source: &str, target: &Target) -> Result<Module, ModuleError> {
        let tree = crate::parse::parse(source, target)?;
        crate::lower::lower(tree, source)
    }

    /// The `.version` of the text.
    pub fn version(&self) -> (u32, u32) {
        self.version
    }

    /// The architecture in `.target`: 90 for `sm_90`.
    pub fn target_arch(&self) -> u32 {
        self.arch
    }

    /// The kernels in order.
    pub fn kernels(&self) -> impl Iterator<Item = &Kernel> {
        self.kernels.iter()
    }

    /// The kernel of that name.
    pub fn kernel(&self, name: &str) -> Option<&Kernel> {
        self.names.get(name).and_then(|&i| self.kernels.get(i))
    }

    /// The module-scope `.global` and `.const` variables in order.
    pub fn globals(&self) -> &[Global] {
        &self.globals
    }
}

/// A module whose globals have been placed at addresses.
#[derive(Debug)]
pub struct Loaded {
    pub(crate) module: Arc<Module>,
    /// One address for every global of the module.
    pub(crate) addresses: Vec<u64>,
}

impl Loaded {
    /// Places the module's globals.
    ///
    /// # Errors
    /// A variable has no address in `addresses`.
    pub fn new(module: Arc<Module>, addresses: &[(String, u64)]) -> Result<Loaded, ModuleError> {
        let by_name: HashMap<&str, u64> = addresses.iter().map(|(n, a)| (n.as_str(), *a)).collect();
        let mut placed = Vec::with_capacity(module.globals.len());
        for global in &module.globals {
            let Some(&address) = by_name.get(global.name.as_str()) else {
                let text = format!("the variable {} has no address", global.name);
                return Err(ModuleError::new(ModuleErrorKind::UnresolvedExtern, Place::default(), text));
            };
            placed.push(address);
        }
        Ok(Loaded { module, addresses: placed })
    }

    /// The module.
    pub fn module(&self) -> &Arc<Module> {
        &self.module
    }

    /// The first bytes of a variable, addresses filled in; empty for an unknown index.
    pub fn image_of(&self, global: usize) -> Vec<u8> {
        let Some(variable) = self.module.globals.get(global) else {
            return Vec::new();
        };
        let mut bytes = variable.init.clone();
        for relocation in &variable.relocations {
            let base = self.address_of(&relocation.symbol).unwrap_or(0);
            let value = base.wrapping_add_signed(relocation.addend);
            let at = relocation.offset as usize;
            if let Some(word) = bytes.get_mut(at..at.saturating_add(8)) {
                word.copy_from_slice(&value.to_le_bytes());
            }
        }
        bytes
    }

    /// The address of a variable or function of the module.
    pub fn address_of(&self, symbol: &str) -> Option<u64> {
        if let Some(i) = self.module.globals.iter().position(|g| g.name == symbol) {
            return self.addresses.get(i).copied();
        }
        let function = self.module.functions.get(symbol)?;
        Some(FUNCTION_BASE + u64::from(*function) * 16)
    }
}
