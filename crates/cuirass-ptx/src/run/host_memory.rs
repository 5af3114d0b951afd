//! The only unsafe code of the crate: the caller's memory, and functions for newer processors.
//!
//! The invariant **\[ptx-bounds\]**: a [`Span`] is made only from a [`Region`] that the caller's
//! [`DeviceMemory`](crate::DeviceMemory) gave, whose `host` is valid for reads and writes of `len`
//! bytes while the launch runs; and every access checks that it lies inside and is aligned before
//! it happens. Accesses are atomic, because blocks run in parallel and the host may look on.

#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use crate::frame::LANES;
use crate::launch::Region;
use crate::ops::Table;

/// Memory of the caller, with its bounds.
#[derive(Clone, Copy)]
pub(crate) struct Span {
    start: u64,
    len: u64,
    host: *mut u8,
    writable: bool,
}

impl Span {
    /// A span that holds nothing.
    pub(crate) const EMPTY: Span = Span { start: 0, len: 0, host: std::ptr::null_mut(), writable: false };

    pub(crate) fn new(region: Region) -> Span {
        if region.host.is_null() {
            return Span::EMPTY;
        }
        Span { start: region.start, len: region.len, host: region.host, writable: region.writable }
    }

    /// Whether `bytes` bytes from `address` lie inside.
    #[inline(always)]
    pub(crate) fn holds(&self, address: u64, bytes: u64) -> bool {
        let offset = address.wrapping_sub(self.start);
        offset < self.len && bytes <= self.len - offset
    }

    /// Whether writes are allowed.
    pub(crate) fn is_writable(&self) -> bool {
        self.writable
    }

    /// The host address of an access, if it lies inside and is aligned to `align`.
    #[inline(always)]
    fn at(&self, address: u64, bytes: u64, align: u64) -> Option<*mut u8> {
        if !self.holds(address, bytes) {
            return None;
        }
        let offset = (address - self.start) as usize;
        // SAFETY: [ptx-bounds] `offset` is inside the region, as checked above.
        let pointer = unsafe { self.host.add(offset) };
        ((pointer as u64) & (align - 1) == 0).then_some(pointer)
    }

    /// Reads 1, 2, 4 or 8 bytes.
    #[inline(always)]
    pub(crate) fn load(&self, address: u64, bytes: u32) -> Option<u64> {
        let p = self.at(address, bytes.into(), bytes.into())?;
        // SAFETY: [ptx-bounds] `p` is valid for `bytes` bytes and aligned to them.
        unsafe {
            Some(match bytes {
                1 => AtomicU8::from_ptr(p).load(Ordering::Relaxed).into(),
                2 => AtomicU16::from_ptr(p.cast()).load(Ordering::Relaxed).into(),
                4 => AtomicU32::from_ptr(p.cast()).load(Ordering::Relaxed).into(),
                _ => AtomicU64::from_ptr(p.cast()).load(Ordering::Relaxed),
            })
        }
    }

    /// Writes 1, 2, 4 or 8 bytes.
    #[inline(always)]
    pub(crate) fn store(&self, address: u64, bytes: u32, value: u64) -> Option<()> {
        let p = self.at(address, bytes.into(), bytes.into()).filter(|_| self.writable)?;
        // SAFETY: [ptx-bounds] `p` is valid for `bytes` bytes and aligned to them.
        unsafe {
            match bytes {
                1 => AtomicU8::from_ptr(p).store(value as u8, Ordering::Relaxed),
                2 => AtomicU16::from_ptr(p.cast()).store(value as u16, Ordering::Relaxed),
                4 => AtomicU32::from_ptr(p.cast()).store(value as u32, Ordering::Relaxed),
                _ => AtomicU64::from_ptr(p.cast()).store(value, Ordering::Relaxed),
            }
        }
        Some(())
    }

    /// Reads one `u32` for every lane, side by side.
    #[inline(always)]
    pub(crate) fn load_run32(&self, address: u64, out: &mut [u32; LANES]) -> Option<()> {
        let p = self.at(address, 4 * LANES as u64, 4)?.cast::<u32>();
        for (i, lane) in out.iter_mut().enumerate() {
            // SAFETY: [ptx-bounds] all lanes' words are inside and aligned.
            *lane = unsafe { AtomicU32::from_ptr(p.add(i)).load(Ordering::Relaxed) };
        }
        Some(())
    }

    /// Reads one `u64` for every lane, side by side.
    #[inline(always)]
    pub(crate) fn load_run64(&self, address: u64, out: &mut [u64; LANES]) -> Option<()> {
        let p = self.at(address, 8 * LANES as u64, 8)?.cast::<u64>();
        for (i, lane) in out.iter_mut().enumerate() {
            // SAFETY: [ptx-bounds] all lanes' words are inside and aligned.
            *lane = unsafe { AtomicU64::from_ptr(p.add(i)).load(Ordering::Relaxed) };
        }
        Some(())
    }

    /// Writes one `u32` for every lane, side by side.
    #[inline(always)]
    pub(crate) fn store_run32(&self, address: u64, values: &[u32; LANES]) -> Option<()> {
        let p = self.at(address, 4 * LANES as u64, 4).filter(|_| self.writable)?.cast::<u32>();
        for (i, lane) in values.iter().enumerate() {
            // SAFETY: [ptx-bounds] all lanes' words are inside and aligned.
            unsafe { AtomicU32::from_ptr(p.add(i)).store(*lane, Ordering::Relaxed) };
        }
        Some(())
    }

    /// Writes one `u64` for every lane, side by side.
    #[inline(always)]
    pub(crate) fn store_run64(&self, address: u64, values: &[u64; LANES]) -> Option<()> {
        let p = self.at(address, 8 * LANES as u64, 8).filter(|_| self.writable)?.cast::<u64>();
        for (i, lane) in values.iter().enumerate() {
            // SAFETY: [ptx-bounds] all lanes' words are inside and aligned.
            unsafe { AtomicU64::from_ptr(p.add(i)).store(*lane, Ordering::Relaxed) };
        }
        Some(())
    }

    /// Replaces 2, 4 or 8 bytes by a function of them, at once; gives what was there.
    pub(crate) fn update(&self, address: u64, bytes: u32, mut f: impl FnMut(u64) -> u64) -> Option<u64> {
        let p = self.at(address, bytes.into(), bytes.into()).filter(|_| self.writable)?;
        let (yes, no) = (Ordering::SeqCst, Ordering::SeqCst);
        // SAFETY: [ptx-bounds] `p` is valid for `bytes` bytes and aligned to them.
        let old = unsafe {
            match bytes {
                2 => AtomicU16::from_ptr(p.cast())
                    .fetch_update(yes, no, |v| Some(f(v.into()) as u16))
                    .map(u64::from)
                    .unwrap_or_else(u64::from),
                4 => AtomicU32::from_ptr(p.cast())
                    .fetch_update(yes, no, |v| Some(f(v.into()) as u32))
                    .map(u64::from)
                    .unwrap_or_else(u64::from),
                _ => AtomicU64::from_ptr(p.cast()).fetch_update(yes, no, |v| Some(f(v))).unwrap_or_else(|v| v),
            }
        };
        Some(old)
    }
}

impl Span {
    /// Adds to 4 or 8 bytes at once; gives what was there.
    pub(crate) fn add(&self, address: u64, bytes: u32, value: u64) -> Option<u64> {
        let p = self.at(address, bytes.into(), bytes.into()).filter(|_| self.writable)?;
        // SAFETY: [ptx-bounds] `p` is valid for `bytes` bytes and aligned to them.
        Some(unsafe {
            match bytes {
                4 => AtomicU32::from_ptr(p.cast()).fetch_add(value as u32, Ordering::SeqCst).into(),
                _ => AtomicU64::from_ptr(p.cast()).fetch_add(value, Ordering::SeqCst),
            }
        })
    }
}

/// Adds the rows that are compiled for AVX2 and FMA; `false` if this processor has neither.
pub(crate) fn rows_avx2(t: &mut Table) -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        let has = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt")
            && is_x86_feature_detected!("popcnt")
            && is_x86_feature_detected!("f16c");
        if has {
            // SAFETY: [ptx-bounds] the processor has every feature that the function is
            // compiled for, as just asked; its closures are only reachable through this table.
            unsafe { crate::ops::wide::rows_avx2(t) };
            return true;
        }
    }
    let _: &Table = t;
    false
}
