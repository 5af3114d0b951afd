//! A launch as a stream's work.

use super::kernel::count;
use super::{heap, output};
use crate::handle::Handle;
use crate::memory::live::{LIVE, Live, NO_DEVICE, View, Watch};
use crate::memory::peer;
use crate::module::Callable;
use crate::order;
use crate::report;
use crate::state;
use crate::status::{
    ASSERT, HARDWARE_STACK_ERROR, ILLEGAL_ADDRESS, ILLEGAL_INSTRUCTION, INVALID_ADDRESS_SPACE, INVALID_PC,
    LAUNCH_FAILED, LAUNCH_TIMEOUT, MISALIGNED_ADDRESS, NOT_SUPPORTED, Status,
};
use crate::task::{Failure, Job, NodeKind, Task};
use cuirass_ptx::{DeviceMemory as _, Fault, FaultKind, Host, Launch, Limits};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::any::Any;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

/// Grids of so few threads are not worth a second worker.
const FEW: u64 = 4096;

/// A launch.
#[derive(Clone, Debug)]
pub struct KernelTask {
    /// What is run.
    pub callable: Arc<Callable>,
    /// The handle that the program gave for it.
    pub function: Handle,
    /// Blocks in the grid.
    pub grid: [u32; 3],
    /// Threads in a block.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub shared: u32,
    /// The parameters.
    pub params: SmallVec<[u8; 64]>,
    /// Whether all blocks must be there at the same time.
    pub cooperative: bool,
    /// How many instructions it may run.
    pub fuel: Option<u64>,
    /// How many multiprocessors the device has.
    pub multiprocessors: u32,
}

fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// The driver as a running kernel sees it.
struct Lent {
    context: Handle,
    device: usize,
    printed: Mutex<Vec<u8>>,
}

impl Host for Lent {
    fn print(&self, text: &[u8]) {
        self.printed.lock().extend_from_slice(text);
    }

    fn timer_ns(&self) -> u64 {
        state::now()
    }

    fn malloc(&self, bytes: u64) -> u64 {
        heap::malloc(self.context, self.device, bytes)
    }

    fn free(&self, address: u64) {
        heap::free(self.context, address);
    }

    fn set_condition(&self, handle: u64, value: u32) {
        crate::graph::condition::set(handle, value);
    }

    fn cancelled(&self) -> bool {
        false
    }
}

/// What every later call in the context answers.
fn status(kind: &FaultKind) -> Status {
    match kind {
        FaultKind::IllegalAddress => ILLEGAL_ADDRESS,
        FaultKind::MisalignedAddress => MISALIGNED_ADDRESS,
        FaultKind::IllegalInstruction => ILLEGAL_INSTRUCTION,
        FaultKind::HardwareStackError => HARDWARE_STACK_ERROR,
        FaultKind::InvalidAddressSpace => INVALID_ADDRESS_SPACE,
        FaultKind::InvalidPc => INVALID_PC,
        FaultKind::Assert => ASSERT,
        FaultKind::OutOfFuel | FaultKind::Deadlock => LAUNCH_TIMEOUT,
        FaultKind::Unsupported(_) => NOT_SUPPORTED,
        _ => LAUNCH_FAILED,
    }
}

fn failure(fault: &Fault, view: &View<'_>) -> Failure {
    let mut text = fault.to_string();
    if let FaultKind::Unsupported(what) = &fault.kind {
        report::unsupported(format!("kernel {} needs {what}, which is not simulated", fault.kernel));
    }
    if matches!(fault.kind, FaultKind::IllegalAddress | FaultKind::MisalignedAddress)
        && let Some(address) = fault.address
        && let Ok(state) = state::lock()
    {
        text.push_str("; ");
        text.push_str(&state.memory.about(address));
        if state.memory.find(address).is_some() && fault.kind == FaultKind::IllegalAddress {
            text.push_str("; ");
            text.push_str(&match LIVE.find(address) {
                None => "work of another stream that has not run yet makes or frees it".to_owned(),
                Some(live) if view.region(address).is_none() => {
                    let (owner, way) = match live.device {
                        None => ("the host".to_owned(), "cuMemPoolSetAccess"),
                        Some(NO_DEVICE) => ("reserved addresses".to_owned(), "cuMemSetAccess"),
                        Some(owner) => (
                            format!("device {owner}"),
                            "cuMemPoolSetAccess for memory of a pool, peer_accessible_by in Python; else \
                             cuCtxEnablePeerAccess",
                        ),
                    };
                    format!("device {} has no access to this allocation of {owner} ({way})", view.device)
                }
                Some(Live { writable: false, .. }) => {
                    "the access reaches past its end, or is a write to constant memory".to_owned()
                }
                Some(_) => "the access reaches past its end".to_owned(),
            });
        }
    }
    Failure { status: status(&fault.kind), text }
}

impl Task for KernelTask {
    fn run(&self, job: &Job) -> Result<(), Failure> {
        let peers =
            if self.multiple_devices() { state::lock().map_or(0, |state| peer::mask(&state, job.context)) } else { 0 };
        let watch = job.order.clone().map(|operation| Watch {
            operation,
            touched: Mutex::default(),
            told: AtomicBool::new(false),
        });
        let memory = View { map: &LIVE, device: job.device, peers, watch };
        let lent = Lent { context: job.context, device: job.device, printed: Mutex::new(Vec::new()) };
        let few = count(self.grid).saturating_mul(count(self.block)) <= FEW;
        let launch = Launch {
            kernel: &self.callable.kernel,
            loaded: &self.callable.loaded,
            grid: self.grid,
            block: self.block,
            dynamic_shared: self.shared,
            params: &self.params,
            workers: if few { 1 } else { cores() },
            fuel: self.fuel,
            grid_id: job.number,
            multiprocessors: self.multiprocessors,
        };
        let limits = Limits { cooperative: self.cooperative, ..Limits::default() };
        let outcome = cuirass_ptx::run_with(&launch, &memory, &lent, &limits);
        let outcome = outcome.map(drop).map_err(|fault| failure(&fault, &memory));
        output::keep(&lent.printed.lock());
        if let Some(watch) = memory.watch {
            let name = || format!("kernel {} of ", self.callable.kernel.name());
            order::touched(&watch.operation, name, watch.touched.into_inner(), watch.told.into_inner());
        }
        outcome
    }

    fn node(&self) -> NodeKind {
        NodeKind::Kernel
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl KernelTask {
    /// Whether other devices' memory could be in play.
    fn multiple_devices(&self) -> bool {
        crate::config::config().is_ok_and(|config| config.devices > 1)
    }
}
