//! The page "Schedule Constraint Attributes", statement by statement, where no narrower test holds it already;
//! `docs/spec-tests.md` lists both. Kernels are text, expected words and groups are written out by hand.

use tileas_codegen::ir::{Function, Op, keys, parse_module, print_module};
use tileas_codegen::schedule::RegionSchedule;
use tileas_codegen::settings::ConstraintMode;
use tileas_codegen::testing::constraints::{ConstraintMap, ConstraintSlot, GroupForest, parse_constraints};
use tileas_codegen::testing::ddg::ScheduledRegion;
use tileas_codegen::{Context, Settings, Stage};

use ConstraintMode::{Spec, Strict};

/// A kernel of one `addf` per entry, which is what follows its operands.
fn chain(tags: &[&str]) -> String {
    let mut text = String::from("kernel @k(%x: f32) {\n");
    for (i, tag) in tags.iter().enumerate() {
        text += &format!("  %v{i} = addf %x, %x {tag}\n");
    }
    text + "}\n"
}

/// `<{…}>` of the placement keys.
fn group(gid: i64, leader: i64) -> String {
    format!("<{{tileas.schedule.constraint.gid = {gid}, tileas.schedule.constraint.leader_gid = {leader}}}>")
}

fn function(text: &str) -> Function {
    let module = parse_module(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    module.functions.into_iter().next().expect("one kernel")
}

struct Read {
    map: ConstraintMap,
    ops: Vec<Op>,
    codes: Vec<&'static str>,
}

fn read(text: &str, mode: ConstraintMode) -> Read {
    let func = function(text);
    let ops: Vec<Op> = func.all_ops().into_iter().filter(|&op| func.opcode(op).name() == "addf").collect();
    let (map, warnings) = parse_constraints(&func, func.all_ops(), mode);
    Read { map, ops, codes: warnings.iter().map(|w| w.code.as_str()).collect() }
}

fn tags(tags: &[&str], mode: ConstraintMode) -> Read {
    read(&chain(tags), mode)
}

fn groups(pairs: &[(i64, i64)], mode: ConstraintMode) -> Read {
    let texts: Vec<String> = pairs.iter().map(|&(g, l)| group(g, l)).collect();
    tags(&texts.iter().map(String::as_str).collect::<Vec<_>>(), mode)
}

impl Read {
    fn words(&self, k: usize) -> [u32; 7] {
        self.map.slot(self.ops[k]).words()
    }

    /// The number of the root of an op's group.
    fn root(&self, k: usize) -> Option<u32> {
        self.map.group(self.ops[k]).map(|g| self.map.groups().gid(g))
    }

    fn pending(&self) -> Vec<usize> {
        let at = |op: &Op| self.ops.iter().position(|o| o == op).expect("an op of the kernel");
        self.map.pending().iter().map(at).collect()
    }
}

const KEYS: [&str; 9] = [
    "tileas.schedule.constraint.gid",
    "tileas.schedule.constraint.leader_gid",
    "tileas.schedule.constraint.max_depth",
    "tileas.schedule.constraint.force_serial_execution",
    "tileas.preferred_atom_size",
    "tileas.max_num_slices_for_non_reduce_axis",
    "tileas.max_num_of_recomputations",
    "tileas.enable_defusion_if_fusion_extending_liveness",
    "tileas.recomputable",
];

/// Word and value each key writes alone, given 9 where it takes an integer. The three unit keys share word 3.
const WRITES: [(usize, u32); 9] = [(0, 9), (1, 9), (2, 9), (3, 1), (4, 9), (5, 9), (6, 9), (3, 4), (3, 2)];

fn is_unit(key: &str) -> bool {
    ["execution", "liveness", "recomputable"].iter().any(|end| key.ends_with(end))
}

#[test]
fn each_of_the_nine_keys_writes_its_own_word_and_no_other() {
    for (key, (word, value)) in KEYS.into_iter().zip(WRITES) {
        let entry = if is_unit(key) { key.to_owned() } else { format!("{key} = 9 : i32") };
        let mut want = [0; 7];
        want[word] = value;
        // In either dictionary.
        for tag in [format!("<{{{entry}}}>"), format!("{{{entry}}}")] {
            let r = tags(&[&tag, ""], Spec);
            assert_eq!(r.words(0), want, "{tag}");
            assert_eq!((r.words(1), r.map.tagged()), ([0; 7], &r.ops[..1]));
        }
    }
    let func = function("kernel @k() {\n}\n");
    let mut known: Vec<&str> = keys::SCHEDULE.iter().map(|&(key, _)| func.symbol(key)).collect();
    let mut published = KEYS.to_vec();
    known.sort_unstable();
    published.sort_unstable();
    assert_eq!(known, published);
}

#[test]
fn all_nine_together_give_seven_words() {
    let list: Vec<String> = KEYS
        .iter()
        .zip(1..)
        .map(|(key, n)| if is_unit(key) { (*key).to_owned() } else { format!("{key} = {n}") })
        .collect();
    let r = tags(&[&format!("<{{{}}}>", list.join(", "))], Spec);
    assert_eq!(r.words(0), [1, 2, 3, 7, 5, 6, 7]);
    assert_eq!(std::mem::size_of::<ConstraintSlot>(), 28);
    let slot = r.map.slot(r.ops[0]);
    assert_eq!((slot.placement(), slot.remat()), ([1, 2, 3, 7], [5, 6, 7]));
    // One masked compare looks at all flags.
    let (serial, again, defuse) =
        (ConstraintSlot::FORCE_SERIAL, ConstraintSlot::RECOMPUTABLE, ConstraintSlot::DEFUSION);
    assert_eq!((serial, again, defuse, slot.flags), (1, 2, 4, serial | again | defuse));
    assert!(r.codes.is_empty());
}

#[test]
fn other_keys_are_ignored() {
    for key in ["tileas.schedule.constraint.gids", "gid", "tileas.Recomputable", "schedule.constraint.gid"] {
        let r = tags(&[&format!("{{{key} = 4}}")], Spec);
        assert_eq!((r.words(0), r.map.tagged(), r.codes.len()), ([0; 7], &[][..], 0), "{key}");
    }
}

#[test]
fn the_two_dictionaries_are_asked_key_by_key() {
    let inherent = "<{tileas.schedule.constraint.gid = 3, tileas.schedule.constraint.leader_gid = 3}>";
    let r = tags(
        &[&format!("{inherent} {{tileas.schedule.constraint.max_depth = 5, tileas.recomputable}}")],
        Spec,
    );
    assert_eq!((r.words(0), r.codes.len()), ([3, 3, 5, 2, 0, 0, 0], 0));
    // The inherent value also hides a larger or later one, and an equal one is no disagreement.
    let both = |a: u32, b: u32| {
        format!("<{{tileas.preferred_atom_size = {a}}}> {{tileas.preferred_atom_size = {b}}}")
    };
    let r = tags(&[&both(4, 8), &both(8, 4), &both(6, 6)], Spec);
    assert_eq!([0, 1, 2].map(|k| r.words(k)[4]), [4, 8, 6]);
    assert_eq!(r.codes, ["W0103", "W0103"]);
}

#[test]
fn a_round_trip_never_promotes_a_shadow() {
    let key = "tileas.schedule.constraint.max_depth";
    let text = chain(&[&format!("<{{{key} = 2}}> {{{key} = 9}}"), &format!("{{{key} = 7}}")]);
    let printed = print_module(&parse_module(&text).expect("parses"));
    let again = print_module(&parse_module(&printed).expect("parses"));
    assert_eq!(printed, again);
    for text in [&text, &printed, &again] {
        let r = read(text, Spec);
        assert_eq!((r.words(0)[2], r.words(1)[2]), (2, 7));
        assert_eq!(r.codes, ["W0103"]);
        let func = function(text);
        let discardable = func.discardable(r.ops[0]).get(keys::MAX_DEPTH);
        assert_ne!(
            discardable,
            func.inherent(r.ops[0]).get(keys::MAX_DEPTH),
            "the shadow stays where it was"
        );
        assert!(discardable.is_some() && func.inherent(r.ops[1]).get(keys::MAX_DEPTH).is_none());
    }
}

#[test]
fn integers_of_any_width_become_words_of_32_bits() {
    let depth = |v: &str| format!("{{tileas.schedule.constraint.max_depth = {v}}}");
    for (written, word, warned) in [
        ("5 : i8", 5, false),
        ("5 : i64", 5, false),
        ("5", 5, false),
        ("4294967295", u32::MAX, false),
        ("-1", u32::MAX, false),
        ("4294967296", 0, true),
        ("4294967301 : i64", 5, true),
        ("-4294967295", 1, true),
    ] {
        let r = tags(&[&depth(written)], Spec);
        assert_eq!(r.words(0)[2], word, "{written}");
        assert_eq!(r.codes, if warned { vec!["W0105"] } else { vec![] }, "{written}");
    }
}

#[test]
fn unit_keys_count_by_presence_whatever_they_hold() {
    for (key, bit) in [(KEYS[3], 1), (KEYS[7], 4), (KEYS[8], 2)] {
        for value in ["0", "1", "\"no\"", "off"] {
            let r = tags(&[&format!("{{{key} = {value}}}")], Spec);
            assert_eq!(
                (r.words(0), r.codes.as_slice()),
                ([0, 0, 0, bit, 0, 0, 0], &["W0104"][..]),
                "{key} = {value}"
            );
        }
        let r = tags(&[&format!("{{{key}}}"), ""], Spec);
        assert_eq!((r.words(0)[3], r.words(1)[3], r.codes.len()), (bit, 0, 0));
    }
}

#[test]
fn zero_written_and_absent_are_one() {
    for key in [KEYS[2], KEYS[4], KEYS[5], KEYS[6]] {
        let r = tags(&[&format!("<{{{key} = 0}}>"), ""], Spec);
        assert_eq!((r.words(0), r.words(1)), ([0; 7], [0; 7]), "{key}");
        assert_eq!((r.root(0), r.root(1), r.codes.len()), (None, None, 0));
    }
    // Except that a written gid 0 is a member of group 0, and an op without one belongs to nobody.
    let r = tags(&["<{tileas.schedule.constraint.gid = 0}>", "<{tileas.recomputable}>", ""], Spec);
    assert_eq!([0, 1, 2].map(|k| r.words(k)[..2].to_vec()), [[0, 0]; 3].map(|w| w.to_vec()));
    assert_eq!([0, 1, 2].map(|k| r.root(k)), [Some(0), None, None]);
}

/// The quirk, and its cure: every leader says that it leads itself.
#[test]
fn an_absent_leader_is_group_zero_even_if_nobody_has_that_number() {
    let alone = "<{tileas.schedule.constraint.gid = 7}>";
    let r = tags(&[alone], Spec);
    assert_eq!((r.words(0)[..2].to_vec(), r.root(0), r.pending()), (vec![7, 0], Some(0), vec![0]));
    assert_eq!(r.codes, ["W0101"]);
    // Grafted onto a real group 0.
    let r = tags(&[&group(0, 0), alone, &group(5, 5)], Spec);
    assert_eq!([0, 1, 2].map(|k| r.root(k)), [Some(0), Some(0), Some(5)]);
    // Two groups that forgot their leaders are one.
    let r = tags(&[alone, "<{tileas.schedule.constraint.gid = 8}>"], Spec);
    assert_eq!((r.root(0), r.root(1)), (Some(0), Some(0)));
    let r = tags(&[&group(0, 0), &group(7, 7)], Spec);
    assert_eq!((r.root(0), r.root(1), r.pending().len(), r.codes.len()), (Some(0), Some(7), 0, 0));
    let r = tags(&[&group(0, 0), alone], Strict);
    assert_eq!((r.root(0), r.root(1), r.pending().len(), r.codes.len()), (Some(0), Some(7), 0, 0));
}

#[test]
fn a_union_puts_the_number_below_its_leader_whatever_the_sizes() {
    // Five numbers under 1; then 1 follows 9, which has one op: no rank, the leader stays root.
    let pairs = [(1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (9, 9), (1, 9)];
    let r = groups(&pairs, Spec);
    assert!((0..pairs.len()).all(|k| r.root(k) == Some(9)));
    let mut forest = GroupForest::default();
    let n: Vec<_> = (0..6).map(|gid| forest.intern(gid)).collect();
    for k in 0..5 {
        assert!(forest.union(n[k], n[k + 1]));
    }
    assert!(!forest.union(n[0], n[5]) && !forest.union(n[5], n[0]), "equal roots are left alone");
    for &g in &n {
        assert_eq!((forest.find(g), forest.root(g)), (n[5], n[5]));
    }
}

#[test]
fn leaders_that_disagree_depend_on_the_order_of_the_walk_and_on_nothing_else() {
    let (a, b) = ((3, 7), (7, 3));
    for _ in 0..4 {
        assert_eq!(groups(&[a, b], Spec).root(0), Some(7));
        assert_eq!(groups(&[b, a], Spec).root(0), Some(3));
    }
    assert_eq!(groups(&[a, b], Spec).codes, ["W0102"]);
    assert_eq!(groups(&[a, b], Strict).codes, ["E0102"]);
    // With leaders that lead themselves every order of the ops gives the same groups under the same roots.
    let pairs = [(1, 1), (2, 1), (3, 1), (6, 6), (5, 6)];
    for turn in 0..pairs.len() {
        let mut turned = pairs;
        turned.rotate_left(turn);
        let r = groups(&turned, Spec);
        for (k, &(gid, _)) in turned.iter().enumerate() {
            assert_eq!(r.root(k), Some(if gid <= 3 { 1 } else { 6 }));
        }
        assert!(r.codes.is_empty());
    }
    // One group whose ops name two leaders is two groups.
    let r = groups(&[(1, 1), (2, 1), (8, 8), (9, 8)], Spec);
    assert_eq!([0, 1, 2, 3].map(|k| r.root(k)), [Some(1), Some(1), Some(8), Some(8)]);
}

#[test]
fn the_walk_is_block_then_operation_regions_included() {
    let gid = |n: i64| {
        format!("<{{tileas.schedule.constraint.gid = {n}, tileas.schedule.constraint.leader_gid = {n}}}>")
    };
    let text = format!(
        "kernel @k(%x: f32, %n: i32, %c: i1) {{
  %a = addf %x, %x {}
  for %i = 0 to %n step 1 {{
    %b = addf %x, %x {}
    if %c {{
      %d = addf %x, %x {}
    }} else {{
      %e = addf %x, %x {}
    }}
    %f = addf %x, %x {}
  }}
  %g = addf %x, %x {}
}}\n",
        gid(10),
        gid(4),
        gid(30),
        gid(2),
        gid(50),
        gid(1)
    );
    let r = read(&text, Spec);
    assert_eq!(r.map.tagged(), r.ops);
    let roots: Vec<u32> = r.map.groups().roots().map(|g| r.map.groups().gid(g)).collect();
    assert_eq!(roots, [10, 4, 30, 2, 50, 1], "first-seen order");
}

/// Forest and pending set come out of one walk: an op waits exactly if it follows another number, and then it is in its
/// leader's group.
#[test]
fn the_forest_and_the_pending_set_are_seeded_together() {
    let mut seed = 11u64;
    let mut below = |n: u64| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((seed >> 33) % n) as i64
    };
    for _ in 0..60 {
        let pairs: Vec<(i64, i64)> = (0..1 + below(7)).map(|_| (below(4), below(4))).collect();
        let r = groups(&pairs, Spec);
        let follows: Vec<usize> = (0..pairs.len()).filter(|&k| pairs[k].0 != pairs[k].1).collect();
        assert_eq!(r.pending(), follows, "{pairs:?}");
        let forest = r.map.groups();
        for (k, &(gid, leader)) in pairs.iter().enumerate() {
            assert_eq!(r.map.own_group(r.ops[k]), forest.get(gid as u32));
            assert_eq!(r.map.leader_group(r.ops[k]), forest.get(leader as u32));
            let (own, lead) = (r.map.own_group(r.ops[k]).unwrap(), r.map.leader_group(r.ops[k]).unwrap());
            assert!(forest.same(own, lead), "{pairs:?}");
            assert_eq!(r.map.is_pending(r.ops[k]), gid != leader);
        }
    }
}

#[test]
fn every_warning_has_its_strict_counterpart() {
    let key = |k: &str, v: &str| format!("{{tileas.schedule.constraint.{k} = {v}}}");
    let depth = "tileas.schedule.constraint.max_depth";
    let cases: [(Vec<String>, &str, &[&str]); 7] = [
        (vec![key("gid", "7")], "W0101", &[]),
        (vec![group(3, 7), group(7, 3)], "W0102", &["E0102"]),
        (vec![format!("<{{{depth} = 1}}> {{{depth} = 2}}")], "W0103", &["E0103"]),
        (vec![key("force_serial_execution", "1")], "W0104", &["E0104"]),
        (vec![key("max_depth", "4294967296")], "W0105", &["E0105"]),
        (vec![key("max_depth", "\"4\"")], "W0106", &["E0106"]),
        (vec![group(0xFFFF_FFFE, 0xFFFF_FFFE)], "W0107", &["E0107"]),
    ];
    for (list, warning, errors) in cases {
        let list: Vec<&str> = list.iter().map(String::as_str).collect();
        let mut seen = tags(&list, Spec).codes;
        seen.dedup();
        assert_eq!(seen, [warning]);
        let mut strict = tags(&list, Strict).codes;
        strict.dedup();
        assert_eq!(strict, errors, "{warning}");
        // The compiler goes on after a warning and stops at the error.
        let module = parse_module(&chain(&list)).expect("parses");
        let mut settings = Settings::builder();
        assert!(
            Context::new().check(&module, &settings.finish()).is_ok_and(|w| w[0].code.as_str() == warning)
        );
        settings.set("published.constraint-mode", "strict").expect("an option");
        let checked = Context::new().check(&module, &settings.finish());
        assert_eq!(checked.is_ok(), errors.is_empty(), "{warning}");
    }
    // The sentinels begin above 0xFFFFFFFD.
    let r = groups(&[(0xFFFF_FFFD, 0xFFFF_FFFD), (0xFFFF_FFFF, 0xFFFF_FFFD)], Spec);
    assert_eq!((r.root(0), r.words(1)[..2].to_vec()), (Some(0xFFFF_FFFD), vec![0, 0xFFFF_FFFD]));
}

/// A GEMM; `tags` follow the operands of the two loads, the multiply and the loop.
fn gemm(tags: [&str; 3], on_loop: &str) -> String {
    let [a, b, dot] = tags;
    format!(
        "kernel @g(%a: view<gmem, ?x?xf16>, %b: view<gmem, ?x?xf16>, %c: view<gmem, ?x?xf32>, %kt: i32) {{
  %bm = program_id <{{axis = 0}}> : i32
  %bn = program_id <{{axis = 1}}> : i32
  %da = make_tiled_tma_desc %a <{{box = [128, 64], swizzle = b128}}> : tma_desc<128x64xf16>
  %db = make_tiled_tma_desc %b <{{box = [128, 64], swizzle = b128}}> : tma_desc<128x64xf16>
  %z = constant 0.0 : tile<128x128xf32>
  %acc = for %i = 0 to %kt step 1 iter (%s = %z : tile<128x128xf32>) {on_loop} {{
    %ta = async.tiled_tma_load %da[%bm, %i] {a} : tile<128x64xf16>
    %tb = async.tiled_tma_load %db[%bn, %i] {b} : tile<128x64xf16>
    %n = async.dot %ta, %tb, %s <{{transpose_b}}> {dot} : tile<128x128xf32>
    yield %n : tile<128x128xf32>
  }}
  tiled_store %acc, %c[%bm, %bn]
  return
}}\n"
    )
}

/// The one scheduled loop of a kernel, in published weights.
fn region(text: &str, pairs: &[&str]) -> ScheduledRegion {
    let isa = tileas_isa::isa_for_cpu("sm_100a").expect("known cpu");
    let mut settings = Settings::builder();
    for pair in ["published.cycle-model=slot"].iter().chain(pairs) {
        settings.set_pair(pair).expect("an option");
    }
    let module = parse_module(text).unwrap_or_else(|e| panic!("{e}"));
    let mut run = Context::new()
        .run_to(Stage::Schedule, &module, &*isa, &settings.finish())
        .unwrap_or_else(|e| panic!("{e:?}"));
    let analysis = run.kernels.swap_remove(0).schedule.expect("scheduled");
    analysis.regions.into_iter().next().expect("one loop")
}

fn starts(s: &RegionSchedule) -> Vec<u32> {
    s.start.values().copied().collect()
}

#[test]
fn the_four_placement_words_reach_the_scheduler() {
    let key = |k: &str| format!("tileas.schedule.constraint.{k}");
    let loads = region(
        &gemm(
            [
                &format!("{{{} = 5, {} = 1, {} = 2}}", key("gid"), key("leader_gid"), key("max_depth")),
                &format!("{{{} = 1, {} = 1}}", key("gid"), key("leader_gid")),
                &format!("{{{}}}", key("force_serial_execution")),
            ],
            "",
        ),
        &[],
    );
    let p = &loads.problem;
    let n: Vec<_> = p.nodes().collect();
    assert_eq!(n.len(), 3);
    assert!(p.group(n[0]).is_some() && p.group(n[0]) == p.group(n[1]) && p.group(n[2]).is_none());
    assert_eq!((p.extra(n[0]).own_gid, p.extra(n[0]).leader_gid), (Some(5), Some(1)));
    assert_eq!((p.extra(n[1]).own_gid, p.extra(n[1]).leader_gid), (Some(1), None));
    assert_eq!([0, 1, 2].map(|k| p.max_depth(n[k])), [2, 0, 0]);
    assert_eq!([0, 1, 2].map(|k| p.force_serial(n[k])), [false, false, true]);
    let s = &loads.schedule;
    assert_eq!(s.stage[n[0]], s.stage[n[1]]);
}

#[test]
fn the_missing_leader_ties_ops_in_the_schedule_too() {
    let gid = |n: u32| format!("{{tileas.schedule.constraint.gid = {n}}}");
    let text = gemm([&gid(7), "", &gid(0)], "");
    // Load and multiply in one stage: 8 cycles apart at least, and both within one interval.
    let r = region(&text, &[]);
    let n: Vec<_> = r.problem.nodes().collect();
    assert_eq!(r.schedule.stage[n[0]], r.schedule.stage[n[2]]);
    assert!(r.problem.group(n[0]).is_some() && r.problem.group(n[0]) == r.problem.group(n[2]));
    let r = region(&text, &["published.constraint-mode=strict"]);
    let n: Vec<_> = r.problem.nodes().collect();
    assert_ne!(r.problem.group(n[0]), r.problem.group(n[2]));
}

#[test]
fn an_op_with_remat_keys_alone_is_scheduled_as_without() {
    // Pieces that no tile exceeds: nothing is cut.
    let remat = "{tileas.preferred_atom_size = 4096, tileas.max_num_slices_for_non_reduce_axis = 2, \
                 tileas.max_num_of_recomputations = 1, tileas.recomputable, \
                 tileas.enable_defusion_if_fusion_extending_liveness}";
    let (plain, tagged) = (region(&gemm([""; 3], ""), &[]), region(&gemm([remat; 3], ""), &[]));
    assert_eq!(starts(&plain.schedule), starts(&tagged.schedule));
    assert_eq!(plain.schedule.ii, tagged.schedule.ii);
    for n in tagged.problem.nodes() {
        assert_eq!((tagged.problem.group(n), tagged.problem.max_depth(n)), (None, 0));
        assert!(!tagged.problem.force_serial(n) && tagged.problem.extra(n).leader_gid.is_none());
    }
}

#[test]
fn forced_serial_on_the_loop_and_on_an_op_of_it() {
    let force = "tileas.schedule.constraint.force_serial_execution";
    let whole = region(&gemm([""; 3], &format!("<{{{force}}}>")), &[]);
    assert_eq!((whole.schedule.generator.to_string().as_str(), whole.schedule.stage_count), ("serial", 1));
    let op = region(&gemm(["", "", &format!("{{{force}}}")], ""), &[]);
    assert_eq!(op.schedule.generator.to_string(), "modulo");
    // The multiply must be finished, 16 cycles, before its next turn; alone it could follow after 8.
    assert_eq!((op.schedule.bounds.recurrence, op.schedule.bounds.dependency), (8, 16));
    assert_eq!(op.schedule.exclusions.len(), 1);
}

#[test]
fn inherent_keys_survive_the_copy_of_an_op_and_discardable_ones_do_not() {
    let key = "tileas.schedule.constraint.max_depth";
    // Materialisation puts a copy of each op into the region of its agent.
    let text = gemm([&format!("<{{{key} = 5}}>"), &format!("{{{key} = 6}}"), ""], "");
    let isa = tileas_isa::isa_for_cpu("sm_100a").expect("known cpu");
    let module = parse_module(&text).expect("parses");
    let run = Context::new()
        .run_to(Stage::Materialized, &module, &*isa, &Settings::default())
        .unwrap_or_else(|e| panic!("{e:?}"));
    let (placed, copied) = (run.text(Stage::Placed), run.text(Stage::Materialized));
    assert!(placed.contains(&format!("{key} = 5")) && placed.contains(&format!("{key} = 6")));
    assert!(copied.contains(&format!("{key} = 5")) && !copied.contains(&format!("{key} = 6")), "{copied}");
}
