//! Arguments by name, for those who have no positions: command lines, tests, keyword arguments.

use crate::arg::{Arg, ArgKind, ArgMeta, Device};
use crate::error::{Code, Error};
use crate::expr::Expr;
use crate::meta::LaunchMetadata;

/// Arguments by name, in the order in which they came.
#[derive(Clone, Debug, Default)]
pub struct Named {
    metas: Vec<ArgMeta>,
    args: Vec<Arg>,
}

impl Named {
    /// Gives a name an argument, in place of the one it had.
    pub fn insert(&mut self, name: &str, arg: impl Into<Arg>) {
        let arg = arg.into();
        let kind = if matches!(arg, Arg::View(_)) { ArgKind::VIEW } else { ArgKind::SCALAR };
        match self.metas.iter().position(|m| m.name == name) {
            Some(n) => (self.metas[n].kind, self.args[n]) = (kind, arg),
            None => {
                self.metas.push(ArgMeta { name: name.to_owned(), kind });
                self.args.push(arg);
            }
        }
    }

    /// The argument of a name.
    pub fn get(&self, name: &str) -> Option<&Arg> {
        self.metas.iter().position(|m| m.name == name).map(|n| &self.args[n])
    }

    /// All, with their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Arg)> {
        self.metas.iter().map(|m| m.name.as_str()).zip(&self.args)
    }

    /// The value of an expression over them.
    ///
    /// # Errors
    /// `E1101`, `E1103`, `E1105`.
    pub fn value(&self, text: &str, device: &Device) -> Result<i64, Error> {
        Expr::parse(text, &self.metas)?.value(&self.args, device)
    }

    /// The arguments of a kernel, in its order. Others are left out.
    ///
    /// # Errors
    /// `E1102`: one is missing.
    pub fn of(&self, metadata: &LaunchMetadata) -> Result<Vec<Arg>, Error> {
        let one = |meta: &ArgMeta| {
            let missing = || Error::new(Code::E1102, format!("{} needs {}", metadata.kernel, meta.name));
            self.get(&meta.name).cloned().ok_or_else(missing)
        };
        metadata.args.iter().map(one).collect()
    }
}
