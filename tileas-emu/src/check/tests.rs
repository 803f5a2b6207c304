use super::*;

/// Counts of the verdicts of a check under arbtest.
fn count(budget_ms: u64, mut f: impl FnMut(&mut Unstructured<'_>) -> Result<Verdict>) -> [u32; 3] {
    let mut n = [0u32; 3];
    arbtest::arbtest(|u| {
        n[f(u)? as usize] += 1;
        Ok(())
    })
    .size_min(64)
    .size_max(4096)
    .budget_ms(budget_ms);
    n
}

#[test]
fn random_bytes_have_located_errors() {
    let n = count(500, |u| Ok(check_text(u.peek_bytes(u.len()).unwrap_or(&[]))));
    assert!(n[0] > 100, "{n:?}");
}

#[test]
fn damaged_kernels_have_located_errors() {
    let n = count(1_000, check_damaged);
    assert!(n[0] > 5 && n[1] > 5, "{n:?}");
}

#[test]
fn random_kernels_run() {
    let n = count(4_000, check_run);
    // Right ones, refused ones and faults all occur.
    assert!(n[1] > 20 && n[2] > 5, "{n:?}");
}
