//! Builds functions op by op: an insertion point, a current source location, and one typed method per operation.
//!
//! In: a [`Function`] and a place in it. Out: ops linked at that place, in call order. The typed methods are
//! generated from the operation rows (`tileas-meta/src/ops.rs`); ops with regions, constants and terminators are
//! written here. What every op of a kind has is an argument. Where the row has optional operands the method gives an
//! [`OpBuilder`] with a setter for each, ended by `build`; [`FunctionBuilder::with`] sets attributes of the op that follows.
//! [`FunctionBuilder::op`] is the general form.
//!
//! Guarantee: operand segments always have the shape the operation table prescribes, and nothing panics on wrong
//! types, on entities of another function or on places that do not exist; the verifier judges the result. Cost: O(operands +
//! attributes) per op.
//!
//! Also here: [`infer_result_types`], the one place that says which result types follow from operands; the parser
//! uses it as well.

use super::attrs::{AttrData, FloatBits, ORIGIN};
use super::entities::{Attr, Block, Op, Sym, Type, Value};
use super::fit;
use super::function::Function;
use super::inline;
use super::layouts::Layout;
use super::opcodes::{Opcode, Rule, keys};
use super::types::{Dim, Scalar, Space, TypeData};
use crate::error::{Code, CodegenError, CodegenResult, Loc};
use smallvec::{SmallVec, smallvec};
use std::marker::PhantomData;

/// Result types that follow from the operands alone; `None` where they must be written out.
///
/// `operands` are all operands, segments one behind the other. An op that never has results gives an empty list.
pub fn infer_result_types(
    func: &mut Function,
    opcode: Opcode,
    operands: &[Value],
) -> Option<SmallVec<[Type; 2]>> {
    let ty = |n: usize| operands.get(n).map(|&v| func.value_type(v));
    let one = match opcode.def().rule {
        Rule::Same | Rule::First => ty(0)?,
        Rule::Compare => {
            let data = match func.type_data(ty(0)?) {
                TypeData::Scalar(_) => TypeData::Scalar(Scalar::I1),
                TypeData::Tile { dims, space, layout, .. } => {
                    TypeData::Tile { dims: dims.clone(), elem: Scalar::I1, space: *space, layout: *layout }
                }
                _ => return None,
            };
            func.intern_type(data)
        }
        Rule::Select => ty(1)?,
        Rule::I32 => func.scalar(Scalar::I32),
        Rule::Dot => {
            let tile = |n: usize| operands.get(n).is_some_and(|&v| func.value_data(v).is_tile());
            let bool_at = |n: usize| {
                operands.get(n).is_some_and(|&v| *func.value_data(v) == TypeData::Scalar(Scalar::I1))
            };
            // Value form has no stage operands: three tiles, then at most the `accumulate` flag.
            let value_form =
                tile(0) && tile(1) && tile(2) && (operands.len() == 3 || operands.len() == 4 && bool_at(3));
            if value_form { ty(2)? } else { func.intern_type(TypeData::AsyncToken) }
        }
        Rule::None | Rule::Convert => return None,
        Rule::Custom => match opcode {
            Opcode::TiledStore
            | Opcode::Scatter
            | Opcode::Yield
            | Opcode::Break
            | Opcode::Continue
            | Opcode::ExitIf
            | Opcode::Return
            | Opcode::AsyncPipelineYield
            | Opcode::AsyncPipelineAgentSwitch => return Some(SmallVec::new()),
            Opcode::AtomicRmw => ty(0)?,
            Opcode::AtomicCas => ty(1)?,
            Opcode::For => return Some(operands.iter().skip(3).map(|&v| func.value_type(v)).collect()),
            // The owned token has the type of the pipeline end it was obtained from.
            Opcode::AsyncPipelineProducerAcquire
            | Opcode::AsyncPipelineConsumerWait
            | Opcode::AsyncPipelineConsumerRelease => ty(0)?,
            Opcode::AsyncPipelineCreateIterator => match *func.type_data(ty(0)?) {
                TypeData::PipeProducer(n) | TypeData::PipeConsumer(n) => {
                    func.intern_type(TypeData::PipeIter(n))
                }
                _ => return None,
            },
            Opcode::AsyncPipelineCreatePipeline => {
                let slots = *func.type_data(ty(0)?).dims()?.first()?;
                let producer = func.intern_type(TypeData::PipeProducer(slots));
                let consumer = func.intern_type(TypeData::PipeConsumer(slots));
                return Some(smallvec![producer, consumer]);
            }
            Opcode::AsyncTiledTmaLoad if operands.iter().any(|&v| func.value_data(v).is_tile()) => {
                func.intern_type(TypeData::AsyncToken)
            }
            _ => return None,
        },
    };
    Some(smallvec![one])
}

/// A number a [`FunctionBuilder::constant`] can be made from.
pub trait ConstantValue {
    /// The attribute, before it is adapted to the element type.
    fn attr(self) -> AttrData;
}

impl ConstantValue for f64 {
    fn attr(self) -> AttrData {
        AttrData::Float(FloatBits::new(self), None)
    }
}

impl ConstantValue for f32 {
    fn attr(self) -> AttrData {
        f64::from(self).attr()
    }
}

impl ConstantValue for i64 {
    fn attr(self) -> AttrData {
        AttrData::Int(self, None)
    }
}

impl ConstantValue for i32 {
    fn attr(self) -> AttrData {
        AttrData::Int(i64::from(self), None)
    }
}

/// Where the next op goes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum InsertPoint {
    /// Behind the last op of a block.
    End(Block),
    /// Directly before an op.
    Before(Op),
}

/// One region of an `agent_switch`, for [`FunctionBuilder::agent_switch`].
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Agent {
    /// Warps it runs on.
    pub num_warps: u32,
    /// First of them.
    pub warp_id: u32,
    /// Lanes that run: [`keys::ALL`] or [`keys::ELECT`].
    pub lanes: Sym,
    /// Registers per thread to ask for; 0 leaves the entry's number.
    pub max_regs: u32,
}

/// An opened `loop`, see [`FunctionBuilder::begin_loop`].
#[derive(Clone, Debug)]
#[must_use = "an opened loop must be closed with `end_loop`"]
pub struct OpenLoop {
    /// The loop.
    pub op: Op,
    /// Iteration arguments.
    pub args: SmallVec<[Value; 4]>,
    outer: InsertPoint,
}

/// An opened `for`, see [`FunctionBuilder::begin_for`].
#[derive(Clone, Debug)]
#[must_use = "an opened loop must be closed with `end_for`"]
pub struct OpenFor {
    /// The loop.
    pub op: Op,
    /// Induction variable.
    pub iv: Value,
    /// Iteration arguments.
    pub args: SmallVec<[Value; 4]>,
    outer: InsertPoint,
}

/// Appends ops to a function.
pub struct FunctionBuilder<'a> {
    pub(crate) func: &'a mut Function,
    point: InsertPoint,
    loc: Loc,
    /// The attribute that says where ops come from.
    origin: Option<(Sym, Attr)>,
    /// Attributes of the next op.
    attrs: SmallVec<[(Sym, AttrData); 4]>,
}

impl<'a> FunctionBuilder<'a> {
    /// A builder at the end of the kernel body.
    pub fn new(func: &'a mut Function) -> FunctionBuilder<'a> {
        let point = InsertPoint::End(func.entry());
        FunctionBuilder { func, point, loc: Loc::NONE, origin: None, attrs: SmallVec::new() }
    }

    /// The function under construction.
    pub fn func(&mut self) -> &mut Function {
        self.func
    }

    /// The function under construction, to look at.
    pub fn func_ref(&self) -> &Function {
        self.func
    }

    /// Continues at the end of `block`.
    pub fn at_end(&mut self, block: Block) -> &mut Self {
        self.point = InsertPoint::End(block);
        self
    }

    /// Continues directly before `op`.
    pub fn before(&mut self, op: Op) -> &mut Self {
        self.point = InsertPoint::Before(op);
        self
    }

    /// Where the next op goes.
    pub fn point(&self) -> InsertPoint {
        self.point
    }

    /// Continues at a point asked for earlier.
    pub fn set_point(&mut self, point: InsertPoint) -> &mut Self {
        self.point = point;
        self
    }

    /// Location of the ops that follow.
    pub fn set_loc(&mut self, loc: Loc) -> &mut Self {
        self.loc = loc;
        self
    }

    /// Says what the ops that follow are made from in the front end's own source; errors about them repeat it. Line and column from 1.
    /// In text it is the attribute `loc = "file:line:column"`, which changes nothing in what is compiled but the lines that PTX names with the option `line-info`.
    pub fn set_origin(&mut self, file: &str, line: u32, column: u32) -> &mut Self {
        let key = self.func.intern_symbol(ORIGIN);
        self.origin = Some((key, self.func.intern_attr(AttrData::Str(format!("{file}:{line}:{column}")))));
        self
    }

    /// Location of the ops that follow.
    pub fn loc(&self) -> Loc {
        self.loc
    }

    /// Sets an inherent attribute of the op that is appended next.
    pub fn with(&mut self, key: Sym, data: AttrData) -> &mut Self {
        self.attrs.push((key, data));
        self
    }

    /// Starts an op; it is linked when one of the `finish` methods is called.
    pub fn op(&mut self, opcode: Opcode) -> OpBuilder<'_, 'a> {
        OpBuilder {
            attrs: std::mem::take(&mut self.attrs),
            builder: self,
            opcode,
            operands: SmallVec::new(),
            segments: SmallVec::new(),
            results: SmallVec::new(),
            inferred: false,
            kind: PhantomData,
        }
    }

    fn link(&mut self, op: Op) {
        if let Some((key, origin)) = self.origin {
            self.func.discardable_mut(op).set(key, origin);
        }
        match self.point {
            InsertPoint::End(b) => self.func.append_op(b, op),
            InsertPoint::Before(at) => self.func.insert_before(at, op),
        }
    }

    // ---- types

    /// A scalar type.
    pub fn scalar_type(&mut self, s: Scalar) -> Type {
        self.func.scalar(s)
    }

    /// A tile type without space and layout.
    pub fn tile_type(&mut self, dims: &[u32], elem: Scalar) -> Type {
        self.func.intern_type(TypeData::tile(dims, elem))
    }

    /// A tile type with its place.
    pub fn placed_tile_type(&mut self, dims: &[u32], elem: Scalar, space: Space, layout: Layout) -> Type {
        self.func.intern_type(TypeData::tile(dims, elem).placed(space, layout))
    }

    /// A view of global memory.
    pub fn view_type(&mut self, dims: &[Dim], elem: Scalar) -> Type {
        self.func.intern_type(TypeData::View { space: Space::Gmem, dims: dims.into(), elem })
    }

    /// A pointer type.
    pub fn ptr_type(&mut self, elem: Scalar, space: Space) -> Type {
        self.func.intern_type(TypeData::Ptr { elem, space })
    }

    /// A TMA descriptor type.
    pub fn desc_type(&mut self, dims: &[u32], elem: Scalar) -> Type {
        self.func.intern_type(TypeData::TmaDesc { dims: dims.into(), elem })
    }

    /// The type of asynchronous completion.
    pub fn async_token_type(&mut self) -> Type {
        self.func.intern_type(TypeData::AsyncToken)
    }

    /// The two ends of a pipeline with `slots` slots: producer, consumer.
    pub fn pipe_types(&mut self, slots: u32) -> [Type; 2] {
        [
            self.func.intern_type(TypeData::PipeProducer(slots)),
            self.func.intern_type(TypeData::PipeConsumer(slots)),
        ]
    }

    /// The type of iterators over `slots` slots.
    pub fn iter_type(&mut self, slots: u32) -> Type {
        self.func.intern_type(TypeData::PipeIter(slots))
    }

    // ---- values

    /// Adds a kernel parameter.
    pub fn param(&mut self, ty: Type) -> Value {
        let entry = self.func.entry();
        self.func.add_block_param(entry, ty)
    }

    /// Adds a named kernel parameter.
    pub fn named_param(&mut self, name: &str, ty: Type) -> Value {
        let v = self.param(ty);
        self.name(v, name)
    }

    /// Names a value; gives it back.
    pub fn name(&mut self, v: Value, name: &str) -> Value {
        self.func.set_value_name(v, name);
        v
    }

    // ---- ops with bodies, constants, terminators

    /// Appends `constant`: a number of a scalar or tile type. Integers given for a float type become floats.
    pub fn constant(&mut self, value: impl ConstantValue, ty: Type) -> Value {
        let float = self.func.type_data(ty).elem().is_some_and(Scalar::is_float);
        let attr = match value.attr() {
            AttrData::Int(i, _) if float => AttrData::Float(FloatBits::new(i as f64), None),
            other => other,
        };
        self.op(Opcode::Constant).attr(keys::VALUE, attr).results(&[ty]).finish_one()
    }

    /// Appends an `i32` constant.
    pub fn const_i32(&mut self, value: i32) -> Value {
        let ty = self.scalar_type(Scalar::I32);
        self.constant(value, ty)
    }

    /// Opens a `for`; ops go into its body until [`FunctionBuilder::end_for`].
    pub fn begin_for(&mut self, lower: Value, upper: Value, step: Value, inits: &[Value]) -> OpenFor {
        let outer = self.point;
        let op = self
            .op(Opcode::For)
            .operand(lower)
            .operand(upper)
            .operand(step)
            .operands(inits)
            .inferred()
            .finish();
        let iv_ty = self.func.value_type(lower);
        let body = self.func.add_region(op);
        let iv = self.func.add_block_param(body, iv_ty);
        let args = inits
            .iter()
            .map(|&init| {
                let ty = self.func.value_type(init);
                self.func.add_block_param(body, ty)
            })
            .collect();
        self.at_end(body);
        OpenFor { op, iv, args, outer }
    }

    /// Closes a `for` with the values of the next iteration; gives its results.
    pub fn end_for(&mut self, open: OpenFor, yields: &[Value]) -> Vec<Value> {
        self.op(Opcode::Yield).operands(yields).finish();
        self.point = open.outer;
        if !self.func.has_op(open.op) {
            self.func.misused(Code::E0228, self.loc, format!("{} is no loop of this function", open.op));
            return Vec::new();
        }
        self.func.results(open.op).to_vec()
    }

    /// Appends a `for`. The closure gets the induction variable and the iteration arguments, builds the body and
    /// returns the values of the next iteration. Gives the loop's results.
    pub fn for_loop(
        &mut self,
        lower: Value,
        upper: Value,
        step: Value,
        inits: &[Value],
        body: impl FnOnce(&mut Self, Value, &[Value]) -> Vec<Value>,
    ) -> Vec<Value> {
        let open = self.begin_for(lower, upper, step, inits);
        let yields = body(self, open.iv, &open.args);
        self.end_for(open, &yields)
    }

    /// Opens a `loop`, which runs until a [`FunctionBuilder::end_break`]; ops go into its body until
    /// [`FunctionBuilder::end_loop`]. What a `break` passes on has the types of the results.
    pub fn begin_loop(&mut self, inits: &[Value], result_types: &[Type]) -> OpenLoop {
        let outer = self.point;
        let op = self.op(Opcode::Loop).operands(inits).results(result_types).finish();
        let body = self.func.add_region(op);
        let args = inits
            .iter()
            .map(|&init| {
                let ty = self.func.value_type(init);
                self.func.add_block_param(body, ty)
            })
            .collect();
        self.at_end(body);
        OpenLoop { op, args, outer }
    }

    /// Closes a `loop` with the values of the next iteration; gives its results.
    pub fn end_loop(&mut self, open: OpenLoop, next: &[Value]) -> Vec<Value> {
        self.end_continue(next);
        self.point = open.outer;
        if !self.func.has_op(open.op) {
            self.func.misused(Code::E0228, self.loc, format!("{} is no loop of this function", open.op));
            return Vec::new();
        }
        self.func.results(open.op).to_vec()
    }

    /// Opens an `if` whose arms are to be built one after the other, and may leave the loop or the kernel
    /// ([`FunctionBuilder::end_break`], [`FunctionBuilder::end_continue`], [`FunctionBuilder::end_return`]). Gives the
    /// op and the blocks of its arms; each needs a terminator, and [`FunctionBuilder::at_end`] goes there.
    pub fn begin_if(&mut self, condition: Value, result_types: &[Type]) -> (Op, [Block; 2]) {
        let op = self.op(Opcode::If).operand(condition).results(result_types).finish();
        let arms = [self.func.add_region(op), self.func.add_region(op)];
        (op, arms)
    }

    /// Ends an arm of an `if` with what it yields.
    pub fn end_arm(&mut self, yields: &[Value]) {
        self.op(Opcode::Yield).operands(yields).finish();
    }

    /// Ends a block with a `break`: the values are the results of the innermost `loop`.
    pub fn end_break(&mut self, values: &[Value]) {
        self.op(Opcode::Break).operands(values).finish();
    }

    /// Ends a block with a `continue`: the values begin the next iteration of the innermost loop.
    pub fn end_continue(&mut self, values: &[Value]) {
        self.op(Opcode::Continue).operands(values).finish();
    }

    /// Ends a block with a `return`.
    pub fn end_return(&mut self) {
        self.op(Opcode::Return).finish();
    }

    /// Ends a function with what it gives its callers; see [`FunctionBuilder::call`].
    pub fn end_func(&mut self, values: &[Value]) {
        self.op(Opcode::Yield).operands(values).finish();
    }

    /// Appends the body of a function that ends in [`FunctionBuilder::end_func`], with values for its parameters; what it gives. A
    /// function has no code of its own: it is written out at each call.
    ///
    /// # Errors
    /// `E0011` for a function that ends otherwise, and for values of other number or types than its parameters have.
    pub fn call(&mut self, function: &Function, args: &[Value]) -> CodegenResult<SmallVec<[Value; 2]>> {
        let wrong = |text: String| {
            Err(CodegenError::new(Code::E0011, self.loc, format!("`@{}` {text}", function.name)))
        };
        if inline::yielded(function).is_none() {
            return wrong("does not end with the values that it gives (`end_func`)".into());
        }
        let params = function.params();
        if params.len() != args.len() {
            return wrong(format!("takes {} values, but got {}", params.len(), args.len()));
        }
        for (n, (&param, &arg)) in params.iter().zip(args).enumerate() {
            let (want, have) = (function.value_data(param), self.func.value_data(arg));
            if want != have {
                return wrong(format!("takes {want} as value {}, but got {have}", n + 1));
            }
        }
        let point = self.point;
        Ok(inline::inline(self.func, function, args, |into, op| match point {
            InsertPoint::End(b) => into.append_op(b, op),
            InsertPoint::Before(at) => into.insert_before(at, op),
        }))
    }

    /// Appends an `if`; each closure builds one arm and returns what it yields. Gives the results.
    pub fn if_else(
        &mut self,
        condition: Value,
        result_types: &[Type],
        then: impl FnOnce(&mut Self) -> Vec<Value>,
        otherwise: impl FnOnce(&mut Self) -> Vec<Value>,
    ) -> Vec<Value> {
        let outer = self.point;
        let op = self.op(Opcode::If).operand(condition).results(result_types).finish();
        let then_block = self.func.add_region(op);
        let else_block = self.func.add_region(op);
        self.at_end(then_block);
        let yields = then(self);
        self.op(Opcode::Yield).operands(&yields).finish();
        self.at_end(else_block);
        let yields = otherwise(self);
        self.op(Opcode::Yield).operands(&yields).finish();
        self.point = outer;
        self.func.results(op).to_vec()
    }

    /// Appends an `agent_switch`; the closure builds the region of agent number `n`, its terminator excepted.
    pub fn agent_switch(&mut self, agents: &[Agent], mut body: impl FnMut(&mut Self, usize)) -> Op {
        let outer = self.point;
        let column = |f: fn(&Agent) -> u32| agents.iter().map(|a| i64::from(f(a))).collect::<Vec<_>>();
        let lanes = agents.iter().map(|a| self.func.intern_attr(AttrData::Name(a.lanes))).collect();
        let op = self
            .op(Opcode::AsyncPipelineAgentSwitch)
            .ints(keys::NUM_WARPS, &column(|a| a.num_warps))
            .ints(keys::WARP_ID, &column(|a| a.warp_id))
            .attr(keys::LANES, AttrData::Array(lanes))
            .ints(keys::MAX_REGS, &column(|a| a.max_regs))
            .finish();
        for n in 0..agents.len() {
            let block = self.func.add_region(op);
            self.at_end(block);
            body(self, n);
            self.op(Opcode::AsyncPipelineYield).finish();
        }
        self.point = outer;
        op
    }

    /// Appends `return`.
    pub fn ret(&mut self) -> Op {
        self.op(Opcode::Return).finish()
    }
}

/// One op in the making: operand segments in the order of the table, attributes and results in any order. `K` names the row
/// whose optional operands can be set.
#[must_use = "the op is made by one of the `finish` methods"]
pub struct OpBuilder<'b, 'a, K = General> {
    builder: &'b mut FunctionBuilder<'a>,
    opcode: Opcode,
    operands: SmallVec<[Value; 8]>,
    segments: SmallVec<[u32; 7]>,
    results: SmallVec<[Type; 2]>,
    attrs: SmallVec<[(Sym, AttrData); 4]>,
    inferred: bool,
    kind: PhantomData<K>,
}

/// The general form of [`OpBuilder`], which knows no row.
pub struct General;

impl<'b, 'a> OpBuilder<'b, 'a> {
    /// The next segment holds one value.
    pub fn operand(self, v: Value) -> Self {
        self.operands(&[v])
    }

    /// The next segment holds one value or none.
    pub fn optional(self, v: Option<Value>) -> Self {
        self.operands(v.as_slice())
    }

    /// The next segment holds these values.
    pub fn operands(mut self, values: &[Value]) -> Self {
        self.operands.extend_from_slice(values);
        self.segments.push(values.len() as u32);
        self
    }

    /// The same op with the setters of its row.
    fn of_kind<K>(self) -> OpBuilder<'b, 'a, K> {
        let OpBuilder { builder, opcode, operands, segments, results, attrs, inferred, .. } = self;
        OpBuilder { builder, opcode, operands, segments, results, attrs, inferred, kind: PhantomData }
    }
}

impl<K> OpBuilder<'_, '_, K> {
    /// Puts values into a segment that was left empty.
    fn fill(mut self, segment: usize, values: &[Value]) -> Self {
        let at: u32 = self.segments[..=segment].iter().sum();
        self.operands.insert_from_slice(at as usize, values);
        self.segments[segment] += values.len() as u32;
        self
    }

    /// Sets an inherent attribute.
    pub fn attr(mut self, key: Sym, data: AttrData) -> Self {
        self.attrs.push((key, data));
        self
    }

    /// Sets an inherent integer.
    pub fn int(self, key: Sym, value: i64) -> Self {
        self.attr(key, AttrData::Int(value, None))
    }

    /// Sets an inherent array of integers.
    pub fn ints(self, key: Sym, values: &[i64]) -> Self {
        let func = &mut *self.builder.func;
        let list = values.iter().map(|&v| func.intern_attr(AttrData::Int(v, None))).collect();
        self.attr(key, AttrData::Array(list))
    }

    /// Sets an inherent bare name.
    pub fn name(self, key: Sym, value: Sym) -> Self {
        self.attr(key, AttrData::Name(value))
    }

    /// Sets an inherent unit attribute.
    pub fn unit(self, key: Sym) -> Self {
        self.attr(key, AttrData::Unit)
    }

    /// Sets an inherent `name(int, …)`; without integers a bare name.
    pub fn call(self, key: Sym, callee: Sym, args: &[i64]) -> Self {
        if args.is_empty() {
            return self.name(key, callee);
        }
        let func = &mut *self.builder.func;
        let list = args.iter().map(|&v| func.intern_attr(AttrData::Int(v, None))).collect();
        self.attr(key, AttrData::Call(callee, list))
    }

    /// Result types, written out.
    pub fn results(mut self, types: &[Type]) -> Self {
        self.results = types.into();
        self.inferred = false;
        self
    }

    /// Result types follow from the operands; see [`infer_result_types`].
    pub fn inferred(mut self) -> Self {
        self.inferred = true;
        self
    }

    /// Takes operands of an element-wise op to the type they agree on; see [`fit`].
    fn fit_operands(&mut self) {
        let rule = self.opcode.def().rule;
        let numbered = self.operands.iter().copied().enumerate();
        let Some(to) = fit::common_extents(self.builder.func, rule, numbered) else { return };
        for (n, operand) in self.operands.iter_mut().enumerate() {
            if let Some((opcode, ty)) = fit::widening(self.builder.func, rule, n, *operand, &to) {
                *operand = self.builder.op(opcode).operand(*operand).results(&[ty]).finish_one();
            }
        }
    }

    /// Makes and links the op with at least `least_results` results.
    fn make(mut self, least_results: usize) -> (Op, SmallVec<[Value; 2]>) {
        if self.inferred {
            self.fit_operands();
        }
        let func = &mut *self.builder.func;
        if self.inferred {
            self.results = infer_result_types(func, self.opcode, &self.operands).unwrap_or_default();
        }
        // Operands that do not allow inference are the verifier's to report; a placeholder keeps the graph whole.
        while self.results.len() < least_results {
            let placeholder = func.scalar(Scalar::I1);
            self.results.push(placeholder);
        }
        while self.segments.len() < self.opcode.def().operands.len() {
            self.segments.push(0);
        }
        let op = func.make_op(self.opcode, &self.operands, &self.segments, &self.results, self.builder.loc);
        for (key, data) in self.attrs {
            func.set_attr(op, key, data);
        }
        let results = func.results(op).into();
        self.builder.link(op);
        (op, results)
    }

    /// Links the op.
    pub fn finish(self) -> Op {
        self.make(0).0
    }

    /// Links the op and gives its first result, if it has one.
    pub fn finish_opt(self) -> Option<Value> {
        self.make(0).1.first().copied()
    }

    /// Links the op and gives its only result.
    pub fn finish_one(self) -> Value {
        self.make(1).1[0]
    }

    /// Links the op and gives its two results.
    pub fn finish_two(self) -> (Value, Value) {
        let results = self.make(2).1;
        (results[0], results[1])
    }
}

include!(concat!(env!("OUT_DIR"), "/builder_gen.rs"));

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::verifier::verify_function;

    /// The kernel of the worked example: C = relu(A · Bᵀ + bias), value form.
    fn gemm() -> (Function, Op) {
        let mut func = Function::new("gemm_bias_relu");
        let mut b = FunctionBuilder::new(&mut func);
        let matrix = b.view_type(&[Dim::Dynamic, Dim::Dynamic], Scalar::F16);
        let vector = b.view_type(&[Dim::Dynamic], Scalar::F16);
        let i32_ty = b.scalar_type(Scalar::I32);
        let (a, bmat) = (b.named_param("a", matrix), b.named_param("b", matrix));
        let (bias, c) = (b.named_param("bias", vector), b.named_param("c", matrix));
        let kt = b.named_param("kt", i32_ty);

        let desc = b.desc_type(&[128, 64], Scalar::F16);
        let operand = b.tile_type(&[128, 64], Scalar::F16);
        let acc_ty = b.tile_type(&[128, 128], Scalar::F32);
        let out_ty = b.tile_type(&[128, 128], Scalar::F16);
        let bias16 = b.tile_type(&[128], Scalar::F16);
        let bias32 = b.tile_type(&[128], Scalar::F32);
        let row = b.tile_type(&[1, 128], Scalar::F32);

        let bm = b.program_id(0);
        let bn = b.program_id(1);
        let da = b.make_tiled_tma_desc(a, &[128, 64], keys::B128, desc);
        let db = b.make_tiled_tma_desc(bmat, &[128, 64], keys::B128, desc);
        let z = b.constant(0.0, acc_ty);
        let bt = b.tiled_load(bias, &[bn], bias16);
        let (zero, one) = (b.const_i32(0), b.const_i32(1));
        let acc = b.for_loop(zero, kt, one, &[z], |b, i, s| {
            let ta = b.async_tiled_tma_load(da, &[bm, i], operand).build();
            let tb = b.async_tiled_tma_load(db, &[bn, i], operand).build();
            let dot = b.async_dot(ta, tb, s[0]).unit(keys::TRANSPOSE_B);
            vec![dot.int(keys::GID, 1).int(keys::LEADER_GID, 1).build()]
        });
        let bf = b.ftof(bt, bias32);
        let b1 = b.reshape(bf, row);
        let bb = b.broadcast(b1, acc_ty);
        let x = b.addf(acc[0], bb);
        let r = b.maxf(x, z);
        let h = b.ftof(r, out_ty);
        let store = b.tiled_store(h, c, &[bm, bn]);
        b.ret();
        (func, store)
    }

    #[test]
    fn worked_gemm_reads_well_and_lands_in_order() {
        let (f, store) = gemm();
        let names: Vec<_> = f.all_ops().iter().map(|&op| f.opcode(op).name()).collect();
        let want = "program_id program_id make_tiled_tma_desc make_tiled_tma_desc constant tiled_load constant \
                    constant for async.tiled_tma_load async.tiled_tma_load async.dot yield ftof reshape broadcast \
                    addf maxf ftof tiled_store return";
        assert_eq!(names.join(" "), want);
        assert_eq!(f.segments(store), [1, 1, 2]);
        let dot = f.all_ops()[11];
        assert_eq!(f.segments(dot), [1, 0, 1, 0, 1, 0, 0]);
        assert_eq!(f.attr_int(dot, keys::LEADER_GID), Some(1));
        assert_eq!(f.op_parent(dot), Some(f.all_ops()[8]));
        assert_eq!(f.value_data(f.result(dot).unwrap()).to_string(), "tile<128x128xf32>");
        assert_eq!(verify_function(&f), []);
    }

    #[test]
    fn open_and_closure_forms_build_the_same_loop() {
        let build = |closure: bool| {
            let mut func = Function::new("k");
            let mut b = FunctionBuilder::new(&mut func);
            let (lo, hi, st) = (b.const_i32(0), b.const_i32(8), b.const_i32(1));
            let sum = if closure {
                b.for_loop(lo, hi, st, &[lo], |b, iv, args| vec![b.addi(iv, args[0])])
            } else {
                let l = b.begin_for(lo, hi, st, &[lo]);
                let n = b.addi(l.iv, l.args[0]);
                b.end_for(l, &[n])
            };
            assert_eq!(sum.len(), 1);
            b.ret();
            let ops = func.all_ops();
            assert_eq!(func.ops().collect::<Vec<_>>(), ops, "two walks");
            ops.iter()
                .map(|&o| (func.opcode(o), func.operands(o).to_vec(), func.results(o).to_vec()))
                .collect::<Vec<_>>()
        };
        assert_eq!(build(true), build(false));
    }

    #[test]
    fn insertion_before_an_op_and_inference() {
        let mut func = Function::new("k");
        let mut b = FunctionBuilder::new(&mut func);
        let t = b.tile_type(&[4, 8], Scalar::F32);
        let x = b.constant(1, t);
        let ret = b.ret();
        b.before(ret);
        let c = b.cmpf(x, x, keys::LT);
        let s = b.select(c, x, x);
        let m = b.with(keys::PROPAGATE_NAN, AttrData::Unit).maxf(x, x);
        assert_eq!(b.func.value_data(c).to_string(), "tile<4x8xi1>");
        assert_eq!(b.func.value_type(s), t);
        assert_eq!(b.func.constant_value(x), Some(1.0));
        assert_eq!(func.last_op(func.entry()), Some(ret));
        let max = func.defining_op(m).unwrap();
        assert!(
            func.attr(max, keys::PROPAGATE_NAN).is_some() && func.attr(ret, keys::PROPAGATE_NAN).is_none()
        );
        assert_eq!(func.all_ops().len(), 5);
    }

    #[test]
    fn operands_of_different_extents_are_spread() {
        let mut func = Function::new("k");
        let mut b = FunctionBuilder::new(&mut func);
        let (f32_ty, i1_ty) = (b.scalar_type(Scalar::F32), b.tile_type(&[4, 1], Scalar::I1));
        let [wide, column, row] = [[4, 8], [4, 1], [1, 8]].map(|d| b.tile_type(&d, Scalar::F32));
        let (x, c, r, s) = (b.param(wide), b.param(column), b.param(row), b.param(f32_ty));
        let mask = b.param(i1_ty);
        let sums = [b.addf(x, s), b.addf(s, x), b.mulf(c, r), b.select(mask, x, s), b.fma(x, c, s)];
        // The attribute is of the op, not of what is put before it.
        let most = b.with(keys::PROPAGATE_NAN, AttrData::Unit).maxf(x, s);
        let (other, both) = (b.tile_type(&[2, 8], Scalar::F32), b.tile_type(&[8], Scalar::F32));
        let (y, z) = (b.param(other), b.param(both));
        b.addf(x, y);
        b.addf(x, z);
        b.ret();
        assert!(sums.iter().all(|&v| func.value_type(v) == wide));
        let made: Vec<_> = func.all_ops().iter().map(|&op| func.opcode(op).name()).collect();
        let want = "splat addf splat addf broadcast broadcast mulf broadcast splat select broadcast splat fma splat maxf";
        assert!(made.join(" ").starts_with(&format!("{want} addf addf return")), "{made:?}");
        assert!(func.attr(func.defining_op(most).unwrap(), keys::PROPAGATE_NAN).is_some());
        // Other ranks, and extents that differ and are not 1, are left to the verifier.
        assert_eq!(verify_function(&func).iter().map(|e| e.code).collect::<Vec<_>>(), [Code::E0212; 2]);
    }

    #[test]
    fn pipelines_and_agents() {
        let mut func = Function::new("k");
        let mut b = FunctionBuilder::new(&mut func);
        let ring =
            b.placed_tile_type(&[4, 128, 64], Scalar::F16, Space::Smem, Layout::from_name("k128").unwrap());
        let buf = b.alloc_tensor(ring);
        let (p, c) = b
            .op(Opcode::AsyncPipelineCreatePipeline)
            .operands(&[buf])
            .int(keys::NUM_STAGES, 4)
            .int(keys::PRODUCER_GROUP_ID, 0)
            .int(keys::CONSUMER_GROUP_ID, 1)
            .call(keys::FULL, keys::TX, &[1, 16384])
            .call(keys::EMPTY, keys::COMMIT, &[1])
            .inferred()
            .finish_two();
        assert_eq!(b.func.value_data(p).to_string(), "pipe_producer<4>");
        let agents = [
            Agent { num_warps: 1, warp_id: 0, lanes: keys::ELECT, max_regs: 0 },
            Agent { num_warps: 4, warp_id: 4, lanes: keys::ALL, max_regs: 0 },
        ];
        let switch = b.agent_switch(&agents, |b, n| {
            if n == 0 {
                let it = b.async_pipeline_create_iterator(p);
                let owned = b.async_pipeline_producer_acquire(p, it);
                b.async_pipeline_producer_commit(owned);
            } else {
                let it = b.async_pipeline_create_iterator(c);
                let owned = b.async_pipeline_consumer_wait(c, it);
                b.async_pipeline_consumer_release(owned).build();
            }
        });
        b.ret();
        assert_eq!(func.regions(switch).len(), 2);
        assert_eq!(func.attr_ints(switch, keys::WARP_ID).unwrap().as_slice(), [0, 4]);
        let first = func.op_block_at(switch, 0).unwrap();
        let iter = func.first_op(first).and_then(|op| func.result(op)).unwrap();
        assert_eq!(func.value_data(iter).to_string(), "pipe_iter<4>");
        assert_eq!(verify_function(&func), []);
    }

    /// A function built by calls is written out at the point, inside of loops too, as text writes it.
    #[test]
    fn functions_are_written_out() {
        let mut half = Function::new("half");
        let mut b = FunctionBuilder::new(&mut half);
        let ty = b.tile_type(&[16, 16], Scalar::F32);
        let x = b.named_param("x", ty);
        let by = b.constant(0.5, ty);
        let r = b.mulf(x, by);
        b.end_func(&[r]);

        let mut func = Function::new("k");
        let mut b = FunctionBuilder::new(&mut func);
        let (ty, count) = (b.tile_type(&[16, 16], Scalar::F32), b.scalar_type(Scalar::I32));
        let n = b.named_param("n", count);
        let start = b.constant(4.0, ty);
        let (zero, one) = (b.const_i32(0), b.const_i32(1));
        let open = b.begin_for(zero, n, one, &[start]);
        let given = b.call(&half, &open.args).expect("fits");
        b.end_for(open, &given);
        let code = |e: CodegenResult<SmallVec<[Value; 2]>>| e.expect_err("refused").code;
        assert_eq!(code(b.call(&half, &[])), Code::E0011);
        assert_eq!(code(b.call(&half, &[n])), Code::E0011);
        assert_eq!(code(b.call(&Function::new("empty"), &[])), Code::E0011);
        b.ret();
        let text = crate::ir::print_function(&func);
        let body = text.lines().skip_while(|l| !l.contains(" = for ")).collect::<Vec<_>>().join("\n");
        assert!(body.contains("mulf %") && body.find("mulf") < body.find("yield"), "{text}");
        assert!(!text.contains("call") && verify_function(&func).is_empty(), "{text}");
    }
}
