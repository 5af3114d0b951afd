//! Fills.

use super::{Bytes, Expect, Missing, Side};
use crate::host;
use crate::order;
use crate::state::{self, State};
use crate::status::{Answer, INVALID_VALUE};
use crate::task::{Failure, Job, NodeKind, Task};
use cuirass_ptx::{Touch, Touched};
use cuirass_sys::cuda::{CUdeviceptr, CUstream};
use std::any::Any;
use std::ffi::{c_uchar, c_uint, c_ushort};

/// A fill of rows with a value of 1, 2 or 4 bytes.
#[derive(Clone, Copy, Debug)]
pub struct Fill {
    /// What is filled.
    pub to: Side,
    /// From row to row, in bytes.
    pub pitch: u64,
    /// The value.
    pub value: u32,
    /// Its size in bytes.
    pub element: u64,
    /// Elements in a row.
    pub width: u64,
    /// Rows.
    pub height: u64,
}

impl Fill {
    /// A fill that has been checked.
    ///
    /// # Errors
    /// `INVALID_VALUE`
    pub fn new(state: &State, address: u64, pitch: u64, value: u32, element: u64, size: (u64, u64)) -> Answer<Self> {
        let (width, height) = size;
        if !matches!(element, 1 | 2 | 4) || !address.is_multiple_of(element) {
            return Err(INVALID_VALUE);
        }
        let row = width.checked_mul(element).ok_or(INVALID_VALUE)?;
        if height > 1 && (pitch < row || !pitch.is_multiple_of(element)) {
            return Err(INVALID_VALUE);
        }
        let extent = extent(row, height, pitch)?;
        let to = state.side(address, extent, Expect::Device)?;
        Ok(Self { to, pitch, value, element, width, height })
    }

    /// The bytes that are written, if they are in a row.
    pub fn row(&self) -> Option<(u64, u64)> {
        (self.height == 1 || self.pitch == self.width * self.element)
            .then(|| (self.to.address, self.to.address + self.bytes()))
    }

    fn bytes(&self) -> u64 {
        self.width * self.element * self.height
    }
}

/// From the first byte of rows to behind the last.
pub(super) fn extent(row: u64, height: u64, pitch: u64) -> Answer<u64> {
    let lines = height.saturating_sub(1).checked_mul(pitch).ok_or(INVALID_VALUE)?;
    lines.checked_add(row).ok_or(INVALID_VALUE)
}

impl State {
    /// Refuses what a driver takes into a graph, and does not make executable.
    ///
    /// # Errors
    /// `INVALID_VALUE`
    pub fn can_be_executable(&self, task: &dyn Task) -> Answer {
        let Some(fill) = task.as_any().downcast_ref::<Fill>() else { return Ok(()) };
        self.is_in_one_mapping(fill.to.address, extent(fill.width * fill.element, fill.height, fill.pitch)?)
    }
}

impl Bytes for Fill {
    fn attempt(&self) -> Result<(), Missing> {
        let row = self.width * self.element;
        let extent = (self.height - 1) * self.pitch + row;
        let to = self.to.host(extent)?;
        // Rows without a gap are one row.
        let (width, height) = if row == self.pitch { (self.width * self.height, 1) } else { (self.width, self.height) };
        for line in 0..height {
            host::fill(to + (line * self.pitch) as usize, self.value, self.element as usize, width as usize);
        }
        Ok(())
    }
}

impl Task for Fill {
    fn run(&self, job: &Job) -> Result<(), Failure> {
        if job.order.is_some() {
            let mut touched = Touched::default();
            let lines = (0..self.height).map(|line| self.to.address + line * self.pitch);
            lines.for_each(|line| touched.add(Touch::Write, line, self.width * self.element));
            order::moved(job, order::FILL, touched);
        }
        self.attempt().map_err(|missing| missing.locked())
    }

    fn node(&self) -> NodeKind {
        NodeKind::Fill
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn fill(raw: CUstream, to: u64, pitch: usize, value: u32, element: u64, width: usize, height: usize) -> Answer {
    let mut state = state::lock()?;
    let at = state.stream(raw)?;
    state.not_lost(at.context)?;
    if width == 0 || height == 0 {
        return Ok(());
    }
    let task = Fill::new(&state, to, pitch as u64, value, element, (width as u64, height as u64))?;
    let device = state.context(at.context)?.device;
    let extent = extent(task.width * task.element, task.height, task.pitch)?;
    state.can_fill(device, to, extent)?;
    if !state.is_captured(&at) {
        state.is_in_one_mapping(to, extent)?;
    }
    state.submit_bytes(&at, task.bytes(), task).map(drop)
}

const LEGACY: CUstream = std::ptr::null_mut();

pub fn cuMemsetD8_v2(to: CUdeviceptr, value: c_uchar, count: usize) -> Answer {
    fill(LEGACY, to, 0, value.into(), 1, count, 1)
}

pub fn cuMemsetD16_v2(to: CUdeviceptr, value: c_ushort, count: usize) -> Answer {
    fill(LEGACY, to, 0, value.into(), 2, count, 1)
}

pub fn cuMemsetD32_v2(to: CUdeviceptr, value: c_uint, count: usize) -> Answer {
    fill(LEGACY, to, 0, value, 4, count, 1)
}

pub fn cuMemsetD8Async(to: CUdeviceptr, value: c_uchar, count: usize, stream: CUstream) -> Answer {
    fill(stream, to, 0, value.into(), 1, count, 1)
}

pub fn cuMemsetD16Async(to: CUdeviceptr, value: c_ushort, count: usize, stream: CUstream) -> Answer {
    fill(stream, to, 0, value.into(), 2, count, 1)
}

pub fn cuMemsetD32Async(to: CUdeviceptr, value: c_uint, count: usize, stream: CUstream) -> Answer {
    fill(stream, to, 0, value, 4, count, 1)
}

pub fn cuMemsetD2D8_v2(to: CUdeviceptr, pitch: usize, value: c_uchar, width: usize, height: usize) -> Answer {
    fill(LEGACY, to, pitch, value.into(), 1, width, height)
}

pub fn cuMemsetD2D16_v2(to: CUdeviceptr, pitch: usize, value: c_ushort, width: usize, height: usize) -> Answer {
    fill(LEGACY, to, pitch, value.into(), 2, width, height)
}

pub fn cuMemsetD2D32_v2(to: CUdeviceptr, pitch: usize, value: c_uint, width: usize, height: usize) -> Answer {
    fill(LEGACY, to, pitch, value, 4, width, height)
}

pub fn cuMemsetD2D8Async(
    to: CUdeviceptr,
    pitch: usize,
    value: c_uchar,
    width: usize,
    height: usize,
    stream: CUstream,
) -> Answer {
    fill(stream, to, pitch, value.into(), 1, width, height)
}

pub fn cuMemsetD2D16Async(
    to: CUdeviceptr,
    pitch: usize,
    value: c_ushort,
    width: usize,
    height: usize,
    stream: CUstream,
) -> Answer {
    fill(stream, to, pitch, value.into(), 2, width, height)
}

pub fn cuMemsetD2D32Async(
    to: CUdeviceptr,
    pitch: usize,
    value: c_uint,
    width: usize,
    height: usize,
    stream: CUstream,
) -> Answer {
    fill(stream, to, pitch, value, 4, width, height)
}
