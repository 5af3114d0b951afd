//! Floating point in integers, for what the host's own arithmetic cannot do: every rounding
//! direction, in every format from eight bits to 64.

/// A binary format.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Format {
    /// Bits of the exponent.
    pub(crate) exp: u32,
    /// Bits of the fraction.
    pub(crate) man: u32,
    /// Whether the largest exponent means infinity and NaN. `e4m3` has numbers there and one NaN.
    pub(crate) ieee: bool,
}

pub(crate) const F64: Format = Format { exp: 11, man: 52, ieee: true };
pub(crate) const F32: Format = Format { exp: 8, man: 23, ieee: true };
pub(crate) const F16: Format = Format { exp: 5, man: 10, ieee: true };
pub(crate) const BF16: Format = Format { exp: 8, man: 7, ieee: true };
pub(crate) const TF32: Format = Format { exp: 8, man: 10, ieee: true };
pub(crate) const E5M2: Format = Format { exp: 5, man: 2, ieee: true };
pub(crate) const E4M3: Format = Format { exp: 4, man: 3, ieee: false };

/// A rounding direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Round {
    Nearest,
    Zero,
    Down,
    Up,
    /// Nearest, ties away from zero.
    Away,
}

impl Round {
    /// The direction in an instruction's flags.
    pub(crate) fn of(flags: u32) -> Round {
        use crate::ops::flags as f;
        if flags & f::RNA != 0 {
            return Round::Away;
        }
        match flags & f::ROUND {
            f::RZ => Round::Zero,
            f::RM => Round::Down,
            f::RP => Round::Up,
            _ => Round::Nearest,
        }
    }
}

/// A number taken apart: `man * 2^exp`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Num {
    Nan,
    Inf(bool),
    Zero(bool),
    Finite { neg: bool, exp: i32, man: u128 },
}

impl Format {
    fn bias(self) -> i32 {
        (1 << (self.exp - 1)) - 1
    }

    fn sign(self, neg: bool) -> u64 {
        u64::from(neg) << (self.exp + self.man)
    }

    /// Positive infinity.
    pub(crate) fn infinity(self) -> u64 {
        self.inf(false)
    }

    fn inf(self, neg: bool) -> u64 {
        self.sign(neg) | (((1 << self.exp) - 1) << self.man)
    }

    /// The NaN that arithmetic makes: all ones without the sign, but for `f64`.
    pub(crate) fn nan(self) -> u64 {
        if self.exp == 11 { 0xfff8_0000_0000_0000 } else { (1 << (self.exp + self.man)) - 1 }
    }

    fn largest(self, neg: bool) -> u64 {
        if self.ieee { self.inf(neg) - 1 } else { self.sign(neg) | 0x7e }
    }

    pub(crate) fn unpack(self, bits: u64) -> Num {
        let neg = bits >> (self.exp + self.man) & 1 != 0;
        let e = (bits >> self.man & ((1 << self.exp) - 1)) as i32;
        let man = bits & ((1 << self.man) - 1);
        if self.ieee && e == (1 << self.exp) - 1 {
            return if man == 0 { Num::Inf(neg) } else { Num::Nan };
        }
        if !self.ieee && bits & 0x7f == 0x7f {
            return Num::Nan;
        }
        let low = 1 - self.bias() - self.man as i32;
        match (e, man) {
            (0, 0) => Num::Zero(neg),
            (0, _) => Num::Finite { neg, exp: low, man: u128::from(man) },
            _ => Num::Finite { neg, exp: low + e - 1, man: u128::from(man | 1 << self.man) },
        }
    }

    /// Rounds to the format. `sticky`: something nonzero lies below `man`.
    fn round(self, neg: bool, exp: i32, man: u128, sticky: bool, round: Round, cap: bool) -> u64 {
        let top = 127 - man.leading_zeros() as i32;
        let low = 1 - self.bias() - self.man as i32;
        // The exponent of the last place that the format keeps.
        let last = (exp + top - self.man as i32).max(low);
        let shift = last - exp;
        let (mut kept, half, rest) = if shift <= 0 {
            (man << (-shift).min(127), false, sticky)
        } else if shift > 127 {
            (0, false, true)
        } else {
            let half = man >> (shift - 1) & 1 != 0;
            (man >> shift, half, sticky || man & ((1 << (shift - 1)) - 1) != 0)
        };
        let up = match round {
            Round::Nearest => half && (rest || kept & 1 != 0),
            Round::Away => half,
            Round::Zero => false,
            Round::Down => neg && (half || rest),
            Round::Up => !neg && (half || rest),
        };
        let mut last = last;
        kept += u128::from(up);
        if kept >> (self.man + 1) != 0 {
            kept >>= 1;
            last += 1;
        }
        let mut bits = kept as u64;
        if kept >> self.man != 0 {
            let e = i64::from(last - low) + 1;
            let max = (1i64 << self.exp) - i64::from(self.ieee);
            let beyond = e >= max || (!self.ieee && e == max - 1 && kept & 7 == 7);
            if beyond {
                return self.overflow(neg, round, cap);
            }
            bits = (bits & ((1 << self.man) - 1)) | (e as u64) << self.man;
        }
        self.sign(neg) | bits
    }

    fn overflow(self, neg: bool, round: Round, cap: bool) -> u64 {
        let finite = match round {
            Round::Nearest | Round::Away => false,
            Round::Zero => true,
            Round::Down => !neg,
            Round::Up => neg,
        };
        if cap || finite {
            return self.largest(neg);
        }
        if self.ieee { self.inf(neg) } else { self.sign(neg) | 0x7f }
    }

    /// Puts a number together again.
    pub(crate) fn pack(self, n: Num, round: Round) -> u64 {
        self.pack_with(n, false, round, false)
    }

    /// As [`Format::pack`], never beyond the largest finite number.
    pub(crate) fn pack_finite(self, n: Num, round: Round) -> u64 {
        self.pack_with(n, false, round, true)
    }

    fn pack_with(self, n: Num, sticky: bool, round: Round, cap: bool) -> u64 {
        match n {
            Num::Nan => self.nan(),
            Num::Inf(neg) if cap || !self.ieee => self.largest(neg),
            Num::Inf(neg) => self.inf(neg),
            Num::Zero(neg) => self.sign(neg),
            Num::Finite { neg, man: 0, .. } => self.sign(neg),
            Num::Finite { neg, exp, man } => self.round(neg, exp, man, sticky, round, cap),
        }
    }

    /// `a * b + c`, rounded once.
    pub(crate) fn fma(self, a: u64, b: u64, c: u64, round: Round) -> u64 {
        let (a, b, c) = (self.unpack(a), self.unpack(b), self.unpack(c));
        let (n, sticky) = sum(product(a, b), c, round);
        self.pack_with(n, sticky, round, false)
    }

    pub(crate) fn add(self, a: u64, b: u64, round: Round) -> u64 {
        let (n, sticky) = sum(self.unpack(a), self.unpack(b), round);
        self.pack_with(n, sticky, round, false)
    }

    pub(crate) fn mul(self, a: u64, b: u64, round: Round) -> u64 {
        self.pack(product(self.unpack(a), self.unpack(b)), round)
    }

    pub(crate) fn div(self, a: u64, b: u64, round: Round) -> u64 {
        let (n, sticky) = quotient(self.unpack(a), self.unpack(b));
        self.pack_with(n, sticky, round, false)
    }

    pub(crate) fn sqrt(self, a: u64, round: Round) -> u64 {
        let (n, sticky) = match self.unpack(a) {
            Num::Finite { neg: true, .. } | Num::Inf(true) => (Num::Nan, false),
            Num::Finite { exp, man, .. } => {
                let mut shift = man.leading_zeros() as i32 - 2;
                shift += (exp - shift) & 1;
                let wide = man << shift;
                let root = wide.isqrt();
                let exp = (exp - shift) / 2;
                (Num::Finite { neg: false, exp, man: root }, root * root != wide)
            }
            other => (other, false),
        };
        self.pack_with(n, sticky, round, false)
    }
}

/// An integer as a number.
pub(crate) fn from_int(neg: bool, magnitude: u64) -> Num {
    if magnitude == 0 {
        return Num::Zero(false);
    }
    Num::Finite { neg, exp: 0, man: u128::from(magnitude) }
}

/// Converts between formats.
pub(crate) fn convert(from: Format, to: Format, bits: u64, round: Round) -> u64 {
    to.pack(from.unpack(bits), round)
}

fn sign_of(n: Num) -> bool {
    match n {
        Num::Nan => false,
        Num::Inf(s) | Num::Zero(s) | Num::Finite { neg: s, .. } => s,
    }
}

fn product(a: Num, b: Num) -> Num {
    let neg = sign_of(a) != sign_of(b);
    match (a, b) {
        (Num::Nan, _) | (_, Num::Nan) => Num::Nan,
        (Num::Inf(_), Num::Zero(_)) | (Num::Zero(_), Num::Inf(_)) => Num::Nan,
        (Num::Inf(_), _) | (_, Num::Inf(_)) => Num::Inf(neg),
        (Num::Zero(_), _) | (_, Num::Zero(_)) => Num::Zero(neg),
        (Num::Finite { exp: p, man: m, .. }, Num::Finite { exp: q, man: n, .. }) => {
            Num::Finite { neg, exp: p + q, man: m * n }
        }
    }
}

fn quotient(a: Num, b: Num) -> (Num, bool) {
    let neg = sign_of(a) != sign_of(b);
    let n = match (a, b) {
        (Num::Nan, _) | (_, Num::Nan) => Num::Nan,
        (Num::Inf(_), Num::Inf(_)) | (Num::Zero(_), Num::Zero(_)) => Num::Nan,
        (Num::Inf(_), _) | (_, Num::Zero(_)) => Num::Inf(neg),
        (Num::Zero(_), _) | (_, Num::Inf(_)) => Num::Zero(neg),
        (Num::Finite { exp: p, man: m, .. }, Num::Finite { exp: q, man: n, .. }) => {
            let shift = m.leading_zeros() as i32 - 1;
            let wide = m << shift;
            let man = wide / n;
            return (Num::Finite { neg, exp: p - shift - q, man }, !wide.is_multiple_of(n));
        }
    };
    (n, false)
}

/// The sum, and whether something lies below what is returned.
fn sum(a: Num, b: Num, round: Round) -> (Num, bool) {
    let zero = Num::Zero(round == Round::Down);
    let n = match (a, b) {
        (Num::Nan, _) | (_, Num::Nan) => Num::Nan,
        (Num::Inf(s), Num::Inf(t)) if s != t => Num::Nan,
        (Num::Inf(s), _) | (_, Num::Inf(s)) => Num::Inf(s),
        (Num::Zero(s), Num::Zero(t)) => {
            if s == t {
                Num::Zero(s)
            } else {
                zero
            }
        }
        (Num::Zero(_), other) | (other, Num::Zero(_)) => other,
        (Num::Finite { neg: s, exp: p, man: m }, Num::Finite { neg: t, exp: q, man: n }) => {
            return finite_sum((s, p, m), (t, q, n), zero);
        }
    };
    (n, false)
}

fn finite_sum(a: (bool, i32, u128), b: (bool, i32, u128), zero: Num) -> (Num, bool) {
    // Both with the highest bit at 124, so that the sum has room and small differences are exact.
    let lift = |(neg, exp, man): (bool, i32, u128)| {
        let shift = man.leading_zeros() as i32 - 3;
        (neg, exp - shift, man << shift)
    };
    let (mut a, mut b) = (lift(a), lift(b));
    if (a.1, a.2) < (b.1, b.2) {
        std::mem::swap(&mut a, &mut b);
    }
    let gap = a.1 - b.1;
    let (low, sticky) = if gap > 126 { (0, true) } else { (b.2 >> gap, b.2 & ((1u128 << gap) - 1) != 0) };
    let man = if a.0 == b.0 {
        a.2 + low
    } else {
        // What was shifted out makes the true difference a little smaller.
        a.2 - low - u128::from(sticky)
    };
    if man == 0 && !sticky {
        return (zero, false);
    }
    (Num::Finite { neg: a.0, exp: a.1, man }, sticky)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_agrees_with_the_host() {
        let mut seed = 0x1234_5678_9abc_def1u64;
        let mut next = || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed
        };
        for round in 0..200_000 {
            let (mut a, mut b, mut c) = (next(), next(), next());
            if round % 2 == 0 {
                // Near exponents, so that sums cancel.
                b = (a & !0xf_ffff_ffff) | (b & 0xf_ffff_ffff) ^ (c & 1 << 63);
                c = (c & !(0x7ff << 52)) | (0x3ff << 52);
                a = (a & !(0x7f0 << 52)) | (0x3f0 << 52);
            }
            let (x, y, z) = (f64::from_bits(a), f64::from_bits(b), f64::from_bits(c));
            let same = |soft: u64, hard: f64| {
                let soft = f64::from_bits(soft);
                assert!(
                    soft.to_bits() == hard.to_bits() || (soft.is_nan() && hard.is_nan()),
                    "{x:e} {y:e} {z:e}: {soft:e} {hard:e}"
                );
            };
            same(F64.add(a, b, Round::Nearest), x + y);
            same(F64.mul(a, b, Round::Nearest), x * y);
            same(F64.div(a, b, Round::Nearest), x / y);
            same(F64.sqrt(a, Round::Nearest), x.sqrt());
            same(F64.fma(a, b, c, Round::Nearest), x.mul_add(y, z));
            let narrow = convert(F64, F32, a, Round::Nearest) as u32;
            let hard = x as f32;
            assert!(narrow == hard.to_bits() || hard.is_nan());
        }
    }
}
