//! Tree to program: names become numbers, instructions become rows of the table.

mod alu;
mod asynchronous;
mod control;
mod function;
mod memory;
mod moves;
mod operand;
mod sync;

use std::collections::{HashMap, HashSet};

use crate::ast::{Func, Init, Operand, Stmt, Tree, Ty, Var, VarSpace};
use crate::code::{Callee, Func as Code, Op, Program, SHARED_START};
use crate::error::{ModuleError, ModuleErrorKind};
use crate::module::{Global, Kernel, Module, Param, Relocation, Space};
use function::Lower;

/// What a module-scope name is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Symbol {
    Global(u32),
    Func(u32),
    /// An offset in the shared window.
    Shared(u64),
    DynamicShared,
}

/// How many bytes of shared memory a module may declare: more than any block can have.
const MAX_SHARED: u64 = 1 << 20;
/// How many bytes of local memory a function may have: hardware's limit for a thread.
const MAX_LOCAL: u64 = 512 << 10;

/// What all functions see.
pub(crate) struct Scope<'s> {
    pub(crate) symbols: HashMap<&'s str, Symbol>,
    /// Where the next function's shared variables go.
    pub(crate) shared_end: u64,
    /// Globals declared inside functions are added here.
    pub(crate) globals: Vec<Global>,
    pub(crate) builtins: HashMap<u32, Callee>,
    pub(crate) signatures: Vec<(Vec<u32>, Vec<u32>)>,
}

/// Rounds up to a power of two.
pub(crate) fn align_up(v: u64, align: u64) -> u64 {
    v.saturating_add(align - 1) & !(align - 1)
}

fn builtin(name: &str) -> Option<Callee> {
    Some(match name {
        "vprintf" => Callee::Printf,
        "malloc" => Callee::Malloc,
        "free" => Callee::Free,
        "__assertfail" => Callee::AssertFail,
        "cudaGraphSetConditional" => Callee::SetCondition,
        _ => return None,
    })
}

/// Lowers a module.
pub(crate) fn lower(tree: Tree<'_>, source: &str) -> Result<Module, ModuleError> {
    let mut scope = Scope {
        symbols: HashMap::new(),
        shared_end: SHARED_START,
        globals: Vec::new(),
        builtins: HashMap::new(),
        signatures: Vec::new(),
    };
    variables(&tree, &mut scope)?;
    let order = functions(&tree, &mut scope)?;
    let common = common_users(&tree, &order);
    let mut funcs: Vec<Code> = Vec::new();
    funcs.resize_with(order.len(), Code::default);
    let mut kernels = Vec::new();
    let mut notes: Vec<Note> = Vec::new();
    notes.resize_with(order.len(), Note::default);
    // Functions first: their shared variables lie below those of every kernel.
    for pass in [false, true] {
        let common_end = scope.shared_end;
        for (index, &at) in order.iter().enumerate() {
            let Some(func) = tree.funcs.get(at).filter(|f| f.entry == pass) else { continue };
            if pass {
                let uses = common.contains(&index);
                scope.shared_end = if uses { common_end } else { SHARED_START };
            }
            let done = Lower::new(&mut scope, func)?.run()?;
            notes[index] =
                Note { unsupported: done.unsupported, dynamic: done.dynamic_shared, calls: callees(&done.code) };
            if pass {
                kernels.push(kernel(func, index, &done.code, done.local_bytes, scope.shared_end));
            }
            funcs[index] = done.code;
        }
    }
    defined(&funcs)?;
    spread(&mut kernels, &notes);
    let mut names = HashMap::new();
    for (i, kernel) in kernels.iter().enumerate() {
        names.insert(kernel.name.clone(), i);
    }
    let by_name = scope.symbols.iter().filter_map(|(name, symbol)| match symbol {
        Symbol::Func(i) => Some(((*name).to_owned(), *i)),
        _ => None,
    });
    Ok(Module {
        version: tree.version,
        arch: tree.arch,
        kernels,
        names,
        functions: by_name.collect(),
        globals: scope.globals,
        program: Program { funcs, source: source.to_owned() },
    })
}

/// What a function's lowering found out.
#[derive(Default)]
struct Note {
    unsupported: Option<String>,
    dynamic: bool,
    /// Called functions; `None` stands for any.
    calls: Vec<Option<u32>>,
}

fn callees(code: &Code) -> Vec<Option<u32>> {
    let calls = code.code.iter().filter_map(|i| match &i.op {
        Op::Call(call) => match call.callee {
            Callee::Func(f) => Some(Some(f)),
            Callee::Indirect(_) => Some(None),
            _ => None,
        },
        _ => None,
    });
    calls.collect()
}

/// Demands that every function that is called has a body.
fn defined(funcs: &[Code]) -> Result<(), ModuleError> {
    for func in funcs {
        for (instr, &(_, _, line)) in func.code.iter().zip(&func.origin) {
            let Op::Call(call) = &instr.op else { continue };
            let Callee::Func(f) = call.callee else { continue };
            if let Some(callee) = funcs.get(f as usize).filter(|f| !f.defined) {
                let place = crate::error::Place { line, column: 1 };
                let text = format!("the function {} has no definition", callee.name);
                return Err(ModuleError::new(ModuleErrorKind::UnresolvedExtern, place, text));
            }
        }
    }
    Ok(())
}

/// Gives kernels what the functions that they call need.
fn spread(kernels: &mut [Kernel], notes: &[Note]) {
    for kernel in kernels {
        let mut seen = vec![false; notes.len()];
        let mut work = vec![kernel.function];
        while let Some(next) = work.pop() {
            let Some(note) = notes.get(next as usize) else { continue };
            if std::mem::replace(&mut seen[next as usize], true) {
                continue;
            }
            if kernel.unsupported.is_none() {
                kernel.unsupported.clone_from(&note.unsupported);
            }
            kernel.dynamic_shared |= note.dynamic;
            // An indirect call may reach anything, which is no reason to refuse the kernel.
            work.extend(note.calls.iter().flatten());
        }
    }
}

fn kernel(func: &Func<'_>, index: usize, code: &Code, local_bytes: u32, shared: u64) -> Kernel {
    let mut params = Vec::new();
    let mut end = 0;
    for var in &func.params {
        let offset = align_up(end, var.align);
        end = offset.saturating_add(var.size());
        params.push(Param { offset: offset as u32, size: var.size() as u32, align: var.align as u32 });
    }
    let used = code.counts.r32 + 2 * code.counts.r64 + code.counts.r16 / 2;
    Kernel {
        name: func.name.to_owned(),
        function: index as u32,
        params,
        param_bytes: end as u32,
        static_shared: (shared - SHARED_START) as u32,
        local_bytes,
        registers: (8 + used / 4).clamp(8, 255),
        max_threads: func.max_threads,
        required_threads: func.required_threads,
        unsupported: None,
        dynamic_shared: false,
    }
}

fn duplicate(place: crate::error::Place, name: &str) -> ModuleError {
    ModuleError::new(ModuleErrorKind::Duplicate, place, format!("{name} is defined twice"))
}

fn variables<'s>(tree: &Tree<'s>, scope: &mut Scope<'s>) -> Result<(), ModuleError> {
    for var in &tree.vars {
        // A declaration may come before its definition, or be repeated.
        if let Some(&Symbol::Global(i)) = scope.symbols.get(var.name) {
            let Some(old) = scope.globals.get_mut(i as usize) else { continue };
            if !var.linkage.external && !old.external && !var.linkage.weak {
                return Err(duplicate(var.place, var.name));
            }
            if old.external {
                *old = global(var);
            }
            continue;
        }
        if scope.symbols.contains_key(var.name) {
            if var.linkage.external {
                continue;
            }
            return Err(duplicate(var.place, var.name));
        }
        let symbol = match var.space {
            VarSpace::Global | VarSpace::Const => {
                scope.globals.push(global(var));
                Symbol::Global(scope.globals.len() as u32 - 1)
            }
            VarSpace::Shared if var.count.is_none() => Symbol::DynamicShared,
            VarSpace::Shared => Symbol::Shared(scope.place_shared(var)?),
            VarSpace::Local | VarSpace::Param => {
                return Err(ModuleError::new(
                    ModuleErrorKind::Syntax,
                    var.place,
                    "local memory and parameters belong into functions",
                ));
            }
        };
        scope.symbols.insert(var.name, symbol);
    }
    Ok(())
}

impl Scope<'_> {
    /// Room for a shared variable: its offset in the window.
    pub(crate) fn place_shared(&mut self, var: &Var<'_>) -> Result<u64, ModuleError> {
        let offset = align_up(self.shared_end, var.align);
        self.shared_end = offset.saturating_add(var.size());
        if self.shared_end > MAX_SHARED {
            let text = format!("{} does not fit shared memory", var.name);
            return Err(ModuleError::new(ModuleErrorKind::TooLarge, var.place, text));
        }
        Ok(offset)
    }
}

/// A module-scope variable with its first bytes.
pub(crate) fn global(var: &Var<'_>) -> Global {
    let mut init = Vec::new();
    let mut relocations = Vec::new();
    let bytes = var.ty.bytes().max(1) as usize;
    for item in &var.init {
        let at = init.len();
        let word = match *item {
            Init::Int(v) if var.ty == Ty::F32 => u64::from((v as i64 as f32).to_bits()),
            Init::Int(v) if var.ty == Ty::F64 => (v as i64 as f64).to_bits(),
            Init::Int(v) => v,
            Init::F32(v) if var.ty == Ty::F64 => f64::from(f32::from_bits(v)).to_bits(),
            Init::F32(v) => v.into(),
            Init::F64(v) if var.ty == Ty::F32 => (f64::from_bits(v) as f32).to_bits().into(),
            Init::F64(v) => v,
            Init::Symbol { name, addend, generic, mask } => {
                // Byte pieces of an address name the same symbol eight times; the first is enough.
                if mask == u64::MAX || mask == 0xff {
                    relocations.push(Relocation { offset: at as u64, symbol: name.to_owned(), addend, generic });
                }
                0
            }
        };
        init.extend(word.to_le_bytes().iter().take(bytes).copied());
    }
    init.truncate(var.size() as usize);
    if !init.is_empty() && var.size() <= 1 << 16 {
        init.resize(var.size() as usize, 0);
    }
    Global {
        name: var.name.to_owned(),
        space: if var.space == VarSpace::Const { Space::Const } else { Space::Global },
        size: var.size(),
        align: var.align,
        init,
        relocations,
        external: var.linkage.external,
        visible: var.linkage.visible || var.linkage.external,
        managed: var.linkage.managed,
    }
}

/// Numbers the functions; gives, for each number, the declaration that counts.
fn functions<'s>(tree: &Tree<'s>, scope: &mut Scope<'s>) -> Result<Vec<usize>, ModuleError> {
    let mut order: Vec<usize> = Vec::new();
    for (at, func) in tree.funcs.iter().enumerate() {
        match scope.symbols.get(func.name) {
            Some(&Symbol::Func(i)) => {
                let slot = &mut order[i as usize];
                let old = tree.funcs.get(*slot);
                if func.body.is_some() {
                    if old.is_some_and(|f| f.body.is_some()) {
                        return Err(duplicate(func.place, func.name));
                    }
                    *slot = at;
                }
            }
            Some(_) => return Err(duplicate(func.place, func.name)),
            None => {
                scope.symbols.insert(func.name, Symbol::Func(order.len() as u32));
                order.push(at);
            }
        }
    }
    for &(place, name, of) in &tree.aliases {
        let Some(&symbol @ Symbol::Func(_)) = scope.symbols.get(of) else {
            let text = format!("{of} is not a function");
            return Err(ModuleError::new(ModuleErrorKind::Undefined, place, text));
        };
        scope.symbols.insert(name, symbol);
    }
    for (index, &at) in order.iter().enumerate() {
        let Some(func) = tree.funcs.get(at) else { continue };
        let sizes = |vars: &[Var<'_>]| vars.iter().map(|v| v.size() as u32).collect::<Vec<_>>();
        scope.signatures.push((sizes(&func.params), sizes(&func.returns)));
        if func.body.is_none()
            && let Some(callee) = builtin(func.name)
        {
            scope.builtins.insert(index as u32, callee);
        }
    }
    Ok(order)
}

/// The functions that need shared variables of module scope or of device functions, themselves
/// or through calls.
fn common_users(tree: &Tree<'_>, order: &[usize]) -> HashSet<usize> {
    let shared: HashSet<&str> =
        tree.vars.iter().filter(|v| v.space == VarSpace::Shared && v.count.is_some()).map(|v| v.name).collect();
    let mut names: HashMap<&str, usize> = HashMap::new();
    let funcs: Vec<&Func<'_>> = order.iter().filter_map(|&at| tree.funcs.get(at)).collect();
    for (i, func) in funcs.iter().enumerate() {
        names.insert(func.name, i);
    }
    let mut users = HashSet::new();
    let mut callers: Vec<Vec<usize>> = vec![Vec::new(); funcs.len()];
    for (i, func) in funcs.iter().enumerate() {
        for stmt in func.body.iter().flatten() {
            match stmt {
                Stmt::Var(v) if v.space == VarSpace::Shared && !func.entry => {
                    users.insert(i);
                }
                Stmt::Instr(instr) => {
                    // Whom an indirect call reaches is not known.
                    if instr.operands.len() == 4 && instr.opcode.starts_with("call") {
                        users.insert(i);
                    }
                    for name in instr.operands.iter().filter_map(named) {
                        if shared.contains(name) {
                            users.insert(i);
                        }
                        if let Some(&callee) = names.get(name) {
                            callers[callee].push(i);
                        }
                    }
                }
                _ => {}
            }
        }
    }
    let mut work: Vec<usize> = users.iter().copied().collect();
    while let Some(next) = work.pop() {
        for &caller in &callers[next] {
            if users.insert(caller) {
                work.push(caller);
            }
        }
    }
    users
}

fn named<'s>(operand: &Operand<'s>) -> Option<&'s str> {
    match operand {
        Operand::Name(n) | Operand::Offset(n, _) | Operand::Address(Some(n), _) => Some(n),
        _ => None,
    }
}
