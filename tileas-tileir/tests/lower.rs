//! What becomes of kernels: each form of each operation is lowered or refused with a code, and what is made passes the
//! compiler's own checks.

use crate::common::{self, ops};

use common::{FILES, read};
use ops::{GOOD, lines, module};
use tileas_codegen::ir::{print_module, verify_module};
use tileas_meta::tileir::Lowered;
use tileas_tileir::{Code, Errors, Kernels, Version, lower};

fn lowered(line: &str) -> Result<Kernels, Errors> {
    lower(&module(line, Version::NEWEST), "sm_90")
}

fn refused(line: &str) -> Errors {
    lowered(line).err().unwrap_or_else(|| panic!("{line} is lowered"))
}

#[test]
fn every_form_is_lowered_or_refused() {
    for line in lines(GOOD) {
        let made = module(line, Version::NEWEST);
        match lower(&made, "sm_100a") {
            Ok(kernels) => {
                let errors = verify_module(&kernels.module);
                assert!(errors.is_empty(), "{line}\n{errors:?}\n{made}");
            }
            Err(errors) => {
                let known = [Code::E1641, Code::E1642, Code::E1643];
                assert!(errors.iter().all(|e| known.contains(&e.code)), "{line}: {errors}");
            }
        }
        // The table says which operations there are.
        for op in made.functions().flat_map(|f| f.ops()).filter(|op| line.starts_with(op.row().name)) {
            let said = op.row().lowered != Lowered::No;
            let errors = lower(&made, "sm_90").err();
            let unknown = errors
                .iter()
                .flat_map(|e| e.iter())
                .any(|e| e.code == Code::E1641 && e.message.contains(op.row().name));
            assert!(said != unknown, "{line}: the table says {:?}, {errors:?}", op.row().lowered);
        }
    }
}

#[test]
fn files_become_kernels_with_the_same_names_and_parameters() {
    for (name, bytes) in FILES {
        let made = read(bytes);
        for target in ["sm_90a", "sm_100a"] {
            let kernels = lower(&made, target).unwrap_or_else(|e| panic!("{name}: {e}"));
            let errors = verify_module(&kernels.module);
            assert!(errors.is_empty(), "{name}: {errors:?}");
            for (f, k) in made.functions().zip(&kernels.module.functions) {
                assert_eq!(f.name(), k.name);
                assert_eq!(f.params().len(), k.params().len());
            }
        }
    }
}

#[test]
fn what_is_not_supported_has_a_code() {
    let line = |start: &str| lines(GOOD).find(|l| l.starts_with(start)).unwrap_or_else(|| panic!("{start}"));
    assert_eq!(refused(line("alloca"))[0].code, Code::E1641);
    assert_eq!(lowered(line("gdc_launch")).expect("lowered").warnings[0].code, Code::W1641);
}

#[test]
fn accesses_keep_their_order() {
    let text = |line: &str| print_module(&lowered(line).unwrap_or_else(|e| panic!("{line}: {e}")).module);
    let acquire =
        "load_ptr_tko memory_semantics=acquire memory_scope=device | source:8xptr<f32> | 8xf32,token";
    assert!(text(acquire).contains("mem_semantic = acquire, mem_scope = gpu"), "{}", text(acquire));
    let release = "store_ptr_tko memory_semantics=release memory_scope=tl_blk | destination:8xptr<f32> value:8xf32 | token";
    assert!(text(release).contains("mem_semantic = release, mem_scope = cta"), "{}", text(release));
}

/// The pointer of another type is taken to lead to the same.
#[test]
fn pointers_change_their_type() {
    let text = print_module(
        &lowered("ptr_to_ptr | source:ptr<f32> | ptr<f16>").unwrap_or_else(|e| panic!("{e}")).module,
    );
    let order = ["ptr_to_int", "int_to_ptr", "may_alias"].map(|op| text.find(op));
    assert!(order.is_sorted() && order[0].is_some(), "{text}");
}

#[test]
fn globals_are_variables() {
    let text =
        print_module(&lowered("get_global name=table | | ptr<f32>").unwrap_or_else(|e| panic!("{e}")).module);
    assert!(
        text.contains(r#"global <{name = "table", values = [], size = 4, align = 16}> : ptr<f32, gmem>"#),
        "{text}"
    );
}

#[test]
fn elements_of_4_bits_are_what_they_are_here() {
    let text = |line: &str| print_module(&lowered(line).unwrap_or_else(|e| panic!("{line}: {e}")).module);
    assert!(text("trunci overflow=none | source:8xi32 | 8xi4").contains(": tile<8xi4>"));
    assert!(text("unpack | source:8xi8 | 16xi4").contains(": tile<16xi4>"));
    assert!(text("unpack | source:8xi8 | 16xf4E2M1FN").contains("bitcast"));
    assert!(text("pack | source:16xf4E2M1FN | 8xi8").contains("ori"));
}

/// A second tile begins an operation of its own; lengths say nothing.
#[test]
fn output_is_kept() {
    let text = |line: &str| print_module(&lowered(line).unwrap_or_else(|e| panic!("{line}: {e}")).module);
    let assert = text("assert message=wrong | cond:8xi1 |");
    assert!(assert.contains(r#"assert %"#) && assert.contains(r#"message = "wrong""#), "{assert}");
    let one = text("print_tko str=%d;%lld%%,%f | args:4xi32,i64,f32 | token");
    assert_eq!(one.matches("print %").count(), 1, "{one}");
    assert!(one.contains(r#"<{format = "%d;%d%%,%f"}>"#), "{one}");
    let two = text("print_tko str=a%d;%d,%f.%e | args:i32,4xi32,2xf32,f32 | token");
    assert!(two.contains(r#"<{format = "a%d;%d,"}>"#) && two.contains(r#"<{format = "%f.%e"}>"#), "{two}");
    for wrong in ["str=%d | args:f32", "str=%s | args:i32", "str=%d%d | args:i32"] {
        assert_eq!(refused(&format!("print_tko {wrong} | token"))[0].code, Code::E1642, "{wrong}");
    }
}

#[test]
fn hints_that_nothing_heeds_are_told() {
    let made = read(common::file("matmul-13.5"));
    let kernels = lower(&made, "sm_90a").expect("lowered");
    let told = kernels.warnings.iter().filter(|w| w.code == Code::W1642).count();
    let hints = made.functions().next().expect("a kernel").hints("sm_90a");
    let more = |n: Option<u32>| n.filter(|&n| n > 1);
    let all = [more(hints.num_cta_in_cga), more(hints.occupancy), hints.num_worker_warps_per_cta];
    assert_eq!(told, all.iter().flatten().count());
}
