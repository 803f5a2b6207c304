//! What is tried where a kernel needs more memory than there is.

use tileas_codegen::{Code, Context, Settings, Stage};

/// On sm_90a; there is no smaller kernel of which that is known.
#[test]
fn loops_that_do_not_fit_overlapped_run_one_iteration_after_the_other() {
    let isa = tileas_isa::isa_for_cpu("sm_90a").expect("a processor");
    let (mut context, settings) = (Context::new(), Settings::default());
    let module = context.parse(include_str!("memory_without_overlap.tileas"), &settings).expect("text");
    let run = context.run_to(Stage::Ptx, &module, &*isa, &settings).expect("it fits in the end");
    assert!(run.warnings.iter().any(|w| w.code == Code::W0406), "{:?}", run.warnings);
    let required = settings.with("require-pipelining", "true").expect("a setting");
    let errors =
        context.run_to(Stage::Ptx, &module, &*isa, &required).err().expect("it does not fit overlapped");
    assert_eq!(errors[0].code, Code::E0602);
}
