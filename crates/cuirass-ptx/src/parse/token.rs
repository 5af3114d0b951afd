//! Text to tokens.

use crate::error::{ModuleError, ModuleErrorKind, Place};

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Token<'s> {
    /// A name, an opcode with its modifiers, or a directive with its dot.
    Word(&'s str),
    Int(u64),
    F32(u32),
    F64(u64),
    Str(&'s str),
    /// One character of punctuation.
    Punct(u8),
    End,
}

/// Reads one token after another.
#[derive(Clone)]
pub(crate) struct Lexer<'s> {
    text: &'s str,
    at: usize,
    line: u32,
    line_start: usize,
}

fn word_char(c: u8) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, b'_' | b'$' | b'%' | b'.') || c >= 0x80
}

impl<'s> Lexer<'s> {
    pub(crate) fn source(&self) -> &'s str {
        self.text
    }

    pub(crate) fn new(text: &'s str) -> Self {
        Self { text, at: 0, line: 1, line_start: 0 }
    }

    fn peek(&self, ahead: usize) -> u8 {
        self.text.as_bytes().get(self.at + ahead).copied().unwrap_or(0)
    }

    fn place(&self) -> Place {
        Place { line: self.line, column: (self.at - self.line_start + 1) as u32 }
    }

    fn slice(&self, start: usize) -> &'s str {
        self.text.get(start..self.at).unwrap_or("")
    }

    fn error(&self, message: &str) -> ModuleError {
        ModuleError::new(ModuleErrorKind::Syntax, self.place(), message)
    }

    fn new_line(&mut self) {
        self.line += 1;
        self.line_start = self.at + 1;
    }

    fn skip_blank(&mut self) -> Result<(), ModuleError> {
        loop {
            match self.peek(0) {
                b'\n' => {
                    self.new_line();
                    self.at += 1;
                }
                b' ' | b'\t' | b'\r' | 0x0b | 0x0c => self.at += 1,
                b'/' if self.peek(1) == b'/' => {
                    while self.at < self.text.len() && self.peek(0) != b'\n' {
                        self.at += 1;
                    }
                }
                b'/' if self.peek(1) == b'*' => {
                    let open = self.error("comment without an end");
                    self.at += 2;
                    while !(self.peek(0) == b'*' && self.peek(1) == b'/') {
                        if self.at >= self.text.len() {
                            return Err(open);
                        }
                        if self.peek(0) == b'\n' {
                            self.new_line();
                        }
                        self.at += 1;
                    }
                    self.at += 2;
                }
                // The C string's end, which callers may have left on.
                0 if self.at < self.text.len() => self.at += 1,
                _ => return Ok(()),
            }
        }
    }

    /// The next token, its place, and its byte range.
    pub(crate) fn next(&mut self) -> Result<(Token<'s>, Place, (u32, u32)), ModuleError> {
        self.skip_blank()?;
        let place = self.place();
        let start = self.at;
        let token = self.token()?;
        Ok((token, place, (start as u32, self.at as u32)))
    }

    fn token(&mut self) -> Result<Token<'s>, ModuleError> {
        let start = self.at;
        let c = self.peek(0);
        if self.at >= self.text.len() {
            return Ok(Token::End);
        }
        if c.is_ascii_digit() {
            return self.number();
        }
        if word_char(c) {
            // A directive ends where the next begins: `.reg.b32` are two.
            if c == b'.' {
                self.at += 1;
                while word_char(self.peek(0)) && self.peek(0) != b'.' {
                    self.at += 1;
                }
                return Ok(Token::Word(self.slice(start)));
            }
            while word_char(self.peek(0)) || (self.peek(0) == b':' && self.peek(1) == b':') {
                self.at += if self.peek(0) == b':' { 2 } else { 1 };
            }
            return Ok(Token::Word(self.slice(start)));
        }
        if c == b'"' {
            self.at += 1;
            while self.peek(0) != b'"' {
                if self.at >= self.text.len() || self.peek(0) == b'\n' {
                    return Err(self.error("string without an end"));
                }
                self.at += if self.peek(0) == b'\\' && self.peek(1) != b'\n' { 2 } else { 1 };
            }
            let text = self.slice(start + 1);
            self.at += 1;
            return Ok(Token::Str(text));
        }
        self.at += 1;
        Ok(Token::Punct(c))
    }

    fn number(&mut self) -> Result<Token<'s>, ModuleError> {
        let start = self.at;
        if self.peek(0) == b'0' && matches!(self.peek(1), b'f' | b'F' | b'd' | b'D') {
            let wide = matches!(self.peek(1), b'd' | b'D');
            let digits = if wide { 16 } else { 8 };
            self.at += 2;
            let from = self.at;
            while self.peek(0).is_ascii_hexdigit() {
                self.at += 1;
            }
            let text = self.slice(from);
            if text.len() != digits {
                return Err(self.error("a hexadecimal floating-point number of the wrong length"));
            }
            let bits = self.radix(text, 16)?;
            return Ok(if wide { Token::F64(bits) } else { Token::F32(bits as u32) });
        }
        let (radix, skip) = match (self.peek(0), self.peek(1)) {
            (b'0', b'x' | b'X') => (16, 2),
            (b'0', b'b' | b'B') => (2, 2),
            _ => (10, 0),
        };
        self.at += skip;
        let from = self.at;
        while self.peek(0).is_ascii_hexdigit() && (radix == 16 || self.peek(0).is_ascii_digit()) {
            self.at += 1;
        }
        if radix == 10 && (matches!(self.peek(0), b'.' | b'e' | b'E')) {
            while self.peek(0).is_ascii_digit()
                || matches!(self.peek(0), b'.' | b'e' | b'E')
                || (matches!(self.peek(0), b'+' | b'-')
                    && matches!(self.text.as_bytes().get(self.at - 1), Some(b'e' | b'E')))
            {
                self.at += 1;
            }
            let value: Result<f64, _> = self.slice(start).parse();
            return match value {
                Ok(v) => Ok(Token::F64(v.to_bits())),
                Err(_) => Err(self.error("a floating-point number that cannot be read")),
            };
        }
        let text = self.slice(from);
        let octal = radix == 10 && text.len() > 1 && text.starts_with('0');
        let value = self.radix(text, if octal { 8 } else { radix })?;
        if matches!(self.peek(0), b'U' | b'u') {
            self.at += 1;
        }
        if word_char(self.peek(0)) && self.peek(0) != b'.' {
            return Err(self.error("a number runs into a name"));
        }
        Ok(Token::Int(value))
    }

    fn radix(&self, text: &str, radix: u32) -> Result<u64, ModuleError> {
        match u64::from_str_radix(text, radix) {
            Ok(v) => Ok(v),
            Err(_) => Err(self.error("an integer that cannot be read or does not fit 64 bits")),
        }
    }
}
