//! Devices: GPUs by ordinal.

use crate::context::{Context, scope};
use crate::driver::initialized;
use crate::event::{Event, EventOptions};
use crate::graph::spare::Spare;
use crate::memory::DeviceMemoryResource;
use crate::stream::{Stream, StreamKind, StreamOptions};
use crate::{Outcome, Result};
use cuirass_call::context as context_call;
use cuirass_call::device as call;
use cuirass_call::owner::{self, Kind, Owned};
use cuirass_call::sys::cuda::{CUcontext, CUdevice, CUdevice_attribute};
use cuirass_fault::lock::Mutex;
use cuirass_fault::{Failure, Misuse};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

/// An attribute of a device: the driver's numbers, by the driver's names.
pub type DeviceAttribute = CUdevice_attribute;

/// A GPU, by ordinal. It is a small copyable value; what it stands for lives as long as the process.
///
/// Its primary context is retained by the first operation that needs it, once, and kept until
/// [`release_primary_context`](Device::release_primary_context).
#[derive(Clone, Copy)]
pub struct Device(&'static Slot);

/// What is known of a device, once for the process.
struct Slot {
    ordinal: i32,
    raw: CUdevice,
    /// The primary context's handle while it is retained, for those who need only that.
    current: AtomicPtr<cuirass_call::sys::cuda::CUctx_st>,
    primary: Mutex<Option<Context>>,
    pool: Mutex<Option<DeviceMemoryResource>>,
    /// A stream of the primary context, while that is retained.
    spare: Spare,
}

static SLOTS: OnceLock<Vec<Slot>> = OnceLock::new();

/// The devices; a failed attempt leaves nothing behind, so that the next one fails, or works, on its own.
fn slots() -> Outcome<&'static [Slot]> {
    if let Some(slots) = SLOTS.get() {
        return if crate::driver::is_forked() { initialized().map(|()| slots.as_slice()) } else { Ok(slots) };
    }
    initialized()?;
    let count = call::get_count()?;
    let mut slots = Vec::new();
    for ordinal in 0..count {
        let raw = call::get(ordinal)?;
        let current = AtomicPtr::new(std::ptr::null_mut());
        let (primary, pool, spare) = (Mutex::new(None), Mutex::new(None), Spare::new());
        slots.push(Slot { ordinal, raw, current, primary, pool, spare });
    }
    Ok(SLOTS.get_or_init(|| slots))
}

const MORE_DEVICES: &str = "the simulated driver has as many devices as CUIRASS_SIM says when the first call is made: \
                            CUIRASS_SIM=devices=2";

impl Device {
    /// The device of an ordinal.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) without a driver,
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for an ordinal that does not exist.
    #[inline]
    pub fn new(ordinal: i32) -> Result<Device> {
        match SLOTS.get().and_then(|slots| slots.get(usize::try_from(ordinal).ok()?)) {
            Some(slot) if !crate::driver::is_forked() => Ok(Device(slot)),
            _ => Ok(Device::find(ordinal)?),
        }
    }

    fn find(ordinal: i32) -> Outcome<Device> {
        let slots = slots()?;
        match usize::try_from(ordinal).ok().and_then(|index| slots.get(index)) {
            Some(slot) => Ok(Device(slot)),
            None => {
                let last = i64::try_from(slots.len()).unwrap_or(0) - 1;
                let message = format!("device_id must be from 0 to {last}, it is {ordinal}");
                let failure = Failure::misuse(Misuse::Value, message);
                let is_simulated = crate::driver::loaded().is_some_and(|library| library.is_simulator);
                Err(if is_simulated { failure.note(MORE_DEVICES) } else { failure })
            }
        }
    }

    pub(crate) fn of_raw(raw: CUdevice) -> Outcome<Device> {
        match slots()?.iter().find(|slot| slot.raw == raw) {
            Some(slot) => Ok(Device(slot)),
            None => Err(Failure::internal(format_args!("the driver named a device {raw} that it did not list"))),
        }
    }

    /// All devices, in the driver's order.
    ///
    /// # Errors
    /// As [`new`](Device::new).
    pub fn all() -> Result<Vec<Device>> {
        Ok(slots()?.iter().map(Device).collect())
    }

    /// The device of the context that is current on this thread; `None` where none is.
    ///
    /// # Errors
    /// What `cuCtxGetCurrent` and `cuCtxGetDevice` answer.
    pub fn current() -> Result<Option<Device>> {
        Ok(Context::current_inner()?.map(|context| context.device()))
    }

    pub(crate) fn raw(self) -> CUdevice {
        self.0.raw
    }

    /// The driver's handle, which is a number.
    pub fn as_raw(self) -> CUdevice {
        self.0.raw
    }

    /// Its ordinal.
    pub fn ordinal(self) -> i32 {
        self.0.ordinal
    }

    /// Its primary context, retained by the first call.
    ///
    /// # Errors
    /// What `cuDevicePrimaryCtxRetain` answers.
    pub fn context(self) -> Result<Context> {
        Ok(self.primary()?)
    }

    pub(crate) fn primary(self) -> Outcome<Context> {
        // Retaining takes long and may fail: it is done without the lock, and a second one is given back.
        if let Some(context) = self.primary_if_retained() {
            return Ok(context);
        }
        let fresh = Context::retain_primary(self)?;
        let (kept, spare) = {
            let mut slot = self.0.primary.lock();
            match &*slot {
                Some(first) => (first.clone(), Some(fresh)),
                None => {
                    self.0.current.store(fresh.raw(), Ordering::Release);
                    *slot = Some(fresh.clone());
                    (fresh, None)
                }
            }
        };
        match spare.map(Context::close_inner) {
            None | Some(Ok(())) => Ok(kept),
            Some(Err(failure)) => Err(failure),
        }
    }

    pub(crate) fn primary_if_retained(self) -> Option<Context> {
        self.0.primary.lock().clone()
    }

    /// The primary context's handle.
    #[inline]
    fn primary_raw(self) -> Outcome<CUcontext> {
        let known = self.0.current.load(Ordering::Acquire);
        if known.is_null() { self.primary().map(|context| context.raw()) } else { Ok(known) }
    }

    /// Whether its primary context has been retained.
    pub fn has_primary_context(self) -> bool {
        !self.0.current.load(Ordering::Acquire).is_null()
    }

    /// Gives up the process's share of the primary context and of the default memory resource. Objects made in it
    /// keep it alive; with the last of them it is released. A later operation retains it anew.
    ///
    /// # Errors
    /// What the driver answers to the release.
    pub fn release_primary_context(self) -> Result<()> {
        let pool = self.0.pool.lock().take();
        drop(pool);
        let context = {
            let mut slot = self.0.primary.lock();
            self.0.current.store(std::ptr::null_mut(), Ordering::Release);
            slot.take()
        };
        let given_back = self.0.spare.give_back();
        match (given_back, context.map_or(Ok(()), Context::close_inner)) {
            (given_back, Ok(())) => Ok(given_back?),
            (Ok(()), Err(failure)) => Err(failure.raise()),
            (Err(first), Err(failure)) => Err(failure.attach_to(first, "the context was not released either").raise()),
        }
    }

    /// The stream that is kept for the next graph builder, of the primary context, whose number this is.
    pub(crate) fn spare_stream(self, id: u64) -> Option<Owned<StreamKind>> {
        self.0.spare.take(id)
    }

    /// Keeps a stream for the next graph builder where it is one of the primary context while that is retained. What is not
    /// kept is returned, to be given back.
    pub(crate) fn keep_stream(self, stream: Owned<StreamKind>, id: u64) -> Option<Owned<StreamKind>> {
        let primary = self.0.primary.lock();
        if primary.as_ref() == Some(stream.parent()) { self.0.spare.keep(stream, id) } else { Some(stream) }
    }

    /// Destroys the streams that are kept for graph builders, on all devices.
    pub(crate) fn give_spare_streams_back() {
        for slot in SLOTS.get().into_iter().flatten() {
            if let Err(failure) = slot.spare.give_back() {
                owner::report_release(StreamKind::NAME, ", which was kept for the next graph builder", failure);
            }
        }
    }

    /// Makes its primary context current on this thread, with one `cuCtxSetCurrent`.
    ///
    /// # Errors
    /// What the driver answers; the previous context is then still current.
    #[inline]
    pub fn set_current(self) -> Result<()> {
        Ok(context_call::ctx_set_current(self.primary_raw()?)?)
    }

    /// `cuDeviceGetName`
    ///
    /// # Errors
    /// What the driver answers.
    pub fn name(self) -> Result<String> {
        Ok(call::get_name(self.raw())?)
    }

    /// `cuDeviceGetUuid_v2`
    ///
    /// # Errors
    /// What the driver answers.
    pub fn uuid(self) -> Result<[u8; 16]> {
        Ok(call::get_uuid(self.raw())?)
    }

    /// `cuDeviceGetPCIBusId`: `0000:06:00.0`
    ///
    /// # Errors
    /// What the driver answers.
    pub fn pci_bus_id(self) -> Result<String> {
        Ok(call::get_pci_bus_id(self.raw())?)
    }

    /// `cuDeviceTotalMem_v2`: in bytes.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn total_memory(self) -> Result<usize> {
        Ok(call::total_mem(self.raw())?)
    }

    /// `cuDeviceGetAttribute`; `None` for an attribute that this driver does not know.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn attribute(self, attribute: DeviceAttribute) -> Result<Option<i32>> {
        Ok(call::get_attribute(self.raw(), attribute)?)
    }

    /// The compute capability: `(9, 0)`.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn compute_capability(self) -> Result<(i32, i32)> {
        let part = |attribute| Ok::<i32, crate::Error>(self.attribute(attribute)?.unwrap_or(0));
        Ok((
            part(DeviceAttribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            part(DeviceAttribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ))
    }

    /// A stream in its primary context.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for a priority out of range; what the driver answers.
    pub fn create_stream(self, options: &StreamOptions) -> Result<Stream> {
        Stream::create_in(self.context()?, options)
    }

    /// An event in its primary context.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn create_event(self, options: &EventOptions) -> Result<Event> {
        Event::create_in(self.context()?, options)
    }

    /// The resource of its current memory pool, which is its default one unless somebody has set another.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn memory_resource(self) -> Result<DeviceMemoryResource> {
        let known = self.0.pool.lock().clone();
        if let Some(pool) = known {
            return Ok(pool);
        }
        let fresh = DeviceMemoryResource::current_of(self)?;
        Ok(self.0.pool.lock().get_or_insert(fresh).clone())
    }

    /// Waits for all work in its primary context.
    ///
    /// # Errors
    /// What `cuCtxSynchronize` answers, an earlier kernel's fault among it.
    pub fn synchronize(self) -> Result<()> {
        Ok(scope::read(self.primary_raw()?, context_call::ctx_synchronize)?)
    }
}

impl PartialEq for Device {
    fn eq(&self, other: &Device) -> bool {
        self.0.ordinal == other.0.ordinal
    }
}

impl Eq for Device {}

impl std::hash::Hash for Device {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.ordinal.hash(state);
    }
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Device({})", self.0.ordinal)
    }
}
