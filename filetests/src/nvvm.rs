//! Commands on thread-level text: one pass, in and out of the text form.
//!
//! Every such command demands that its input and its output print as they were read, and that a pass leaves a module
//! the verifier still accepts. The file's module ends at `; ----`.

use crate::header::{NvvmPass, SEPARATOR};
use crate::output::Outcome;
use anyhow::{Result, ensure};
use std::fmt::Write;
use tileas_codegen::nvvm::{Function, Module};
use tileas_codegen::testing::nvvm::{
    CleanupScratch, CleanupStats, cfg, cleanup, dce, local, parse, print, verify,
};
use tileas_codegen::testing::regalloc::{Allocator, RegallocOptions};
use tileas_codegen::{CodegenError, Settings};

pub(crate) fn outcome(pass: NvvmPass, text: &str, settings: &Settings) -> Result<Outcome> {
    // The expected output behind the separator is all comments, which the parser would keep.
    let end = text.find(&format!("\n{SEPARATOR}")).unwrap_or(text.len());
    let mut module = match parse(&text[..end]) {
        Ok(module) => module,
        Err(e) => return Ok(Outcome { text: None, reported: vec![e] }),
    };
    round_trip(&module)?;
    let mut reported = Vec::new();
    if pass == NvvmPass::None {
        return Ok(Outcome { text: Some(text_of(&module)), reported });
    }
    let accepted = verify(&module, *settings.max_ptx_version(), &mut reported).is_some();
    if pass == NvvmPass::Verify || !accepted {
        return Ok(Outcome { text: None, reported });
    }
    let mut stats = CleanupStats::default();
    let mut notes = String::new();
    for func in &mut module.functions {
        match pass {
            NvvmPass::Cfg => cfg::run(func, &mut cfg::CfgScratch::default(), &mut stats),
            NvvmPass::Local => local::run(func, &mut local::LocalScratch::default(), &mut stats),
            NvvmPass::Dce => dce::run(func, &mut dce::DceScratch::default(), &mut stats),
            NvvmPass::Cleanup => stats = cleanup(func, &mut CleanupScratch::default()),
            NvvmPass::Regalloc => notes.push_str(&registers(func, settings, &mut reported)),
            NvvmPass::None | NvvmPass::Verify => {}
        }
    }
    round_trip(&module)?;
    let mut after = Vec::new();
    ensure!(
        verify(&module, *settings.max_ptx_version(), &mut after).is_some(),
        "the verifier refuses what the pass left\n{after:?}\n{}",
        text_of(&module)
    );
    Ok(Outcome { text: Some(notes + &text_of(&module)), reported })
}

/// Budgets and spills; one comment line per agent that did not fit.
fn registers(func: &mut Function, settings: &Settings, reported: &mut Vec<CodegenError>) -> String {
    let options = RegallocOptions {
        mode: *settings.regalloc(),
        cap: settings.max_regs().unwrap_or(255),
        reserve: *settings.register_reserve(),
        shared: None,
    };
    let mut out = String::new();
    for r in Allocator::default().run(func, &options) {
        reported.extend(r.warning(func));
        let (before, after) = (r.before.units, r.after.units);
        let _ =
            write!(out, "; {}: {before} registers at the peak, {after} now, budget {}", r.name, r.max_regs);
        if let Some(Ok(s)) = &r.outcome {
            let _ = write!(
                out,
                "; {} stored, {} reloaded, {} recomputed, {} bytes",
                s.stores, s.reloads, s.recomputed, s.local_bytes
            );
        }
        out.push('\n');
    }
    out
}

fn text_of(module: &Module) -> String {
    let mut text = String::new();
    print(module, &mut text);
    text
}

/// The printed module must parse and print as the same text.
fn round_trip(module: &Module) -> Result<()> {
    let first = text_of(module);
    let again = parse(&first).map_err(|e| anyhow::anyhow!("the print does not parse: {e}\n{first}"))?;
    let second = text_of(&again);
    ensure!(first == second, "the print changes when parsed and printed again\n{first}\n{second}");
    Ok(())
}
