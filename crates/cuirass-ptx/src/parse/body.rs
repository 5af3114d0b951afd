//! Function bodies: declarations, labels, instructions and operands.

use super::Parser;
use super::token::Token;
use crate::ast::{Instr, Linkage, Operand, Stmt, Ty};
use crate::error::{ModuleError, ModuleErrorKind};

/// How deep scopes may be nested: names are looked up in all of them.
const MAX_DEPTH: u32 = 256;

impl<'s> Parser<'s> {
    /// Statements up to the brace that closes the body.
    pub(super) fn body(&mut self) -> Result<Vec<Stmt<'s>>, ModuleError> {
        let mut out = Vec::new();
        let mut depth = 0u32;
        loop {
            self.count_item()?;
            match self.token {
                Token::End => return self.fail("a body without an end"),
                Token::Punct(b'{') => {
                    self.advance()?;
                    depth += 1;
                    if depth > MAX_DEPTH {
                        return Err(ModuleError::new(
                            ModuleErrorKind::TooLarge,
                            self.place,
                            "scopes are nested too deeply",
                        ));
                    }
                    out.push(Stmt::Open);
                }
                Token::Punct(b'}') => {
                    self.advance()?;
                    if depth == 0 {
                        return Ok(out);
                    }
                    depth -= 1;
                    out.push(Stmt::Close);
                }
                Token::Punct(b';') => {
                    self.advance()?;
                }
                Token::Word(word) if word.starts_with('.') => self.directive(word, &mut out)?,
                _ => self.statement(&mut out)?,
            }
        }
    }

    fn directive(&mut self, word: &'s str, out: &mut Vec<Stmt<'s>>) -> Result<(), ModuleError> {
        match word {
            ".loc" | ".file" | ".pragma" => self.debug_line(),
            ".reg" => {
                self.advance()?;
                self.registers(out)
            }
            _ => {
                let linkage: Linkage = self.linkage()?;
                match self.variables(linkage)? {
                    Some(vars) => out.extend(vars.into_iter().map(Stmt::Var)),
                    None => return self.fail(format!("'{word}' is not known in a body")),
                }
                Ok(())
            }
        }
    }

    fn registers(&mut self, out: &mut Vec<Stmt<'s>>) -> Result<(), ModuleError> {
        let mut lanes = 1;
        let ty = loop {
            let word = self.word("a register type")?;
            match word {
                ".v2" => lanes = 2,
                ".v4" => lanes = 4,
                _ => match word.strip_prefix('.').and_then(Ty::from_name) {
                    Some(ty) => break ty,
                    None => return self.fail(format!("'{word}' is not a register type")),
                },
            }
        };
        loop {
            let place = self.place;
            let name = self.name("a register's name")?;
            let mut count = None;
            if self.eat(b'<')? {
                count = Some(u32::try_from(self.int()?).unwrap_or(u32::MAX));
                self.expect(b'>')?;
            }
            out.push(Stmt::Reg { place, ty, lanes, name, count });
            if !self.eat(b',')? {
                break;
            }
        }
        self.expect(b';')
    }

    fn statement(&mut self, out: &mut Vec<Stmt<'s>>) -> Result<(), ModuleError> {
        let place = self.place;
        let start = self.span.0;
        let mut guard = None;
        if self.eat(b'@')? {
            let negated = self.eat(b'!')?;
            guard = Some((negated, self.name("a predicate")?));
        }
        let word = self.name("an instruction")?;
        if guard.is_none() && self.eat(b':')? {
            return self.labelled(place, word, out);
        }
        let mut operands = Vec::new();
        if !self.is(b';') {
            operands.push(self.operand()?);
        }
        while self.eat(b',')? {
            self.count_item()?;
            operands.push(self.operand()?);
        }
        let span = (start, self.last_end.max(start));
        self.expect(b';')?;
        out.push(Stmt::Instr(Instr { place, span, guard, opcode: word, operands }));
        Ok(())
    }

    fn labelled(
        &mut self,
        place: crate::error::Place,
        name: &'s str,
        out: &mut Vec<Stmt<'s>>,
    ) -> Result<(), ModuleError> {
        match self.token {
            Token::Word(".branchtargets" | ".calltargets") => {
                self.advance()?;
                let mut list = Vec::new();
                loop {
                    list.push(self.name("a target")?);
                    self.count_item()?;
                    if !self.eat(b',')? {
                        break;
                    }
                }
                self.expect(b';')?;
                out.push(Stmt::Targets { name, list });
            }
            Token::Word(".callprototype") => {
                self.advance()?;
                self.param_list()?;
                self.name("'_'")?;
                self.param_list()?;
                while let Token::Word(".noreturn" | ".abi_preserve" | ".abi_preserve_control") = self.token {
                    self.advance()?;
                    if let Token::Int(_) = self.token {
                        self.advance()?;
                    }
                }
                self.expect(b';')?;
                out.push(Stmt::Prototype);
            }
            _ => out.push(Stmt::Label(place, name)),
        }
        Ok(())
    }

    fn operand(&mut self) -> Result<Operand<'s>, ModuleError> {
        match self.token {
            Token::Punct(b'{') => {
                self.advance()?;
                Ok(Operand::Vector(self.simple_list(b'}')?))
            }
            Token::Punct(b'(') => {
                self.advance()?;
                Ok(Operand::List(self.simple_list(b')')?))
            }
            Token::Punct(b'[') => {
                self.advance()?;
                self.address()
            }
            _ => self.simple(),
        }
    }

    fn simple_list(&mut self, close: u8) -> Result<Vec<Operand<'s>>, ModuleError> {
        let mut list = Vec::new();
        while !self.eat(close)? {
            self.count_item()?;
            list.push(self.simple()?);
            if !self.eat(b',')? {
                self.expect(close)?;
                break;
            }
        }
        Ok(list)
    }

    fn simple(&mut self) -> Result<Operand<'s>, ModuleError> {
        match self.token {
            Token::Int(v) => {
                self.advance()?;
                Ok(Operand::Int(v))
            }
            Token::F32(v) => {
                self.advance()?;
                Ok(Operand::F32(v))
            }
            Token::F64(v) => {
                self.advance()?;
                Ok(Operand::F64(v))
            }
            Token::Punct(b'-') => {
                self.advance()?;
                match self.simple_number()? {
                    Operand::F64(v) => Ok(Operand::F64(v ^ (1 << 63))),
                    Operand::F32(v) => Ok(Operand::F32(v ^ (1 << 31))),
                    Operand::Int(v) => Ok(Operand::Int(v.wrapping_neg())),
                    other => Ok(other),
                }
            }
            Token::Punct(b'+') => {
                self.advance()?;
                self.simple_number()
            }
            Token::Punct(b'~') => {
                self.advance()?;
                Ok(Operand::Int(!self.int()?))
            }
            Token::Punct(b'!') => {
                self.advance()?;
                Ok(Operand::Not(self.name("a predicate")?))
            }
            _ => self.named(),
        }
    }

    fn simple_number(&mut self) -> Result<Operand<'s>, ModuleError> {
        let out = match self.token {
            Token::F32(v) => Operand::F32(v),
            Token::F64(v) => Operand::F64(v),
            _ => return Ok(Operand::Int(self.signed()?)),
        };
        self.advance()?;
        Ok(out)
    }

    fn named(&mut self) -> Result<Operand<'s>, ModuleError> {
        let name = self.name("an operand")?;
        if self.eat(b'|')? {
            return Ok(Operand::Pair(name, self.name("a second destination")?));
        }
        if self.is(b'+') || self.is(b'-') {
            return Ok(Operand::Offset(name, self.signed()? as i64));
        }
        Ok(Operand::Name(name))
    }

    fn address(&mut self) -> Result<Operand<'s>, ModuleError> {
        let mut base = None;
        let mut offset = 0u64;
        if let Token::Word(_) = self.token {
            base = Some(self.name("an address")?);
            if self.is(b'+') || self.is(b'-') {
                offset = self.signed()?;
            }
        } else {
            offset = self.signed()?;
        }
        if self.is(b',') {
            while !self.eat(b']')? {
                if self.is(b';') || self.token == Token::End {
                    return self.fail("an address without an end");
                }
                self.advance()?;
            }
            return Ok(Operand::Other);
        }
        self.expect(b']')?;
        Ok(Operand::Address(base, offset as i64))
    }
}
