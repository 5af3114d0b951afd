//! Modifiers that change a result, as bits.

/// The rounding direction: nearest-even, or one of the next three.
pub(crate) const ROUND: u32 = 3;
pub(crate) const RZ: u32 = 1;
pub(crate) const RM: u32 = 2;
pub(crate) const RP: u32 = 3;
/// Subnormal inputs and results become zero.
pub(crate) const FTZ: u32 = 1 << 2;
/// The result is clamped to 0..=1, or to an integer's range.
pub(crate) const SAT: u32 = 1 << 3;
/// A NaN operand gives NaN (min, max).
pub(crate) const NAN: u32 = 1 << 4;
/// The result's sign is the XOR of the operands' (min, max).
pub(crate) const XORSIGN: u32 = 1 << 5;
/// Magnitudes are compared (min, max).
pub(crate) const ABS: u32 = 1 << 6;
/// Negative results become zero.
pub(crate) const RELU: u32 = 1 << 7;
/// Too large becomes the largest finite number.
pub(crate) const SATFINITE: u32 = 1 << 8;
/// Rounds to an integer (cvt).
pub(crate) const INTEGRAL: u32 = 1 << 9;
/// Nearest, ties away from zero (cvt to tf32).
pub(crate) const RNA: u32 = 1 << 10;
/// `.and`, `.or`, `.xor` of a comparison with a predicate.
pub(crate) const WITH_AND: u32 = 1 << 11;
pub(crate) const WITH_OR: u32 = 2 << 11;
pub(crate) const WITH_XOR: u32 = 3 << 11;
/// That predicate is negated.
pub(crate) const WITH_NOT: u32 = 1 << 13;
/// An explicit rounding modifier was given.
pub(crate) const ROUNDED: u32 = 1 << 14;
/// An immediate byte, in the top eight bits.
pub(crate) const IMM_SHIFT: u32 = 24;

/// The flag of a modifier.
pub(crate) fn of(modifier: &str) -> Option<u32> {
    Some(match modifier {
        "rn" => ROUNDED,
        "rz" => RZ | ROUNDED,
        "rm" => RM | ROUNDED,
        "rp" => RP | ROUNDED,
        "rni" => INTEGRAL | ROUNDED,
        "rzi" => RZ | INTEGRAL | ROUNDED,
        "rmi" => RM | INTEGRAL | ROUNDED,
        "rpi" => RP | INTEGRAL | ROUNDED,
        "rna" => RNA | ROUNDED,
        "ftz" => FTZ,
        "sat" => SAT,
        "NaN" => NAN,
        "xorsign" => XORSIGN,
        "abs" => ABS,
        "relu" => RELU,
        "satfinite" => SATFINITE,
        _ => return None,
    })
}
