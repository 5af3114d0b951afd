//! Every exported function, called with handles that are none: an answer each time, never a crash.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{Driver, alone};

/// A function's name, and what each of its parameters is.
struct Signature {
    name: &'static str,
    params: Vec<Param>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Param {
    Handle,
    Number,
    Pointer,
    /// Something that is not passed in one integer register.
    Other,
}

fn param(kind: &str) -> Param {
    const STRUCTURES: [&str; 3] = ["CUipcEventHandle", "CUipcMemHandle", "CUmemLocation"];
    match kind {
        _ if kind.starts_with('*') => Param::Pointer,
        "CUhostFn" | "CUstreamCallback" | "CUoccupancyB2DSize" | "CUasyncCallback" => Param::Other,
        "CUlogsCallback" | "CUcoredumpStatusCallback" | "f32" | "f64" => Param::Other,
        _ if STRUCTURES.contains(&kind) => Param::Other,
        "CUdevice" | "CUdeviceptr" | "CUdeviceptr_v1" | "cuuint32_t" | "cuuint64_t" => Param::Number,
        _ if kind.starts_with("::std") || ["usize", "u32", "i32"].contains(&kind) => Param::Number,
        _ if kind.starts_with("CU") => Param::Handle,
        _ => Param::Other,
    }
}

/// The signatures of all exports, from the generated file.
fn signatures() -> Vec<Signature> {
    let text = include_str!("../src/exports.rs");
    let mut found = Vec::new();
    for piece in text.split("pub unsafe extern \"C\" fn ").skip(1) {
        let (name, rest) = piece.split_once('(').unwrap();
        let (params, _) = rest.split_once(") -> CUresult").unwrap();
        let params = params.split(',').filter_map(|param| param.split_once(": ")).map(|(_, kind)| param(kind.trim()));
        found.push(Signature { name: name.to_owned().leak(), params: params.collect() });
    }
    found
}

/// Calls that read memory at addresses which the program names, or that end or wait for things that others need.
const LEFT_OUT: [&str; 4] = ["cuMemcpy", "cuMemHostRegister", "cuGraphDebugDotPrint", "cuDevicePrimaryCtxRe"];

#[test]
fn handles_that_are_none_are_answers() {
    alone("handles_that_are_none_are_answers", "memory=64MiB", || {
        let (d, prim) = Driver::ready();
        let stale = d.stream(1);
        d.ok("cuStreamDestroy_v2", (stale,));
        let old = d.get("cuGraphCreate", |out| (out, 0u32));
        d.ok("cuGraphDestroy", (old,));
        let signatures = signatures();
        assert!(signatures.len() > 500);
        let mut buffer = vec![0u64; 4096];
        let mut calls = 0;
        for signature in &signatures {
            let skipped = LEFT_OUT.iter().any(|start| signature.name.starts_with(start));
            if skipped || signature.params.contains(&Param::Other) || signature.params.len() > 11 {
                continue;
            }
            for (round, handle) in
                [0, 1, 2, stale, old, prim, 0xdead_beef, usize::MAX, stale + 16].into_iter().enumerate()
            {
                let mut args = [0usize; 11];
                for (at, param) in signature.params.iter().enumerate() {
                    args[at] = match param {
                        Param::Handle => handle,
                        Param::Number => (round + at) % 3,
                        _ if round % 4 == 3 => 0,
                        _ => buffer.as_mut_ptr() as usize,
                    };
                }
                let [a, b, c, e, f, g, h, i, j, k, l] = args;
                let code = d.code(signature.name, (a, b, c, e, f, g, h, i, j, k, l));
                assert_ne!(d.status(code), "", "{}", signature.name);
                assert_ne!(code, 999, "{} with {handle:#x}: {}", signature.name, d.reports());
                buffer.fill(0);
                d.ok("cuCtxSetCurrent", (prim,));
                calls += 1;
            }
        }
        assert!(calls > 2000, "{calls}");
        assert!(!d.reports().contains("\"kind\":\"panic\""), "{}", d.reports());
    });
}
