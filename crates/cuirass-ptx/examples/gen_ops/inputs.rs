//! Input bit patterns: for each kind of operand, the values that break things, then random ones.

/// How many rows every case has; one thread runs each.
pub const ROWS: usize = 192;
/// How many values of a kind are hand-picked.
const PICKED: usize = 12;

fn picked(kind: &str) -> [u64; PICKED] {
    let f = |v: f32| u64::from(v.to_bits());
    match kind {
        "f32" => [
            0,
            0x8000_0000,
            1,
            0x807f_ffff,
            0x0080_0000,
            f(1.0),
            f(-1.5),
            0x7f7f_ffff,
            0x7f80_0000,
            0xff80_0000,
            0x7fc0_1234,
            f(16_777_217.5),
        ],
        "f64" => [
            0,
            1 << 63,
            1,
            0x800f_ffff_ffff_ffff,
            0x0010_0000_0000_0000,
            1.0f64.to_bits(),
            (-1.5f64).to_bits(),
            f64::MAX.to_bits(),
            f64::INFINITY.to_bits(),
            f64::NEG_INFINITY.to_bits(),
            0x7ff8_1234_5678_9abc,
            9_007_199_254_740_993.5f64.to_bits(),
        ],
        "f16" => [0, 0x8000, 1, 0x83ff, 0x0400, 0x3c00, 0xbe00, 0x7bff, 0x7c00, 0xfc00, 0x7e01, 0x3555],
        "bf16" => [0, 0x8000, 1, 0x807f, 0x0080, 0x3f80, 0xbfc0, 0x7f7f, 0x7f80, 0xff80, 0x7fc1, 0x3eab],
        "u16" => [0, 1, 2, 0x7f, 0x80, 0xff, 0x100, 0x7fff, 0x8000, 0x8001, 0xfffe, 0xffff],
        "u32" => [
            0,
            1,
            2,
            31,
            0xffff,
            0x0001_0000,
            0x7fff_ffff,
            0x8000_0000,
            0x8000_0001,
            0xffff_fffe,
            0xffff_ffff,
            0x00ff_ff80,
        ],
        "u64" => [
            0,
            1,
            2,
            63,
            0xffff_ffff,
            0x1_0000_0000,
            0x7fff_ffff_ffff_ffff,
            0x8000_0000_0000_0000,
            0x8000_0000_0000_0001,
            0xffff_ffff_ffff_fffe,
            0xffff_ffff_ffff_ffff,
            0x0000_7fff_ffff_ff80,
        ],
        // Numbers small enough for exact trigonometry, and the special ones.
        "angle" => [
            0,
            0x8000_0000,
            f(0.5),
            f(-0.5),
            f(1.0),
            f(-1.0),
            f(3.0),
            f(-3.0),
            0x7f80_0000,
            0xff80_0000,
            0x7fc0_0000,
            f(1e-3),
        ],
        "shift" => [0, 1, 2, 7, 15, 16, 31, 32, 33, 63, 64, 255],
        // Clamps and segment masks of shuffles.
        "segment" => [0x1f, 0x1f, 0x1f, 0x1f, 0x181f, 0x1c1f, 0x1e03, 0x0000, 0x1000, 0x1800, 0x100f, 0x1f],
        "few" => [0, 1, 2, 3, 0, 1, 2, 3, 7, 7, 7, 7],
        other => unreachable!("no kind {other}"),
    }
}

/// A small generator, so that the files can be made again bit for bit.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

fn random(kind: &str, r: &mut Random) -> u64 {
    let v = r.next();
    match kind {
        // Exponents near each other, so that sums and products stay interesting.
        "f32" => (v & 0x807f_ffff) | (118 + (v >> 40) % 20) << 23,
        "f64" => (v & 0x800f_ffff_ffff_ffff) | (1013 + (r.next() >> 40) % 20) << 52,
        "f16" => (v & 0x83ff) | (11 + (v >> 40) % 8) << 10,
        "bf16" => (v & 0x807f) | (122 + (v >> 40) % 10) << 7,
        "u16" => v & 0xffff,
        "u32" => (v >> 8) & 0xffff_ffff,
        "u64" => v,
        "angle" => {
            let unit = (v >> 40) as f32 / (1u64 << 24) as f32;
            u64::from((unit * 6.0 - 3.0).to_bits())
        }
        "shift" => v % 70,
        "segment" => picked(kind)[(v >> 20) as usize % PICKED],
        _ => v & 7,
    }
}

/// The values of a kind for one operand of all rows.
pub fn set(kind: &str, slot: usize) -> Vec<u64> {
    // Pairs are two independent halves.
    if let Some(half) = kind.strip_suffix("x2") {
        let (low, high) = (set(half, slot), set(half, slot + 1));
        let n = low.len();
        return (0..n).map(|i| low[i] | high[(i * 5 + 3) % n] << 16).collect();
    }
    if kind == "pred" {
        let mut r = Random(0x1357_9bdf + slot as u64);
        return (0..ROWS).map(|_| r.next() >> 30 & 1).collect();
    }
    if let Some(values) = moods(kind, slot) {
        return values;
    }
    let picked = picked(kind);
    let seed = kind.bytes().fold(slot as u64 + 1, |s, b| s * 31 + u64::from(b));
    let mut r = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    (0..ROWS)
        .map(|i| {
            if i >= PICKED * PICKED {
                return random(kind, &mut r);
            }
            let at = match slot {
                0 => i / PICKED,
                1 => i % PICKED,
                // Two operands are covered completely, more of them by samples.
                _ => (r.next() >> 20) as usize % PICKED,
            };
            picked[at]
        })
        .collect()
}

/// The kinds of the second round: any bits at all, NaN of every sort, and numbers near the ties of
/// narrower formats.
fn moods(kind: &str, slot: usize) -> Option<Vec<u64>> {
    let (format, mood) =
        ["any", "nan", "tie"].iter().find_map(|mood| kind.strip_suffix(mood).map(|format| (format, *mood)))?;
    let (bits, fraction) = match format {
        "f64" => (64, 52),
        "f32" => (32, 23),
        "f16" => (16, 10),
        _ => (16, 7),
    };
    let seed = kind.bytes().fold(slot as u64 + 77, |s, b| s * 31 + u64::from(b));
    let mut r = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mask = u64::MAX >> (64 - bits);
    let sign = 1u64 << (bits - 1);
    let infinity = (sign - 1) & !((1u64 << fraction) - 1);
    let quiet = 1u64 << (fraction - 1);
    let nans = [
        infinity | quiet,
        infinity | quiet | 5,
        infinity | 3,
        sign | infinity | quiet | 9,
        sign | infinity | 1,
        infinity | ((quiet << 1) - 1),
        infinity,
        sign | infinity,
        0,
        sign,
        infinity - 1,
        (infinity >> 1) & infinity,
    ];
    Some(
        (0..ROWS)
            .map(|i| match mood {
                "any" => (r.next() >> 3 ^ r.next() << 31) & mask,
                "nan" if i < PICKED * PICKED => match slot {
                    0 => nans[i / PICKED],
                    1 => nans[i % PICKED],
                    _ => nans[(r.next() >> 20) as usize % PICKED],
                },
                "nan" => (nans[i % 6] ^ (r.next() >> 7 & 0x3f)) & mask,
                _ => {
                    // Exponents of halves and bytes, and low bits at and beside the ties.
                    let v = r.next();
                    let tails = [0x1000u64, 0x0fff, 0x1001, 0x8000, 0x7fff, 0x8001, 0x80000, 0x7ffff];
                    let tail = tails[(v >> 5) as usize % tails.len()];
                    let exponent = 98 + (v >> 20) % 48;
                    (v & 0x8000_0000) | exponent << 23 | (v >> 32 & 0x7f_e000) & !0xfffff | tail | (v >> 33 & 0x60_0000)
                }
            })
            .collect(),
    )
}
