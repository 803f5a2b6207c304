//! Random loops with two rings in one place: the proof (R5) accepts them exactly where no run of the token simulator mixes their tiles up.

use arbitrary::Unstructured;
use tileas_testgen::agents::Verdict;
use tileas_testgen::agents::sharing::{by_two, check, complaints, program};

#[test]
fn rings_share_slots_exactly_where_they_take_turns() {
    let (mut loops, mut share, mut refused) = (0, 0, 0);
    let mut state = 1u64;
    while loops < 20_000 {
        let mut bytes = [0u8; 512];
        for b in bytes.as_chunks_mut::<8>().0 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            *b = state.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
        }
        let p = program(&mut Unstructured::new(&bytes)).expect("enough data");
        match check(&p) {
            None => continue,
            Some(Verdict::Live) => share += 1,
            Some(Verdict::Deadlock) => refused += 1,
        }
        loops += 1;
    }
    println!("{share} share, {refused} do not");
    assert!(share > 2000 && refused > 2000, "{share} share, {refused} do not: tests too little");
}

#[test]
fn slots_that_do_not_advance_together_are_not_told_apart() {
    assert!(complaints(&by_two(false, false)).is_empty());
    for (ahead, inside) in [(true, false), (false, true)] {
        assert!(!complaints(&by_two(ahead, inside)).is_empty(), "ahead {ahead}, inside {inside}");
    }
}
