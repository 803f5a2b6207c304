//! Discardable attributes may come and go without a change: what stages of the compiler note for later ones is inherent.

use crate::corpus;

use tileas_codegen::ir::{AttrData, AttrDict, Module, keys};
use tileas_codegen::{Context, Settings, Stage};

#[test]
fn materialised_kernels_mean_the_same_without_discardable_attributes() {
    let mut context = Context::new();
    let (mut kernels, mut noted) = (0, 0);
    for kernel in corpus::kernels() {
        let settings = kernel.settings(&Settings::default());
        let isa = kernel.isa(&settings);
        let Ok(module) = context.parse(&kernel.text, &settings) else { continue };
        let Ok(run) = context.run_to(Stage::Materialized, &module, &*isa, &settings) else { continue };
        for state in run.kernels {
            let Some(kept) = state.materialized else { continue };
            let (mut bare, mut more) = (kept.clone(), kept.clone());
            let number = more.intern_attr(AttrData::Int(3, None));
            for op in bare.all_ops() {
                noted += usize::from(!bare.inherent(op).is_empty());
                *bare.discardable_mut(op) = AttrDict::default();
                // The names of the stages' notes, and numbers that are none.
                keys::STAGE.iter().for_each(|k| more.discardable_mut(op).set(k.0, number));
            }
            let ptx = |context: &mut Context, func| {
                let mut module = Module::default();
                module.functions.push(func);
                context
                    .compile(&module, &*isa, &settings)
                    .map(|m| m.ptx().to_owned())
                    .map_err(|e| e.to_string())
            };
            let with = ptx(&mut context, kept);
            assert_eq!(with, ptx(&mut context, bare), "{} without", kernel.name);
            assert_eq!(with, ptx(&mut context, more), "{} with more", kernel.name);
            kernels += 1;
        }
    }
    assert!(kernels > 100 && noted > 10_000, "{kernels} kernels, {noted} notes");
}
