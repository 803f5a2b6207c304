//! Objects by handles.

use crate::error::{Code, Failure};
use slotmap::{DefaultKey, Key, KeyData, SlotMap};
use std::ffi::CString;
use std::sync::{Arc, PoisonError, RwLock};
use tileas_jit::{Device, Jit, Kernel, Stream, Tensor};

/// A kernel with its texts as C reads them.
pub struct KernelTexts {
    pub kernel: Kernel,
    pub name: CString,
    pub ptx: CString,
    pub metadata: CString,
    pub assembler: CString,
    pub warnings: CString,
}

/// A module with the names of its kernels.
pub struct ModuleTexts {
    pub module: tileas_codegen::ir::Module,
    pub names: Vec<CString>,
}

/// What a handle means. Cloned out of the table, so that no lock is held while something works on it.
#[derive(Clone)]
pub enum Object {
    Device(Device, Arc<[CString; 2]>),
    Jit(Jit),
    Module(Arc<ModuleTexts>),
    Kernel(Arc<KernelTexts>),
    Tensor(Tensor),
    Stream(Stream),
    Text(Arc<CString>),
}

impl Object {
    pub fn kind(&self) -> &'static str {
        match self {
            Object::Device(..) => "device",
            Object::Jit(_) => "jit",
            Object::Module(_) => "module",
            Object::Kernel(_) => "kernel",
            Object::Tensor(_) => "tensor",
            Object::Stream(_) => "stream",
            Object::Text(_) => "text",
        }
    }
}

/// All objects of a context.
pub struct Table {
    objects: RwLock<SlotMap<DefaultKey, Object>>,
    /// What numbers of this context are mixed with, so that those of another mean nothing here.
    salt: u64,
}

impl Default for Table {
    fn default() -> Table {
        let salt = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), "handles");
        Table { objects: RwLock::default(), salt }
    }
}

/// The number of no handle: none is 0.
pub const NONE: u64 = 0;

impl Table {
    pub fn add(&self, object: Object) -> u64 {
        let mut objects = self.objects.write().unwrap_or_else(PoisonError::into_inner);
        match objects.insert(object.clone()).data().as_ffi() ^ self.salt {
            // The next place is another number.
            NONE => objects.insert(object).data().as_ffi() ^ self.salt,
            id => id,
        }
    }

    pub fn get(&self, id: u64, what: &str) -> Result<Object, Failure> {
        let objects = self.objects.read().unwrap_or_else(PoisonError::into_inner);
        let found = if id == NONE { None } else { objects.get(self.key(id)) };
        found.cloned().ok_or_else(|| nothing(id, what))
    }

    fn key(&self, id: u64) -> DefaultKey {
        KeyData::from_ffi(id ^ self.salt).into()
    }

    /// What it was goes when the lock is free again: an object may take long to go.
    pub fn remove(&self, id: u64, what: &str) -> Result<Object, Failure> {
        self.get(id, what).and_then(|object| match object.kind() == what {
            true => {
                let mut objects = self.objects.write().unwrap_or_else(PoisonError::into_inner);
                objects.remove(self.key(id)).ok_or_else(|| nothing(id, what))
            }
            false => Err(other(&object, what)),
        })
    }
}

#[cold]
fn nothing(id: u64, what: &str) -> Failure {
    let text = match id {
        NONE => format!("a {what} is wanted, none is given (its handle is 0)"),
        _ => format!("no {what} has this handle: it was freed, or is of another context"),
    };
    Failure::new(Code::E1301, text)
}

#[cold]
pub fn other(object: &Object, what: &str) -> Failure {
    Failure::new(Code::E1302, format!("a {what} is wanted, the handle is of a {}", object.kind()))
}
