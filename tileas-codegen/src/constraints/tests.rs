use super::*;
use crate::error::Loc;
use crate::ir::{FunctionBuilder, Opcode, Scalar};
use crate::testing::constraints::parse_constraints;

/// What an op of a test carries: key, value, and whether it is inherent.
type Tag = (Sym, AttrData, bool);

fn int(key: Sym, v: i64) -> Tag {
    (key, AttrData::Int(v, None), true)
}

fn group(gid: i64, leader: i64) -> Vec<Tag> {
    vec![int(keys::GID, gid), int(keys::LEADER_GID, leader)]
}

fn kernel(ops: &[Vec<Tag>]) -> (Function, Vec<Op>) {
    let mut func = Function::new("k");
    let mut b = FunctionBuilder::new(&mut func);
    let ty = b.scalar_type(Scalar::F32);
    let x = b.param(ty);
    let mut out = Vec::new();
    for (n, tags) in ops.iter().enumerate() {
        b.set_loc(Loc::new(n, n + 1));
        let op = b.op(Opcode::Negf).operand(x).inferred().finish();
        for (key, data, inherent) in tags {
            let a = b.func.intern_attr(data.clone());
            let dict = if *inherent { b.func.inherent_mut(op) } else { b.func.discardable_mut(op) };
            dict.set(*key, a);
        }
        out.push(op);
    }
    b.ret();
    (func, out)
}

fn parse(ops: &[Vec<Tag>], mode: ConstraintMode) -> (ConstraintMap, Vec<Op>, Vec<&'static str>) {
    let (func, list) = kernel(ops);
    let (map, warnings) = parse_constraints(&func, func.all_ops(), mode);
    (map, list, warnings.iter().map(|w| w.code.as_str()).collect())
}

use ConstraintMode::{Spec, Strict};

#[test]
fn seven_words_in_order() {
    let tags = vec![
        int(keys::GID, 1),
        int(keys::LEADER_GID, 2),
        int(keys::MAX_DEPTH, 3),
        int(keys::PREFERRED_ATOM_SIZE, 5),
        int(keys::MAX_NUM_SLICES_FOR_NON_REDUCE_AXIS, 6),
        int(keys::MAX_NUM_OF_RECOMPUTATIONS, 7),
    ];
    let (map, ops, warnings) = parse(&[tags, vec![]], Spec);
    assert_eq!(map.slot(ops[0]).words(), [1, 2, 3, 0, 5, 6, 7]);
    assert_eq!(map.slot(ops[1]).words(), [0; 7]);
    assert!(warnings.is_empty());
    assert_eq!(map.tagged(), [ops[0]]);
    for (key, bit) in [
        (keys::FORCE_SERIAL_EXECUTION, 1),
        (keys::RECOMPUTABLE, 2),
        (keys::ENABLE_DEFUSION_IF_FUSION_EXTENDING_LIVENESS, 4),
    ] {
        let (map, ops, _) = parse(&[vec![(key, AttrData::Unit, true)]], Spec);
        assert_eq!(map.slot(ops[0]).words(), [0, 0, 0, bit, 0, 0, 0]);
        assert_eq!(map.force_serial(ops[0]), bit == 1);
        assert_eq!(map.group(ops[0]), None);
    }
}

#[test]
fn inherent_wins_over_discardable() {
    let both = |a: i64, b: i64| {
        vec![int(keys::MAX_DEPTH, a), (keys::MAX_DEPTH, AttrData::Int(b, Some(Scalar::I32)), false)]
    };
    let (map, ops, warnings) = parse(&[both(2, 9), both(4, 4)], Spec);
    assert_eq!((map.max_depth(ops[0]), map.max_depth(ops[1])), (2, 4));
    assert_eq!(warnings, ["W0103"]);
    let (map, ops, warnings) = parse(&[vec![(keys::MAX_DEPTH, AttrData::Int(6, None), false)]], Spec);
    assert_eq!((map.max_depth(ops[0]), warnings.len()), (6, 0));
    assert_eq!(parse(&[both(2, 9)], Strict).2, ["E0103"]);
}

#[test]
fn odd_values_warn_and_follow_the_rules() {
    let ops = [
        vec![(keys::RECOMPUTABLE, AttrData::Int(0, None), true)],
        vec![int(keys::MAX_DEPTH, 0x1_0000_0005)],
        vec![int(keys::MAX_DEPTH, -2)],
        vec![(keys::MAX_DEPTH, AttrData::Str("4".into()), true)],
        vec![int(keys::GID, -1), int(keys::LEADER_GID, 0xFFFF_FFFE)],
        vec![int(keys::GID, 0xFFFF_FFFD), int(keys::LEADER_GID, 0xFFFF_FFFD)],
    ];
    let (map, list, warnings) = parse(&ops, Spec);
    assert_eq!(warnings, ["W0104", "W0105", "W0106", "W0107", "W0107"]);
    assert_eq!(map.slot(list[0]).flags, ConstraintSlot::RECOMPUTABLE);
    assert_eq!(map.max_depth(list[1]), 5);
    assert_eq!(map.max_depth(list[2]), 0xFFFF_FFFE);
    assert_eq!(map.max_depth(list[3]), 0);
    assert_eq!(map.group(list[4]), None);
    assert_eq!(map.groups().gid(map.group(list[5]).unwrap()), 0xFFFF_FFFD);
    let (_, _, errors) = parse(&ops, Strict);
    assert_eq!(errors, ["E0104", "E0105", "E0106", "E0107", "E0107"]);
}

#[test]
fn warnings_stand_at_their_op() {
    let (func, ops) = kernel(&[vec![], vec![int(keys::GID, 7)]]);
    let (_, warnings) = parse_constraints(&func, ops, Spec);
    assert_eq!(warnings[0].location, Loc::new(1, 2));
    assert!(warnings[0].code.is_warning() && warnings[0].message.contains("gid is 7"));
}

#[test]
fn a_missing_leader_joins_group_zero_or_leads_itself() {
    let ops = [group(0, 0), vec![int(keys::GID, 7)], vec![int(keys::GID, 0)]];
    let (map, list, warnings) = parse(&ops, Spec);
    assert_eq!(warnings, ["W0101"]);
    assert_eq!(map.group(list[1]), map.group(list[0]));
    assert_eq!(map.group(list[2]), map.group(list[0]));
    assert_eq!(map.pending(), [list[1]]);

    let (map, list, warnings) = parse(&ops, Strict);
    assert!(warnings.is_empty());
    assert_ne!(map.group(list[1]), map.group(list[0]));
    assert!(map.pending().is_empty());
    assert_eq!(map.slot(list[1]).words()[..2], [7, 7]);
}

#[test]
fn a_leader_without_a_number() {
    let ops = [group(3, 3), vec![int(keys::LEADER_GID, 3)], group(0, 0)];
    // To the letter: number 0 follows 3, and so does every other op of number 0.
    let (map, list, warnings) = parse(&ops, Spec);
    assert_eq!(warnings, ["W0102"]);
    assert_eq!(map.group(list[2]), map.group(list[0]));
    let (map, list, warnings) = parse(&ops, Strict);
    assert!(warnings.is_empty());
    assert_eq!(map.group(list[1]), map.group(list[0]));
    assert_ne!(map.group(list[2]), map.group(list[0]));
    assert_eq!(map.pending(), [list[1]]);
}

#[test]
fn union_is_directional_and_first_seen() {
    let (map, list, warnings) = parse(&[group(9, 4), group(4, 4), group(5, 4), group(6, 6)], Spec);
    assert!(warnings.is_empty());
    let f = map.groups();
    assert_eq!(f.gid(map.group(list[0]).unwrap()), 4);
    assert_eq!(map.own_group(list[0]).unwrap().to_string(), "group0");
    assert_eq!(f.roots().map(|g| f.gid(g)).collect::<Vec<_>>(), [4, 6]);
    let root = map.group(list[0]).unwrap();
    assert_eq!(f.gids_of(root).collect::<Vec<_>>(), [9, 4, 5]);
    assert_eq!(map.members(root).collect::<Vec<_>>(), list[..3]);
    assert_eq!(map.pending(), [list[0], list[2]]);
    assert_eq!(map.leader_group(list[0]), f.get(4));
    assert!(map.is_pending(list[2]) && !map.is_pending(list[1]));
}

#[test]
fn disagreeing_leaders_depend_on_order_and_warn() {
    // 3 under 7; then 7 under 3 finds equal roots and changes nothing.
    let (map, list, warnings) = parse(&[group(3, 7), group(7, 3)], Spec);
    assert_eq!(warnings, ["W0102"]);
    assert_eq!(map.groups().gid(map.group(list[1]).unwrap()), 7);
    let (map, list, _) = parse(&[group(7, 3), group(3, 7)], Spec);
    assert_eq!(map.groups().gid(map.group(list[1]).unwrap()), 3);
    // One number with two leaders: the root of the first goes under the second.
    let (map, list, warnings) = parse(&[group(3, 7), group(3, 9), group(3, 7)], Spec);
    assert_eq!(warnings, ["W0102"]);
    assert_eq!(map.groups().gid(map.group(list[0]).unwrap()), 9);
    // Longer cycle; chains are fine.
    assert_eq!(parse(&[group(1, 2), group(2, 3), group(3, 1)], Spec).2, ["W0102"]);
    assert!(parse(&[group(1, 2), group(2, 3), group(3, 3)], Spec).2.is_empty());
    assert_eq!(parse(&[group(3, 7), group(7, 3)], Strict).2, ["E0102"]);
}

/// The forest against a naive model: the same unions, each root found by following an explicit parent list.
#[test]
fn forest_matches_a_parent_list() {
    arbtest::arbtest(|u| {
        let mut forest = GroupForest::default();
        let mut parent: Vec<usize> = (0..16).collect();
        let groups: Vec<Group> = (0..16).map(|n| forest.intern(n * 3)).collect();
        let up = |parent: &[usize], mut n: usize| {
            while parent[n] != n {
                n = parent[n];
            }
            n
        };
        for _ in 0..u.int_in_range(0..=40)? {
            let (a, b) = (u.int_in_range(0..=15usize)?, u.int_in_range(0..=15usize)?);
            let (ra, rb) = (up(&parent, a), up(&parent, b));
            parent[ra] = rb;
            assert_eq!(forest.union(groups[a], groups[b]), ra != rb);
            let probe = u.int_in_range(0..=15usize)?;
            assert_eq!(forest.find(groups[probe]), groups[up(&parent, probe)]);
        }
        forest.compress();
        for (n, &g) in groups.iter().enumerate() {
            assert_eq!(forest.root(g), groups[up(&parent, n)]);
        }
        Ok(())
    });
}

#[test]
fn dump_names_ops_words_groups_and_pending() {
    let mut follower = group(2, 1);
    follower.push(int(keys::MAX_NUM_OF_RECOMPUTATIONS, 3));
    let (func, ops) = kernel(&[vec![], group(1, 1), follower]);
    let (mut map, mut warnings) = parse_constraints(&func, ops.iter().copied(), Spec);
    let text = "; constraints op1 negf [1, 1, 0, 0, 0, 0, 0] group group0\n\
                ; constraints op2 negf [2, 1, 0, 0, 0, 0, 3] group group0\n\
                ; group0 leader gid 1, gids [1, 2], ops [op1, op2]\n\
                ; pending [op2]\n";
    assert_eq!(map.dump(&func), text);
    // A map that is used again forgets the last function.
    map.parse(&func, ops.iter().copied(), Spec, &mut warnings);
    assert_eq!(map.dump(&func), text);
    map.parse(&func, [], Spec, &mut warnings);
    assert_eq!(map.dump(&func), "; pending []\n");
    for op in ops {
        assert_eq!((map.slot(op), map.is_pending(op)), (ConstraintSlot::default(), false));
        assert_eq!((map.own_group(op), map.leader_group(op)), (None, None));
    }
}
