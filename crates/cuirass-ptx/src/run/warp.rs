//! A warp: its lanes, their groups by program counter, and their frames.

use super::machine::Machine;
use super::trap::{Trap, TrapCode};
use crate::code::{Class, Constant, LOCAL_START, Special, WORKSPACE};
use crate::frame::{Frame, LANES};

/// What a group waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    Ready,
    /// A block-wide barrier of that number.
    Bar(u8),
    /// Other lanes of this mask, at a warp-wide instruction.
    Sync(u32),
}

/// Lanes that are at the same instruction of the same frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    pub(crate) mask: u32,
    pub(crate) pc: u32,
    pub(crate) frame: u32,
    pub(crate) wait: Wait,
    /// When it last ran, so that a spinning group cannot starve the others.
    pub(crate) ran: u64,
}

/// 32 lanes, fewer in a block's last warp.
#[derive(Debug, Default)]
pub(crate) struct Warp {
    pub(crate) index: u32,
    /// Lanes that are threads, and those of them that have ended.
    pub(crate) lanes: u32,
    pub(crate) exited: u32,
    pub(crate) groups: Vec<Group>,
    pub(crate) frames: Vec<Frame>,
    free: Vec<u32>,
    /// Local memory, lane by lane.
    pub(crate) local: Vec<u8>,
    pub(crate) stride: u32,
    /// The end of the deepest frame so far.
    pub(crate) local_end: u32,
    /// The time of groups' `ran`.
    pub(crate) now: u64,
    /// The last turn ended with a group that waits for others.
    pub(crate) gave_way: bool,
}

impl Warp {
    pub(crate) fn live(&self) -> u32 {
        self.lanes & !self.exited
    }

    pub(crate) fn finished(&self) -> bool {
        self.groups.is_empty()
    }

    /// Begins a block.
    pub(crate) fn start(
        &mut self,
        machine: &Machine<'_>,
        index: u32,
        threads: u32,
        ctaid: [u32; 3],
    ) -> Result<(), Trap> {
        self.index = index;
        self.lanes = if threads >= 32 { u32::MAX } else { (1 << threads) - 1 };
        self.exited = 0;
        self.gave_way = false;
        self.groups.clear();
        // The kernel's own frame is always the first; its constants are there already.
        let fresh = self.frames.is_empty();
        self.free.clear();
        self.free.extend(1..self.frames.len() as u32);
        if fresh {
            self.frames.push(Frame::default());
        }
        let func = machine.kernel_func();
        let frame = &mut self.frames[0];
        frame.shape(func);
        frame.func = machine.launch.kernel.function;
        frame.parent = u32::MAX;
        frame.base = LOCAL_START as u32;
        frame.live = self.lanes;
        frame.depth = 0;
        for (reg, constant) in &func.constants {
            let moves = matches!(constant, Constant::Special(Special::Ctaid(_) | Special::SmId));
            if fresh || moves {
                fill(frame, machine, ctaid, index, reg.class, reg.index, *constant);
            }
        }
        self.local_end = 0;
        self.reach(machine, LOCAL_START + u64::from(func.frame_bytes), self.lanes)?;
        self.groups.push(Group { mask: self.lanes, pc: 0, frame: 0, wait: Wait::Ready, ran: 0 });
        Ok(())
    }

    /// Makes room for frames up to `end`.
    fn reach(&mut self, machine: &Machine<'_>, end: u64, mask: u32) -> Result<(), Trap> {
        let own = u64::from(machine.kernel_func().frame_bytes) + LOCAL_START;
        if end > own + u64::from(machine.limits.stack_bytes) {
            return Err(Trap::new(TrapCode::StackError, mask));
        }
        let end = end as u32;
        self.local_end = self.local_end.max(end);
        if end > self.stride {
            let stride = end.next_multiple_of(64).max(self.stride.saturating_mul(2));
            let mut local = vec![0; stride as usize * LANES];
            if self.stride > 0 {
                let old = self.local.chunks(self.stride as usize);
                for (to, from) in local.chunks_mut(stride as usize).zip(old) {
                    to[..from.len()].copy_from_slice(from);
                }
            }
            self.local = local;
            self.stride = stride;
        }
        Ok(())
    }

    /// A frame for a call from `parent`.
    pub(crate) fn push_frame(
        &mut self,
        machine: &Machine<'_>,
        ctaid: [u32; 3],
        function: u32,
        parent: u32,
        call_pc: u32,
        mask: u32,
    ) -> Result<u32, Trap> {
        let funcs = &machine.program.funcs;
        let Some(func) = funcs.get(function as usize).filter(|f| f.defined) else {
            return Err(Trap::new(TrapCode::InvalidPc, mask));
        };
        let up = &self.frames[parent as usize];
        let depth = up.depth + 1;
        let up_bytes = funcs.get(up.func as usize).map_or(0, |f| f.frame_bytes);
        let base = u64::from(up.base) + u64::from(up_bytes);
        if depth > machine.limits.call_depth {
            return Err(Trap::new(TrapCode::StackError, mask));
        }
        // A call costs stack even if the function has no variables.
        let end = base + u64::from(func.frame_bytes) + 16;
        self.reach(machine, end, mask)?;
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                self.frames.push(Frame::default());
                self.frames.len() as u32 - 1
            }
        };
        let warp = self.index;
        let frame = &mut self.frames[index as usize];
        frame.shape(func);
        frame.func = function;
        frame.parent = parent;
        frame.call_pc = call_pc;
        frame.base = base as u32;
        frame.live = mask;
        frame.depth = depth;
        for (reg, constant) in &func.constants {
            fill(frame, machine, ctaid, warp, reg.class, reg.index, *constant);
        }
        Ok(index)
    }

    /// Lanes leave a frame.
    pub(crate) fn leave(&mut self, frame: u32, mask: u32) {
        if let Some(f) = self.frames.get_mut(frame as usize) {
            f.live &= !mask;
            if f.live == 0 && frame != 0 {
                self.free.push(frame);
            }
        }
    }

    /// Lanes end.
    pub(crate) fn exit(&mut self, mut frame: u32, mask: u32) {
        self.exited |= mask;
        while let Some(f) = self.frames.get(frame as usize) {
            let parent = f.parent;
            self.leave(frame, mask);
            frame = parent;
        }
    }

    /// Joins groups that have met, and drops empty ones.
    pub(crate) fn merge(&mut self) {
        self.groups.retain(|g| g.mask != 0);
        let mut i = 0;
        while i < self.groups.len() {
            let mut k = i + 1;
            while k < self.groups.len() {
                let (a, b) = (self.groups[i], self.groups[k]);
                let same = a.pc == b.pc && a.frame == b.frame;
                if same && a.wait == Wait::Ready && b.wait == Wait::Ready {
                    self.groups[i].mask |= b.mask;
                    self.groups[i].ran = a.ran.max(b.ran);
                    self.groups.swap_remove(k);
                } else {
                    k += 1;
                }
            }
            i += 1;
        }
    }

    /// The ready group to run: the deepest and then the furthest behind, so that lanes meet
    /// again; or, to be fair, the one that has waited longest.
    pub(crate) fn choose(&self, fair: bool) -> Option<usize> {
        let ready = self.groups.iter().enumerate().filter(|(_, g)| g.wait == Wait::Ready);
        let chosen = if fair {
            ready.min_by_key(|(_, g)| g.ran)
        } else {
            ready.min_by_key(|(_, g)| {
                let depth = self.frames.get(g.frame as usize).map_or(0, |f| f.depth);
                (u32::MAX - depth, g.pc)
            })
        };
        chosen.map(|(i, _)| i)
    }

    /// Where a group will meet another one.
    pub(crate) fn limit(&self, group: usize) -> u32 {
        let g = self.groups[group];
        let others = self
            .groups
            .iter()
            .enumerate()
            .filter(|(i, o)| *i != group && o.frame == g.frame && o.pc > g.pc && o.wait == Wait::Ready);
        others.map(|(_, o)| o.pc).min().unwrap_or(u32::MAX)
    }
}

/// Puts a constant into its register.
fn fill(
    frame: &mut Frame,
    machine: &Machine<'_>,
    ctaid: [u32; 3],
    warp: u32,
    class: Class,
    index: u32,
    constant: Constant,
) {
    let mut lanes = [0u64; LANES];
    match constant {
        Constant::Bits(v) => lanes = [v; LANES],
        Constant::Global(i, addend) => {
            let base = machine.launch.loaded.addresses.get(i as usize).copied().unwrap_or(0);
            lanes = [base.wrapping_add_signed(addend); LANES];
        }
        Constant::DynamicShared(addend) => {
            lanes = [machine.dynamic_start.wrapping_add_signed(addend); LANES];
        }
        Constant::Frame(offset) => {
            lanes = [u64::from(frame.base).wrapping_add_signed(offset); LANES];
        }
        Constant::Special(special) => special_value(machine, ctaid, warp, special, &mut lanes),
    }
    let index = index as usize;
    match class {
        Class::P => {
            let bits = lanes.iter().enumerate();
            frame.p[index] = bits.fold(0, |m, (i, v)| m | ((*v as u32 & 1) << i));
        }
        Class::R16 => frame.r16[index] = lanes.map(|v| v as u16),
        Class::R32 => frame.r32[index] = lanes.map(|v| v as u32),
        Class::R64 => frame.r64[index] = lanes,
    }
}

fn special_value(machine: &Machine<'_>, ctaid: [u32; 3], warp: u32, special: Special, lanes: &mut [u64; LANES]) {
    let launch = machine.launch;
    let [w, h, _] = launch.block;
    let block_threads = launch.block.iter().product::<u32>();
    let axis = |v: [u32; 3], i: u8| u64::from(v.get(i as usize).copied().unwrap_or(0));
    if let Special::Ctaid(i) = special {
        *lanes = [axis(ctaid, i); LANES];
        return;
    }
    for (lane, out) in lanes.iter_mut().enumerate() {
        let thread = warp * 32 + lane as u32;
        let lane = lane as u32;
        *out = match special {
            Special::Tid(0) => (thread % w).into(),
            Special::Tid(1) => (thread / w % h).into(),
            Special::Tid(_) => (thread / w / h).into(),
            Special::Ntid(i) => axis(launch.block, i),
            Special::Ctaid(i) => axis(ctaid, i),
            Special::Nctaid(i) => axis(launch.grid, i),
            Special::LaneId => lane.into(),
            Special::WarpId => warp.into(),
            Special::NWarpId => block_threads.div_ceil(32).into(),
            Special::SmId => {
                let [x, y, z] = ctaid.map(u64::from);
                let [gx, gy, _] = launch.grid.map(u64::from);
                (x + gx * (y + gy * z)) % u64::from(launch.multiprocessors.max(1))
            }
            Special::NSmId => launch.multiprocessors.into(),
            Special::GridId => launch.grid_id,
            Special::LaneMaskEq => 1 << lane,
            Special::LaneMaskLt => (1 << lane) - 1,
            Special::LaneMaskLe => (2 << lane) - 1,
            Special::LaneMaskGe => 0xffff_ffff & !((1 << lane) - 1),
            Special::LaneMaskGt => 0xffff_ffff & !((2u64 << lane) - 1),
            Special::DynamicSharedSize => launch.dynamic_shared.into(),
            Special::TotalSharedSize => u64::from(launch.kernel.static_shared) + u64::from(launch.dynamic_shared),
            Special::Env(_) if !machine.limits.cooperative => 0,
            Special::Env(1) => WORKSPACE >> 32,
            Special::Env(_) => WORKSPACE & 0xffff_ffff,
            Special::Fixed(v) => v.into(),
        };
    }
}
