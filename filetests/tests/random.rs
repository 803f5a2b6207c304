//! The fuzz targets' checks on random data, for about a second each.

use std::cell::RefCell;
use tileas_codegen::Context;
use tileas_codegen::driver::check::{Verdict, check_agents, check_parse, check_round_trip};

/// Counts verdicts: refused, accepted.
#[derive(Default)]
struct Counts(RefCell<[u32; 2]>);

impl Counts {
    fn add(&self, verdict: Verdict) {
        self.0.borrow_mut()[usize::from(verdict == Verdict::Accepted)] += 1;
    }

    /// A share of all cases must have been accepted.
    fn assert_accepted(&self, one_in: u32) {
        let [refused, accepted] = *self.0.borrow();
        println!("{refused} refused, {accepted} accepted");
        assert!(
            accepted >= 5 && accepted * one_in >= refused + accepted,
            "{refused} refused, {accepted} accepted"
        );
    }
}

#[test]
fn any_bytes_parse_or_are_refused() {
    arbtest::arbtest(|u| {
        check_parse(u.arbitrary::<Vec<u8>>()?.as_slice());
        Ok(())
    })
    .budget_ms(500);
}

#[test]
fn kernels_print_to_a_fixed_point() {
    let counts = Counts::default();
    arbtest::arbtest(|u| {
        counts.add(check_round_trip(u)?);
        Ok(())
    })
    .size_min(400)
    .size_max(4000)
    .budget_ms(1000);
    counts.assert_accepted(4);
}

#[test]
fn kernels_compile_the_same_on_any_context() {
    let isa = tileas_isa_blackwell::isa_for_cpu("sm_100a").expect("the default processor");
    let (counts, warm) = (Counts::default(), RefCell::new(Context::new()));
    arbtest::arbtest(|u| {
        counts.add(check_agents(u, &*isa, &mut warm.borrow_mut())?);
        Ok(())
    })
    .size_min(400)
    .size_max(4000)
    .budget_ms(2000);
    counts.assert_accepted(4);
}
