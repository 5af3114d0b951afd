//! What a launch says that it touched.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::result_large_err)]

mod common;

use common::{Go, Params, Ram, TestHost, load};
use cuirass_ptx::{DeviceMemory, Region, Touch, Touched};
use std::sync::Mutex;

/// Thread `i` of `n` reads word `2i`, writes word `i` of the next array through a generic address, adds to the first
/// word of the last one, reads that as a volatile one, and uses shared memory, which is nobody's business.
const SOURCE: &str = r"
.version 8.0
.target sm_80
.address_size 64
.visible .entry touch(.param .u64 from, .param .u64 to, .param .u64 sum) {
    .reg .u32 %r<8>;
    .reg .u64 %d<8>;
    .shared .align 4 .b8 buffer[4096];
    ld.param.u64 %d0, [from];
    ld.param.u64 %d1, [to];
    ld.param.u64 %d2, [sum];
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mad.lo.u32 %r3, %r1, %r2, %r0;
    mul.wide.u32 %d3, %r3, 8;
    add.u64 %d3, %d0, %d3;
    ld.global.u32 %r4, [%d3];
    mul.wide.u32 %d4, %r3, 4;
    add.u64 %d4, %d1, %d4;
    st.u32 [%d4], %r4;
    atom.global.add.u32 %r5, [%d2], 1;
    ld.volatile.global.u32 %r6, [%d2];
    mov.u32 %r7, buffer;
    st.shared.u32 [%r7], %r6;
    ret;
}
";

struct Watched {
    ram: Ram,
    touched: Mutex<Touched>,
    signals: Mutex<Vec<u64>>,
}

impl DeviceMemory for Watched {
    fn region(&self, address: u64) -> Option<Region> {
        self.ram.region(address)
    }

    fn epoch(&self) -> u64 {
        self.ram.epoch()
    }

    fn watches(&self) -> bool {
        true
    }

    fn signals(&self, address: u64) {
        self.signals.lock().unwrap().push(address);
    }

    fn touched(&self, touched: Touched) {
        self.touched.lock().unwrap().extend(&touched);
    }
}

#[test]
fn a_launch_tells_the_bytes_that_it_touched() {
    let mut ram = Ram::default();
    let loaded = load(SOURCE, &mut ram).unwrap();
    let count = 64 * 100;
    let (from, to, sum) = (ram.alloc(8 * count as usize), ram.alloc(4 * count as usize), ram.alloc(8));
    let watched = Watched { ram, touched: Mutex::default(), signals: Mutex::default() };
    let params = Params::default().u64(from).u64(to).u64(sum);
    Go::new("touch", 100, 64, params).run(&loaded, &watched, &TestHost::default()).unwrap();
    let mut touched = watched.touched.into_inner().unwrap();
    let every_other: Vec<_> = (0..count).map(|i| (from + 8 * i, from + 8 * i + 4)).collect();
    assert_eq!(touched.ranges(Touch::Read), every_other);
    assert_eq!(touched.ranges(Touch::Write), [(to, to + 4 * count)]);
    assert_eq!(touched.ranges(Touch::StrongWrite), [(sum, sum + 4)]);
    assert_eq!(touched.ranges(Touch::StrongRead), [(sum, sum + 4)]);
    let signals = watched.signals.into_inner().unwrap();
    assert!(signals.len() as u64 == count && signals.iter().all(|address| *address == sum));
    assert_eq!(watched.ram.u32s(sum)[0], count as u32);
}
