//! Memory: plain allocations and copies (`buffer`), pools (`pool`), page-locked host memory (`pinned`), managed memory
//! (`managed`), virtual address ranges (`virtual`), access between devices (`peer`) and between processes (`ipc`).

pub mod buffer;
pub mod ipc;
pub mod managed;
pub mod peer;
pub mod pinned;
pub mod pool;
pub mod r#virtual;

use cuirass_fault::room;

/// From which index on each entry of a batch's list holds: one for all from 0 on, or one each.
struct Indices {
    one: [usize; 1],
    many: Vec<usize>,
}

impl Indices {
    fn of(entries: usize) -> crate::Result<Indices> {
        let many = if entries > 1 { room::list(0..entries, "for a batch")? } else { Vec::new() };
        Ok(Indices { one: [0], many })
    }

    fn as_mut_ptr(&mut self) -> *mut usize {
        if self.many.is_empty() { self.one.as_mut_ptr() } else { self.many.as_mut_ptr() }
    }
}
