//! The oracle: every opcode and type in the interpreter against what hardware gave.
//!
//! See `tests/ops/README.md`.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::result_large_err,
    clippy::type_complexity
)]

mod common;

use std::collections::HashMap;
use std::path::PathBuf;

use common::{Go, Params, Ram, TestHost, load};
use serde_json::Value;

fn file(name: &str) -> Option<String> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/ops").join(name);
    std::fs::read_to_string(path).ok()
}

struct Case {
    name: String,
    body: String,
    ins: Vec<String>,
    outs: Vec<usize>,
    ulp: u64,
    abs: f64,
    float: String,
}

struct Cases {
    template: String,
    rows: usize,
    sets: HashMap<String, Vec<u64>>,
    cases: Vec<Case>,
}

fn text(v: &Value, key: &str) -> String {
    v[key].as_str().unwrap_or_default().to_owned()
}

fn cases(name: &str) -> Cases {
    let source = file(name).expect("the cases of tests/ops");
    let mut lines = source.lines();
    let header: Value = serde_json::from_str(lines.next().unwrap()).unwrap();
    let mut sets = HashMap::new();
    for (key, values) in header["sets"].as_object().unwrap() {
        let values = values.as_str().unwrap().split(' ');
        let values = values.map(|v| u64::from_str_radix(v, 16).unwrap()).collect();
        sets.insert(key.clone(), values);
    }
    let cases = lines.map(|line| {
        let v: Value = serde_json::from_str(line).unwrap();
        let list = |key: &str| v[key].as_array().cloned().unwrap_or_default();
        Case {
            name: text(&v, "name"),
            body: text(&v, "body"),
            ins: list("in").iter().map(|s| s.as_str().unwrap().to_owned()).collect(),
            outs: list("out").iter().map(|n| n.as_u64().unwrap() as usize).collect(),
            ulp: v["tolerance_ulp"].as_u64().unwrap_or(0),
            abs: v["tolerance_abs"].as_f64().unwrap_or(0.0),
            float: text(&v, "float"),
        }
    });
    Cases {
        template: text(&header, "template"),
        rows: header["rows"].as_u64().unwrap() as usize,
        cases: cases.collect(),
        sets,
    }
}

/// Runs a case; the outputs by slot and row.
fn interpret(all: &Cases, case: &Case) -> Result<Vec<Vec<u64>>, String> {
    let mut ram = Ram::default();
    let source = all.template.replace("@BODY@", &case.body);
    let loaded = load(&source, &mut ram).map_err(|e| e.to_string())?;
    let mut data = vec![0u8; all.rows * 32];
    for (slot, name) in case.ins.iter().enumerate() {
        for (row, value) in all.sets[name].iter().enumerate() {
            data[row * 32 + slot * 8..][..8].copy_from_slice(&value.to_le_bytes());
        }
    }
    let pin = ram.alloc_bytes(&data);
    let (pout, ptmp) = (ram.alloc(all.rows * 16), ram.alloc(all.rows * 16));
    let params = Params::default().u64(pin).u64(pout).u64(ptmp);
    let go = Go::new("k", 1, all.rows as u32, params);
    go.run(&loaded, &ram, &TestHost::default()).map_err(|e| e.to_string())?;
    let raw = ram.bytes(pout);
    let column = |(slot, size): (usize, &usize)| {
        let cell = |row: usize| {
            let mut word = [0u8; 8];
            word[..*size].copy_from_slice(&raw[row * 16 + slot * 8..][..*size]);
            u64::from_le_bytes(word)
        };
        (0..all.rows).map(cell).collect()
    };
    Ok(case.outs.iter().enumerate().map(column).collect())
}

/// A float's bits as a number, and as an integer that counts units of the last place.
fn float(kind: &str, bits: u64) -> (f64, i64) {
    let ordered = |v: u64, width: u32| {
        let sign = v >> (width - 1) & 1;
        let magnitude = (v & ((1 << (width - 1)) - 1)) as i64;
        if sign == 1 { -magnitude } else { magnitude }
    };
    match kind {
        "f64" => (f64::from_bits(bits), ordered(bits, 64)),
        "f32" => (f32::from_bits(bits as u32).into(), ordered(bits, 32)),
        "bf16" => (f32::from_bits((bits as u32) << 16).into(), ordered(bits, 16)),
        _ => {
            let (e, man) = (bits >> 10 & 31, (bits & 0x3ff) as f64);
            let magnitude = match e {
                0 => man * 2f64.powi(-24),
                31 if man == 0.0 => f64::INFINITY,
                31 => f64::NAN,
                _ => (man + 1024.0) * 2f64.powi(e as i32 - 25),
            };
            let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
            (sign * magnitude, ordered(bits, 16))
        }
    }
}

fn near(case: &Case, got: u64, want: u64) -> bool {
    if let Some(half) = case.float.strip_suffix("x2") {
        return near_one(case, half, got & 0xffff, want & 0xffff) && near_one(case, half, got >> 16, want >> 16);
    }
    near_one(case, &case.float, got, want)
}

fn near_one(case: &Case, kind: &str, got: u64, want: u64) -> bool {
    let ((x, i), (y, k)) = (float(kind, got), float(kind, want));
    if x.is_nan() || y.is_nan() || x.is_infinite() || y.is_infinite() || (x == 0.0) != (y == 0.0) {
        let same_zero = x == 0.0 || y == 0.0;
        return got == want || (same_zero && (x - y).abs() <= case.abs);
    }
    i.abs_diff(k) <= case.ulp || (x - y).abs() <= case.abs
}

#[test]
fn every_case_agrees_with_hardware() {
    round("cases.jsonl", "expected.jsonl");
}

#[test]
fn the_second_round_agrees_with_hardware() {
    round("more.jsonl", "expected_more.jsonl");
}

fn round(cases_of: &str, expected: &str) {
    let all = cases(cases_of);
    let expected: Option<HashMap<String, Value>> = file(expected).map(|text| {
        let parsed = text.lines().map(|line| {
            let v: Value = serde_json::from_str(line).unwrap();
            (v["name"].as_str().unwrap().to_owned(), v)
        });
        parsed.collect()
    });
    let mut wrong = Vec::new();
    let mut refused = Vec::new();
    for case in &all.cases {
        let want = expected.as_ref().map(|e| e.get(&case.name));
        if want == Some(None) {
            wrong.push(format!("{}: no expectation", case.name));
            continue;
        }
        if let Some(Some(v)) = want
            && v["status"] != 0
        {
            refused.push(format!("{}: {}", case.name, v["log"]));
            continue;
        }
        let got = match interpret(&all, case) {
            Ok(got) => got,
            Err(error) => {
                wrong.push(format!("{}: {error}", case.name));
                continue;
            }
        };
        let Some(Some(want)) = want else { continue };
        if let Some(text) = compare(&all, case, &got, want) {
            wrong.push(text);
        }
    }
    println!("{} cases, {} refused by hardware's driver", all.cases.len(), refused.len());
    assert!(refused.is_empty(), "take these out of the generator:\n{}", refused.join("\n"));
    assert!(wrong.is_empty(), "{} cases differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// The first rows that differ, if any do.
fn compare(all: &Cases, case: &Case, got: &[Vec<u64>], want: &Value) -> Option<String> {
    let mut rows = Vec::new();
    for (slot, size) in case.outs.iter().enumerate() {
        let column = want["out"][slot].as_str().unwrap();
        for row in 0..all.rows {
            let hex = &column[row * size * 2..][..size * 2];
            let want = u64::from_str_radix(hex, 16).unwrap();
            let got = got[slot][row];
            if got == want || (case.ulp > 0 && near(case, got, want)) {
                continue;
            }
            let ins: Vec<String> = case.ins.iter().map(|name| format!("{:x}", all.sets[name][row])).collect();
            rows.push(format!("[{}] gives {got:x}, not {want:x}", ins.join(" ")));
        }
    }
    if rows.is_empty() {
        return None;
    }
    let count = rows.len();
    rows.truncate(6);
    Some(format!("{} ({count} rows): {}", case.name, rows.join("; ")))
}
