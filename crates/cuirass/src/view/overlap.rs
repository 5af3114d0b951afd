//! Whether two elements of a layout share an address.

use super::layout::{Dims, StridedLayout};

/// How many partial sums are looked at before the question is given up. Layouts that come of arrays need none.
const STEPS: u32 = 1 << 17;

impl StridedLayout {
    /// Whether no two elements have the same offset.
    ///
    /// The answer is exact for strides that any array has, and for small or regular ones that no array has. In general
    /// the question is as hard as a knapsack: it is given up after about a hundred thousand steps, with `false`.
    pub fn is_unique(&self) -> bool {
        if self.volume() <= 1 {
            return true;
        }
        let mut axes: Dims<Axis> = self
            .shape()
            .iter()
            .zip(self.effective_strides())
            .filter(|(extent, _)| **extent > 1)
            .map(|(&extent, &stride)| Axis { stride: i128::from(stride).abs(), most: i128::from(extent) - 1 })
            .collect();
        axes.sort_unstable_by_key(|axis| axis.stride);
        if axes.first().is_some_and(|axis| axis.stride == 0) {
            return false;
        }
        // Each stride is beyond all that the smaller ones reach: so it is for arrays and their slices.
        let mut below = 0;
        let nested = axes.iter().all(|axis| {
            let beyond = axis.stride > below;
            below += axis.reach();
            beyond
        });
        if nested {
            return true;
        }
        let reach: i128 = axes.iter().map(|axis| axis.reach()).sum();
        let step = axes.iter().fold(0, |step, axis| gcd(step, axis.stride));
        // More elements than places.
        if i128::from(self.volume()) > reach / step + 1 {
            return false;
        }
        let mut search = Search { levels: levels(&axes), steps: STEPS };
        search.vanishes(0, 0, false) == Some(false)
    }
}

#[derive(Clone, Copy)]
struct Axis {
    stride: i128,
    /// The largest difference of two indices.
    most: i128,
}

impl Axis {
    fn reach(self) -> i128 {
        self.stride * self.most
    }
}

/// An axis, the largest stride first, with what is known of those after it.
#[derive(Clone, Copy)]
struct Level {
    axis: Axis,
    /// What the axes after it can add at most.
    reach_after: i128,
    /// The greatest common divisor of this axis's stride and those after it.
    step: i128,
    /// The differences of indices that the axes after it can make up for are this far apart.
    apart: i128,
    /// The inverse of `stride / step`, modulo `apart`.
    inverse: i128,
}

fn levels(from_smallest: &[Axis]) -> Dims<Level> {
    let (mut reach_after, mut step_after) = (0, 0);
    let mut levels: Dims<Level> = from_smallest
        .iter()
        .map(|&axis| {
            let step = gcd(axis.stride, step_after);
            let apart = (step_after / step).max(1);
            let inverse = inverse(axis.stride / step, apart);
            let level = Level { axis, reach_after, step, apart, inverse };
            reach_after += axis.reach();
            step_after = step;
            level
        })
        .collect();
    levels.reverse();
    levels
}

/// Looks for differences of two indices, not all zero, whose offsets add up to nothing.
struct Search {
    levels: Dims<Level>,
    steps: u32,
}

impl Search {
    /// Whether the axes from `at` on can make up for `sum`; nothing where the search was given up. `moved` says that
    /// the two indices differ already.
    fn vanishes(&mut self, at: usize, sum: i128, moved: bool) -> Option<bool> {
        if moved && sum == 0 {
            return Some(true);
        }
        let Some(&Level { axis, reach_after, step, apart, inverse }) = self.levels.get(at) else {
            return Some(false);
        };
        if sum % step != 0 {
            return Some(false);
        }
        let lowest = ceil_div(-reach_after - sum, axis.stride).max(-axis.most);
        let highest = (reach_after - sum).div_euclid(axis.stride).min(axis.most);
        // Of two indices either may be the first: differences begin with a positive one.
        let lowest = if moved { lowest } else { lowest.max(0) };
        let wanted = ((-sum / step).rem_euclid(apart) * inverse).rem_euclid(apart);
        let mut difference = lowest + (wanted - lowest).rem_euclid(apart);
        while difference <= highest {
            self.steps = self.steps.checked_sub(1)?;
            if self.vanishes(at + 1, sum + axis.stride * difference, moved || difference != 0)? {
                return Some(true);
            }
            difference += apart;
        }
        Some(false)
    }
}

fn ceil_div(dividend: i128, divisor: i128) -> i128 {
    -(-dividend).div_euclid(divisor)
}

pub(super) fn gcd(mut a: i128, mut b: i128) -> i128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a.abs()
}

/// The inverse of a number modulo another one that it has no divisor with.
fn inverse(number: i128, modulus: i128) -> i128 {
    let (mut r, mut next_r) = (modulus, number.rem_euclid(modulus));
    let (mut t, mut next_t) = (0, 1);
    while next_r != 0 {
        let quotient = r / next_r;
        (r, next_r) = (next_r, r - quotient * next_r);
        (t, next_t) = (next_t, t - quotient * next_t);
    }
    t.rem_euclid(modulus)
}
