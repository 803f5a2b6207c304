//! A kernel as a tree of statements that can be printed, and from which parts can be taken.
//!
//! Out: the text of a kernel, the case that launches it, and both as a filetest or a command line. A statement is a
//! template with a place for each operand, so that nothing here knows operations; types are written out everywhere.
//! Guarantee: printing is a function of the tree.

use std::fmt::Write;

/// A value: its number in `Kernel::types`.
pub type Id = usize;

/// An element type.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Elem {
    /// `i1`.
    I1,
    /// `i4`.
    I4,
    /// `e2m1`.
    E2m1,
    /// `i8`.
    I8,
    /// `i16`.
    I16,
    /// `i32`.
    I32,
    /// `i64`.
    I64,
    /// `e4m3`.
    E4m3,
    /// `e5m2`.
    E5m2,
    /// `f16`.
    F16,
    /// `bf16`.
    Bf16,
    /// `f32`.
    F32,
    /// `f64`.
    F64,
}

impl Elem {
    /// As the text has it.
    pub fn name(self) -> &'static str {
        match self {
            Elem::I1 => "i1",
            Elem::I4 => "i4",
            Elem::E2m1 => "e2m1",
            Elem::I8 => "i8",
            Elem::I16 => "i16",
            Elem::I32 => "i32",
            Elem::I64 => "i64",
            Elem::E4m3 => "e4m3",
            Elem::E5m2 => "e5m2",
            Elem::F16 => "f16",
            Elem::Bf16 => "bf16",
            Elem::F32 => "f32",
            Elem::F64 => "f64",
        }
    }

    /// Bytes in memory; half of one counts as one.
    pub fn bytes(self) -> usize {
        match self {
            Elem::I1 | Elem::I4 | Elem::E2m1 | Elem::I8 | Elem::E4m3 | Elem::E5m2 => 1,
            Elem::I16 | Elem::F16 | Elem::Bf16 => 2,
            Elem::I32 | Elem::F32 => 4,
            Elem::I64 | Elem::F64 => 8,
        }
    }

    /// Whether there is no arithmetic in it: a floating-point format of one byte, or what a byte holds two of.
    pub fn is_tiny(self) -> bool {
        matches!(self, Elem::E4m3 | Elem::E5m2) || self.is_packed()
    }

    /// Whether a byte holds two.
    pub fn is_packed(self) -> bool {
        matches!(self, Elem::I4 | Elem::E2m1)
    }

    /// The name of what the host passes: bytes for what is packed.
    pub fn host_name(self) -> &'static str {
        if self.is_packed() { "i8" } else { self.name() }
    }

    /// Whether it is a floating-point format that is computed in.
    pub fn is_float(self) -> bool {
        matches!(self, Elem::F16 | Elem::Bf16 | Elem::F32 | Elem::F64)
    }
}

/// A type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ty {
    /// A scalar.
    Scalar(Elem),
    /// A tile.
    Tile(Vec<u32>, Elem),
    /// A view; `None` is an extent known at launch.
    View(Vec<Option<u32>>, Elem),
    /// A TMA descriptor.
    Desc(Vec<u32>, Elem),
}

impl Ty {
    /// Its element type.
    pub fn elem(&self) -> Elem {
        match self {
            Ty::Scalar(e) | Ty::Tile(_, e) | Ty::View(_, e) | Ty::Desc(_, e) => *e,
        }
    }
}

impl std::fmt::Display for Ty {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let dims = |d: &[u32]| d.iter().map(|n| format!("{n}x")).collect::<String>();
        match self {
            Ty::Scalar(e) => f.write_str(e.name()),
            Ty::Tile(d, e) => write!(f, "tile<{}{}>", dims(d), e.name()),
            Ty::Desc(d, e) => write!(f, "tma_desc<{}{}>", dims(d), e.name()),
            Ty::View(d, e) => {
                f.write_str("view<gmem, ")?;
                for n in d {
                    match n {
                        Some(n) => write!(f, "{n}x")?,
                        None => f.write_str("?x")?,
                    }
                }
                write!(f, "{}>", e.name())
            }
        }
    }
}

/// An operand.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Use {
    /// A value.
    Val(Id),
    /// A number in its place.
    Int(i64),
}

/// What a statement is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Form {
    /// An operation: its text with `{}` for each operand. `effect`: it stays although nothing uses its results.
    Plain {
        /// The template.
        text: String,
        /// It writes memory.
        effect: bool,
    },
    /// `for`: operands are the bounds, the step and the first values; the block's arguments the variable and what is
    /// carried.
    For,
    /// The same as a `loop`: operands and arguments as for `for`.
    Loop(Test),
    /// `if`: the operand is the condition; one block, or two.
    If,
}

impl Form {
    /// Whether it is a loop.
    pub fn is_loop(&self) -> bool {
        matches!(self, Form::For | Form::Loop(_))
    }
}

/// Where a `loop` asks whether to go on.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Test {
    /// First of all, as a `for` does.
    First,
    /// The same, of a difference.
    Difference,
    /// Last of all: it runs at least once.
    Last,
}

/// How a region ends.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum End {
    /// `yield`, or `continue` as the loop has it.
    #[default]
    Falls,
    /// `break` of the innermost loop.
    Breaks,
    /// `continue` of the innermost loop.
    Continues,
    /// `return`.
    Returns,
}

/// A statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stmt {
    /// What it is.
    pub form: Form,
    /// Operands.
    pub uses: Vec<Use>,
    /// Results.
    pub results: Vec<Id>,
    /// Regions.
    pub blocks: Vec<Block>,
}

/// A region.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// Its arguments.
    pub args: Vec<Id>,
    /// What it does.
    pub stmts: Vec<Stmt>,
    /// What it yields, or hands to where it goes.
    pub yields: Vec<Use>,
    /// How it ends.
    pub end: End,
}

/// What a parameter is at launch.
#[derive(Clone, Debug, PartialEq)]
pub enum Given {
    /// A view: extents, strides, contents.
    View(Vec<usize>, Vec<usize>, &'static str),
    /// A scalar.
    Scalar(f64),
}

/// A kernel with its launch and options.
#[derive(Clone, Debug, PartialEq)]
pub struct Kernel {
    /// Types of all values.
    pub types: Vec<Ty>,
    /// Parameters.
    pub params: Vec<(Id, Given)>,
    /// What it does.
    pub body: Block,
    /// CTAs.
    pub grid: u32,
    /// Options that differ from the defaults.
    pub options: Vec<(&'static str, &'static str)>,
    /// Every order of summation gives the same numbers, and no function is approximate.
    pub exact: bool,
}

impl Kernel {
    /// The name of a value, without the sign.
    pub fn name(&self, id: Id) -> String {
        let letter = match &self.types[id] {
            Ty::Scalar(_) => 's',
            Ty::Tile(..) => 't',
            Ty::View(..) => 'x',
            Ty::Desc(..) => 'd',
        };
        format!("{letter}{id}")
    }

    fn operand(&self, u: Use) -> String {
        match u {
            Use::Val(id) => format!("%{}", self.name(id)),
            Use::Int(n) => n.to_string(),
        }
    }

    fn operands(&self, list: &[Use]) -> String {
        list.iter().map(|&u| self.operand(u)).collect::<Vec<_>>().join(", ")
    }

    fn types(&self, list: &[Id]) -> String {
        list.iter().map(|&id| self.types[id].to_string()).collect::<Vec<_>>().join(", ")
    }

    /// The text of the kernel.
    pub fn text(&self) -> String {
        let param = |p: &(Id, Given)| format!("%{}: {}", self.name(p.0), self.types[p.0]);
        let params: Vec<String> = self.params.iter().map(param).collect();
        let mut out = format!("kernel @free({}) {{\n", params.join(", "));
        for s in &self.body.stmts {
            self.print(s, 1, "", &mut out);
        }
        out.push_str("  return\n}\n");
        out
    }

    /// `next` is what the counter of the innermost `loop` becomes.
    fn print(&self, s: &Stmt, depth: usize, next: &str, out: &mut String) {
        let pad = "  ".repeat(depth);
        out.push_str(&pad);
        if !s.results.is_empty() {
            let names: Vec<String> = s.results.iter().map(|&r| format!("%{}", self.name(r))).collect();
            // Writing to a string cannot fail.
            let _ = write!(out, "{} = ", names.join(", "));
        }
        match &s.form {
            Form::Plain { text, .. } => {
                let mut uses = s.uses.iter();
                let mut parts = text.split("{}");
                out.push_str(parts.next().unwrap_or(""));
                for (part, &u) in parts.zip(&mut uses) {
                    out.push_str(&self.operand(u));
                    out.push_str(part);
                }
                if !s.results.is_empty() {
                    let _ = write!(out, " : {}", self.types(&s.results));
                }
                out.push('\n');
            }
            Form::For => {
                let body = &s.blocks[0];
                let _ = write!(
                    out,
                    "for %{} = {} to {} step {}",
                    self.name(body.args[0]),
                    self.operand(s.uses[0]),
                    self.operand(s.uses[1]),
                    self.operand(s.uses[2])
                );
                let carried = body.args[1..].iter().zip(&s.uses[3..]);
                let carried: Vec<String> = carried
                    .map(|(&a, &u)| format!("%{} = {} : {}", self.name(a), self.operand(u), self.types[a]))
                    .collect();
                if !carried.is_empty() {
                    let _ = write!(out, " iter ({})", carried.join(", "));
                }
                out.push_str(" {\n");
                self.block(body, depth, "", out);
                let _ = writeln!(out, "{pad}}}");
            }
            Form::Loop(test) => self.loop_of(s, *test, depth, out),
            Form::If => {
                let _ = write!(out, "if {}", self.operand(s.uses[0]));
                if !s.results.is_empty() {
                    let _ = write!(out, " : {}", self.types(&s.results));
                }
                out.push_str(" {\n");
                self.block(&s.blocks[0], depth, next, out);
                if let Some(other) = s.blocks.get(1) {
                    let _ = writeln!(out, "{pad}}} else {{");
                    self.block(other, depth, next, out);
                }
                let _ = writeln!(out, "{pad}}}");
            }
        }
    }

    fn block(&self, b: &Block, depth: usize, next: &str, out: &mut String) {
        for s in &b.stmts {
            self.print(s, depth + 1, next, out);
        }
        let yields = self.operands(&b.yields);
        let (word, list) = match b.end {
            End::Falls if b.yields.is_empty() => return,
            End::Falls => ("yield", yields),
            End::Breaks => ("break", yields),
            End::Continues => ("continue", together(next, &yields)),
            End::Returns => ("return", String::new()),
        };
        let _ = writeln!(out, "{}{}", "  ".repeat(depth + 1), format!("{word} {list}").trim_end());
    }

    fn loop_of(&self, s: &Stmt, test: Test, depth: usize, out: &mut String) {
        let body = &s.blocks[0];
        let (pad, inner) = ("  ".repeat(depth), "  ".repeat(depth + 1));
        let carried = body.args.iter().zip(s.uses[..1].iter().chain(&s.uses[3..]));
        let carried: Vec<String> = carried
            .map(|(&a, &u)| format!("%{} = {} : {}", self.name(a), self.operand(u), self.types[a]))
            .collect();
        let _ = write!(out, "loop iter ({})", carried.join(", "));
        if !s.results.is_empty() {
            let _ = write!(out, " : {}", self.types(&s.results));
        }
        let name = self.name(body.args[0]);
        let (upper, step, next) = (self.operand(s.uses[1]), self.operand(s.uses[2]), format!("%{name}_next"));
        let _ = writeln!(out, " {{\n{inner}{next} = addi %{name}, {step} : i32");
        let args: Vec<Use> = body.args[1..].iter().map(|&a| Use::Val(a)).collect();
        let leave = |list: &[Use]| format!("break {}", self.operands(list)).trim_end().to_owned();
        match test {
            Test::First => {
                let _ = writeln!(
                    out,
                    "{inner}%{name}_more = cmpi %{name}, {upper} <{{predicate = lt}}> : i1\n{inner}if %{name}_more {{\n{inner}}} else {{\n{inner}  {}\n{inner}}}",
                    leave(&args)
                );
            }
            Test::Difference => {
                let _ = writeln!(
                    out,
                    "{inner}%{name}_left = subi {upper}, %{name} : i32\n{inner}%{name}_over = cmpi %{name}_left, 0 <{{predicate = le}}> : i1\n{inner}if %{name}_over {{\n{inner}  {}\n{inner}}}",
                    leave(&args)
                );
            }
            Test::Last => {}
        }
        for s in &body.stmts {
            self.print(s, depth + 1, &next, out);
        }
        if test == Test::Last {
            let _ = writeln!(
                out,
                "{inner}%{name}_over = cmpi {next}, {upper} <{{predicate = ge}}> : i1\n{inner}if %{name}_over {{\n{inner}  {}\n{inner}}}",
                leave(&body.yields)
            );
        }
        let _ = writeln!(out, "{inner}continue {}\n{pad}}}", together(&next, &self.operands(&body.yields)));
    }

    /// The case that launches it, in the words of a filetest.
    pub fn case(&self) -> String {
        let (mut views, mut scalars) = (Vec::new(), Vec::new());
        for (id, given) in &self.params {
            let name = self.name(*id);
            match given {
                Given::View(shape, strides, init) => views.push(format!(
                    "\"{name}\": {{\"shape\": {shape:?}, \"dtype\": \"{}\", \"strides\": {strides:?}, \"init\": \"{init}\"}}",
                    self.types[*id].elem().host_name()
                )),
                Given::Scalar(x) => scalars.push(format!("\"{name}\": {x}")),
            }
        }
        let tol = if self.exact { "" } else { ", \"tol\": \"2^-6\"" };
        format!(
            "{{\"views\": {{{}}}, \"scalars\": {{{}}}, \"grid\": [{}], \"seeds\": [1]{tol}}}",
            views.join(", "),
            scalars.join(", "),
            self.grid
        )
    }

    /// The arguments of `tileas run` behind the file, for the same launch.
    pub fn arguments(&self) -> String {
        let mut out = String::new();
        for (id, given) in &self.params {
            let name = self.name(*id);
            let _ = match given {
                Given::View(shape, strides, init) => {
                    let list = |l: &[usize], by: &str| {
                        l.iter().map(ToString::to_string).collect::<Vec<_>>().join(by)
                    };
                    let dtype = self.types[*id].elem().host_name();
                    write!(out, "--arg {name}={}x{dtype}/{}:{init} ", list(shape, "x"), list(strides, ","))
                }
                Given::Scalar(x) => write!(out, "--arg {name}={x} "),
            };
        }
        for (name, value) in &self.options {
            let _ = write!(out, "--set {name}={value} ");
        }
        let tol = if self.exact { "" } else { " --tol 2^-6" };
        let _ = write!(out, "--grid {} --mode fast,latest,random --seeds 3 --check{tol}", self.grid);
        out
    }

    /// The kernel as a filetest.
    pub fn filetest(&self) -> String {
        let mut text = String::from("; test run\n");
        for (name, value) in &self.options {
            let _ = writeln!(text, "; set {name}={value}");
        }
        let _ = write!(text, "; case: {}\n{}", self.case(), self.text());
        text
    }
}

/// Operands in a row; either may be none.
fn together(first: &str, rest: &str) -> String {
    match (first.is_empty(), rest.is_empty()) {
        (true, _) => rest.to_owned(),
        (_, true) => first.to_owned(),
        _ => format!("{first}, {rest}"),
    }
}

/// Statements of a block and of the regions inside.
pub fn each_stmt<'a>(b: &'a Block, visit: &mut dyn FnMut(&'a Stmt, usize), depth: usize) {
    for s in &b.stmts {
        visit(s, depth);
        for inner in &s.blocks {
            each_stmt(inner, visit, depth + 1);
        }
    }
}
