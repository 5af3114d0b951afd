//! The hot rows, compiled for the widest vectors that the processor has.

use super::Table;
use super::compare::compare_rows;
use super::convert::from_float_rows;
use super::float::float_rows;
use super::half::half_rows;
use super::int::int_rows;
use super::math::approximate_rows;

/// The hot rows for this processor.
pub(crate) fn rows(t: &mut Table) {
    if !crate::run::host_memory::rows_avx2(t) {
        int_rows!(t);
        float_rows!(t);
        compare_rows!(t);
        half_rows!(t);
        from_float_rows!(t);
        approximate_rows!(t);
    }
}

/// The rows for processors with AVX2 and FMA. Closures inherit the features of this function.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt,f16c")]
pub(crate) fn rows_avx2(t: &mut Table) {
    int_rows!(t);
    float_rows!(t);
    compare_rows!(t);
    half_rows!(t);
    from_float_rows!(t);
    approximate_rows!(t);
}
