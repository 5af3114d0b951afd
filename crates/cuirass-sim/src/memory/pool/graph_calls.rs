//! What the calls say of the memory that graphs' allocation nodes hold.

use super::graph::sweep;
use crate::c::Untyped;
use crate::state;
use crate::status::{Answer, INVALID_VALUE};
use cuirass_sys::cuda::{CUdevice, CUgraphMem_attribute as Attribute};

pub fn cuDeviceGetGraphMemAttribute(dev: CUdevice, attribute: Attribute, value: Untyped) -> Answer {
    let value = value.out::<u64>();
    value.check()?;
    let mut state = state::lock()?;
    let device = state.device(dev)?.ordinal;
    sweep(&mut state);
    let [used, held] = state.memory.graph_bytes(device);
    let [used_high, held_high] = *state.memory.graph_marks(device).ok_or(INVALID_VALUE)?;
    value.write(match attribute {
        Attribute::CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT => used,
        Attribute::CU_GRAPH_MEM_ATTR_USED_MEM_HIGH => used_high,
        Attribute::CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT => held,
        Attribute::CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH => held_high,
        _ => return Err(INVALID_VALUE),
    })
}

pub fn cuDeviceSetGraphMemAttribute(dev: CUdevice, attribute: Attribute, value: Untyped) -> Answer {
    let value = value.of::<u64>().read()?;
    let mut state = state::lock()?;
    let device = state.device(dev)?.ordinal;
    let [used, held] = state.memory.graph_bytes(device);
    let marks = state.memory.graph_marks(device).ok_or(INVALID_VALUE)?;
    match attribute {
        // High marks can only be set back to what is current.
        Attribute::CU_GRAPH_MEM_ATTR_USED_MEM_HIGH if value == 0 => marks[0] = used,
        Attribute::CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH if value == 0 => marks[1] = held,
        _ => return Err(INVALID_VALUE),
    }
    Ok(())
}

pub fn cuDeviceGraphMemTrim(dev: CUdevice) -> Answer {
    let mut state = state::lock()?;
    state.device(dev)?;
    sweep(&mut state);
    Ok(())
}
