//! A module for each operation: right ones in all versions, wrong ones with the error they must raise.

use crate::common::{self, ops};

use common::check;
use ops::{GOOD, lines, module};
use std::collections::BTreeSet;
use tileas_tileir::{Code, Limits, Module, Opcode, Version};

/// Operations as they should not be, behind the code of the error.
const BAD: &str = include_str!("common/bad.txt");

#[test]
fn right_operations_pass_in_all_versions_that_have_them() {
    let mut seen = BTreeSet::new();
    for line in lines(GOOD) {
        let made = module(line, Version::NEWEST);
        made.verify().unwrap_or_else(|e| panic!("{line}\n{e}\n{made}"));
        let opcode =
            made.functions().flat_map(|f| f.ops()).find(|op| line.starts_with(op.row().name)).expect(line);
        seen.insert(opcode.opcode());
        let mut written = 0;
        for version in Version::all() {
            match made.write(version) {
                Ok(bytes) => {
                    assert!(check(&bytes), "{line} in {version}");
                    let mut again = Module::read(&bytes, &Limits::default()).expect(line);
                    again.version = made.version;
                    assert!(again == made, "{line} in {version}\n{again}\n{made}");
                    written += 1;
                }
                Err(errors) => {
                    assert!(errors.iter().all(|e| e.code == Code::E1628), "{line} in {version}: {errors}");
                    assert!(version < Version::NEWEST, "{line}: {errors}");
                }
            }
        }
        let since = opcode.row().since;
        assert!(written >= 1 && written <= usize::from(Version::NEWEST.minor() - since + 1), "{line}");
    }
    let never =
        [Opcode::Entry, Opcode::Global, Opcode::Module, Opcode::Break, Opcode::Continue, Opcode::Yield];
    let missing: Vec<_> = Opcode::ALL.iter().filter(|o| !seen.contains(o) && !never.contains(o)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn wrong_operations_have_an_error() {
    for line in lines(BAD) {
        let (code, line) = line.split_once(' ').expect("a code and a line");
        let made = module(line, Version::NEWEST);
        let errors = made.verify().expect_err(line);
        assert!(errors.iter().any(|e| e.code.as_str() == code), "{line}: {errors}");
        if let Ok(bytes) = made.write(Version::NEWEST) {
            check(&bytes);
        }
    }
}
