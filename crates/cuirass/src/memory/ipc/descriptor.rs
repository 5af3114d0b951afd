//! What stands for memory and events of one process in another: bytes that any channel may carry.

use crate::Result;
use cuirass_call::sys::cuda::{CUipcEventHandle, CUmemPoolPtrExportData};
use cuirass_fault::{Failure, Misuse};
use std::fmt;

const BUFFER_MARK: [u8; 8] = *b"cuirassM";
const EVENT_MARK: [u8; 8] = *b"cuirassE";
const HANDLE: usize = 64;

/// What another process imports memory by. It comes from a peer that is trusted: what it says is not checked, but that
/// it is whole.
#[derive(Clone, PartialEq, Eq)]
pub struct IpcBufferDescriptor {
    data: [u8; HANDLE],
    bytes: usize,
    /// The exporter's process and pool, where they are known.
    origin: Option<(u32, [u8; 16])>,
}

/// What another process opens an event by.
#[derive(Clone, PartialEq, Eq)]
pub struct IpcEventDescriptor {
    handle: [u8; HANDLE],
    blocking_sync: bool,
    /// The exporter's process and device, where they are known.
    origin: Option<(u32, [u8; 16])>,
}

impl IpcBufferDescriptor {
    /// How many bytes [`to_bytes`](IpcBufferDescriptor::to_bytes) gives.
    pub const LENGTH: usize = WHOLE;

    pub(super) fn of(data: CUmemPoolPtrExportData, bytes: usize, pool: Option<[u8; 16]>) -> IpcBufferDescriptor {
        let data = data.reserved;
        IpcBufferDescriptor { data, bytes, origin: pool.map(|pool| (std::process::id(), pool)) }
    }

    /// The driver's own data alone, as another library has exported it, of memory of this size.
    pub fn from_raw(data: [u8; HANDLE], bytes: usize) -> IpcBufferDescriptor {
        IpcBufferDescriptor { data, bytes, origin: None }
    }

    /// The size of the memory, in bytes.
    pub fn size(&self) -> usize {
        self.bytes
    }

    /// The UUID of the pool that the memory is of, where it is known.
    pub fn pool(&self) -> Option<[u8; 16]> {
        self.origin.map(|(_, pool)| pool)
    }

    /// As it is sent.
    pub fn to_bytes(&self) -> [u8; WHOLE] {
        pack(BUFFER_MARK, self.origin, self.bytes as u64, &self.data)
    }

    /// As it was received.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for bytes that are no such descriptor, or not a whole one.
    pub fn from_bytes(bytes: &[u8]) -> Result<IpcBufferDescriptor> {
        let (origin, size, data) = unpack("an IPC buffer descriptor", BUFFER_MARK, bytes)?;
        Ok(IpcBufferDescriptor { data, bytes: usize::try_from(size).unwrap_or(usize::MAX), origin })
    }

    /// The driver's own data.
    pub(super) fn data(&self) -> CUmemPoolPtrExportData {
        CUmemPoolPtrExportData { reserved: self.data }
    }

    /// Says in an error of the driver's what was imported.
    pub(super) fn note_on(&self, failure: Failure) -> Failure {
        match self.origin.filter(|_| failure.status().is_some()) {
            None => failure,
            Some((process, _)) => failure.note(format!(
                "the memory was exported by process {process}, which must live and not have freed it yet"
            )),
        }
    }
}

impl IpcEventDescriptor {
    /// How many bytes [`to_bytes`](IpcEventDescriptor::to_bytes) gives.
    pub const LENGTH: usize = WHOLE;

    pub(super) fn of(handle: CUipcEventHandle, blocking_sync: bool, device: [u8; 16]) -> IpcEventDescriptor {
        let handle = handle.reserved.map(std::ffi::c_char::cast_unsigned);
        IpcEventDescriptor { handle, blocking_sync, origin: Some((std::process::id(), device)) }
    }

    /// The driver's own handle alone, as another library has exported it.
    pub fn from_raw(handle: [u8; HANDLE], blocking_sync: bool) -> IpcEventDescriptor {
        IpcEventDescriptor { handle, blocking_sync, origin: None }
    }

    /// Whether waiting for the event sleeps instead of spinning.
    pub fn blocking_sync(&self) -> bool {
        self.blocking_sync
    }

    /// As it is sent.
    pub fn to_bytes(&self) -> [u8; WHOLE] {
        pack(EVENT_MARK, self.origin, u64::from(self.blocking_sync), &self.handle)
    }

    /// As it was received.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for bytes that are no such descriptor, or not a whole one.
    pub fn from_bytes(bytes: &[u8]) -> Result<IpcEventDescriptor> {
        let (origin, flags, handle) = unpack("an IPC event descriptor", EVENT_MARK, bytes)?;
        Ok(IpcEventDescriptor { handle, blocking_sync: flags & 1 != 0, origin })
    }

    /// The UUID of the device that the event is on, where it is known.
    pub(super) fn device(&self) -> Option<[u8; 16]> {
        self.origin.map(|(_, device)| device)
    }

    pub(super) fn handle(&self) -> CUipcEventHandle {
        CUipcEventHandle { reserved: self.handle.map(u8::cast_signed) }
    }

    /// Says in an error what was opened.
    pub(super) fn note_on(&self, failure: Failure) -> Failure {
        match self.origin {
            None => failure,
            Some((process, _)) if process == std::process::id() => {
                failure.note("the event is this process's own: only other processes open it")
            }
            Some((process, _)) => failure.note(format!(
                "the event was exported by process {process}, which must live and not have closed it yet"
            )),
        }
    }
}

/// The mark, the exporter's process and whether it is known, its pool or device, a number, the driver's data, the sum.
const WHOLE: usize = 8 + 8 + 16 + 8 + HANDLE + 8;

type Origin = Option<(u32, [u8; 16])>;

fn pack(mark: [u8; 8], origin: Origin, number: u64, data: &[u8; HANDLE]) -> [u8; WHOLE] {
    let (process, of) = origin.map_or((0, [0; 16]), |(process, of)| (u64::from(process) << 1 | 1, of));
    let mut bytes = [0; WHOLE];
    let words: [&[u8]; 5] = [&mark, &process.to_le_bytes(), &of, &number.to_le_bytes(), data];
    words.concat().iter().zip(&mut bytes).for_each(|(from, to)| *to = *from);
    let (body, last) = bytes.split_at_mut(WHOLE - 8);
    last.copy_from_slice(&sum(body).to_le_bytes());
    bytes
}

fn unpack(what: &str, mark: [u8; 8], bytes: &[u8]) -> Result<(Origin, u64, [u8; HANDLE])> {
    let wrong = |how: String| Failure::misuse(Misuse::Value, format!("this is not {what}: {how}"));
    if bytes.len() != WHOLE {
        return Err(wrong(format!("it has {WHOLE} bytes, and these are {}", bytes.len())).raise());
    }
    let parts = || {
        let (body, last) = bytes.split_last_chunk::<8>()?;
        let (begin, rest) = body.split_first_chunk::<8>()?;
        let (process, rest) = rest.split_first_chunk::<8>()?;
        let (of, rest) = rest.split_first_chunk::<16>()?;
        let (number, rest) = rest.split_first_chunk::<8>()?;
        let whole = u64::from_le_bytes(*last) == sum(body);
        let process = u64::from_le_bytes(*process);
        let origin = (process & 1 != 0).then(|| (u32::try_from(process >> 1).unwrap_or(0), *of));
        Some((*begin == mark, whole, origin, u64::from_le_bytes(*number), *rest.first_chunk::<HANDLE>()?))
    };
    match parts() {
        Some((true, true, origin, number, data)) => Ok((origin, number, data)),
        Some((true, false, ..)) => Err(wrong("its bytes were changed on the way".to_owned()).raise()),
        _ => Err(wrong("it does not begin as one".to_owned()).raise()),
    }
}

/// The FNV-1a sum: it finds bytes that were changed by accident.
fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

impl fmt::Debug for IpcBufferDescriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IpcBufferDescriptor({} bytes, {:?})", self.bytes, self.origin.map(|(process, _)| process))
    }
}

impl fmt::Debug for IpcEventDescriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IpcEventDescriptor({:?})", self.origin.map(|(process, _)| process))
    }
}
