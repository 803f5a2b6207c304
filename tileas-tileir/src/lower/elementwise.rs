//! Element-wise operations, one row each: on tiles, on scalars, and in the functions by which tiles are combined.

use super::{Done, Lowering};
use crate::error::{Code, Error};
use crate::module::OpRef;
use smallvec::SmallVec;
use tileas_codegen::ir;
use tileas_codegen::ir::{FunctionBuilder, Opcode as Ir, Scalar, keys};
use tileas_meta::tileir::{Key, Opcode, Ordering, Predicate, Rounding, Signedness};

/// The operation here, if there is one that does the same to each element.
pub(super) fn counterpart(code: Opcode) -> Option<Ir> {
    use Opcode as O;
    Some(match code {
        O::Absf => Ir::Absf,
        O::Absi => Ir::Absi,
        O::Addf => Ir::Addf,
        O::Addi => Ir::Addi,
        O::Andi => Ir::Andi,
        O::Atan2 => Ir::Atan2,
        O::Bitcast => Ir::Bitcast,
        O::Ceil => Ir::Ceil,
        O::Cmpf => Ir::Cmpf,
        O::Cmpi => Ir::Cmpi,
        O::Cos => Ir::Cos,
        O::Cosh => Ir::Cosh,
        O::Divf => Ir::Divf,
        O::Divi => Ir::Divi,
        O::Exp => Ir::Exp,
        O::Exp2 => Ir::Exp2,
        O::Exti => Ir::Exti,
        O::Floor => Ir::Floor,
        O::Fma => Ir::Fma,
        O::Ftof => Ir::Ftof,
        O::Ftoi => Ir::Ftoi,
        O::Itof => Ir::Itof,
        O::Log => Ir::Log,
        O::Log2 => Ir::Log2,
        O::Maxf => Ir::Maxf,
        O::Maxi => Ir::Maxi,
        O::Minf => Ir::Minf,
        O::Mini => Ir::Mini,
        O::Mulf => Ir::Mulf,
        O::Mulhii => Ir::Mulhii,
        O::Muli => Ir::Muli,
        O::Negf => Ir::Negf,
        O::Negi => Ir::Negi,
        O::Ori => Ir::Ori,
        O::Pow => Ir::Pow,
        O::Powi => Ir::Powi,
        O::Remf => Ir::Remf,
        O::Remi => Ir::Remi,
        O::Rsqrt => Ir::Rsqrt,
        O::Select => Ir::Select,
        O::Shli => Ir::Shli,
        O::Shri => Ir::Shri,
        O::Sin => Ir::Sin,
        O::Sinh => Ir::Sinh,
        O::Sqrt => Ir::Sqrt,
        O::Subf => Ir::Subf,
        O::Subi => Ir::Subi,
        O::Tan => Ir::Tan,
        O::Tanh => Ir::Tanh,
        O::Trunci => Ir::Trunci,
        O::Xori => Ir::Xori,
        _ => return None,
    })
}

/// The name of a comparison here.
fn predicate(p: Predicate) -> &'static str {
    match p {
        Predicate::Equal => "eq",
        Predicate::NotEqual => "ne",
        Predicate::LessThan => "lt",
        Predicate::LessThanOrEqual => "le",
        Predicate::GreaterThan => "gt",
        Predicate::GreaterThanOrEqual => "ge",
    }
}

/// Appends the counterpart of an op to whatever is built; `elem` and `shape` are those of the result, whose type is `ty`.
pub(super) fn emit(
    b: &mut FunctionBuilder<'_>,
    op: OpRef<'_>,
    args: &[ir::Value],
    elem: Scalar,
    ty: ir::Type,
) -> Result<ir::Value, Box<Error>> {
    let Some(code) = counterpart(op.opcode()) else {
        return Err(op.error(Code::E1641, format!("`{}` is not supported here", op.opcode())));
    };
    let rounding = op.get::<Rounding>(Key::Rounding).map(Rounding::name);
    let integer = elem.is_int();
    let rounding = match (op.opcode(), rounding) {
        (Opcode::Ftof | Opcode::Ftoi | Opcode::Itof, _) => None,
        (_, Some("nearest_even") | None) => None,
        (Opcode::Divi, Some("zero")) => None,
        (Opcode::Exp | Opcode::Tanh, Some("full")) => None,
        (_, other) => other,
    };
    if let Some(name) = rounding.filter(|_| !integer && elem != Scalar::F32) {
        return Err(op.error(Code::E1642, format!("rounding `{name}` is for f32, not {}", elem.name())));
    }
    let mut names: SmallVec<[(ir::Sym, ir::Sym); 2]> = SmallVec::new();
    if let Some(name) = rounding {
        names.push((keys::ROUNDING, b.func().intern_symbol(name)));
    }
    if let Some(p) = op.get::<Predicate>(Key::Pred) {
        names.push((keys::PREDICATE, b.func().intern_symbol(predicate(p))));
    }
    let unsigned = op.get::<Signedness>(Key::Signedness) == Some(Signedness::Unsigned);
    let units = [
        (keys::UNSIGNED, unsigned),
        (keys::FTZ, op.has(Key::FlushToZero) && elem == Scalar::F32),
        (keys::PROPAGATE_NAN, op.has(Key::PropagateNan)),
        (keys::UNORDERED, op.get::<Ordering>(Key::Ordering) == Some(Ordering::Unordered)),
    ];
    // `ne` is true with a NaN in any case, and so is what is unordered.
    let not_equal = op.get::<Predicate>(Key::Pred) == Some(Predicate::NotEqual);
    if op.opcode() == Opcode::Cmpf && not_equal && !units[3].1 {
        return ordered_unequal(b, args, ty, op);
    }
    let mut made = b.op(code);
    for &v in args {
        made = made.operand(v);
    }
    for (key, name) in names {
        made = made.name(key, name);
    }
    for (key, _) in units.into_iter().filter(|u| u.1) {
        made = made.unit(key);
    }
    Ok(made.results(&[ty]).finish_one())
}

/// Whether two floats are numbers that differ: less or greater.
fn ordered_unequal(
    b: &mut FunctionBuilder<'_>,
    args: &[ir::Value],
    ty: ir::Type,
    op: OpRef<'_>,
) -> Result<ir::Value, Box<Error>> {
    let &[x, y] = args else { return Err(op.error(Code::E1642, "two operands are expected")) };
    let mut compare = |name| {
        let name = b.func().intern_symbol(name);
        b.op(Ir::Cmpf).operand(x).operand(y).name(keys::PREDICATE, name).results(&[ty]).finish_one()
    };
    let (less, greater) = (compare("lt"), compare("gt"));
    Ok(b.op(Ir::Ori).operand(less).operand(greater).results(&[ty]).finish_one())
}

impl<'m> Lowering<'m, '_> {
    /// An op that does the same to each element.
    pub(super) fn elementwise(&mut self, op: OpRef<'m>) -> Done {
        let Some(result) = op.result(0) else { return Ok(()) };
        let mut args: SmallVec<[ir::Value; 3]> = SmallVec::new();
        for &v in op.operands() {
            args.push(self.value(op, v)?);
        }
        let (elem, shape) = self.tile_type(op, result)?;
        if let Some(v) = self.of_truths(op, &args, elem) {
            self.set(op, v);
            return Ok(());
        }
        // What is the same for all elements is computed once.
        let same: Option<SmallVec<[ir::Value; 3]>> =
            if shape.is_empty() { None } else { args.iter().map(|&v| self.splat_of(v)).collect() };
        if let Some(scalars) = same {
            let ty = self.b.scalar_type(elem);
            let v = emit(&mut self.b, op, &scalars, elem, ty)?;
            self.note_divisor(op.opcode(), &scalars, v);
            let v = self.splat(v, &shape);
            self.set(op, v);
            return Ok(());
        }
        if op.opcode() == Opcode::Muli && !shape.is_empty() {
            for (x, y) in [(args[0], args[1]), (args[1], args[0])] {
                if self.splat_of(y).and_then(|y| self.known_integer(y)) == Some(1) {
                    self.set(op, x);
                    return Ok(());
                }
            }
        }
        // Extended alike, numbers compare as they did before.
        if op.opcode() == Opcode::Cmpi {
            let narrow: SmallVec<[ir::Value; 3]> = args.iter().map(|&v| self.unextended(v)).collect();
            let is_narrow = |v: &ir::Value| self.b.func_ref().value_data(*v).elem() == Some(Scalar::I32);
            if narrow != args && narrow.iter().all(is_narrow) {
                args = narrow;
            }
        }
        // Elements that nobody stores may be padding: what they are divided by is then not zero.
        if matches!(op.opcode(), Opcode::Divi | Opcode::Remi) && !shape.is_empty() && args.len() == 2 {
            args[1] = self.nonzero(args[1], elem, &shape);
        }
        // Without dimensions: a tile if one of the operands is what is left of a tile.
        let tile = args.iter().any(|&v| self.b.func().value_data(v).is_tile());
        if tile && shape.is_empty() {
            args.iter_mut().for_each(|v| *v = self.as_tile(*v));
        }
        let ty = match tile {
            true => self.b.tile_type(&shape, elem),
            false => self.b.scalar_type(elem),
        };
        let v = emit(&mut self.b, op, &args, elem, ty)?;
        self.note_divisor(op.opcode(), &args, v);
        self.set(op, v);
        Ok(())
    }

    /// Arithmetic on truth values that is none: they are compared as numbers, and are their own magnitude; a float is true unless it is
    /// zero, which is what `tileiras` makes of it (a conversion to an integer of one bit would be undefined for most).
    fn of_truths(&mut self, op: OpRef<'m>, args: &[ir::Value], elem: Scalar) -> Option<ir::Value> {
        let truth = |this: &Self, v: ir::Value| this.b.func_ref().value_data(v).elem() == Some(Scalar::I1);
        let unsigned = op.get::<Signedness>(Key::Signedness) == Some(Signedness::Unsigned);
        let of = |this: &mut Self, v: ir::Value, elem| {
            let data = this.b.func().value_data(v);
            match data.dims().filter(|_| data.is_tile()).map(super::Shape::from_slice) {
                Some(shape) => this.b.tile_type(&shape, elem),
                None => this.b.scalar_type(elem),
            }
        };
        match op.opcode() {
            Opcode::Absi if truth(self, args[0]) => Some(args[0]),
            Opcode::Cmpi
                if truth(self, args[0])
                    && !matches!(op.get(Key::Pred), Some(Predicate::Equal | Predicate::NotEqual)) =>
            {
                let mut wide: SmallVec<[ir::Value; 2]> = SmallVec::new();
                for &v in args {
                    let ty = of(self, v, Scalar::I32);
                    let made = self.b.op(Ir::Exti).operand(v);
                    let made = if unsigned { made.unit(keys::UNSIGNED) } else { made };
                    wide.push(made.results(&[ty]).finish_one());
                }
                let (a, b) = (*wide.first()?, *wide.get(1)?);
                let (ty, name) = (of(self, args[0], Scalar::I1), predicate(op.get(Key::Pred)?));
                let name = self.b.func().intern_symbol(name);
                let made = self.b.op(Ir::Cmpi).operand(a).operand(b).name(keys::PREDICATE, name);
                Some(made.results(&[ty]).finish_one())
            }
            Opcode::Ftoi if elem == Scalar::I1 => {
                let (ty, single) = (of(self, args[0], Scalar::I1), of(self, args[0], Scalar::F32));
                let small = self.b.func().value_data(args[0]).elem().is_some_and(|e| e.bits() < 16);
                let x = match small {
                    true => self.b.op(Ir::Ftof).operand(args[0]).results(&[single]).finish_one(),
                    false => args[0],
                };
                let kind = self.b.func().value_type(x);
                let zero = self.number(ir::AttrData::Float(ir::FloatBits::new(0.0), None), kind);
                let name = self.b.func().intern_symbol("ne");
                let made = self.b.op(Ir::Cmpf).operand(x).operand(zero).name(keys::PREDICATE, name);
                Some(made.results(&[ty]).finish_one())
            }
            _ => None,
        }
    }

    /// A tile with ones for zeros.
    fn nonzero(&mut self, v: ir::Value, elem: Scalar, shape: &[u32]) -> ir::Value {
        if self.splat_of(v).is_some() {
            return v;
        }
        let (zero, one) = (self.integer(0, elem), self.integer(1, elem));
        let (zero, one) = (self.splat(zero, shape), self.splat(one, shape));
        let (truth, ty) = (self.b.tile_type(shape, Scalar::I1), self.b.tile_type(shape, elem));
        let equal = self.b.func().intern_symbol("eq");
        let none = self.b.op(Ir::Cmpi).operand(v).operand(zero).name(keys::PREDICATE, equal);
        let none = none.results(&[truth]).finish_one();
        self.b.op(Ir::Select).operand(none).operand(one).operand(v).results(&[ty]).finish_one()
    }

    /// What divides the result of integer arithmetic.
    fn note_divisor(&mut self, code: Opcode, args: &[ir::Value], result: ir::Value) {
        let of = |n: usize| args.get(n).and_then(|v| self.divisors.get(v)).copied().unwrap_or(1);
        let d = match code {
            Opcode::Muli => of(0).saturating_mul(of(1)).min(1 << 40),
            Opcode::Addi | Opcode::Subi => of(0).min(of(1)),
            Opcode::Exti | Opcode::Trunci => of(0),
            _ => 1,
        };
        if d > 1 {
            self.divisors.insert(result, d);
        }
    }

    pub(super) fn select(&mut self, op: OpRef<'m>) -> Done {
        use super::Known;
        use tileas_meta::tileir::Seg;
        let (Some(yes), Some(no)) = (op.operand(Seg::IfTrue), op.operand(Seg::IfFalse)) else {
            return Ok(());
        };
        let (Known::Pointer(a), Known::Pointer(b)) = (self.known[yes].clone(), self.known[no].clone()) else {
            return self.elementwise(op);
        };
        self.choose(op, &a, &b)
    }
}
