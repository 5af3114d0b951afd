//! Lane loops: how a function of values becomes a function of warps.
//!
//! The first form of each computes every lane and keeps those of the mask, which the compiler
//! turns into vector code; it is for cheap functions that cannot fail. The `each_` forms compute
//! only the lanes of the mask, for functions that are long.

use super::flags::{FTZ, RM, ROUND, RP, RZ, SAT};
use crate::code::{Args, NONE};
use crate::frame::{FULL, Frame, LANES, Reg};

#[inline(always)]
fn put<D: Reg>(frame: &mut Frame, d: u32, m: u32, t: &[D; LANES]) {
    let d = &mut D::file_mut(frame)[d as usize];
    if m == FULL {
        *d = *t;
    } else {
        for i in 0..LANES {
            d[i] = if m >> i & 1 != 0 { t[i] } else { d[i] };
        }
    }
}

#[inline(always)]
fn get<A: Reg>(frame: &Frame, a: u32) -> [A; LANES] {
    A::file(frame)[a as usize]
}

#[inline(always)]
pub(crate) fn un<A: Reg, D: Reg>(fr: &mut Frame, x: &Args, m: u32, f: impl Fn(A) -> D) {
    let a: [A; LANES] = get(fr, x.a);
    let mut t = [D::default(); LANES];
    for i in 0..LANES {
        t[i] = f(a[i]);
    }
    put(fr, x.d, m, &t);
}

#[inline(always)]
pub(crate) fn bin<A: Reg, B: Reg, D: Reg>(fr: &mut Frame, x: &Args, m: u32, f: impl Fn(A, B) -> D) {
    let a: [A; LANES] = get(fr, x.a);
    let b: [B; LANES] = get(fr, x.b);
    let mut t = [D::default(); LANES];
    for i in 0..LANES {
        t[i] = f(a[i], b[i]);
    }
    put(fr, x.d, m, &t);
}

#[inline(always)]
pub(crate) fn ter<A: Reg, B: Reg, C: Reg, D: Reg>(fr: &mut Frame, x: &Args, m: u32, f: impl Fn(A, B, C) -> D) {
    let a: [A; LANES] = get(fr, x.a);
    let b: [B; LANES] = get(fr, x.b);
    let c: [C; LANES] = get(fr, x.c);
    let mut t = [D::default(); LANES];
    for i in 0..LANES {
        t[i] = f(a[i], b[i], c[i]);
    }
    put(fr, x.d, m, &t);
}

#[inline(always)]
pub(crate) fn quad<A: Reg, B: Reg, C: Reg, E: Reg, D: Reg>(
    fr: &mut Frame,
    x: &Args,
    m: u32,
    f: impl Fn(A, B, C, E) -> D,
) {
    let a: [A; LANES] = get(fr, x.a);
    let b: [B; LANES] = get(fr, x.b);
    let c: [C; LANES] = get(fr, x.c);
    let e: [E; LANES] = get(fr, x.f);
    let mut t = [D::default(); LANES];
    for i in 0..LANES {
        t[i] = f(a[i], b[i], c[i], e[i]);
    }
    put(fr, x.d, m, &t);
}

#[inline(always)]
fn lanes(m: u32) -> impl Iterator<Item = usize> {
    let mut left = m;
    std::iter::from_fn(move || {
        if left == 0 {
            return None;
        }
        let i = left.trailing_zeros() as usize;
        left &= left - 1;
        Some(i)
    })
}

#[inline(always)]
pub(crate) fn each_un<A: Reg, D: Reg>(fr: &mut Frame, x: &Args, m: u32, f: impl Fn(A, u32) -> D) {
    for i in lanes(m) {
        let v = f(A::file(fr)[x.a as usize][i], x.flags);
        D::file_mut(fr)[x.d as usize][i] = v;
    }
}

#[inline(always)]
pub(crate) fn each_bin<A: Reg, B: Reg, D: Reg>(fr: &mut Frame, x: &Args, m: u32, f: impl Fn(A, B, u32) -> D) {
    for i in lanes(m) {
        let v = f(A::file(fr)[x.a as usize][i], B::file(fr)[x.b as usize][i], x.flags);
        D::file_mut(fr)[x.d as usize][i] = v;
    }
}

#[inline(always)]
pub(crate) fn each_ter<A: Reg, B: Reg, C: Reg, D: Reg>(
    fr: &mut Frame,
    x: &Args,
    m: u32,
    f: impl Fn(A, B, C, u32) -> D,
) {
    for i in lanes(m) {
        let v = f(A::file(fr)[x.a as usize][i], B::file(fr)[x.b as usize][i], C::file(fr)[x.c as usize][i], x.flags);
        D::file_mut(fr)[x.d as usize][i] = v;
    }
}

/// The lanes for which `f` holds, as a mask.
#[inline(always)]
pub(crate) fn mask_of<A: Reg, B: Reg>(fr: &Frame, x: &Args, f: impl Fn(A, B) -> bool) -> u32 {
    let a: [A; LANES] = get(fr, x.a);
    let b: [B; LANES] = get(fr, x.b);
    let mut t = [0u32; LANES];
    for i in 0..LANES {
        t[i] = if f(a[i], b[i]) { 1 << i } else { 0 };
    }
    t.iter().fold(0, |all, bit| all | bit)
}

/// Writes a predicate, and its complement where asked.
#[inline(always)]
pub(crate) fn put_p(fr: &mut Frame, p: u32, m: u32, value: u32) {
    if p != NONE {
        let p = &mut fr.p[p as usize];
        *p = (*p & !m) | (value & m);
    }
}

/// `selp`: `a` where the predicate `c` holds, else `b`.
#[inline(always)]
pub(crate) fn select<T: Reg>(fr: &mut Frame, x: &Args, m: u32) {
    let p = fr.p[x.c as usize];
    let a: [T; LANES] = get(fr, x.a);
    let b: [T; LANES] = get(fr, x.b);
    let mut t = [T::default(); LANES];
    for i in 0..LANES {
        t[i] = if p >> i & 1 != 0 { a[i] } else { b[i] };
    }
    put(fr, x.d, m, &t);
}

/// A predicate from predicates.
#[inline(always)]
pub(crate) fn pred(fr: &mut Frame, x: &Args, m: u32, f: impl Fn(u32, u32) -> u32) {
    let a = fr.p[x.a as usize];
    let b = if x.b == NONE { 0 } else { fr.p[x.b as usize] };
    put_p(fr, x.d, m, f(a, b));
}

/// A predicate from values.
#[inline(always)]
pub(crate) fn test<A: Reg>(fr: &mut Frame, x: &Args, m: u32, f: impl Fn(A) -> bool) {
    let mut v = 0;
    for i in lanes(m) {
        v |= u32::from(f(A::file(fr)[x.a as usize][i])) << i;
    }
    put_p(fr, x.d, m, v);
}

/// An addition with carry in and out: `f` gives the sum and the carry.
#[inline(always)]
pub(crate) fn carry<T: Reg>(fr: &mut Frame, x: &Args, m: u32, set: bool, f: impl Fn(T, T, T, bool) -> (T, bool)) {
    let mut out = fr.cc;
    for i in lanes(m) {
        let a = T::file(fr)[x.a as usize][i];
        let b = T::file(fr)[x.b as usize][i];
        let c = if x.c == NONE { T::default() } else { T::file(fr)[x.c as usize][i] };
        let (v, carry) = f(a, b, c, fr.cc >> i & 1 != 0);
        T::file_mut(fr)[x.d as usize][i] = v;
        out = (out & !(1 << i)) | u32::from(carry) << i;
    }
    if set {
        fr.cc = out;
    }
}

/// [`un`] of a function that takes the flags, too.
#[inline(always)]
pub(crate) fn un_k<A: Reg, D: Reg>(fr: &mut Frame, x: &Args, m: u32, f: impl Fn(A, u32) -> D) {
    let k = x.flags;
    un(fr, x, m, |a| f(a, k));
}

/// [`bin`] of a function that takes the flags, too.
#[inline(always)]
pub(crate) fn bin_k<A: Reg, B: Reg, D: Reg>(fr: &mut Frame, x: &Args, m: u32, f: impl Fn(A, B, u32) -> D) {
    let k = x.flags;
    bin(fr, x, m, |a, b| f(a, b, k));
}

/// [`ter`] of a function that takes the flags, too.
#[inline(always)]
pub(crate) fn ter_k<A: Reg, B: Reg, C: Reg, D: Reg>(fr: &mut Frame, x: &Args, m: u32, f: impl Fn(A, B, C, u32) -> D) {
    let k = x.flags;
    ter(fr, x, m, |a, b, c| f(a, b, c, k));
}

/// [`bin_k`] with the everyday flags known to the compiler, so that they cost nothing in the loop.
#[inline(always)]
pub(crate) fn bin_round<A: Reg, B: Reg, D: Reg>(fr: &mut Frame, x: &Args, m: u32, f: impl Fn(A, B, u32) -> D) {
    match x.flags & (ROUND | FTZ | SAT) {
        FTZ => bin(fr, x, m, |a, b| f(a, b, FTZ)),
        RZ => bin(fr, x, m, |a, b| f(a, b, RZ)),
        RM => bin(fr, x, m, |a, b| f(a, b, RM)),
        RP => bin(fr, x, m, |a, b| f(a, b, RP)),
        _ => bin_k(fr, x, m, f),
    }
}

/// [`ter_k`] with the everyday flags known to the compiler.
#[inline(always)]
pub(crate) fn ter_round<A: Reg, B: Reg, C: Reg, D: Reg>(
    fr: &mut Frame,
    x: &Args,
    m: u32,
    f: impl Fn(A, B, C, u32) -> D,
) {
    match x.flags & (ROUND | FTZ | SAT) {
        FTZ => ter(fr, x, m, |a, b, c| f(a, b, c, FTZ)),
        RZ => ter(fr, x, m, |a, b, c| f(a, b, c, RZ)),
        RM => ter(fr, x, m, |a, b, c| f(a, b, c, RM)),
        RP => ter(fr, x, m, |a, b, c| f(a, b, c, RP)),
        _ => ter_k(fr, x, m, f),
    }
}
