//! What all workers of a launch share.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use super::trap::{Trap, TrapCode};
use crate::code::{Func, Program, SHARED_START, WORKSPACE};
use crate::fault::{Fault, FaultKind};
use crate::launch::{DeviceMemory, Host, Launch, Limits, Region};
use crate::lower::align_up;

/// A launch being run.
pub(crate) struct Machine<'m> {
    pub(crate) launch: &'m Launch<'m>,
    pub(crate) program: &'m Program,
    pub(crate) memory: &'m dyn DeviceMemory,
    pub(crate) host: &'m dyn Host,
    pub(crate) limits: Limits,
    /// Dynamic shared memory begins here in the shared window.
    pub(crate) dynamic_start: u64,
    pub(crate) shared_bytes: usize,
    pub(crate) blocks: u64,
    pub(crate) next_block: AtomicU64,
    /// Set once any worker has a fault.
    pub(crate) stop: AtomicBool,
    pub(crate) fault: Mutex<Option<Fault>>,
    pub(crate) fuel: Option<AtomicI64>,
    pub(crate) instructions: AtomicU64,
    pub(crate) done: AtomicU64,
    workspace: [AtomicU64; WORKSPACE_WORDS],
    kernel: &'m Func,
}

/// Words of a cooperative grid's workspace.
const WORKSPACE_WORDS: usize = 16;

impl<'m> Machine<'m> {
    pub(crate) fn new(
        launch: &'m Launch<'m>,
        memory: &'m dyn DeviceMemory,
        host: &'m dyn Host,
        limits: Limits,
    ) -> Option<Self> {
        let program = &launch.loaded.module.program;
        let kernel = program.funcs.get(launch.kernel.function as usize)?;
        if kernel.name != launch.kernel.name {
            return None;
        }
        let end = SHARED_START + u64::from(launch.kernel.static_shared);
        let dynamic_start = align_up(end, 16);
        let shared = dynamic_start - SHARED_START + u64::from(launch.dynamic_shared);
        Some(Self {
            launch,
            program,
            memory,
            host,
            limits,
            dynamic_start,
            shared_bytes: shared as usize,
            blocks: launch.grid.iter().fold(1u64, |n, &d| n.saturating_mul(d.into())),
            next_block: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            fault: Mutex::new(None),
            fuel: launch.fuel.map(|f| AtomicI64::new(i64::try_from(f).unwrap_or(i64::MAX))),
            instructions: AtomicU64::new(0),
            done: AtomicU64::new(0),
            workspace: Default::default(),
            kernel,
        })
    }

    /// The workspace, as a region like any other.
    pub(crate) fn workspace(&self) -> Region {
        Region {
            start: WORKSPACE,
            len: 8 * WORKSPACE_WORDS as u64,
            host: self.workspace.as_ptr().cast_mut().cast(),
            writable: true,
        }
    }

    pub(crate) fn kernel_func(&self) -> &'m Func {
        self.kernel
    }

    /// Counts instructions; refuses to go on when told to stop or out of fuel.
    pub(crate) fn charge(&self, instructions: u64) -> Result<(), TrapCode> {
        self.instructions.fetch_add(instructions, Ordering::Relaxed);
        if let Some(fuel) = &self.fuel {
            let spent = i64::try_from(instructions).unwrap_or(i64::MAX);
            if fuel.fetch_sub(spent, Ordering::Relaxed) < spent {
                return Err(TrapCode::OutOfFuel);
            }
        }
        if self.stop.load(Ordering::Relaxed) || self.host.cancelled() {
            return Err(TrapCode::Cancelled);
        }
        Ok(())
    }

    /// Keeps the first fault and stops the others.
    pub(crate) fn report(&self, trap: Trap, block: [u32; 3], warp: u32, func: u32, pc: u32) {
        let mut slot = match self.fault.lock() {
            Ok(slot) => slot,
            Err(poisoned) => poisoned.into_inner(),
        };
        // Workers that were told to stop have nothing to say.
        if slot.is_some() {
            return;
        }
        let (instruction, line) = self.program.text(func, pc);
        let thread = warp * 32 + trap.lane;
        let [w, h, _] = self.launch.block.map(|d| d.max(1));
        *slot = Some(Fault {
            kind: kind(trap.code, &instruction),
            kernel: self.launch.kernel.name.clone(),
            block,
            thread: [thread % w, thread / w % h, thread / w / h],
            instruction,
            line,
            address: trap.address,
            access_bytes: trap.bytes,
            write: trap.write,
        });
        self.stop.store(true, Ordering::SeqCst);
    }
}

fn kind(code: TrapCode, instruction: &str) -> FaultKind {
    match code {
        TrapCode::IllegalAddress => FaultKind::IllegalAddress,
        TrapCode::MisalignedAddress => FaultKind::MisalignedAddress,
        TrapCode::Trap => FaultKind::Trap,
        TrapCode::IllegalInstruction => FaultKind::IllegalInstruction,
        TrapCode::StackError => FaultKind::HardwareStackError,
        TrapCode::AddressSpace => FaultKind::InvalidAddressSpace,
        TrapCode::InvalidPc => FaultKind::InvalidPc,
        TrapCode::Assert => FaultKind::Assert,
        TrapCode::OutOfFuel => FaultKind::OutOfFuel,
        TrapCode::Cancelled => FaultKind::Cancelled,
        TrapCode::Deadlock => FaultKind::Deadlock,
        TrapCode::Unsupported => FaultKind::Unsupported(instruction.to_owned()),
    }
}
