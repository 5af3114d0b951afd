//! Text to tree.

mod body;
mod declaration;
pub(crate) mod token;

use crate::ast::{Linkage, Tree};
use crate::error::{ModuleError, ModuleErrorKind, Place};
use crate::module::Target;
use token::{Lexer, Token};

/// How many statements, variables and initialiser elements one module may have.
const MAX_ITEMS: usize = 1 << 24;

/// The tokens with one of lookahead.
pub(crate) struct Parser<'s> {
    lexer: Lexer<'s>,
    token: Token<'s>,
    place: Place,
    span: (u32, u32),
    last_end: u32,
    items: usize,
    /// The declaration at hand has said `.managed`.
    managed: bool,
}

/// Parses a module and checks that it is for `target`.
pub(crate) fn parse<'s>(source: &'s str, target: &Target) -> Result<Tree<'s>, ModuleError> {
    if source.len() > (1 << 30) {
        return Err(ModuleError::new(ModuleErrorKind::TooLarge, Place::default(), "the text is larger than 1 GiB"));
    }
    let mut parser = Parser {
        lexer: Lexer::new(source),
        token: Token::End,
        place: Place::default(),
        span: (0, 0),
        last_end: 0,
        items: 0,
        managed: false,
    };
    parser.advance()?;
    parser.module(target)
}

impl<'s> Parser<'s> {
    fn advance(&mut self) -> Result<Token<'s>, ModuleError> {
        let old = self.token;
        self.last_end = self.span.1;
        (self.token, self.place, self.span) = self.lexer.next()?;
        Ok(old)
    }

    fn fail<T>(&self, message: impl Into<String>) -> Result<T, ModuleError> {
        Err(ModuleError::new(ModuleErrorKind::Syntax, self.place, message))
    }

    fn count_item(&mut self) -> Result<(), ModuleError> {
        self.items += 1;
        if self.items > MAX_ITEMS {
            return Err(ModuleError::new(ModuleErrorKind::TooLarge, self.place, "the module has too many parts"));
        }
        Ok(())
    }

    fn is(&self, c: u8) -> bool {
        self.token == Token::Punct(c)
    }

    fn eat(&mut self, c: u8) -> Result<bool, ModuleError> {
        let found = self.is(c);
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    fn expect(&mut self, c: u8) -> Result<(), ModuleError> {
        if self.eat(c)? {
            return Ok(());
        }
        self.fail(format!("expected '{}', found {}", c as char, self.found()))
    }

    fn found(&self) -> String {
        match self.token {
            Token::Word(w) => format!("'{w}'"),
            Token::Int(v) => format!("{v}"),
            Token::F32(_) | Token::F64(_) => "a floating-point number".into(),
            Token::Str(_) => "a string".into(),
            Token::Punct(c) => format!("'{}'", c as char),
            Token::End => "the end of the text".into(),
        }
    }

    fn word(&mut self, what: &str) -> Result<&'s str, ModuleError> {
        if let Token::Word(w) = self.token {
            self.advance()?;
            return Ok(w);
        }
        self.fail(format!("expected {what}, found {}", self.found()))
    }

    /// A name: a word that is not a directive.
    fn name(&mut self, what: &str) -> Result<&'s str, ModuleError> {
        match self.token {
            Token::Word(w) if !w.starts_with('.') => self.word(what),
            _ => self.fail(format!("expected {what}, found {}", self.found())),
        }
    }

    fn is_word(&self, word: &str) -> bool {
        self.token == Token::Word(word)
    }

    fn eat_word(&mut self, word: &str) -> Result<bool, ModuleError> {
        let found = self.is_word(word);
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    fn int(&mut self) -> Result<u64, ModuleError> {
        if let Token::Int(v) = self.token {
            self.advance()?;
            return Ok(v);
        }
        self.fail(format!("expected an integer, found {}", self.found()))
    }

    /// An integer with an optional sign, as two's complement.
    fn signed(&mut self) -> Result<u64, ModuleError> {
        let mut negative = false;
        loop {
            if self.eat(b'-')? {
                negative = !negative;
            } else if !self.eat(b'+')? {
                break;
            }
        }
        let v = self.int()?;
        Ok(if negative { v.wrapping_neg() } else { v })
    }

    fn module(&mut self, target: &Target) -> Result<Tree<'s>, ModuleError> {
        let version = self.header_version(target)?;
        let arch = self.header_target(target)?;
        let mut tree = Tree { version, arch, vars: Vec::new(), funcs: Vec::new(), aliases: Vec::new() };
        while self.token != Token::End {
            self.count_item()?;
            self.top(&mut tree)?;
        }
        Ok(tree)
    }

    fn header_version(&mut self, target: &Target) -> Result<(u32, u32), ModuleError> {
        let place = self.place;
        let wrong = |message: String| Err(ModuleError::new(ModuleErrorKind::UnsupportedVersion, place, message));
        if !self.eat_word(".version")? {
            if self.token == Token::End {
                return self.fail("the text is empty");
            }
            return self.fail("a module begins with .version");
        }
        // "8.4" reads as a floating-point number; what matters is its text.
        let (from, to) = self.span;
        if !matches!(self.token, Token::F64(_)) {
            return wrong(format!("expected a version, found {}", self.found()));
        }
        let text = self.lexer_text(from, to);
        self.advance()?;
        let mut parts = text.splitn(2, '.').map(|p| p.parse::<u32>());
        let (Some(Ok(major)), Some(Ok(minor))) = (parts.next(), parts.next()) else {
            return wrong(format!("'{text}' is not a version"));
        };
        if (major, minor) > target.max_ptx_version {
            let (a, b) = target.max_ptx_version;
            return wrong(format!("PTX {major}.{minor} is newer than this driver's {a}.{b}"));
        }
        Ok((major, minor))
    }

    fn lexer_text(&self, from: u32, to: u32) -> &'s str {
        self.lexer.source().get(from as usize..to as usize).unwrap_or("")
    }

    fn header_target(&mut self, target: &Target) -> Result<u32, ModuleError> {
        let place = self.place;
        if !self.eat_word(".target")? {
            return self.fail("a .target has to follow .version");
        }
        let mut arch = None;
        loop {
            let word = self.word("a target")?;
            if let Some(rest) = word.strip_prefix("sm_") {
                let digits = rest.trim_end_matches(|c: char| c.is_ascii_alphabetic());
                let exact = rest.len() - digits.len();
                let number = digits.parse::<u32>().ok().filter(|_| exact <= 1);
                let fits = match number {
                    // `sm_90a` code runs on that architecture only, `sm_100f` on its family.
                    Some(n) if rest.ends_with('a') => n == target.arch,
                    Some(n) if rest.ends_with('f') => n <= target.arch && n / 10 == target.arch / 10,
                    Some(n) => n <= target.arch,
                    None => false,
                };
                if !fits {
                    let text = format!("code for {word} does not run on sm_{}", target.arch);
                    return Err(ModuleError::new(ModuleErrorKind::UnsupportedTarget, place, text));
                }
                arch = number;
            }
            if !self.eat(b',')? {
                break;
            }
        }
        let Some(arch) = arch else {
            return Err(ModuleError::new(ModuleErrorKind::UnsupportedTarget, place, "no sm_ architecture in .target"));
        };
        if self.eat_word(".address_size")? && self.int()? != 64 {
            return Err(ModuleError::new(
                ModuleErrorKind::UnsupportedTarget,
                place,
                "only 64-bit addresses are supported",
            ));
        }
        Ok(arch)
    }

    fn linkage(&mut self) -> Result<Linkage, ModuleError> {
        let mut linkage = Linkage::default();
        loop {
            match self.token {
                Token::Word(".extern") => linkage.external = true,
                Token::Word(".visible") => linkage.visible = true,
                Token::Word(".weak" | ".common") => {
                    linkage.weak = true;
                    linkage.visible = true;
                }
                _ => return Ok(linkage),
            }
            self.advance()?;
        }
    }
}
