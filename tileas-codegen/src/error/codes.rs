//! The registry of stable codes.
//!
//! Ranges: `E00` text, `E01`/`W01` constraints, `E02` IR verifier, `E03` scheduling problem and its JSON,
//! `E04` schedule generation, `E05` agents and placement, `E06` buffers, `E07` materialisation and its
//! verifier, `E08` lowering, `E09` thread-level IR and PTX, `E10` options, limits and the driver.

use std::fmt;

/// A stable error or warning code.
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Code(&'static str);

impl Code {
    /// The code as printed: `E0203`.
    pub fn as_str(self) -> &'static str {
        self.0
    }

    /// Whether this is a warning (`W…`).
    pub fn is_warning(self) -> bool {
        self.0.starts_with('W')
    }

    /// All codes with their one-line meaning, in declaration order.
    pub fn all() -> &'static [(Code, &'static str)] {
        ALL
    }
}

impl From<tileas_schedule::Code> for Code {
    fn from(code: tileas_schedule::Code) -> Code {
        Code(code.as_str())
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

macro_rules! codes {
    ($($code:ident = $meaning:literal;)*) => {
        impl Code {
            $(#[doc = $meaning] pub const $code: Code = Code(stringify!($code));)*
        }
        static ALL: &[(Code, &str)] = &[$((Code::$code, $meaning),)*];
    };
}

codes! {
    E0001 = "unexpected character";
    E0002 = "unexpected token";
    E0003 = "malformed number or string";
    E0004 = "unknown operation";
    E0005 = "unknown or duplicate value name";
    E0006 = "unknown or malformed type";
    E0007 = "result type missing and not inferable, or result names and types of different number";
    E0008 = "nesting deeper than the limit";
    E0009 = "duplicate attribute";
    E0010 = "input larger than the limit";
    E0011 = "function unknown, or called or ended with other values than it has";
    // -- E01, W01: scheduling constraints
    E0102 = "leaders of a group disagree (strict mode)";
    E0103 = "inherent and discardable constraint differ (strict mode)";
    E0104 = "unit constraint key with a value (strict mode)";
    E0105 = "constraint integer outside 32 bits (strict mode)";
    E0106 = "integer constraint key without an integer (strict mode)";
    E0107 = "group number in the reserved range (strict mode)";
    W0101 = "leader_gid absent although gid is not 0: the op joins group 0";
    W0102 = "leaders of a group disagree";
    W0103 = "inherent and discardable constraint differ: the inherent one holds";
    W0104 = "unit constraint key with a value: presence counts";
    W0105 = "constraint integer narrowed to 32 bits";
    W0106 = "integer constraint key without an integer: ignored";
    W0107 = "group number in the reserved range: ignored";
    // -- E02: IR verifier
    E0201 = "wrong number of operands";
    E0202 = "operand of the wrong kind of type";
    E0203 = "wrong number of results";
    E0204 = "required attribute missing";
    E0205 = "attribute with a value of the wrong kind or out of range";
    E0206 = "unknown inherent attribute";
    E0207 = "wrong number of regions";
    E0208 = "region without terminator, or terminator in the middle";
    E0209 = "terminator that does not belong to its region";
    E0210 = "value used where it is not defined";
    E0211 = "illegal tile dimensions";
    E0212 = "types or element types disagree";
    E0213 = "result or part of a wrong shape";
    E0214 = "matrix multiply with shapes that do not fit";
    E0215 = "matrix multiply with illegal element types";
    E0216 = "wrong number of coordinates or stage indices";
    E0217 = "illegal TMA box or descriptor";
    E0218 = "value form and destination form mixed";
    E0219 = "loop whose bounds, arguments, yields or results disagree";
    E0220 = "branch whose arms and results disagree";
    E0221 = "tile in a space the operation cannot reach";
    E0222 = "layout that does not fit space, extents or element type";
    E0223 = "pipeline slot counts or token types disagree";
    E0224 = "agents whose lists, warps or registers are inconsistent";
    E0225 = "kernel that does not end in return";
    E0226 = "kernel name defined twice";
    E0227 = "memory semantics that this operation cannot have";
    E0228 = "value, type, attribute or op of another function, or of none";
    // -- E03: scheduling problem and JSON
    E0301 = "malformed schedule document: syntax, type or missing field";
    E0302 = "unknown schema name";
    E0303 = "unknown slot, pool or op";
    E0304 = "duplicate slot, pool or op id";
    E0305 = "one op demands more of a slot or pool than its capacity";
    E0306 = "dependence cycle of distance zero";
    E0307 = "number out of range";
    E0308 = "more ops or edges than the limit";
    // -- E04: schedule generation
    E0401 = "failed to find a schedule";
    E0402 = "schedule longer than the largest cycle number";
    E0403 = "failed to legalize schedule: an op without a start, or one that starts at different cycles";
    E0404 = "failed to legalize schedule: a dependence is not kept";
    E0405 = "failed to legalize schedule: the order is not one";
    E0406 = "failed to legalize schedule: group or max_depth is not kept";
    E0407 = "failed to legalize schedule: an exclusion is not recorded";
    E0408 = "failed to legalize schedule: a channel has fewer slots than it needs";
    E0409 = "exact mode asked for in a build without it";
    E0410 = "schedule of exact mode that the checker refuses";
    W0401 = "unknown scheduler name";
    W0402 = "constraint the serial generator does not consult";
    W0403 = "serial schedule used as fallback";
    W0404 = "constraint refinement ended by its round limit";
    W0405 = "step budget of the schedule search spent";
    W0406 = "loops run one iteration after the other: pipelined their agents would wait for each other";
    W0407 = "constraint without effect";
    // -- E05: agents and placement
    W0501 = "clusters asked for in a kernel whose CTAs have no load in common";
    E0501 = "the kernel is already placed or materialised";
    E0502 = "the target has no matrix instruction for a dot";
    E0503 = "a shared-memory tile is asked for in two different layouts";
    E0504 = "the swizzle of a descriptor does not fit the tile";
    E0506 = "no register layout holds a tile";
    E0507 = "a register chain needs more registers than a thread has and cannot be sliced";
    E0508 = "the agents of a kernel need more threads or registers than the target has, or cannot be had as an option demands";
    E0509 = "the agent plan does not belong to the kernel";
    // -- E06: buffers
    E0601 = "a tile is read whose place holds another by then";
    E0602 = "shared memory does not suffice";
    E0603 = "tensor memory does not suffice";
    E0604 = "tied tiles differ in space or size";
    E0605 = "a register value or scalar crosses agents";
    E0606 = "an asynchronous engine cannot signal this hand-off";
    E0607 = "one engine reads as operand what it wrote";
    E0608 = "an unplaced or malformed operation reached buffer assignment";
    E0609 = "bytes of a transaction differ between the paths of a region";
    // -- E07: materialisation and its verifier
    E0701 = "materialisation of a construct that it does not support";
    E0702 = "deadlock: channel cycle with distance sum not above 0";
    E0703 = "acquire, commit, wait and release do not match";
    E0704 = "barrier count or transaction bytes differ from the arrivals";
    E0705 = "stage count, iterator type and buffer slots differ";
    E0706 = "conflicting accesses to a slot are not ordered";
    E0707 = "a channel has no reverse path within its depth";
    E0708 = "malformed materialised function";
    E0709 = "the emitted order differs from the schedule";
    E0710 = "prologue, steady loop and epilogue do not match";
    E0711 = "conflicting accesses to a view are not ordered";
    E0712 = "a product is read, or what it reads is given up, before it is waited for";
    // -- E06: buffers
    // -- E07: materialisation
    // -- E07: materialisation
    // -- E07: materialisation
    // -- E08: lowering
    E0801 = "no PTX target for this processor";
    E0802 = "operation or form has no lowering on this target";
    E0803 = "materialised IR is malformed";
    E0804 = "kernel parameter or view cannot be passed";
    E0890 = "unknown target: triple or processor not supported, or another one than the target given";
    E0891 = "machine model whose tables do not fit together";
    // -- E09: thread-level IR and PTX
    E0901 = "instruction with the wrong number of operands";
    E0902 = "operand of the wrong class or type";
    E0903 = "immediate or offset out of range";
    E0904 = "branch to a block that is not placed, or a block placed twice";
    E0905 = "register read but never written";
    E0906 = "block without terminator, or branch in the middle of a block";
    E0907 = "instruction form that the target lacks";
    E0908 = "instruction form that needs a later PTX version than allowed";
    E0911 = "name that is not a PTX identifier or declared twice";
    E0912 = "contradictory or out-of-range launch directives";
    E0913 = "constant address outside of what it points into";
    E0920 = "thread-level text: unexpected text";
    E0921 = "thread-level text: unknown instruction, or operands that fit none of its forms";
    E0922 = "thread-level text: unknown target, variable or parameter";
    E0923 = "thread-level text: malformed number, or one out of range";
    E0924 = "thread-level text: block placed twice, or register with two types";
    W0901 = "convergent instruction under a guard";
    W0902 = "register that may be read before it is written";
    W0903 = "agent that needs more registers than its budget";
    W0904 = "agent over its budget for which no spills could be planned";
    // -- E10: options, limits, driver
    E1001 = "region with more operations than the limit";
    E1002 = "unknown option";
    E1003 = "option with a value that is not allowed";
    E1004 = "stage that this input cannot be taken to";
    E1005 = "unknown pass, or malformed list of passes";
    E1006 = "pass without what it needs";
    E1007 = "passes in an order that is not allowed";
    E1010 = "kernel with more instructions than the limit";
    E1012 = "loop or kernel that too many branches leave";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scheduler_has_no_code_of_its_own() {
        for &(code, meaning) in tileas_schedule::Code::ALL {
            let here = Code::all().iter().find(|c| c.0 == code.into());
            assert_eq!(here.map(|c| c.1), Some(meaning), "{code}");
        }
    }

    #[test]
    fn codes_are_unique_and_well_formed() {
        let mut seen = std::collections::BTreeSet::new();
        for (code, meaning) in Code::all() {
            let s = code.as_str();
            assert!(seen.insert(s), "{s} twice");
            assert!(s.len() == 5 && (s.starts_with('E') || s.starts_with('W')), "{s}");
            assert!(s[1..].bytes().all(|b| b.is_ascii_digit()), "{s}");
            assert!(!meaning.is_empty());
        }
    }
}
