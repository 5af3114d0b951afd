//! The rules of operands: which register may stand where.

use crate::ast::Ty;
use crate::code::{Class, RegRef};
use crate::error::{ModuleError, ModuleErrorKind, Place};

/// The register file that holds a type.
pub(crate) fn class_of(ty: Ty) -> Option<Class> {
    Some(match ty.bits() {
        0 => Class::P,
        8 | 16 => Class::R16,
        32 => Class::R32,
        64 => Class::R64,
        _ => return None,
    })
}

/// Bits of a register of a file.
pub(crate) fn bits_of(class: Class) -> u32 {
    match class {
        Class::P => 1,
        Class::R16 => 16,
        Class::R32 => 32,
        Class::R64 => 64,
    }
}

/// The file that a letter of a table row names.
pub(crate) fn class_of_letter(letter: char) -> Option<Class> {
    Some(match letter.to_ascii_lowercase() {
        'p' => Class::P,
        'h' => Class::R16,
        'w' => Class::R32,
        'l' => Class::R64,
        _ => return None,
    })
}

/// Demands that a register is of a file.
pub(crate) fn same(reg: RegRef, class: Class, name: &str, place: Place) -> Result<u32, ModuleError> {
    if reg.class == class {
        return Ok(reg.index);
    }
    let is = bits_of(reg.class);
    let wants = bits_of(class);
    let text = match (reg.class, class) {
        (_, Class::P) => format!("{name} is no predicate"),
        (Class::P, _) => format!("{name} is a predicate, not a {wants}-bit register"),
        _ => format!("{name} has {is} bits, the instruction needs {wants}"),
    };
    Err(ModuleError::new(ModuleErrorKind::Type, place, text))
}

/// Demands that a register can hold a type in memory: it may be wider, not narrower.
pub(crate) fn holds(reg: RegRef, ty: Ty, name: &str, place: Place) -> Result<(), ModuleError> {
    if reg.class != Class::P && bits_of(reg.class) >= ty.bits() {
        return Ok(());
    }
    let text = format!("{name} cannot hold {} bits", ty.bits());
    Err(ModuleError::new(ModuleErrorKind::Type, place, text))
}
