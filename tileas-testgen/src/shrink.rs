//! Takes parts from a kernel as long as a finding persists.
//!
//! In: a kernel and a test. Out: a kernel that still passes the test, from which no single part can be taken: a
//! statement (its result becomes an operand or a constant), a loop or branch (its body stays, or not), a carried value, an option, a
//! CTA, a trip. What nothing uses goes with it.

use crate::kernel::{Block, End, Form, Given, Id, Kernel, Stmt, Ty, Use};

/// What can be done to a statement.
#[derive(Copy, Clone, Debug)]
enum Cut {
    /// It goes; results are the first values of a loop, or those an operand has.
    Drop,
    /// The first or second region takes its place.
    Inline(usize),
    /// Its result is that operand.
    Operand(usize),
    /// Its result is a constant.
    Constant,
    /// A carried value or result of a branch goes.
    Carried(usize),
    /// A `loop` that counts is a `for`.
    Counted,
    /// The first or second region no longer leaves.
    Stays(usize),
}

/// Shrinks a kernel for which `persists` holds, with at most `tries` calls of it.
pub fn shrink(kernel: &Kernel, tries: usize, mut persists: impl FnMut(&Kernel) -> bool) -> Kernel {
    let mut best = kernel.clone();
    let mut left = tries;
    let mut test = |k: &Kernel| {
        if left == 0 {
            return false;
        }
        left -= 1;
        persists(k)
    };
    let mut plain = best.clone();
    plain.options.clear();
    if !best.options.is_empty() && test(&plain) {
        best = plain;
    }
    // A finding may need what nothing uses.
    let mut tidy = best.clone();
    clean(&mut tidy);
    let dead = tidy != best && !test(&tidy);
    if !dead {
        best = tidy;
    }
    loop {
        let before = best.clone();
        for n in (0..best.options.len()).rev() {
            let mut k = best.clone();
            k.options.remove(n);
            if test(&k) {
                best = k;
            }
        }
        let mut n = count(&best.body);
        while n > 0 {
            n -= 1;
            n = n.min(count(&best.body).saturating_sub(1));
            for cut in cuts(&best, n) {
                let mut k = best.clone();
                if apply(&mut k, n, cut) {
                    if !dead {
                        clean(&mut k);
                    }
                    if k != best && test(&k) {
                        best = k;
                        break;
                    }
                }
            }
        }
        if best.grid > 1 {
            let k = Kernel { grid: 1, ..best.clone() };
            if test(&k) {
                best = k;
            }
        }
        for n in 0..best.params.len() {
            if let Given::Scalar(x) = best.params[n].1 {
                for y in [0.0, 1.0] {
                    let mut k = best.clone();
                    k.params[n].1 = Given::Scalar(y);
                    if y < x && test(&k) {
                        best = k;
                        break;
                    }
                }
            }
        }
        if best == before {
            return best;
        }
    }
}

fn count(b: &Block) -> usize {
    b.stmts.iter().map(|s| 1 + s.blocks.iter().map(count).sum::<usize>()).sum()
}

/// The statement with that number, in the order of the text.
fn find(b: &Block, mut n: usize) -> Option<&Stmt> {
    for s in &b.stmts {
        if n == 0 {
            return Some(s);
        }
        n -= 1;
        for inner in &s.blocks {
            let c = count(inner);
            if n < c {
                return find(inner, n);
            }
            n -= c;
        }
    }
    None
}

/// Replaces the statement with that number by others.
fn replace(b: &mut Block, mut n: usize, with: Vec<Stmt>) {
    for i in 0..b.stmts.len() {
        if n == 0 {
            b.stmts.splice(i..=i, with);
            return;
        }
        n -= 1;
        for inner in &mut b.stmts[i].blocks {
            let c = count(inner);
            if n < c {
                return replace(inner, n, with);
            }
            n -= c;
        }
    }
}

fn substitute(b: &mut Block, from: Id, to: Use) {
    let swap = |u: &mut Use| {
        if *u == Use::Val(from) {
            *u = to;
        }
    };
    b.yields.iter_mut().for_each(swap);
    for s in &mut b.stmts {
        s.uses.iter_mut().for_each(swap);
        for inner in &mut s.blocks {
            substitute(inner, from, to);
        }
    }
}

fn cuts(k: &Kernel, n: usize) -> Vec<Cut> {
    let Some(s) = find(&k.body, n) else { return Vec::new() };
    match &s.form {
        Form::For | Form::Loop(_) => {
            let mut list = vec![Cut::Drop];
            // What leaves a loop needs one.
            if !leaves(&s.blocks[0], &[End::Breaks, End::Continues]) {
                list.push(Cut::Inline(0));
            }
            list.extend((0..s.results.len()).rev().map(Cut::Carried));
            if s.form != Form::For && !leaves(&s.blocks[0], &[End::Breaks]) {
                list.push(Cut::Counted);
            }
            list
        }
        Form::If => {
            let mut list = if s.results.is_empty() { vec![Cut::Drop] } else { Vec::new() };
            list.extend((0..s.blocks.len()).filter(|&n| s.blocks[n].end == End::Falls).map(Cut::Inline));
            if s.results.is_empty() {
                list.extend((0..s.blocks.len()).filter(|&n| s.blocks[n].end != End::Falls).map(Cut::Stays));
            }
            list
        }
        Form::Plain { .. } if s.results.is_empty() => vec![Cut::Drop],
        Form::Plain { text, .. } => {
            let ty = |u: &Use| match u {
                Use::Val(id) => Some(&k.types[*id]),
                Use::Int(_) => None,
            };
            let own = &k.types[s.results[0]];
            let same = (0..s.uses.len()).filter(|&i| ty(&s.uses[i]) == Some(own));
            let mut used = vec![false; k.types.len()];
            mark(&k.body, &mut used);
            let idle = s.results.iter().all(|&r| !used[r]);
            let mut list: Vec<Cut> =
                idle.then_some(Cut::Drop).into_iter().chain(same.map(Cut::Operand)).collect();
            if !text.starts_with("constant") && matches!(own, Ty::Tile(..) | Ty::Scalar(_)) {
                list.push(Cut::Constant);
            }
            list
        }
    }
}

fn apply(k: &mut Kernel, n: usize, cut: Cut) -> bool {
    let Some(s) = find(&k.body, n).cloned() else { return false };
    match cut {
        Cut::Drop => {
            replace(&mut k.body, n, Vec::new());
            if s.form.is_loop() {
                for (&r, &init) in s.results.iter().zip(&s.uses[3..]) {
                    substitute(&mut k.body, r, init);
                }
            }
        }
        Cut::Inline(which) => {
            let inner = s.blocks[which].clone();
            replace(&mut k.body, n, inner.stmts);
            if s.form.is_loop() {
                for (&a, &u) in inner.args.iter().zip(std::iter::once(&s.uses[0]).chain(&s.uses[3..])) {
                    substitute(&mut k.body, a, u);
                }
            }
            for (&r, &y) in s.results.iter().zip(&inner.yields) {
                // What is yielded may be an argument of the loop.
                let y = match inner.args.iter().position(|&a| y == Use::Val(a)) {
                    Some(0) => s.uses[0],
                    Some(i) => s.uses[2 + i],
                    None => y,
                };
                substitute(&mut k.body, r, y);
            }
        }
        Cut::Operand(i) => {
            replace(&mut k.body, n, Vec::new());
            substitute(&mut k.body, s.results[0], s.uses[i]);
        }
        Cut::Constant => {
            let one = if k.types[s.results[0]].elem().is_float() { "constant 1.0" } else { "constant 1" };
            let form = Form::Plain { text: one.to_owned(), effect: false };
            let with = Stmt { form, uses: Vec::new(), results: s.results, blocks: Vec::new() };
            replace(&mut k.body, n, vec![with]);
        }
        Cut::Stays(which) => {
            let mut with = s.clone();
            with.blocks[which].end = End::Falls;
            with.blocks[which].yields.clear();
            replace(&mut k.body, n, vec![with]);
        }
        Cut::Counted => {
            let with = Stmt { form: Form::For, ..s };
            replace(&mut k.body, n, vec![with]);
        }
        Cut::Carried(i) => {
            let (mut with, result, init) = (s.clone(), s.results[i], s.uses[3 + i]);
            let arg = with.blocks[0].args.remove(1 + i);
            forget(&mut with.blocks[0], i);
            with.results.remove(i);
            with.uses.remove(3 + i);
            replace(&mut k.body, n, vec![with]);
            substitute(&mut k.body, arg, init);
            substitute(&mut k.body, result, init);
        }
    }
    true
}

/// Takes away what nothing uses.
fn clean(k: &mut Kernel) {
    loop {
        let mut used = vec![false; k.types.len()];
        mark(&k.body, &mut used);
        let before = count(&k.body);
        let changed = sweep(&mut k.body, &used);
        if !changed && count(&k.body) == before {
            k.params.retain(|p| used[p.0]);
            return;
        }
    }
}

fn mark(b: &Block, used: &mut [bool]) {
    let mut touch = |u: &Use| {
        if let Use::Val(id) = u {
            used[*id] = true;
        }
    };
    b.yields.iter().for_each(&mut touch);
    b.stmts.iter().flat_map(|s| &s.uses).for_each(&mut touch);
    for s in &b.stmts {
        for inner in &s.blocks {
            mark(inner, used);
        }
    }
}

/// Whether an arm of a branch in a loop's region ends like that.
fn leaves(body: &Block, ends: &[End]) -> bool {
    let arms = body.stmts.iter().filter(|s| s.form == Form::If).flat_map(|s| &s.blocks);
    arms.into_iter().any(|b| ends.contains(&b.end) || leaves(b, ends))
}

/// A loop no longer carries number `i`.
fn forget(body: &mut Block, i: usize) {
    fn leaving(b: &mut Block, i: usize) {
        if matches!(b.end, End::Breaks | End::Continues) {
            b.yields.remove(i);
        }
        for s in b.stmts.iter_mut().filter(|s| s.form == Form::If) {
            s.blocks.iter_mut().for_each(|b| leaving(b, i));
        }
    }
    body.yields.remove(i);
    leaving(body, i);
}

fn effects(b: &Block) -> bool {
    b.end != End::Falls
        || b.stmts.iter().any(|s| match &s.form {
            Form::Plain { effect, .. } => *effect,
            _ => s.blocks.iter().any(effects),
        })
}

fn sweep(b: &mut Block, used: &[bool]) -> bool {
    let before = b.stmts.len();
    b.stmts.retain(|s| {
        let live = s.results.iter().any(|&r| used[r]);
        live || match &s.form {
            Form::Plain { effect, .. } => *effect,
            _ => s.blocks.iter().any(effects),
        }
    });
    let mut changed = b.stmts.len() != before;
    for s in &mut b.stmts {
        for i in (0..s.results.len()).rev() {
            let idle = !used[s.results[i]];
            match s.form {
                Form::For | Form::Loop(_) if idle && !used[s.blocks[0].args[1 + i]] => {
                    s.results.remove(i);
                    s.uses.remove(3 + i);
                    s.blocks[0].args.remove(1 + i);
                    forget(&mut s.blocks[0], i);
                    changed = true;
                }
                Form::If if idle => {
                    s.results.remove(i);
                    s.blocks.iter_mut().filter(|b| b.end == End::Falls).for_each(|b| _ = b.yields.remove(i));
                    changed = true;
                }
                _ => {}
            }
        }
        for inner in &mut s.blocks {
            changed |= sweep(inner, used);
        }
    }
    changed
}
