//! Processors are found by name, whatever crate has them.

use tileas_codegen::{Code, Settings, ir::Module};
use tileas_isa::{DEFAULT_CPU, cpus, isa_for, isa_for_cpu};

#[test]
fn all_names_lead_to_their_targets() {
    for cpu in cpus() {
        let isa = isa_for_cpu(cpu).expect("a target");
        assert_eq!(isa.cpu().name, cpu);
        assert_eq!(isa.machine().check(), Ok(()), "{cpu}");
    }
    for cpu in ["", "sm_80", "sm_90", "sm_100", "gfx942"] {
        let e = isa_for_cpu(cpu).expect_err(cpu);
        assert!(e.code == Code::E0890 && e.message.contains("sm_90a, sm_100a"), "{e}");
    }
    let note = isa_for_cpu("sm_90").expect_err("no such name").notes;
    assert!(note[0].1.ends_with("such as sm_90a"), "{note:?}");
}

#[test]
fn the_option_names_the_target_before_the_module_does() {
    let mut module = Module::new();
    let (plain, other) = (Settings::default(), Settings::default().with("target", "sm_110a").unwrap());
    let cpu = |module: &Module, settings| isa_for(module, settings).unwrap().cpu().name;
    assert_eq!((cpu(&module, &plain), cpu(&module, &other)), (DEFAULT_CPU, "sm_110a"));
    module.target = Some("sm_103a".into());
    assert_eq!((cpu(&module, &plain), cpu(&module, &other)), ("sm_103a", "sm_110a"));
}
