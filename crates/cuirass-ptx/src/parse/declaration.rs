//! Module scope: variables, functions, and the directives between them.

use super::Parser;
use super::token::Token;
use crate::ast::{Func, Init, Linkage, Tree, Ty, Var, VarSpace};
use crate::error::{ModuleError, ModuleErrorKind};

fn space_of(word: &str) -> Option<VarSpace> {
    Some(match word {
        ".global" => VarSpace::Global,
        ".const" => VarSpace::Const,
        ".shared" => VarSpace::Shared,
        ".local" => VarSpace::Local,
        ".param" => VarSpace::Param,
        _ => return None,
    })
}

impl<'s> Parser<'s> {
    pub(super) fn top(&mut self, tree: &mut Tree<'s>) -> Result<(), ModuleError> {
        if self.eat(b';')? {
            return Ok(());
        }
        let place = self.place;
        let linkage = self.linkage()?;
        let Token::Word(word) = self.token else {
            return self.fail(format!("expected a directive, found {}", self.found()));
        };
        match word {
            ".file" | ".loc" | ".pragma" => return self.debug_line(),
            ".section" => return self.section(),
            ".alias" => {
                self.advance()?;
                let name = self.name("a name")?;
                self.expect(b',')?;
                let of = self.name("a name")?;
                self.expect(b';')?;
                tree.aliases.push((place, name, of));
                return Ok(());
            }
            ".entry" | ".func" => {
                self.advance()?;
                let func = self.func(word == ".entry")?;
                tree.funcs.push(func);
                return Ok(());
            }
            _ => {}
        }
        if let Some(vars) = self.variables(linkage)? {
            tree.vars.extend(vars);
            return Ok(());
        }
        self.fail(format!("'{word}' is not known at module scope"))
    }

    /// `.loc`, `.file` and `.pragma`: nothing in them changes what a program does.
    pub(super) fn debug_line(&mut self) -> Result<(), ModuleError> {
        let line = self.place.line;
        let pragma = self.is_word(".pragma");
        self.advance()?;
        while self.token != Token::End {
            if pragma {
                if self.eat(b';')? {
                    break;
                }
            } else if self.place.line != line {
                break;
            }
            self.advance()?;
        }
        Ok(())
    }

    fn section(&mut self) -> Result<(), ModuleError> {
        while !self.is(b'{') {
            if self.token == Token::End {
                return self.fail("a .section without a body");
            }
            self.advance()?;
        }
        while !self.eat(b'}')? {
            if self.token == Token::End {
                return self.fail("a .section without an end");
            }
            self.advance()?;
        }
        Ok(())
    }

    /// Variables of one declaration, if one begins here.
    pub(super) fn variables(&mut self, linkage: Linkage) -> Result<Option<Vec<Var<'s>>>, ModuleError> {
        let Token::Word(word) = self.token else { return Ok(None) };
        // `.const[2]` names one of eleven banks, which generic addresses made obsolete.
        let Some(space) = space_of(word) else { return Ok(None) };
        self.advance()?;
        if space == VarSpace::Const && self.eat(b'[')? {
            self.int()?;
            self.expect(b']')?;
        }
        self.managed = false;
        let (align, ty, lanes) = self.var_type()?;
        let linkage = Linkage { managed: self.managed, ..linkage };
        let mut vars = Vec::new();
        loop {
            let mut var = self.declarator(linkage, space, align, ty, lanes)?;
            if self.eat(b'=')? {
                var.init = self.initialiser()?;
                if var.count.is_none() {
                    var.count = Some(var.init.len() as u64);
                }
            }
            vars.push(var);
            self.count_item()?;
            if !self.eat(b',')? {
                break;
            }
        }
        self.expect(b';')?;
        Ok(Some(vars))
    }

    /// Alignment, element type and vector length.
    fn var_type(&mut self) -> Result<(u64, Ty, u32), ModuleError> {
        let mut align = None;
        let mut lanes = 1;
        loop {
            let word = self.word("a type")?;
            match word {
                ".align" => {
                    let v = self.int()?;
                    if !v.is_power_of_two() || v > 1 << 20 {
                        return self.fail("an alignment is a power of two");
                    }
                    align = Some(v);
                }
                ".ptr" | ".attribute" | ".managed" | ".unified" => {
                    if self.eat(b'(')? {
                        while !self.eat(b')')? {
                            if self.token == Token::End {
                                return self.fail("an attribute without an end");
                            }
                            self.managed |= self.is_word(".managed");
                            self.advance()?;
                        }
                    }
                }
                ".v2" => lanes = 2,
                ".v4" => lanes = 4,
                ".v8" => lanes = 8,
                _ => {
                    let Some(ty) = word.strip_prefix('.').and_then(Ty::from_name) else {
                        return self.fail(format!("expected a type, found '{word}'"));
                    };
                    let natural = u64::from(ty.bytes().max(1) * lanes);
                    return Ok((align.unwrap_or(natural), ty, lanes));
                }
            }
        }
    }

    fn declarator(
        &mut self,
        linkage: Linkage,
        space: VarSpace,
        align: u64,
        ty: Ty,
        lanes: u32,
    ) -> Result<Var<'s>, ModuleError> {
        let place = self.place;
        let name = self.name("a variable's name")?;
        let mut count = Some(1u64);
        while self.eat(b'[')? {
            if self.eat(b']')? {
                count = None;
                continue;
            }
            let n = self.int()?;
            self.expect(b']')?;
            count = count.map(|c| c.saturating_mul(n));
        }
        let var = Var { place, linkage, space, align, ty, lanes, name, count, init: Vec::new() };
        if var.size() > 1 << 40 {
            let text = format!("{name} is larger than any memory");
            return Err(ModuleError::new(ModuleErrorKind::TooLarge, place, text));
        }
        Ok(var)
    }

    fn initialiser(&mut self) -> Result<Vec<Init<'s>>, ModuleError> {
        let mut items = Vec::new();
        let mut depth = 0u32;
        loop {
            if self.eat(b'{')? {
                depth += 1;
                continue;
            }
            if self.eat(b'}')? {
                if depth == 0 {
                    return self.fail("unexpected '}'");
                }
                depth -= 1;
            } else {
                self.count_item()?;
                items.push(self.init_item()?);
            }
            while self.is(b'}') && depth > 0 {
                self.advance()?;
                depth -= 1;
            }
            if depth == 0 {
                return Ok(items);
            }
            self.expect(b',')?;
        }
    }

    fn init_item(&mut self) -> Result<Init<'s>, ModuleError> {
        match self.token {
            Token::F32(bits) => {
                self.advance()?;
                Ok(Init::F32(bits))
            }
            Token::F64(bits) => {
                self.advance()?;
                Ok(Init::F64(bits))
            }
            Token::Int(v) => {
                self.advance()?;
                // `0xFF(symbol)` takes one byte of an address.
                if self.eat(b'(')? {
                    let mut item = self.init_item_symbol()?;
                    self.expect(b')')?;
                    if let Init::Symbol { mask, .. } = &mut item {
                        *mask = v;
                    }
                    return Ok(item);
                }
                Ok(Init::Int(v))
            }
            Token::Punct(b'-' | b'+') => {
                let negative = self.is(b'-');
                self.advance()?;
                Ok(match self.init_item_number()? {
                    Init::F64(b) if negative => Init::F64(b ^ (1 << 63)),
                    Init::Int(v) if negative => Init::Int(v.wrapping_neg()),
                    other => other,
                })
            }
            _ => self.init_item_symbol(),
        }
    }

    fn init_item_number(&mut self) -> Result<Init<'s>, ModuleError> {
        match self.token {
            Token::F64(bits) => {
                self.advance()?;
                Ok(Init::F64(bits))
            }
            _ => Ok(Init::Int(self.signed()?)),
        }
    }

    fn init_item_symbol(&mut self) -> Result<Init<'s>, ModuleError> {
        let mut name = self.name("an initialiser")?;
        let generic = name == "generic" && self.is(b'(');
        if generic {
            self.advance()?;
            name = self.name("a symbol")?;
        }
        let mut addend = self.init_addend()?;
        if generic {
            self.expect(b')')?;
            addend = addend.wrapping_add(self.init_addend()?);
        }
        Ok(Init::Symbol { name, addend: addend as i64, generic, mask: u64::MAX })
    }

    fn init_addend(&mut self) -> Result<u64, ModuleError> {
        if self.is(b'+') || self.is(b'-') { self.signed() } else { Ok(0) }
    }

    /// `( .param … , … )`, if there is one.
    pub(super) fn param_list(&mut self) -> Result<Vec<Var<'s>>, ModuleError> {
        let mut params = Vec::new();
        if !self.eat(b'(')? {
            return Ok(params);
        }
        while !self.eat(b')')? {
            self.count_item()?;
            let word = self.word("a parameter")?;
            let space = match word {
                ".param" => VarSpace::Param,
                // A register parameter is passed like any other.
                ".reg" => VarSpace::Param,
                _ => return self.fail(format!("expected .param, found '{word}'")),
            };
            let (align, ty, lanes, pointer) = self.param_type()?;
            let mut var = self.declarator(Linkage::default(), space, align, ty, lanes)?;
            // What a pointer points to does not change how it is passed.
            if pointer {
                var.align = u64::from(ty.bytes());
            }
            params.push(var);
            if !self.eat(b',')? {
                self.expect(b')')?;
                break;
            }
        }
        Ok(params)
    }

    fn param_type(&mut self) -> Result<(u64, Ty, u32, bool), ModuleError> {
        let (align, ty, lanes) = self.var_type()?;
        let mut pointer = false;
        if self.eat_word(".ptr")? {
            pointer = true;
            while let Token::Word(".global" | ".const" | ".shared" | ".local" | ".align") = self.token {
                if self.advance()? == Token::Word(".align") {
                    self.int()?;
                }
            }
        }
        Ok((align, ty, lanes, pointer))
    }

    fn func(&mut self, entry: bool) -> Result<Func<'s>, ModuleError> {
        self.attributes()?;
        let returns = if entry { Vec::new() } else { self.param_list()? };
        let place = self.place;
        let name = self.name("a function's name")?;
        let params = self.param_list()?;
        let mut func =
            Func { place, entry, name, returns, params, max_threads: None, required_threads: None, body: None };
        while let Token::Word(word) = self.token {
            match word {
                ".maxntid" => {
                    self.advance()?;
                    func.max_threads = Some(self.triple()?);
                }
                ".reqntid" => {
                    self.advance()?;
                    func.required_threads = Some(self.triple()?);
                }
                ".pragma" => self.debug_line()?,
                ".noreturn" | ".explicitcluster" | ".blocksareclusters" => {
                    self.advance()?;
                }
                ".minnctapersm"
                | ".maxnctapersm"
                | ".maxnreg"
                | ".maxclusterrank"
                | ".reqnctapercluster"
                | ".abi_preserve"
                | ".abi_preserve_control" => {
                    self.advance()?;
                    self.triple()?;
                }
                ".attribute" => self.attributes()?,
                _ => return self.fail(format!("'{word}' is not known here")),
            }
        }
        if self.eat(b';')? {
            return Ok(func);
        }
        self.expect(b'{')?;
        func.body = Some(self.body()?);
        Ok(func)
    }

    fn attributes(&mut self) -> Result<(), ModuleError> {
        while self.eat_word(".attribute")? {
            self.expect(b'(')?;
            while !self.eat(b')')? {
                if self.token == Token::End {
                    return self.fail("an attribute without an end");
                }
                if self.advance()? == Token::Punct(b'(') {
                    while !self.eat(b')')? && self.token != Token::End {
                        self.advance()?;
                    }
                }
            }
        }
        Ok(())
    }

    fn triple(&mut self) -> Result<[u32; 3], ModuleError> {
        let mut out = [1u32; 3];
        for slot in &mut out {
            let v = self.int()?;
            *slot = u32::try_from(v).unwrap_or(u32::MAX);
            if !self.eat(b',')? {
                break;
            }
        }
        Ok(out)
    }
}
