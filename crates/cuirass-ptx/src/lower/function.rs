//! One function: its names, registers, local memory and instructions.

use std::collections::HashMap;

use super::{MAX_LOCAL, Scope, Symbol, align_up};
use crate::ast::{Func as Tree, Instr as Source, Stmt, Ty, Var, VarSpace};
use crate::check::class_of;
use crate::code::{Args, Class, Constant, Counts, Func as Code, Instr, NONE, Op, RegRef, Slot};
use crate::error::{ModuleError, ModuleErrorKind, Place};

/// Registers of a function, names times counts; more is a mistake or an attack.
const MAX_REGISTERS: u32 = 1 << 16;

/// What a name in a function is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Local {
    /// Bytes of the invocation's local memory.
    Frame(Slot),
    /// Bytes of the kernel's parameters.
    Param(u32),
    Shared(u64),
    DynamicShared,
    Global(u32),
}

/// Registers that one declaration made.
struct Regs {
    class: Class,
    /// How many names `prefix0`, `prefix1` … there are; `None` for one name.
    count: Option<u32>,
    made: HashMap<u32, RegRef>,
}

#[derive(Default)]
struct Block<'s> {
    id: u32,
    regs: HashMap<&'s str, Regs>,
    vars: HashMap<&'s str, Local>,
}

/// What lowering a function gives.
pub(super) struct Done {
    pub(super) code: Code,
    pub(super) unsupported: Option<String>,
    pub(super) dynamic_shared: bool,
    pub(super) local_bytes: u32,
}

/// A function being lowered.
pub(super) struct Lower<'a, 's> {
    pub(super) scope: &'a mut Scope<'s>,
    pub(super) func: &'a Tree<'s>,
    blocks: Vec<Block<'s>>,
    pub(super) code: Code,
    constants: HashMap<(Class, Constant), RegRef>,
    /// Labels by the scope they are in: inline assembly repeats names in scopes of its own.
    labels: HashMap<(u32, &'s str), u32>,
    /// The enclosing scope of each.
    scopes: Vec<u32>,
    pub(super) targets: HashMap<&'s str, &'a [&'s str]>,
    /// Branches whose label comes later: the instruction, or table and entry.
    pub(super) pending: Vec<(Pending, u32, &'s str, Place)>,
    pub(super) frame_end: u64,
    local_bytes: u64,
    pub(super) unsupported: Option<String>,
    pub(super) dynamic_shared: bool,
    /// The instruction at hand.
    pub(super) place: Place,
    span: (u32, u32),
    guard: (u32, u32),
    pub(super) text: &'s str,
}

/// Where a label's number goes.
pub(super) enum Pending {
    Branch(usize),
    Table(usize, usize),
}

impl<'a, 's> Lower<'a, 's> {
    pub(super) fn new(scope: &'a mut Scope<'s>, func: &'a Tree<'s>) -> Result<Self, ModuleError> {
        let mut this = Self {
            scope,
            func,
            blocks: vec![Block::default()],
            code: Code { name: func.name.to_owned(), ..Code::default() },
            constants: HashMap::new(),
            labels: HashMap::new(),
            scopes: vec![0],
            targets: HashMap::new(),
            pending: Vec::new(),
            frame_end: 0,
            local_bytes: 0,
            unsupported: None,
            dynamic_shared: false,
            place: func.place,
            span: (0, 0),
            guard: (NONE, 0),
            text: "",
        };
        this.parameters()?;
        Ok(this)
    }

    fn parameters(&mut self) -> Result<(), ModuleError> {
        let func = self.func;
        let mut end = 0u64;
        for var in &func.params {
            if func.entry {
                let at = align_up(end, var.align);
                end = at.saturating_add(var.size());
                if end > 1 << 16 {
                    return self.too_large("the parameters");
                }
                self.define(var, Local::Param(at as u32))?;
            } else {
                let slot = self.frame_slot(var.size(), var.align)?;
                self.code.params.push(slot);
                self.define(var, Local::Frame(slot))?;
            }
        }
        for var in &func.returns {
            let slot = self.frame_slot(var.size(), var.align)?;
            self.code.results.push(slot);
            self.define(var, Local::Frame(slot))?;
        }
        Ok(())
    }

    fn too_large<T>(&self, what: &str) -> Result<T, ModuleError> {
        let text = format!("{what} of {} are too large", self.func.name);
        Err(ModuleError::new(ModuleErrorKind::TooLarge, self.place, text))
    }

    pub(super) fn fail<T>(&self, kind: ModuleErrorKind, text: impl Into<String>) -> Result<T, ModuleError> {
        Err(ModuleError::new(kind, self.place, text))
    }

    /// Bytes of the invocation's local memory.
    pub(super) fn frame_slot(&mut self, size: u64, align: u64) -> Result<Slot, ModuleError> {
        let offset = align_up(self.frame_end, align.clamp(1, 256));
        self.frame_end = offset.saturating_add(size);
        if self.frame_end > MAX_LOCAL {
            return self.too_large("the local variables");
        }
        Ok(Slot { offset: offset as u32, size: size as u32 })
    }

    fn block(&mut self) -> &mut Block<'s> {
        if self.blocks.is_empty() {
            self.blocks.push(Block::default());
        }
        let last = self.blocks.len() - 1;
        &mut self.blocks[last]
    }

    fn define(&mut self, var: &Var<'s>, local: Local) -> Result<(), ModuleError> {
        if self.block().vars.insert(var.name, local).is_some() && var.name != "_" {
            return Err(super::duplicate(var.place, var.name));
        }
        Ok(())
    }

    pub(super) fn run(mut self) -> Result<Done, ModuleError> {
        let func = self.func;
        let Some(body) = &func.body else {
            return Ok(self.done());
        };
        self.code.defined = true;
        self.collect(body);
        for stmt in body {
            match stmt {
                Stmt::Open => {
                    let parent = self.scope_id();
                    self.scopes.push(parent);
                    self.blocks.push(Block { id: self.scopes.len() as u32 - 1, ..Block::default() });
                }
                Stmt::Close => {
                    self.blocks.pop();
                }
                Stmt::Reg { place, ty, lanes, name, count } => {
                    self.place = *place;
                    self.registers(*ty, *lanes, name, *count)?;
                }
                Stmt::Var(var) => self.variable(var)?,
                Stmt::Label(place, name) => {
                    let at = self.code.code.len() as u32;
                    if self.labels.insert((self.scope_id(), name), at).is_some() {
                        return Err(super::duplicate(*place, name));
                    }
                }
                Stmt::Instr(instr) => self.instr(instr)?,
                Stmt::Targets { .. } | Stmt::Prototype => {}
            }
        }
        // Falling off the end returns.
        self.guard = (NONE, 0);
        let end = if func.entry { Op::Exit } else { Op::Ret };
        self.emit(end, Args::default());
        self.resolve()?;
        Ok(self.done())
    }

    /// Tables, which may be used before they come.
    fn collect(&mut self, body: &'a [Stmt<'s>]) {
        for stmt in body {
            if let Stmt::Targets { name, list } = stmt {
                self.targets.insert(name, list);
            }
        }
    }

    /// The scope at hand.
    pub(super) fn scope_id(&self) -> u32 {
        self.blocks.last().map_or(0, |b| b.id)
    }

    /// Where a label is that is used in a scope.
    fn label(&self, mut scope: u32, name: &'s str) -> Option<u32> {
        loop {
            if let Some(&at) = self.labels.get(&(scope, name)) {
                return Some(at);
            }
            if scope == 0 {
                return None;
            }
            scope = self.scopes.get(scope as usize).copied().unwrap_or(0);
        }
    }

    fn resolve(&mut self) -> Result<(), ModuleError> {
        for (pending, scope, name, place) in std::mem::take(&mut self.pending) {
            let Some(at) = self.label(scope, name) else {
                let text = format!("there is no label {name}");
                return Err(ModuleError::new(ModuleErrorKind::Undefined, place, text));
            };
            match pending {
                Pending::Branch(i) => {
                    if let Some(instr) = self.code.code.get_mut(i) {
                        instr.op = Op::Bra(at);
                    }
                }
                Pending::Table(table, entry) => {
                    let slot = self.code.tables.get_mut(table).and_then(|t| t.get_mut(entry));
                    if let Some(slot) = slot {
                        *slot = at;
                    }
                }
            }
        }
        Ok(())
    }

    fn done(mut self) -> Done {
        self.code.frame_bytes = align_up(self.frame_end, 16) as u32;
        Done {
            code: self.code,
            unsupported: self.unsupported,
            dynamic_shared: self.dynamic_shared,
            local_bytes: self.local_bytes as u32,
        }
    }

    fn registers(&mut self, ty: Ty, lanes: u32, name: &'s str, count: Option<u32>) -> Result<(), ModuleError> {
        let Some(class) = class_of(ty).filter(|_| lanes == 1) else {
            // Vector and 128-bit registers are known by the instructions that use them.
            return Ok(());
        };
        let regs = Regs { class, count, made: HashMap::new() };
        let old = self.block().regs.insert(name, regs);
        if old.is_some() {
            return Err(super::duplicate(self.place, name));
        }
        Ok(())
    }

    fn variable(&mut self, var: &Var<'s>) -> Result<(), ModuleError> {
        self.place = var.place;
        let local = match var.space {
            VarSpace::Local => {
                self.local_bytes += var.size();
                Local::Frame(self.frame_slot(var.size(), var.align)?)
            }
            VarSpace::Param => Local::Frame(self.frame_slot(var.size(), var.align)?),
            VarSpace::Shared if var.count.is_none() => Local::DynamicShared,
            VarSpace::Shared => Local::Shared(self.scope.place_shared(var)?),
            VarSpace::Global | VarSpace::Const => {
                self.scope.globals.push(super::global(var));
                Local::Global(self.scope.globals.len() as u32 - 1)
            }
        };
        self.define(var, local)
    }

    pub(super) fn find_var(&mut self, name: &str) -> Option<Local> {
        for block in self.blocks.iter().rev() {
            if let Some(&local) = block.vars.get(name) {
                return Some(local);
            }
        }
        match self.scope.symbols.get(name) {
            Some(&Symbol::Global(i)) => Some(Local::Global(i)),
            Some(&Symbol::Shared(at)) => Some(Local::Shared(at)),
            Some(Symbol::DynamicShared) => Some(Local::DynamicShared),
            _ => None,
        }
    }

    /// The register of that name, made at its first use.
    pub(super) fn find_reg(&mut self, name: &'s str) -> Result<Option<RegRef>, ModuleError> {
        let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count().min(10);
        for depth in (0..self.blocks.len()).rev() {
            let Some(block) = self.blocks.get_mut(depth) else { continue };
            let mut found = None;
            if block.regs.get(name).is_some_and(|r| r.count.is_none()) {
                found = Some((name, 0));
            }
            for split in 1..=digits {
                let (prefix, number) = name.split_at(name.len() - split);
                let canonical = number == "0" || !number.starts_with('0');
                let number: u32 = number.parse().unwrap_or(u32::MAX);
                let fits = |r: &Regs| canonical && r.count.is_some_and(|c| number < c);
                if found.is_none() && block.regs.get(prefix).is_some_and(fits) {
                    found = Some((prefix, number));
                }
            }
            let found = found.and_then(|(key, n)| Some((block.regs.get_mut(key)?, n)));
            let Some((regs, number)) = found else { continue };
            if let Some(&reg) = regs.made.get(&number) {
                return Ok(Some(reg));
            }
            let class = regs.class;
            let index = count_up(&mut self.code.counts, class);
            if index >= MAX_REGISTERS {
                return self.too_large("the registers");
            }
            let reg = RegRef { class, index };
            regs.made.insert(number, reg);
            return Ok(Some(reg));
        }
        Ok(None)
    }

    /// A register that no name has.
    pub(super) fn temp(&mut self, class: Class) -> RegRef {
        RegRef { class, index: count_up(&mut self.code.counts, class) }
    }

    /// The register that holds a constant.
    pub(super) fn constant(&mut self, class: Class, constant: Constant) -> RegRef {
        if let Some(&reg) = self.constants.get(&(class, constant)) {
            return reg;
        }
        let reg = self.temp(class);
        self.constants.insert((class, constant), reg);
        self.code.constants.push((reg, constant));
        reg
    }

    pub(super) fn emit(&mut self, op: Op, args: Args) -> usize {
        let (guard, invert) = self.guard;
        self.code.code.push(Instr { op, guard, invert, args });
        self.code.origin.push((self.span.0, self.span.1, self.place.line));
        self.code.code.len() - 1
    }

    fn instr(&mut self, instr: &'a Source<'s>) -> Result<(), ModuleError> {
        self.place = instr.place;
        self.span = instr.span;
        self.text = instr.opcode;
        self.guard = (NONE, 0);
        if let Some((negated, name)) = instr.guard {
            let Some(reg) = self.find_reg(name)? else {
                return self.fail(ModuleErrorKind::Undefined, format!("{name} is not declared"));
            };
            let index = crate::check::same(reg, Class::P, name, self.place)?;
            self.guard = (index, if negated { u32::MAX } else { 0 });
        }
        self.dispatch(instr)
    }

    /// Marks an instruction that the language has and this interpreter has not.
    pub(super) fn not_supported(&mut self) {
        let text = self.text;
        self.unsupported.get_or_insert_with(|| text.to_owned());
        self.emit(Op::Unsupported, Args::default());
    }
}

fn count_up(counts: &mut Counts, class: Class) -> u32 {
    let slot = match class {
        Class::P => &mut counts.p,
        Class::R16 => &mut counts.r16,
        Class::R32 => &mut counts.r32,
        Class::R64 => &mut counts.r64,
    };
    *slot += 1;
    *slot - 1
}
