//! Broken text is refused or run, never a panic and never a runaway.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::result_large_err,
    clippy::type_complexity
)]

mod common;

use common::{Go, Params, Ram, TARGET, TestHost, load};
use cuirass_ptx::{Module, ModuleErrorKind};

const SAMPLES: [&str; 6] = [
    include_str!("samples/async.ptx"),
    include_str!("samples/basic.ptx"),
    include_str!("samples/features.ptx"),
    include_str!("samples/half.ptx"),
    include_str!("samples/warp.ptx"),
    include_str!("samples/math.ptx"),
];

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % n.max(1)
    }
}

/// A piece of the text of a few kernels, changed in a few places.
fn mutate(source: &str, r: &mut Random) -> String {
    let mut bytes = source.as_bytes().to_vec();
    for _ in 0..1 + r.below(6) {
        let at = r.below(bytes.len());
        match r.below(7) {
            0 => bytes[at] = (r.below(95) + 32) as u8,
            1 => bytes[at] ^= 1 << r.below(7),
            2 => bytes.truncate(at.max(200)),
            3 => {
                bytes.remove(at);
            }
            // Words and numbers of the language in wrong places.
            4 => {
                const WORDS: [&str; 12] = [
                    "%r1",
                    "4294967295",
                    ".b64",
                    "bra",
                    "{",
                    "}",
                    "0x8000000000000000",
                    "[%rd1]",
                    "@%p1 ",
                    "-1",
                    ";",
                    "u32",
                ];
                let word = WORDS[r.below(WORDS.len())];
                bytes.splice(at..at, word.bytes());
            }
            // A line twice, or at another place.
            5 => {
                let end = bytes[at..].iter().position(|b| *b == b'\n').map_or(at, |n| at + n);
                let line = bytes[at..end].to_vec();
                let to = r.below(bytes.len());
                bytes.splice(to..to, line);
            }
            _ => {
                if let Some(digit) = bytes[at..].iter().position(u8::is_ascii_digit) {
                    bytes[at + digit] = b'0' + r.below(10) as u8;
                }
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn mutated_samples_do_no_harm() {
    let rounds = std::env::var("CUIRASS_PTX_MUTATIONS").ok().and_then(|v| v.parse().ok());
    let rounds: usize = rounds.unwrap_or(400);
    let mut r = Random(0x5eed_cafe_f00d_0001);
    let (mut parsed, mut ran, mut failed) = (0, 0, 0);
    for round in 0..rounds {
        let source = mutate(SAMPLES[round % SAMPLES.len()], &mut r);
        let mut ram = Ram::default();
        let Ok(loaded) = load(&source, &mut ram) else { continue };
        parsed += 1;
        let buffer = ram.alloc(1 << 12);
        let names: Vec<String> = loaded.module().kernels().map(|k| k.name().to_owned()).take(12).collect();
        for name in names {
            let mut params = Params::default();
            for _ in 0..16 {
                params = params.u64(buffer);
            }
            let bytes = loaded.module().kernel(&name).unwrap().param_bytes() as usize;
            params.0.resize(bytes.max(params.0.len()), 0);
            let mut go = Go::new(&name, 2, 40, params);
            go.fuel = Some(100_000);
            match go.run(&loaded, &ram, &TestHost::default()) {
                Ok(_) => ran += 1,
                Err(fault) => {
                    failed += 1;
                    assert!(!fault.to_string().is_empty());
                }
            }
        }
    }
    println!("{parsed} of {rounds} parsed; {ran} kernels ran, {failed} ended in a fault");
    assert!(parsed > rounds / 20 && ran > 0 && failed > 0);
}

fn refuse(source: &str) -> (ModuleErrorKind, u32, u32) {
    let error = Module::parse(source, &TARGET).unwrap_err();
    assert!(!error.to_string().is_empty());
    (error.kind, error.line, error.column)
}

const HEAD: &str = ".version 8.0\n.target sm_90\n.address_size 64\n";

#[test]
fn errors_have_places() {
    assert_eq!(refuse(""), (ModuleErrorKind::Syntax, 1, 1));
    assert_eq!(refuse("hello"), (ModuleErrorKind::Syntax, 1, 1));
    assert_eq!(refuse(".version 99.0\n.target sm_90").0, ModuleErrorKind::UnsupportedVersion);
    assert_eq!(refuse(".version 8.0\n.target sm_100").0, ModuleErrorKind::UnsupportedTarget);
    assert_eq!(refuse(".version 8.0\n.target sm_80a").0, ModuleErrorKind::UnsupportedTarget);
    let body = |text: &str| refuse(&format!("{HEAD}.entry k()\n{{\n.reg .b32 %r<4>;\n{text}\n}}"));
    assert_eq!(body("frobnicate.b32 %r1;"), (ModuleErrorKind::Syntax, 7, 1));
    assert_eq!(body("add.u32 %r1, %r2, %r9;"), (ModuleErrorKind::Undefined, 7, 1));
    assert_eq!(body("add.u64 %r1, %r2, %r3;"), (ModuleErrorKind::Type, 7, 1));
    assert_eq!(body("add.u32 %r1, %r2;"), (ModuleErrorKind::Type, 7, 1));
    assert_eq!(body("  bra nowhere;"), (ModuleErrorKind::Undefined, 7, 3));
    assert_eq!(body("add.u32 %r1, %r2, ;").0, ModuleErrorKind::Syntax);
    assert_eq!(body("/* no end").0, ModuleErrorKind::Syntax);
    assert_eq!(body("a: a:").0, ModuleErrorKind::Duplicate);
    let twice = format!("{HEAD}.global .b32 a;\n.global .b32 a;");
    assert_eq!(refuse(&twice), (ModuleErrorKind::Duplicate, 5, 14));
    let call = format!("{HEAD}.extern .func f();\n.entry k()\n{{\ncall f;\n}}");
    assert_eq!(refuse(&call).0, ModuleErrorKind::UnresolvedExtern);
}

#[test]
fn huge_numbers_are_refused_or_cost_nothing() {
    let huge = |text: &str| refuse(&format!("{HEAD}{text}")).0;
    assert_eq!(huge(".shared .b8 a[99999999999];"), ModuleErrorKind::TooLarge);
    assert_eq!(huge(".global .b8 a[18446744073709551615];"), ModuleErrorKind::TooLarge);
    assert_eq!(huge(".entry k() { .local .b8 a[1073741824]; }"), ModuleErrorKind::TooLarge);
    assert_eq!(huge(".entry k(.param .b8 a[1073741824]) { }"), ModuleErrorKind::TooLarge);
    let many = format!("{HEAD}.entry k() {{ .reg .b32 %r<4294967295>; mov.b32 %r4294967294, 1; }}");
    assert!(Module::parse(&many, &TARGET).is_ok());
    let deep = format!("{HEAD}.entry k() {}{}", "{".repeat(500_000), "}".repeat(500_000));
    assert_eq!(refuse(&deep).0, ModuleErrorKind::TooLarge);
    let nested = format!("{HEAD}.global .b32 a[1] = {}1{};", "{".repeat(500_000), "}".repeat(500_000));
    assert!(Module::parse(&nested, &TARGET).is_ok());
    let minus = format!("{HEAD}.global .b32 a = {}1;", "-".repeat(500_000));
    assert!(Module::parse(&minus, &TARGET).is_ok());
}

/// Inline assembly repeats labels and registers in scopes of its own.
#[test]
fn scopes_have_names_of_their_own() {
    let body = "{ .reg .pred p; .reg .u32 n; mov.u32 n, 0; again: add.u32 n, n, 1; setp.lt.u32 p, n, 5;
        @p bra again; add.u32 %r1, %r1, n; @p bra out; }";
    let source = format!(
        "{HEAD}.entry k(.param .u64 o) {{ .reg .b32 %r<4>; .reg .b64 %d<4>; mov.u32 %r1, 0;
         {body} {body} {{ {body} }} out: ld.param.u64 %d1, [o]; st.global.u32 [%d1], %r1; }}"
    );
    let mut ram = Ram::default();
    let loaded = load(&source, &mut ram).unwrap();
    let out = ram.alloc(8);
    Go::new("k", 1, 1, Params::default().u64(out)).run(&loaded, &ram, &TestHost::default()).unwrap();
    assert_eq!(ram.u32s(out)[0], 15);
}

#[test]
fn what_is_missing_is_named() {
    let source = format!(
        "{HEAD}.func f() {{ .reg .b32 %r<2>; mma.sync.aligned.m8n8k4.f32 {{%r0}}, {{%r0}}; ret; }}
         .entry uses() {{ call f; ret; }}
         .entry fine() {{ ret; }}
         .entry tex() {{ .reg .f32 %f<4>; .reg .b64 %t; tex.1d.v4.f32.s32 {{%f0,%f1,%f2,%f3}}, [%t, {{%f0}}]; }}"
    );
    let module = Module::parse(&source, &TARGET).unwrap();
    assert_eq!(module.kernel("uses").unwrap().unsupported(), Some("mma.sync.aligned.m8n8k4.f32"));
    assert_eq!(module.kernel("fine").unwrap().unsupported(), None);
    assert_eq!(module.kernel("tex").unwrap().unsupported(), Some("tex.1d.v4.f32.s32"));
    let mut ram = Ram::default();
    let loaded = load(&source, &mut ram).unwrap();
    let go = Go::new("uses", 1, 1, Params::default());
    let fault = go.run(&loaded, &ram, &TestHost::default()).unwrap_err();
    assert!(fault.to_string().contains("mma.sync"), "{fault}");
}

/// Runs a body that stores into the first parameter's buffer.
fn fault_of(body: &str) -> cuirass_ptx::FaultKind {
    let source = format!(
        "{HEAD}.global .align 8 .u64 g;\n.func r(.param .b32 a) {{ .reg .b32 %r<2>; ld.param.b32 %r0, [a];
         {{ .param .b32 p; st.param.b32 [p], %r0; call r, (p); }} ret; }}
         .entry k(.param .u64 out) {{ .reg .b32 %r<9>; .reg .b64 %d<9>; .reg .pred %p<4>;
         .shared .align 8 .b8 s[64]; .local .align 8 .b8 l[64];
         ld.param.u64 %d0, [out]; mov.u32 %r0, %tid.x;\n{body}\nret; }}"
    );
    let mut ram = Ram::default();
    let loaded = load(&source, &mut ram).unwrap();
    let out = ram.alloc(256);
    let mut go = Go::new("k", 1, 64, Params::default().u64(out));
    go.fuel = Some(10_000_000);
    go.run(&loaded, &ram, &TestHost::default()).unwrap_err().kind
}

#[test]
fn faults() {
    use cuirass_ptx::FaultKind as K;
    assert_eq!(fault_of("ld.global.u32 %r1, [%d0+256];"), K::IllegalAddress);
    assert_eq!(fault_of("ld.global.u32 %r1, [%d0+-4];"), K::IllegalAddress);
    assert_eq!(fault_of("ld.global.v2.u32 {%r1, %r2}, [%d0+4];"), K::MisalignedAddress);
    assert_eq!(fault_of("ld.u32 %r1, [0];"), K::IllegalAddress);
    assert_eq!(fault_of("st.shared.u32 [s+64], %r1;"), K::IllegalAddress);
    assert_eq!(fault_of("ld.shared.u32 %r1, [s+2];"), K::MisalignedAddress);
    assert_eq!(fault_of("st.local.u32 [l+1048576], %r1;"), K::IllegalAddress);
    assert_eq!(fault_of("atom.global.add.u32 %r1, [%d0+1024], 1;"), K::IllegalAddress);
    assert_eq!(
        fault_of("mov.u64 %d1, l; cvta.local.u64 %d1, %d1; atom.add.u32 %r1, [%d1], 1;"),
        K::InvalidAddressSpace
    );
    assert_eq!(fault_of("{ .param .b32 p; st.param.b32 [p], %r0; call r, (p); }"), K::HardwareStackError);
    assert_eq!(fault_of("{ p0: .callprototype _ (); mov.u64 %d1, 64; call %d1, p0; }"), K::InvalidPc);
    assert_eq!(fault_of("t: .branchtargets a, a; brx.idx %r0, t; a: ret;"), K::InvalidPc);
    assert_eq!(fault_of("l0: bra l0;"), K::OutOfFuel);
    assert_eq!(fault_of("setp.gt.u32 %p1, %r0, 40; @%p1 bar.sync 1; bar.sync 2;"), K::Deadlock);
    assert_eq!(fault_of("trap;"), K::Trap);
}
