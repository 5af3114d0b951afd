//! The table: what each opcode and type does to registers.
//!
//! A row is a key (the opcode with its types, without the modifiers that are flags), the operands
//! it takes, the flags it may carry, and one or two functions. Adding an instruction is adding a
//! row.

pub(crate) mod bits;
pub(crate) mod compare;
pub(crate) mod convert;
pub(crate) mod convert_half;
pub(crate) mod flags;
pub(crate) mod float;
pub(crate) mod half;
pub(crate) mod int;
pub(crate) mod math;
pub(crate) mod shape;
// Unordered comparisons are complements of ordered ones, which is what their negations say.
#[allow(clippy::neg_cmp_op_on_partial_ord)]
pub(crate) mod wide;

use std::collections::HashMap;
use std::sync::OnceLock;

use crate::code::Handler;

/// A line of the table.
#[derive(Clone, Copy)]
pub(crate) struct Row {
    /// The operands in order. Destinations: `P` a predicate, `H` 16, `W` 32, `L` 64 bits. Sources:
    /// the same in lower case, and `i` for an immediate byte. `*` before a class takes a register
    /// at least as wide (cvt).
    pub(crate) shape: &'static str,
    /// Which flags it may carry.
    pub(crate) allowed: u32,
    /// The function without flags, and with.
    pub(crate) plain: Handler,
    pub(crate) flagged: Option<Handler>,
}

/// The rows by key.
pub(crate) struct Table {
    pub(crate) rows: HashMap<String, Row>,
    /// Comparisons by operator and type.
    pub(crate) compares: HashMap<String, compare::MaskFn>,
}

impl Table {
    /// A row for every name in `keys`, which are separated by blanks.
    pub(crate) fn row(&mut self, keys: &str, shape: &'static str, plain: Handler) {
        for key in keys.split_whitespace() {
            self.rows.insert(key.into(), Row { shape, allowed: 0, plain, flagged: None });
        }
    }

    /// As [`Table::row`] for an instruction with flags; `flagged` is used when it has any but an
    /// explicit rounding to nearest.
    pub(crate) fn flag_row(&mut self, keys: &str, shape: &'static str, allowed: u32, plain: Handler, flagged: Handler) {
        for key in keys.split_whitespace() {
            let allowed = allowed | flags::ROUNDED;
            self.rows.insert(key.into(), Row { shape, allowed, plain, flagged: Some(flagged) });
        }
    }
}

/// The table for this processor.
pub(crate) fn table() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(|| {
        let mut t = Table { rows: HashMap::new(), compares: HashMap::new() };
        bits::rows(&mut t);
        half::rows(&mut t);
        convert::rows(&mut t);
        convert_half::rows(&mut t);
        math::rows(&mut t);
        wide::rows(&mut t);
        t
    })
}
