//! `printf` of kernels, and the text of failed assertions.

use super::block::Env;
use super::memory::{place, read_lane};
use super::warp::Warp;
use crate::code::MemSpace;

/// The longest string that is read from device memory.
const MAX_STRING: u64 = 1 << 16;

/// A formatted text, and how many values went into it.
pub(crate) struct Text {
    pub(crate) bytes: Vec<u8>,
    pub(crate) values: u32,
}

fn read(env: &mut Env<'_, '_>, warp: &Warp, lane: usize, address: u64, size: u32) -> Result<u64, u64> {
    let at = place(MemSpace::Generic, address);
    read_lane(env, warp, lane, at, size).ok_or(address)
}

fn string(env: &mut Env<'_, '_>, warp: &Warp, lane: usize, address: u64) -> Result<Vec<u8>, u64> {
    let mut out = Vec::new();
    for i in 0..MAX_STRING {
        let byte = read(env, warp, lane, address.wrapping_add(i), 1)? as u8;
        if byte == 0 {
            break;
        }
        out.push(byte);
    }
    Ok(out)
}

/// A conversion of a format string.
#[derive(Default)]
struct Spec {
    left: bool,
    plus: bool,
    space: bool,
    alternate: bool,
    zero: bool,
    width: usize,
    precision: Option<usize>,
    wide: bool,
    short: u32,
}

/// The widest field: more is a mistake that should not fill memory.
const MAX_WIDTH: u64 = 4096;

/// The arguments of a `printf`, one after another with their natural alignment.
struct Values {
    at: u64,
    count: u32,
}

impl Values {
    fn take(&mut self, env: &mut Env<'_, '_>, warp: &Warp, lane: usize, size: u32) -> Result<u64, u64> {
        let size64 = u64::from(size);
        self.at = self.at.wrapping_add(size64 - 1) & !(size64 - 1);
        let v = read(env, warp, lane, self.at, size)?;
        self.at = self.at.wrapping_add(size64);
        self.count += 1;
        Ok(v)
    }
}

/// Formats as C does. The error is an address that cannot be read.
pub(crate) fn format(env: &mut Env<'_, '_>, warp: &Warp, lane: usize, format: u64, values: u64) -> Result<Text, u64> {
    let format = string(env, warp, lane, format)?;
    let mut values = Values { at: values, count: 0 };
    let mut out = Vec::with_capacity(format.len() + 16);
    let mut i = 0;
    while let Some(&c) = format.get(i) {
        i += 1;
        if c != b'%' {
            out.push(c);
            continue;
        }
        let mut spec = Spec::default();
        loop {
            match format.get(i) {
                Some(b'-') => spec.left = true,
                Some(b'+') => spec.plus = true,
                Some(b' ') => spec.space = true,
                Some(b'#') => spec.alternate = true,
                Some(b'0') => spec.zero = true,
                _ => break,
            }
            i += 1;
        }
        let mut number = |i: &mut usize, values: &mut Values| -> Result<i64, u64> {
            if format.get(*i) == Some(&b'*') {
                *i += 1;
                let v = values.take(env, warp, lane, 4)? as u32 as i32;
                return Ok(v.into());
            }
            let mut v = 0u64;
            while let Some(d) = format.get(*i).filter(|d| d.is_ascii_digit()) {
                v = (v * 10 + u64::from(d - b'0')).min(MAX_WIDTH);
                *i += 1;
            }
            Ok(v as i64)
        };
        let width = number(&mut i, &mut values)?;
        spec.left |= width < 0;
        spec.width = width.unsigned_abs().min(MAX_WIDTH) as usize;
        if format.get(i) == Some(&b'.') {
            i += 1;
            let precision = number(&mut i, &mut values)?;
            spec.precision = usize::try_from(precision).ok().map(|p| p.min(MAX_WIDTH as usize));
        }
        loop {
            match format.get(i) {
                Some(b'l' | b'j' | b'z' | b't' | b'L') => spec.wide = true,
                Some(b'h') => spec.short += 1,
                _ => break,
            }
            i += 1;
        }
        let Some(&conversion) = format.get(i) else { break };
        i += 1;
        if conversion == b'%' {
            out.push(b'%');
            continue;
        }
        let text = match conversion {
            b's' => {
                let address = values.take(env, warp, lane, 8)?;
                let mut text = string(env, warp, lane, address)?;
                text.truncate(spec.precision.unwrap_or(usize::MAX));
                text
            }
            b'c' => vec![values.take(env, warp, lane, 4)? as u8],
            b'p' => format!("{:#x}", values.take(env, warp, lane, 8)?).into_bytes(),
            b'd' | b'i' | b'u' | b'x' | b'X' | b'o' => {
                let size = if spec.wide { 8 } else { 4 };
                let v = values.take(env, warp, lane, size)?;
                integer(&spec, conversion, v).into_bytes()
            }
            b'f' | b'F' | b'e' | b'E' | b'g' | b'G' | b'a' | b'A' => {
                let v = f64::from_bits(values.take(env, warp, lane, 8)?);
                float(&spec, conversion, v).into_bytes()
            }
            other => {
                out.extend([b'%', other]);
                continue;
            }
        };
        pad(&mut out, &spec, conversion, &text);
    }
    Ok(Text { bytes: out, values: values.count })
}

fn pad(out: &mut Vec<u8>, spec: &Spec, conversion: u8, text: &[u8]) {
    let fill = spec.width.saturating_sub(text.len());
    let numeric = !matches!(conversion, b's' | b'c' | b'p');
    let digits = matches!(conversion, b'd' | b'i' | b'u' | b'x' | b'X' | b'o');
    if spec.left {
        out.extend_from_slice(text);
        out.resize(out.len() + fill, b' ');
    } else if spec.zero && numeric && !(digits && spec.precision.is_some()) {
        let sign = usize::from(matches!(text.first(), Some(b'-' | b'+' | b' ')));
        let prefix = if text.get(sign..sign + 2).is_some_and(|p| p == b"0x" || p == b"0X") { sign + 2 } else { sign };
        out.extend_from_slice(&text[..prefix]);
        out.resize(out.len() + fill, b'0');
        out.extend_from_slice(&text[prefix..]);
    } else {
        out.resize(out.len() + fill, b' ');
        out.extend_from_slice(text);
    }
}

fn sign(spec: &Spec, negative: bool) -> &'static str {
    match (negative, spec.plus, spec.space) {
        (true, ..) => "-",
        (_, true, _) => "+",
        (_, _, true) => " ",
        _ => "",
    }
}

fn integer(spec: &Spec, conversion: u8, v: u64) -> String {
    let bits = match (spec.wide, spec.short) {
        (true, _) => 64,
        (_, 0) => 32,
        (_, 1) => 16,
        _ => 8,
    };
    let v = if bits == 64 { v } else { v & ((1 << bits) - 1) };
    let (mark, digits) = match conversion {
        b'd' | b'i' => {
            let signed = ((v << (64 - bits)) as i64) >> (64 - bits);
            (sign(spec, signed < 0), signed.unsigned_abs().to_string())
        }
        b'u' => ("", v.to_string()),
        b'o' => (if spec.alternate { "0" } else { "" }, format!("{v:o}")),
        b'x' => (if spec.alternate && v != 0 { "0x" } else { "" }, format!("{v:x}")),
        _ => (if spec.alternate && v != 0 { "0X" } else { "" }, format!("{v:X}")),
    };
    let zeros = spec.precision.unwrap_or(1).saturating_sub(digits.len());
    if spec.precision == Some(0) && v == 0 {
        return mark.to_owned();
    }
    format!("{mark}{}{digits}", "0".repeat(zeros))
}

fn float(spec: &Spec, conversion: u8, v: f64) -> String {
    let mark = sign(spec, v.is_sign_negative());
    let upper = conversion.is_ascii_uppercase();
    let v = v.abs();
    let body = if v.is_nan() {
        "nan".to_owned()
    } else if v.is_infinite() {
        "inf".to_owned()
    } else {
        match conversion.to_ascii_lowercase() {
            b'f' => format!("{v:.*}", spec.precision.unwrap_or(6)),
            b'e' => exponent(v, spec.precision.unwrap_or(6)),
            b'g' => general(v, spec),
            _ => hexadecimal(v),
        }
    };
    let body = if upper { body.to_uppercase() } else { body };
    format!("{mark}{body}")
}

/// `d.ddde+xx`
fn exponent(v: f64, precision: usize) -> String {
    let text = format!("{v:.precision$e}");
    let Some((mantissa, power)) = text.split_once('e') else { return text };
    let power: i32 = power.parse().unwrap_or(0);
    let mark = if power < 0 { '-' } else { '+' };
    format!("{mantissa}e{mark}{:02}", power.abs())
}

fn general(v: f64, spec: &Spec) -> String {
    let precision = spec.precision.unwrap_or(6).max(1);
    let text = format!("{v:.*e}", precision - 1);
    let power: i32 = text.split_once('e').and_then(|(_, p)| p.parse().ok()).unwrap_or(0);
    let trim = |text: String| {
        if spec.alternate || !text.contains('.') {
            return text;
        }
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    if power < -4 || power >= precision as i32 {
        let text = exponent(v, precision - 1);
        let Some((mantissa, rest)) = text.split_once('e') else { return text };
        return format!("{}e{rest}", trim(mantissa.to_owned()));
    }
    let decimals = (precision as i32 - 1 - power).max(0) as usize;
    trim(format!("{v:.decimals$}"))
}

fn hexadecimal(v: f64) -> String {
    let bits = v.to_bits();
    let (e, man) = ((bits >> 52) as i32, bits & ((1 << 52) - 1));
    if bits == 0 {
        return "0x0p+0".to_owned();
    }
    let (lead, power) = if e == 0 { (0, -1022) } else { (1, e - 1023) };
    let digits = format!("{man:013x}");
    let digits = digits.trim_end_matches('0');
    let dot = if digits.is_empty() { "" } else { "." };
    format!("0x{lead}{dot}{digits}p{power:+}")
}

/// What `__assertfail` says: message, file, line and function.
pub(crate) fn assertion(env: &mut Env<'_, '_>, warp: &Warp, lane: usize, args: [u64; 5]) -> Vec<u8> {
    let mut text = |address: u64| {
        let bytes = string(env, warp, lane, address).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let (message, file, function) = (text(args[0]), text(args[1]), text(args[3]));
    let [x, y, z] = env.ctaid;
    let thread = warp.index * 32 + lane as u32;
    let [w, h, _] = env.machine.launch.block.map(|d| d.max(1));
    let (tx, ty, tz) = (thread % w, thread / w % h, thread / w / h);
    format!(
        "{file}:{}: {function}: block: [{x},{y},{z}], thread: [{tx},{ty},{tz}] Assertion \
         `{message}` failed.\n",
        args[2] as u32
    )
    .into_bytes()
}
