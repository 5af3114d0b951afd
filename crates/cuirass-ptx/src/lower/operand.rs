//! Operands to register numbers.

use super::Symbol;
use super::function::{Local, Lower};
use crate::ast::Operand;
use crate::check;
use crate::code::{Address, Base, Class, Constant, FUNCTION_BASE, MemSpace, NONE, RegRef, Special};
use crate::error::{ModuleError, ModuleErrorKind};

/// The special register of a name that is fixed for a warp in a block.
fn special(name: &str) -> Option<Special> {
    let axis = |rest: &str| match rest {
        ".x" => Some(0u8),
        ".y" => Some(1),
        ".z" => Some(2),
        _ => None,
    };
    let name = name.strip_prefix('%')?;
    for (prefix, make) in [
        ("tid", Special::Tid as fn(u8) -> Special),
        ("ntid", Special::Ntid),
        ("ctaid", Special::Ctaid),
        ("nctaid", Special::Nctaid),
        // A cluster is one block.
        ("clusterid", Special::Ctaid),
        ("nclusterid", Special::Nctaid),
    ] {
        if let Some(axis) = name.strip_prefix(prefix).and_then(axis) {
            return Some(make(axis));
        }
    }
    Some(match name {
        "laneid" => Special::LaneId,
        "warpid" => Special::WarpId,
        "nwarpid" => Special::NWarpId,
        "smid" => Special::SmId,
        "nsmid" => Special::NSmId,
        "gridid" => Special::GridId,
        "lanemask_eq" => Special::LaneMaskEq,
        "lanemask_le" => Special::LaneMaskLe,
        "lanemask_lt" => Special::LaneMaskLt,
        "lanemask_ge" => Special::LaneMaskGe,
        "lanemask_gt" => Special::LaneMaskGt,
        "dynamic_smem_size" => Special::DynamicSharedSize,
        "total_smem_size" | "aggr_smem_size" => Special::TotalSharedSize,
        "cluster_ctaid.x" | "cluster_ctaid.y" | "cluster_ctaid.z" | "cluster_ctarank" => Special::Fixed(0),
        "cluster_nctaid.x" | "cluster_nctaid.y" | "cluster_nctaid.z" | "cluster_nctarank" => Special::Fixed(1),
        "is_explicit_cluster" => Special::Fixed(0),
        "reserved_smem_offset_begin" => Special::Fixed(0),
        "reserved_smem_offset_end" | "reserved_smem_offset_cap" => Special::Fixed(1024),
        "reserved_smem_offset_0" | "reserved_smem_offset_1" => Special::Fixed(0),
        "envreg1" => Special::Env(1),
        "envreg2" => Special::Env(2),
        _ if name.starts_with("envreg") || name.starts_with("pm") => Special::Fixed(0),
        _ => return None,
    })
}

impl<'s> Lower<'_, 's> {
    pub(super) fn undefined<T>(&self, name: &str) -> Result<T, ModuleError> {
        self.fail(ModuleErrorKind::Undefined, format!("{name} is not declared"))
    }

    /// The address that a name stands for in `mov` and `cvta`, as a constant.
    pub(super) fn address_constant(&mut self, name: &str, offset: i64) -> Result<Option<Constant>, ModuleError> {
        let bits = |v: u64| Constant::Bits(v.wrapping_add_signed(offset));
        if let Some(local) = self.find_var(name) {
            return Ok(Some(match local {
                Local::Frame(slot) => Constant::Frame(i64::from(slot.offset).wrapping_add(offset)),
                Local::Param(at) => bits(at.into()),
                Local::Shared(at) => bits(at),
                Local::DynamicShared => {
                    self.dynamic_shared = true;
                    Constant::DynamicShared(offset)
                }
                Local::Global(i) => Constant::Global(i, offset),
            }));
        }
        if let Some(&Symbol::Func(i)) = self.scope.symbols.get(name) {
            return Ok(Some(bits(FUNCTION_BASE + u64::from(i) * 16)));
        }
        Ok(None)
    }

    /// A source operand as a register of `class`.
    pub(super) fn source(&mut self, operand: &Operand<'s>, class: Class) -> Result<u32, ModuleError> {
        let constant = match *operand {
            Operand::Name(name) => {
                if let Some(reg) = self.find_reg(name)? {
                    return check::same(reg, class, name, self.place);
                }
                if let Some(special) = special(name) {
                    Constant::Special(special)
                } else if name == "WARP_SZ" {
                    Constant::Bits(32)
                } else if let Some(constant) = self.address_constant(name, 0)? {
                    constant
                } else {
                    return self.undefined(name);
                }
            }
            Operand::Offset(name, offset) => match self.address_constant(name, offset)? {
                Some(constant) => constant,
                None => return self.undefined(name),
            },
            Operand::Int(v) => Constant::Bits(match class {
                Class::P => v & 1,
                Class::R16 => v & 0xffff,
                Class::R32 => v & 0xffff_ffff,
                Class::R64 => v,
            }),
            Operand::F32(v) => match class {
                Class::R64 => Constant::Bits(f64::from(f32::from_bits(v)).to_bits()),
                _ => Constant::Bits(v.into()),
            },
            Operand::F64(v) => match class {
                Class::R32 => Constant::Bits((f64::from_bits(v) as f32).to_bits().into()),
                _ => Constant::Bits(v),
            },
            Operand::Not(_) | Operand::Pair(..) => {
                return self.fail(ModuleErrorKind::Type, "a predicate cannot stand here");
            }
            Operand::Vector(_) | Operand::Address(..) | Operand::List(_) | Operand::Other => {
                return self.fail(ModuleErrorKind::Type, "an operand of one value is needed");
            }
        };
        if class == Class::P && !matches!(constant, Constant::Bits(_)) {
            return self.fail(ModuleErrorKind::Type, "a predicate is needed");
        }
        Ok(self.constant(class, constant).index)
    }

    /// A source predicate, complemented where it is written so.
    pub(super) fn predicate(&mut self, operand: &Operand<'s>) -> Result<(u32, bool), ModuleError> {
        match *operand {
            Operand::Not(name) => Ok((self.source(&Operand::Name(name), Class::P)?, true)),
            _ => Ok((self.source(operand, Class::P)?, false)),
        }
    }

    /// A destination; `_` gives [`NONE`] where `sink` allows it, else a register nobody reads.
    pub(super) fn dest(&mut self, operand: &Operand<'s>, class: Class) -> Result<u32, ModuleError> {
        match *operand {
            Operand::Name(name) => self.dest_name(name, class),
            _ => self.fail(ModuleErrorKind::Type, "a register is needed as destination"),
        }
    }

    pub(super) fn dest_name(&mut self, name: &'s str, class: Class) -> Result<u32, ModuleError> {
        if name == "_" {
            return Ok(self.temp(class).index);
        }
        match self.find_reg(name)? {
            Some(reg) => check::same(reg, class, name, self.place),
            None => self.undefined(name),
        }
    }

    /// A register of any class, by its name.
    pub(super) fn any_reg(&mut self, operand: &Operand<'s>) -> Result<Option<(RegRef, &'s str)>, ModuleError> {
        match *operand {
            Operand::Name(name) => Ok(self.find_reg(name)?.map(|reg| (reg, name))),
            _ => Ok(None),
        }
    }

    /// An address operand of an instruction of `space`.
    pub(super) fn address(&mut self, operand: &Operand<'s>, space: MemSpace) -> Result<Address, ModuleError> {
        let Operand::Address(base, offset) = *operand else {
            return self.fail(ModuleErrorKind::Type, "an address in brackets is needed");
        };
        let Some(name) = base else {
            return Ok(Address { space, base: Base::Fixed, offset });
        };
        // A function's parameters are local memory; only a kernel's are a space of their own.
        let by_register = if space == MemSpace::Param && !self.func.entry { MemSpace::Local } else { space };
        if let Some(reg) = self.find_reg(name)? {
            let base = match reg.class {
                Class::R32 => Base::Reg32(reg.index),
                Class::R64 => Base::Reg64(reg.index),
                _ => {
                    return self.fail(ModuleErrorKind::Type, format!("{name} cannot be an address"));
                }
            };
            return Ok(Address { space: by_register, base, offset });
        }
        let Some(local) = self.find_var(name) else {
            return self.undefined(name);
        };
        let fixed = |space, at: u64| Address { space, base: Base::Fixed, offset: offset.wrapping_add(at as i64) };
        Ok(match local {
            Local::Frame(slot) => fixed(MemSpace::Frame, slot.offset.into()),
            Local::Param(at) => fixed(MemSpace::Param, at.into()),
            Local::Shared(at) => fixed(MemSpace::Shared, at),
            Local::DynamicShared => {
                self.dynamic_shared = true;
                let reg = self.constant(Class::R64, Constant::DynamicShared(0));
                Address { space: MemSpace::Shared, base: Base::Reg64(reg.index), offset }
            }
            Local::Global(i) => {
                let reg = self.constant(Class::R64, Constant::Global(i, 0));
                Address { space: MemSpace::Global, base: Base::Reg64(reg.index), offset }
            }
        })
    }

    /// Destinations of a load: registers at least as wide as the type.
    pub(super) fn load_dest(&mut self, operand: &Operand<'s>, ty: crate::ast::Ty) -> Result<RegRef, ModuleError> {
        let Operand::Name(name) = *operand else {
            return self.fail(ModuleErrorKind::Type, "a register is needed as destination");
        };
        if name == "_" {
            let class = check::class_of(ty).unwrap_or(Class::R64);
            return Ok(RegRef { class, index: NONE });
        }
        let Some(reg) = self.find_reg(name)? else {
            return self.undefined(name);
        };
        check::holds(reg, ty, name, self.place)?;
        Ok(reg)
    }

    /// A source of a store: registers at least as wide as the type, or a constant.
    pub(super) fn store_source(&mut self, operand: &Operand<'s>, ty: crate::ast::Ty) -> Result<RegRef, ModuleError> {
        if let Some((reg, name)) = self.any_reg(operand)? {
            check::holds(reg, ty, name, self.place)?;
            return Ok(reg);
        }
        let Some(class) = check::class_of(ty) else {
            return self.fail(ModuleErrorKind::Type, "this type cannot be stored");
        };
        Ok(RegRef { class, index: self.source(operand, class)? })
    }
}
