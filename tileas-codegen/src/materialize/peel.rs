//! The unguarded form of a loop with local stages, for agents whose threads all compute.
//!
//! Steps 0..skew are a prologue, steps skew..N a loop without guards, and skew further steps an epilogue; together
//! N + skew steps, as in the rolled form. Step t of the prologue has the groups of local stages up to t, step e of the
//! epilogue those above e, each under the uniform guard that its iteration exists: with that the form is right for
//! every N, also below skew, where the loop makes no trip and the epilogue begins at step skew. Each op is written
//! skew + 1 times; [`MaterializeOptions::max_peeled_ops`](super::MaterializeOptions) bounds the copies.
//! A guard `if` notes the loop it belongs to (`of`) and its step (`prologue` or `epilogue`): the post-verifier
//! compares the copies with the loop.

use super::emit::Emit;
use super::skew::{Mode, Skewed};
use crate::error::CodegenResult;
use crate::ir::{Opcode, Value, keys};
use smallvec::SmallVec;

/// One iteration that the prologue or epilogue runs: its number, induction value and the condition that it exists.
type Peeled = Option<(Value, Value, Value)>;

/// Writes prologue, loop and epilogue.
pub(super) fn peeled(e: &mut Emit<'_, '_>, s: &mut Skewed<'_>) -> CodegenResult<()> {
    let (ity, skew) = (s.ity, s.skew);
    s.start();
    let mut seen: SmallVec<[Peeled; 4]> = smallvec::smallvec![None; skew as usize];
    for t in 0..skew {
        for n in 0..s.groups.len() {
            let local = s.groups[n].local;
            let Some(i) = t.checked_sub(local) else { continue };
            let (i, iv, guard) = match seen[i as usize] {
                Some(known) => known,
                None => {
                    let number = e.const_int(i64::from(i), ity);
                    let iv = s.induction(e, number);
                    *seen[i as usize].insert((number, iv, e.cmp("lt", number, s.trips)))
                }
            };
            let note = Some((keys::PROLOGUE, t));
            s.group(e, n, &Mode { guard: Some(guard), i, iv: Some(iv), note })?;
        }
        s.next_step();
    }

    let (least, one) = (e.const_int(i64::from(skew), ity), e.const_int(1, ity));
    let open = s.open(e, [least, s.trips, one], true);
    for n in 0..s.groups.len() {
        let local = s.groups[n].local;
        let i = if local == 0 {
            open.1
        } else {
            let k = e.const_int(i64::from(local), ity);
            e.simple(Opcode::Subi, &[open.1, k], ity)
        };
        s.group(e, n, &Mode { guard: None, i, iv: None, note: None })?;
    }
    s.close(e, open);

    // Behind the loop: the last step began at max(N, skew).
    let end = match e.out.constant_value(s.trips) {
        Some(n) => e.const_int((n as i64).max(i64::from(skew)), ity),
        None => e.simple(Opcode::Maxi, &[s.trips, least], ity),
    };
    let mut seen: SmallVec<[Peeled; 4]> = smallvec::smallvec![None; skew as usize + 1];
    for step in 0..skew {
        for n in 0..s.groups.len() {
            let local = s.groups[n].local;
            let Some(back) = local.checked_sub(step).filter(|&b| b > 0) else { continue };
            let (i, iv, guard) = match seen[back as usize] {
                Some(known) => known,
                None => {
                    let k = e.const_int(i64::from(back), ity);
                    let i = e.simple(Opcode::Subi, &[end, k], ity);
                    let iv = s.induction(e, i);
                    *seen[back as usize].insert((i, iv, e.cmp("lt", i, s.trips)))
                }
            };
            let note = Some((keys::EPILOGUE, step));
            s.group(e, n, &Mode { guard: Some(guard), i, iv: Some(iv), note })?;
        }
        s.next_step();
    }
    Ok(())
}
