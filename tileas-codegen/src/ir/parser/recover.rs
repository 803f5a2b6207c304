//! Going on after an error.
//!
//! In: an error and where its operation began. Out: the parser at the next operation, end of a region or kernel, with the
//! error noted unless it is a consequence of an earlier one.

use super::{MOST_ERRORS, Parser};
use crate::error::{Code, CodegenError, CodegenResult, Loc};
use crate::ir::lexer::{Lexer, Tok, Token};

impl<'a> Parser<'a, '_> {
    /// Notes an error, unless an earlier one explains it.
    pub(super) fn note(&mut self, e: CodegenError) {
        if std::mem::take(&mut self.consequence) {
            return;
        }
        let last = self.errors.len() + 1 == MOST_ERRORS;
        self.errors.push(if last {
            e.note(Loc::NONE, "there may be more errors; reading ends here")
        } else {
            e
        });
    }

    /// Whether no more errors are looked for.
    pub(super) fn is_full(&self) -> bool {
        // A text beyond a limit is not read to its end.
        self.errors.len() >= MOST_ERRORS || self.errors.last().is_some_and(|e| e.code == Code::E0010)
    }

    /// Whether a kernel begins here.
    pub(super) fn at_kernel(&self) -> bool {
        (self.at_word("kernel") || self.at_word("func"))
            && self.lex.begins_line(self.tok.start)
            && matches!(self.peek(), Some(Tok::Symbol(_)))
    }

    /// The next token that can be read.
    fn advance(&mut self) {
        while self.bump().is_err() {
            self.lex.skip_char();
        }
    }

    /// Notes an error and goes to the next kernel.
    pub(super) fn next_kernel(&mut self, e: CodegenError) {
        self.note(e);
        self.stack.clear();
        let at = self.tok.start;
        while self.tok.tok != Tok::Eof && !(self.at_kernel() && self.tok.start > at) {
            self.advance();
        }
    }

    /// Notes an error of an op that began there and goes to the next op, or to the end of the region.
    ///
    /// # Errors
    /// The same error, where this kernel cannot go on.
    pub(super) fn next_op(
        &mut self,
        e: CodegenError,
        (lex, first): (Lexer<'a>, Token<'a>),
    ) -> CodegenResult<()> {
        if matches!(e.code, Code::E0010 | Code::E0008) || self.errors.len() + 1 >= MOST_ERRORS {
            return Err(e);
        }
        self.note(e);
        let here = self.tok.start.max(self.last_end);
        // From its beginning: what it names is not known from now on.
        (self.lex, self.tok) = (lex, first);
        let (mut depth, mut attributes) = (0_usize, false);
        loop {
            let past = self.tok.start >= here && self.tok.start > first.start;
            let begins = depth == 0 && past && self.begins_line();
            match self.tok.tok {
                Tok::Eof => return Ok(()),
                _ if self.at_kernel() => return Ok(()),
                Tok::Word(word) if begins && !attributes && word != "else" => return Ok(()),
                Tok::Value(_) if begins => return Ok(()),
                Tok::Value(name) => _ = self.unread.insert(name),
                Tok::Punct("<{") => attributes = true,
                Tok::Punct("}>") => attributes = false,
                Tok::Punct("{") => depth += 1,
                Tok::Punct("}") if depth == 0 && past => return Ok(()),
                Tok::Punct("}") => (depth, attributes) = (depth.saturating_sub(1), false),
                _ => {}
            }
            self.advance();
        }
    }

    fn begins_line(&self) -> bool {
        self.lex.begins_line(self.tok.start)
    }
}
