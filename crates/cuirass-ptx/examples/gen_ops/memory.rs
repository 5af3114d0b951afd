//! Loads and stores, atomics, warp-wide and block-wide instructions, special registers, control.

use crate::{Cases, Tolerance, letter, store};

const NONE: Tolerance = Tolerance { ulp: 0, abs: 0.0, float: "" };

pub fn all(c: &mut Cases) {
    loads(c);
    atomics(c);
    halves(c);
    contended(c);
    warps(c);
    barriers(c);
    specials(c);
    control(c);
}

fn w(n: u32, slot: u32) -> String {
    store('w', n, slot).1
}

fn l(n: u32, slot: u32) -> String {
    store('l', n, slot).1
}

fn loads(c: &mut Cases) {
    // Every row has sixteen bytes of its own in each space.
    let spaces = [
        ("global", "mov.b64 %l10, %t;"),
        ("shared", "mul.wide.u32 %l11, %row, 16;\nmov.u64 %l10, sm;\nadd.s64 %l10, %l10, %l11;"),
        ("local", "mov.u64 %l10, lm;"),
        ("", "mov.u64 %l11, lm;\ncvta.local.u64 %l10, %l11;"),
    ];
    for (space, address) in spaces {
        let dot = if space.is_empty() { String::new() } else { format!(".{space}") };
        for t in ["u8", "s8", "u16", "s16", "u32", "s32", "b8", "b16", "b32"] {
            let body = format!(
                "{address}\nst{dot}.b64 [%l10], %l1;\nld{dot}.{t} %l8, [%l10];\nld{dot}.{t} %w9, [%l10+4];\n{}{}",
                l(8, 0),
                w(9, 1)
            );
            c.body(&format!("ld{dot}.{t} into wide"), &["u64"], &[8, 4], &body, NONE);
            let narrow = if t.ends_with('8') { "%h2" } else { "%l2" };
            let st = t.replace('s', "u");
            let body = format!(
                "{address}\nst{dot}.b64 [%l10], %l1;\nst{dot}.{st} [%l10+4], {narrow};\nld{dot}.b64 %l8, [%l10];\n{}",
                l(8, 0)
            );
            c.body(&format!("st{dot}.{t} from wide"), &["u64", "u64"], &[8], &body, NONE);
        }
        let body = format!(
            "{address}\nst{dot}.v2.b64 [%l10], {{%l1, %l2}};\nld{dot}.v4.b32 {{%w8, %w9, %w10, %w11}}, [%l10];\nxor.b32 %w8, %w8, %w11;\nsub.u32 %w9, %w9, %w10;\n{}{}",
            w(8, 0),
            w(9, 1)
        );
        c.body(&format!("st{dot}.v2.b64+ld{dot}.v4.b32"), &["u64", "u64"], &[4, 4], &body, NONE);
        let body = format!(
            "{address}\nst{dot}.v4.b16 [%l10], {{%h1, %h2, %h3, %h4}};\nld{dot}.v2.b8 {{%h8, %h9}}, [%l10+2];\nld{dot}.v2.u16 {{%w8, _}}, [%l10+4];\ncvt.u32.u16 %w9, %h8;\n{}{}",
            w(8, 0),
            w(9, 1)
        );
        c.body(&format!("st{dot}.v4.b16+ld{dot}.v2.b8"), &["u16"; 4], &[4, 4], &body, NONE);
    }
    let body = format!(
        "and.b32 %w1, %w1, 15;\nand.b32 %w2, %w1, 14;\ncvt.u64.u32 %l10, %w1;\nmov.u64 %l11, cm;\nadd.s64 %l10, %l10, %l11;\nld.const.s8 %w8, [%l10];\ncvta.const.u64 %l11, %l11;\ncvt.u64.u32 %l10, %w2;\nadd.s64 %l10, %l10, %l11;\nld.u16 %w9, [%l10];\n{}{}",
        w(8, 0),
        w(9, 1)
    );
    c.body("ld.const", &["u32"], &[4, 4], &body, NONE);
    let body = format!("ld.const.u32 %w8, [cm+4];\nld.const.b64 %l9, [cm+8];\n{}{}", w(8, 0), l(9, 1));
    c.body("ld.const fixed", &["u32"], &[4, 8], &body, NONE);
    let body = format!(
        "ld.param.u32 %w8, [pin];\nld.param.u64 %l9, [pin];\ncvt.u32.u64 %w9, %l9;\nsub.u32 %w8, %w8, %w9;\n{}",
        w(8, 0)
    );
    c.body("ld.param", &["u32"], &[4], &body, NONE);
    for space in ["global", "shared", "local", "const"] {
        let mut body = String::new();
        for (i, (name, to)) in [("gm", "global"), ("sm", "shared"), ("lm", "local")].iter().enumerate() {
            let set = format!(
                "mov.u64 %l10, {name};\ncvta.{to}.u64 %l10, %l10;\nisspacep.{space} %p8, %l10;\nselp.b32 %w10, {}, 0, %p8;\n",
                1 << i
            );
            body += &set;
            body += if i == 0 { "mov.b32 %w8, %w10;\n" } else { "or.b32 %w8, %w8, %w10;\n" };
        }
        body += &w(8, 0);
        c.body(&format!("isspacep.{space}"), &["u32"], &[4], &body, NONE);
    }
    for (name, to) in [("gm", "global"), ("sm", "shared"), ("lm", "local")] {
        let body = format!(
            "mov.u64 %l10, {name};\ncvta.{to}.u64 %l11, %l10;\nst.u32 [%l11+8], %w1;\ncvta.to.{to}.u64 %l12, %l11;\nsub.s64 %l8, %l12, %l10;\nbar.sync 0;\nst.{to}.u32 [%l12+8], 77;\nbar.sync 0;\nld.u32 %w9, [%l11+8];\n{}{}",
            l(8, 0),
            w(9, 1)
        );
        c.body(&format!("cvta.{to}"), &["u32"], &[8, 4], &body, NONE);
    }
}

/// Each row has memory of its own, so that the result is certain.
fn atomics(c: &mut Cases) {
    let ops: [(&str, &[&str]); 10] = [
        ("add", &["u32", "s32", "u64", "f32", "f64"]),
        ("min", &["u32", "s32", "u64", "s64"]),
        ("max", &["u32", "s32", "u64", "s64"]),
        ("inc", &["u32"]),
        ("dec", &["u32"]),
        ("exch", &["b32", "b64"]),
        ("cas", &["b16", "b32", "b64"]),
        ("and", &["b32", "b64"]),
        ("or", &["b32", "b64"]),
        ("xor", &["b32", "b64"]),
    ];
    for (op, types) in ops {
        for t in types {
            for space in ["global", "shared", ""] {
                one_atomic(c, op, t, space);
            }
        }
    }
    for (op, t) in [("exch", "b32"), ("cas", "b32"), ("add", "u64")] {
        let r = letter(t);
        let b = if op == "cas" { format!(", %{r}3") } else { String::new() };
        let bytes = if r == 'l' { 8 } else { 4 };
        let body = format!(
            "st.global.{t} [%t], %{r}1;\natom.acq_rel.gpu.global.{op}.{t} %{r}8, [%t], %{r}2{b};\nld.acquire.sys.global.{t} %{r}9, [%t];\n{}{}",
            store(r, 8, 0).1,
            store(r, 9, 1).1
        );
        let ins = [crate::kind(t), crate::kind(t), crate::kind(t)];
        c.body(&format!("atom.acq_rel.gpu.global.{op}.{t}"), &ins, &[bytes, bytes], &body, NONE);
    }
}

fn address(space: &str) -> &'static str {
    match space {
        "shared" => "mul.wide.u32 %l11, %row, 16;\nmov.u64 %l10, sm;\nadd.s64 %l10, %l10, %l11;",
        _ => "mov.b64 %l10, %t;",
    }
}

fn one_atomic(c: &mut Cases, op: &str, t: &str, space: &str) {
    let dot = if space.is_empty() { String::new() } else { format!(".{space}") };
    let r = letter(t);
    let bytes = match r {
        'h' => 2,
        'w' => 4,
        _ => 8,
    };
    let b = if op == "cas" { format!(", %{r}3") } else { String::new() };
    // Half of the comparisons should succeed.
    let prepare = if op == "cas" { format!("@%p4 mov.b{} %{r}2, %{r}1;\n", 8 * bytes) } else { String::new() };
    let raw = format!("b{}", 8 * bytes);
    let address = address(space);
    let body = format!(
        "{prepare}{address}\nst{dot}.{raw} [%l10], %{r}1;\natom{dot}.{op}.{t} %{r}8, [%l10], %{r}2{b};\nld{dot}.{raw} %{r}9, [%l10];\n{}{}",
        store(r, 8, 0).1,
        store(r, 9, 1).1
    );
    let k = crate::kind(t);
    c.body(&format!("atom{dot}.{op}.{t}"), &[k, k, k, "pred"], &[bytes, bytes], &body, NONE);
    if matches!(op, "exch" | "cas") {
        return;
    }
    let body = format!(
        "{address}\nst{dot}.{raw} [%l10], %{r}1;\nred{dot}.{op}.{t} [%l10], %{r}2;\nld{dot}.{raw} %{r}8, [%l10];\n{}",
        store(r, 8, 0).1
    );
    c.body(&format!("red{dot}.{op}.{t}"), &[k, k], &[bytes], &body, NONE);
}

fn halves(c: &mut Cases) {
    for t in ["f16", "f16x2", "bf16", "bf16x2"] {
        let r = letter(t);
        let bytes = if r == 'h' { 2 } else { 4 };
        for op in ["add", "min", "max"] {
            // Minimum and maximum exist for vectors only.
            let (vec, src, dst) = if op == "add" {
                ("", format!("%{r}2"), format!("%{r}8"))
            } else {
                (".v2", format!("{{%{r}2, %{r}3}}"), format!("{{%{r}8, %{r}10}}"))
            };
            let rounding = ".noftz";
            let body = format!(
                "st.global.v2.b{n} [%t], {{%{r}1, %{r}2}};\natom.global{vec}.{op}{rounding}.{t} {dst}, [%t], {src};\nld.global.b{n} %{r}9, [%t];\n{}{}",
                store(r, 8, 0).1,
                store(r, 9, 1).1,
                n = 8 * bytes,
            );
            // The vector form puts the vector after the operation and its modifier.
            let body = body.replace(
                &format!("atom.global{vec}.{op}{rounding}.{t}"),
                &format!("atom.global.{op}{rounding}{vec}.{t}"),
            );
            c.body(&format!("atom.global.{op}{rounding}{vec}.{t}"), &[t; 3], &[bytes, bytes], &body, NONE);
        }
    }
    for vec in ["v2", "v4"] {
        let (a, b) =
            if vec == "v2" { ("{%w8, %w9}", "{%w2, %w3}") } else { ("{%w8, %w9, %w10, %w11}", "{%w2, %w3, %w2, %w3}") };
        let body = format!(
            "st.global.v2.b64 [%t], {{%l1, %l1}};\natom.global.add.{vec}.f32 {a}, [%t], {b};\nld.global.b64 %l8, [%t];\n{}{}",
            w(8, 0),
            l(8, 1)
        );
        c.body(&format!("atom.global.add.{vec}.f32"), &["f32"; 3], &[4, 8], &body, NONE);
    }
}

/// All rows on one word: the end is certain whatever the order.
fn contended(c: &mut Cases) {
    let ops: [(&str, &str); 11] = [
        ("add", "u32"),
        ("add", "u64"),
        ("min", "s32"),
        ("max", "s32"),
        ("min", "u64"),
        ("max", "s64"),
        ("and", "b32"),
        ("or", "b64"),
        ("xor", "b32"),
        ("inc", "u32"),
        ("dec", "u32"),
    ];
    for (op, t) in ops {
        for space in ["global", "shared"] {
            let r = letter(t);
            let bytes = if r == 'w' { 4 } else { 8 };
            let base = if space == "global" { "mov.b64 %l10, %all;" } else { "mov.u64 %l10, sm;" };
            // `inc` and `dec` depend on the order unless all operands are one.
            let operand = if matches!(op, "inc" | "dec") { "100".to_owned() } else { format!("%{r}1") };
            let body = format!(
                "{base}\nsetp.eq.u32 %p8, %row, 0;\n@%p8 st.{space}.b{n} [%l10], %{r}2;\nbar.sync 0;\nred.{space}.{op}.{t} [%l10], {operand};\nbar.sync 0;\nld.{space}.b{n} %{r}8, [%l10];\n{}",
                store(r, 8, 0).1,
                n = 8 * bytes
            );
            let k = crate::kind(t);
            c.body(&format!("red.{space}.{op}.{t} contended"), &[k, k], &[bytes], &body, NONE);
        }
    }
    let body = format!(
        "mov.u32 %w10, 0;\nlock: atom.global.cas.b32 %w8, [%all], 0, 1;\nsetp.ne.u32 %p8, %w8, 0;\n@%p8 bra lock;\nmembar.gl;\nld.volatile.global.u32 %w9, [%all+8];\nadd.u32 %w9, %w9, %w1;\nst.volatile.global.u32 [%all+8], %w9;\nmembar.gl;\natom.global.exch.b32 %w8, [%all], 0;\nbar.sync 0;\nld.volatile.global.u32 %w8, [%all+8];\n{}",
        w(8, 0)
    );
    c.body("spin lock between lanes", &["u32"], &[4], &body, NONE);
}

fn warps(c: &mut Cases) {
    for mode in ["idx", "up", "down", "bfly"] {
        let body =
            format!("shfl.sync.{mode}.b32 %w8|%p8, %w1, %w2, %w3, 0xffffffff;\n{}{}", w(8, 0), store('p', 8, 1).1);
        c.body(&format!("shfl.sync.{mode}.b32"), &["u32", "shift", "segment"], &[4, 4], &body, NONE);
    }
    // Only the even lanes take part, from inside a branch.
    let body = format!(
        "mov.u32 %w8, 5;\nand.b32 %w10, %row, 1;\nsetp.ne.u32 %p8, %w10, 0;\n@%p8 bra odd;\nxor.b32 %w11, %row, 2;\nshfl.sync.idx.b32 %w8, %w1, %w11, 0x1f, 0x55555555;\nodd:\n{}",
        w(8, 0)
    );
    c.body("shfl.sync.idx.b32 in a branch", &["u32"], &[4], &body, NONE);
    for mode in ["all", "any", "uni"] {
        for not in ["", "!"] {
            let body = format!("vote.sync.{mode}.pred %p8, {not}%p1, 0xffffffff;\n{}", store('p', 8, 0).1);
            c.body(&format!("vote.sync.{mode}.pred {not}p"), &["pred"], &[4], &body, NONE);
        }
        let body = format!(
            "shr.u32 %w10, %row, 6;\nsetp.eq.u32 %p9, %w10, 1;\nvote.sync.{mode}.pred %p8, %p9, 0xffffffff;\n{}",
            store('p', 8, 0).1
        );
        c.body(&format!("vote.sync.{mode}.pred uniform"), &["pred"], &[4], &body, NONE);
    }
    let body = format!("vote.sync.ballot.b32 %w8, %p1, 0xffffffff;\n{}", w(8, 0));
    c.body("vote.sync.ballot.b32", &["pred"], &[4], &body, NONE);
    for (t, r) in [("b32", 'w'), ("b64", 'l')] {
        let body = format!("match.any.sync.{t} %w8, %{r}1, 0xffffffff;\n{}", w(8, 0));
        c.body(&format!("match.any.sync.{t}"), &["few"], &[4], &body, NONE);
        let body = format!(
            "match.all.sync.{t} %w8|%p8, %{r}1, 0xffffffff;\nshr.u32 %w10, %row, 5;\ncvt.u64.u32 %l10, %w10;\nmatch.all.sync.{t} %w9, %{r}10, 0xffffffff;\n{}{}",
            w(8, 0),
            w(9, 1)
        );
        c.body(&format!("match.all.sync.{t}"), &["few"], &[4, 4], &body, NONE);
    }
    for (op, t) in [
        ("add", "u32"),
        ("add", "s32"),
        ("min", "u32"),
        ("max", "u32"),
        ("min", "s32"),
        ("max", "s32"),
        ("and", "b32"),
        ("or", "b32"),
        ("xor", "b32"),
    ] {
        let body = format!("redux.sync.{op}.{t} %w8, %w1, 0xffffffff;\n{}", w(8, 0));
        c.body(&format!("redux.sync.{op}.{t}"), &["u32"], &[4], &body, NONE);
    }
    let body = format!("elect.sync %w8|%p8, 0xffffffff;\n{}{}", w(8, 0), store('p', 8, 1).1);
    c.body("elect.sync", &["u32"], &[4, 4], &body, NONE);
    let body = format!("activemask.b32 %w8;\nbar.warp.sync 0xffffffff;\n{}", w(8, 0));
    c.body("activemask.b32", &["u32"], &[4], &body, NONE);
}

fn barriers(c: &mut Cases) {
    for (op, d) in [("popc.u32", 'w'), ("and.pred", 'p'), ("or.pred", 'p')] {
        for not in ["", "!"] {
            let body = format!(
                "bar.red.{op} %{d}8, 0, {not}%p1;\nsetp.lt.u32 %p10, %row, 1000;\nbarrier.sync 1;\nbar.red.{op} %{d}9, 2, {not}%p10;\n{}{}",
                store(d, 8, 0).1,
                store(d, 9, 1).1
            );
            c.body(&format!("bar.red.{op} {not}p"), &["pred"], &[4, 4], &body, NONE);
        }
    }
    // The last two warps hand over to the first two, which wait; the rest do neither.
    let body = format!(
        "mul.wide.u32 %l11, %row, 4;\nmov.u64 %l10, sm;\nadd.s64 %l10, %l10, %l11;\nmov.u32 %w8, 3;\nsetp.ge.u32 %p8, %row, 128;\nsetp.lt.u32 %p9, %row, 64;\n@!%p8 bra not_last;\nst.shared.u32 [%l10], %w1;\nbar.arrive 3, 128;\n bra.uni end;\nnot_last:\n@!%p9 bra end;\nbar.sync 3, 128;\nld.shared.u32 %w8, [%l10+512];\nend:\n{}",
        w(8, 0)
    );
    c.body("bar.arrive+bar.sync", &["u32"], &[4], &body, NONE);
    let body = format!(
        "mul.wide.u32 %l11, %row, 4;\nmov.u64 %l10, sm;\nadd.s64 %l12, %l10, %l11;\nst.shared.u32 [%l12], %w1;\nbarrier.cta.sync.aligned 0;\nmov.u32 %w10, 191;\nsub.u32 %w10, %w10, %row;\nmul.wide.u32 %l11, %w10, 4;\nadd.s64 %l12, %l10, %l11;\nld.shared.u32 %w8, [%l12];\n{}",
        w(8, 0)
    );
    c.body("barrier.cta.sync.aligned", &["u32"], &[4], &body, NONE);
}

fn specials(c: &mut Cases) {
    for name in [
        "tid.x",
        "tid.y",
        "ntid.x",
        "ntid.z",
        "ctaid.x",
        "nctaid.y",
        "laneid",
        "lanemask_eq",
        "lanemask_le",
        "lanemask_lt",
        "lanemask_ge",
        "lanemask_gt",
        "dynamic_smem_size",
        "cluster_ctaid.x",
        "cluster_nctaid.y",
        "cluster_ctarank",
        "cluster_nctarank",
        "clusterid.x",
        "nclusterid.z",
    ] {
        let body = format!("mov.u32 %w8, %{name};\n{}", w(8, 0));
        c.body(&format!("mov.u32 %{name}"), &["u32"], &[4], &body, NONE);
    }
    let body = format!(
        "mov.u64 %l10, %clock64;\nmov.u32 %w10, %clock;\nmov.u64 %l11, %globaltimer;\nmov.u64 %l12, %clock64;\nsetp.le.u64 %p8, %l10, %l12;\nsetp.ne.u64 %p9, %l11, 0;\nselp.b32 %w8, 1, 0, %p8;\nselp.b32 %w9, 1, 0, %p9;\n{}{}",
        w(8, 0),
        w(9, 1)
    );
    c.body("clocks", &["u32"], &[4, 4], &body, NONE);
    let body = format!(
        "nanosleep.u32 20;\nprefetch.global.L2 [%t];\nfence.acq_rel.gpu;\nmembar.cta;\nmov.u32 %w8, WARP_SZ;\n{}",
        w(8, 0)
    );
    c.body("hints", &["u32"], &[4], &body, NONE);
}

fn control(c: &mut Cases) {
    let body = format!(
        "and.b32 %w10, %w1, 63;\nmov.u32 %w8, 0;\nmov.u32 %w9, %w2;\nloop:\nsetp.eq.u32 %p8, %w10, 0;\n@%p8 bra done;\nand.b32 %w11, %w9, 1;\nsetp.ne.u32 %p9, %w11, 0;\n@%p9 bra odd;\nshr.u32 %w9, %w9, 1;\nbra next;\nodd:\nmad.lo.u32 %w9, %w9, 3, 1;\nadd.u32 %w8, %w8, 1;\nnext:\nsub.u32 %w10, %w10, 1;\nbra loop;\ndone:\n{}{}",
        w(8, 0),
        w(9, 1)
    );
    c.body("divergent loop", &["u32", "u32"], &[4, 4], &body, NONE);
    let body = format!(
        "and.b32 %w10, %w1, 3;\nmov.u32 %w8, 9;\ntable: .branchtargets a0, a1, a2, a3;\nbrx.idx %w10, table;\na0: add.u32 %w8, %w8, 1; bra e;\na1: add.u32 %w8, %w8, 10; bra e;\na2: add.u32 %w8, %w8, 100;\na3: add.u32 %w8, %w8, 1000;\ne:\n{}",
        w(8, 0)
    );
    c.body("brx.idx", &["u32"], &[4], &body, NONE);
    let body = format!(
        "@%p1 add.u32 %w8, %w2, 1;\n@!%p1 sub.u32 %w8, %w2, 1;\n@%p3 bra skip;\nadd.u32 %w8, %w8, 1000;\nskip:\n{}",
        w(8, 0)
    );
    c.body("guards", &["pred", "u32", "pred"], &[4], &body, NONE);
    let body = format!("st.global.u32 [%o], 1;\n@%p1 exit;\nmov.u32 %w8, 2;\n{}", w(8, 0));
    c.body("exit", &["pred"], &[4], &body, NONE);
}
