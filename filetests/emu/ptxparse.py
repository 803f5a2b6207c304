"""Parser for the PTX text that the test machine executes.

In: one PTX module. Out: `Module` with its entries; every instruction keeps its line.
Guarantee: text that is not understood raises `PtxError` with the line; nothing is skipped
except comments and line-number directives. Cost: linear in the text.
Source: PTX ISA, "Syntax", "State spaces, types and variables", "Directives".
"""
import re

# Bytes of the fundamental types; predicates are kept apart.
TYPE_BYTES = {
    "b8": 1, "u8": 1, "s8": 1, "b16": 2, "u16": 2, "s16": 2, "f16": 2, "bf16": 2,
    "b32": 4, "u32": 4, "s32": 4, "f32": 4, "f16x2": 4, "bf16x2": 4, "tf32": 4,
    "b64": 8, "u64": 8, "s64": 8, "f64": 8, "f32x2": 8, "b128": 16,
}


class PtxError(Exception):
    """A located problem in the PTX text."""

    def __init__(self, line, message):
        super().__init__(f"line {line}: {message}")
        self.line = line


class Operand:
    """One operand; `kind` says which fields count.

    reg: name; special: name; sym: name; int: value; float: (bits, value);
    vec: items; mem: base, offset; tensor: base, items; pair: items (d|p); sink; notreg: name
    """

    __slots__ = ("kind", "name", "value", "items", "base", "offset")

    def __init__(self, kind, name=None, value=None, items=None, base=None, offset=0):
        self.kind, self.name, self.value = kind, name, value
        self.items, self.base, self.offset = items, base, offset

    def __repr__(self):
        return f"Operand({self.kind}, {self.name or self.value or self.items or self.base})"


class Instr:
    """One instruction: guard `(negated, register)` or None, opcode text, operands."""

    __slots__ = ("line", "guard", "op", "parts", "operands", "text")

    def __init__(self, line, guard, op, operands, text):
        self.line, self.guard, self.op, self.operands, self.text = line, guard, op, operands, text
        self.parts = op.split(".")


class Param:
    """A kernel parameter at byte `offset` of the parameter block."""

    def __init__(self, name, offset, size, align, typ):
        self.name, self.offset, self.size, self.align, self.type = name, offset, size, align, typ


class Entry:
    """A kernel."""

    def __init__(self, name, line):
        self.name, self.line = name, line
        self.params, self.param_bytes = {}, 0
        self.reqntid = self.maxntid = self.cluster = None
        self.minnctapersm = self.maxnreg = None
        self.regs = {}      # register name -> type
        self.instrs = []
        self.labels = {}    # label -> index of an instruction
        self.shared = {}    # name -> (size, align)


class Module:
    """A PTX module."""

    def __init__(self):
        self.version = self.target = None
        self.address_size = 64
        self.entries = {}
        self.shared = {}    # name -> (size, align)
        self.dynamic_shared = None


TOKEN = re.compile(
    r"""(?P<ws>\s+|//[^\n]*|/\*.*?\*/)
  |(?P<str>"[^"\n]*")
  |(?P<num>0[fF][0-9a-fA-F]{8}\b|0[dD][0-9a-fA-F]{16}\b|0[xX][0-9a-fA-F]+U?|0[bB][01]+U?|\d+\.\d+(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+|\d+U?)
  |(?P<id>[%.]?[A-Za-z_$][\w$]*(?:(?:\.|::)[\w$]+)*)
  |(?P<punct>[{}\[\](),;:@!|<>=+*-])""",
    re.S | re.X,
)

SPECIAL = {f"%{n}.{a}" for n in ("tid", "ntid", "ctaid", "nctaid") for a in "xyz"} | {
    "%laneid", "%warpid", "%nwarpid", "%smid", "%nsmid", "%clock", "%clock64", "%globaltimer", "%globaltimer_lo",
    "%cluster_ctarank", "%cluster_nctarank", "%dynamic_smem_size", "%total_smem_size",
    "%lanemask_lt", "%lanemask_le", "%lanemask_eq", "%lanemask_ge", "%lanemask_gt",
    "%cluster_ctaid.x", "%cluster_ctaid.y", "%cluster_ctaid.z", "%clusterid.x", "%nclusterid.x",
}


def tokenize(text):
    """Returns `[(kind, text, line)]`, ending with an `eof` token."""
    out, pos, line = [], 0, 1
    while pos < len(text):
        m = TOKEN.match(text, pos)
        if not m:
            raise PtxError(line, f"unexpected character {text[pos]!r}")
        kind, tok = m.lastgroup, m.group()
        if kind != "ws":
            out.append((kind, tok, line))
        line += tok.count("\n")
        pos = m.end()
    out.append(("eof", "", line))
    return out


class Parser:
    """Recursive descent over the token list."""

    def __init__(self, text):
        self.toks, self.i = tokenize(text), 0
        self.scopes = []
        self.rename = 0

    def peek(self):
        return self.toks[self.i][1]

    def line(self):
        return self.toks[self.i][2]

    def fail(self, message):
        raise PtxError(self.line(), message)

    def next(self):
        tok = self.toks[self.i]
        if tok[0] == "eof":
            self.fail("unexpected end of text")
        self.i += 1
        return tok[1]

    def accept(self, text):
        if self.toks[self.i][1] == text and self.toks[self.i][0] != "str":
            self.i += 1
            return True
        return False

    def expect(self, text):
        if not self.accept(text):
            self.fail(f"expected {text!r}, found {self.peek()!r}")

    def integer(self):
        tok = self.peek()
        try:
            value = int(tok.rstrip("U"), 0)
        except ValueError:
            self.fail(f"expected an integer, found {tok!r}")
        self.i += 1
        return value

    def ident(self):
        kind, tok, _ = self.toks[self.i]
        if kind != "id":
            self.fail(f"expected a name, found {tok!r}")
        self.i += 1
        return tok

    # ---- module level
    def module(self):
        m = Module()
        while self.toks[self.i][0] != "eof":
            tok = self.peek()
            if tok == ".version":
                self.next()
                m.version = self.next()
            elif tok == ".target":
                self.next()
                m.target = self.ident()
                while self.accept(","):
                    self.ident()
            elif tok == ".address_size":
                self.next()
                m.address_size = self.integer()
                if m.address_size != 64:
                    self.fail("only .address_size 64 is supported")
            elif tok in (".file", ".loc"):
                self.skip_line()
            elif tok == ".pragma":
                self.pragma()
            elif tok in (".visible", ".weak", ".extern", ".entry", ".shared"):
                self.linkage(m)
            else:
                self.fail(f"unknown module-level text {tok!r}")
        if m.version is None or m.target is None:
            raise PtxError(1, ".version and .target are required")
        return m

    def skip_line(self):
        line = self.line()
        while self.line() == line and self.toks[self.i][0] != "eof":
            self.i += 1

    def pragma(self):
        self.next()
        if self.toks[self.i][0] != "str":
            self.fail("expected a pragma string")
        self.next()
        self.expect(";")

    def linkage(self, m):
        extern = False
        while self.peek() in (".visible", ".weak", ".extern"):
            extern |= self.next() == ".extern"
        if self.accept(".shared"):
            name, size, align = self.variable(extern)
            if size is None:
                if m.dynamic_shared is not None:
                    self.fail("second extern shared array")
                m.dynamic_shared = (name, align)
            else:
                m.shared[name] = (size, align)
        elif self.accept(".entry"):
            self.entry(m)
        else:
            self.fail(f"unsupported declaration {self.peek()!r}")

    def variable(self, extern):
        align = 1
        typ = None
        while self.peek().startswith("."):
            d = self.next()
            if d == ".align":
                align = self.integer()
            elif d[1:] in TYPE_BYTES:
                typ = d[1:]
            else:
                self.fail(f"unknown attribute {d!r}")
        if typ is None:
            self.fail("missing type")
        name = self.ident()
        count = 1
        if self.accept("["):
            count = None if self.peek() == "]" else self.integer()
            self.expect("]")
        if count is None and not extern:
            self.fail("an array without a size must be extern")
        self.expect(";")
        size = None if count is None else count * TYPE_BYTES[typ]
        return name, size, max(align, TYPE_BYTES[typ])

    def entry(self, m):
        line = self.line()
        e = Entry(self.ident(), line)
        if self.accept("("):
            while not self.accept(")"):
                self.param(e)
                if not self.accept(","):
                    self.expect(")")
                    break
        while self.peek() != "{":
            d = self.next()
            if d in (".reqntid", ".maxntid", ".reqnctapercluster"):
                dims = [self.integer()]
                while self.accept(","):
                    dims.append(self.integer())
                dims = tuple(dims + [1] * (3 - len(dims)))
                setattr(e, {".reqntid": "reqntid", ".maxntid": "maxntid"}.get(d, "cluster"), dims)
            elif d in (".minnctapersm", ".maxnreg"):
                setattr(e, d[1:], self.integer())
            elif d == ".pragma":
                self.i -= 1
                self.pragma()
            else:
                self.i -= 1
                self.fail(f"unknown entry directive {d!r}")
        self.body(e)
        if e.name in m.entries:
            raise PtxError(line, f"entry {e.name} defined twice")
        m.entries[e.name] = e

    def param(self, e):
        self.expect(".param")
        align, typ, count = None, None, 1
        while self.peek().startswith("."):
            d = self.next()
            if d == ".align":
                align = self.integer()
            elif d[1:] in TYPE_BYTES:
                typ = d[1:]
            elif d == ".ptr":
                # The alignment behind .ptr is that of the pointee.
                while self.peek() in (".global", ".shared", ".const", ".local", ".align"):
                    if self.next() == ".align":
                        self.integer()
            else:
                self.fail(f"unknown parameter attribute {d!r}")
        if typ is None:
            self.fail("parameter without a type")
        name = self.ident()
        if self.accept("["):
            count = self.integer()
            self.expect("]")
        size = TYPE_BYTES[typ] * count
        align = align or TYPE_BYTES[typ]
        offset = -(-e.param_bytes // align) * align
        if name in e.params:
            self.fail(f"parameter {name} defined twice")
        e.params[name] = Param(name, offset, size, align, typ)
        e.param_bytes = offset + size

    # ---- entry body
    def resolve(self, name):
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        return None

    def body(self, e):
        self.expect("{")
        self.scopes = [{}]
        pending = []
        while True:
            kind, tok, line = self.toks[self.i]
            if kind == "eof":
                self.fail("missing '}'")
            if tok == "}":
                self.i += 1
                self.scopes.pop()
                if not self.scopes:
                    break
            elif tok == "{":
                self.i += 1
                self.scopes.append({})
            elif tok == ".reg":
                self.regs(e)
            elif tok == ".shared":
                self.next()
                name, size, align = self.variable(False)
                e.shared[name] = (size, align)
            elif tok == ".pragma":
                self.pragma()
            elif tok == ".loc":
                self.skip_line()
            elif tok == ";":
                self.i += 1
            elif kind == "id" and self.toks[self.i + 1][1] == ":":
                if tok in e.labels:
                    self.fail(f"label {tok} defined twice")
                e.labels[tok] = len(e.instrs)
                self.i += 2
            elif tok.startswith("."):
                self.fail(f"unknown directive {tok!r}")
            else:
                e.instrs.append(self.instruction(e))
        for ins in e.instrs:
            if ins.parts[0] == "bra" and ins.operands[0].name not in e.labels:
                raise PtxError(ins.line, f"unknown label {ins.operands[0].name!r}")
        if not e.instrs or len(e.instrs) in e.labels.values() or not (
                e.instrs[-1].op in ("ret", "exit", "trap") or e.instrs[-1].parts[0] == "bra"):
            raise PtxError(self.toks[self.i - 1][2], "control falls off the end of the entry")

    def regs(self, e):
        self.next()
        vec = 1
        typ = self.next()[1:]
        if typ in ("v2", "v4"):
            vec = int(typ[1])
            typ = self.next()[1:]
        if typ != "pred" and typ not in TYPE_BYTES or vec != 1:
            self.fail(f"unsupported register type {typ!r}")
        while True:
            name = self.ident()
            names = [name]
            if self.accept("<"):
                names = [f"{name}{k}" for k in range(self.integer())]
                self.expect(">")
            for n in names:
                if n in self.scopes[-1]:
                    self.fail(f"register {n} defined twice")
                unique = n
                if n in e.regs:
                    self.rename += 1
                    unique = f"{n}#{self.rename}"
                e.regs[unique] = typ
                self.scopes[-1][n] = unique
            if not self.accept(","):
                break
        self.expect(";")

    def instruction(self, e):
        start, line = self.i, self.line()
        guard = None
        if self.accept("@"):
            neg = self.accept("!")
            name = self.ident()
            reg = self.resolve(name)
            if reg is None or e.regs[reg] != "pred":
                self.fail(f"guard {name!r} is not a predicate register")
            guard = (neg, reg)
        op = self.ident()
        operands = []
        if not self.accept(";"):
            while True:
                operands.append(self.operand(e, op))
                if self.accept(";"):
                    break
                self.expect(",")
        text = " ".join(t[1] for t in self.toks[start:self.i - 1])
        if len(text) > 160:
            text = text[:157] + "..."
        return Instr(line, guard, op, operands, text)

    def operand(self, e, op):
        if self.accept("{"):
            items = [self.operand(e, op)]
            while self.accept(","):
                items.append(self.operand(e, op))
            self.expect("}")
            return Operand("vec", items=items)
        if self.accept("["):
            base = self.primary(e, op)
            offset, items = 0, None
            if self.accept("+"):
                offset = -self.integer() if self.accept("-") else self.integer()
            elif self.accept("-"):
                offset = -self.integer()
            elif self.accept(","):
                items = self.operand(e, op)
                if items.kind != "vec":
                    self.fail("tensor coordinates must be a vector")
            self.expect("]")
            if items is not None:
                return Operand("tensor", base=base, items=items.items)
            return Operand("mem", base=base, offset=offset)
        o = self.primary(e, op)
        if self.accept("|"):
            return Operand("pair", items=[o, self.primary(e, op)])
        if o.kind == "sym" and self.accept("+"):
            o.offset = self.integer()
        return o

    def primary(self, e, op):
        if self.accept("!"):
            o = self.primary(e, op)
            if o.kind != "reg" or e.regs[o.name] != "pred":
                self.fail("'!' needs a predicate register")
            return Operand("notreg", name=o.name)
        neg = self.accept("-")
        kind, tok, _ = self.toks[self.i]
        if kind == "num":
            self.i += 1
            low = tok.lower()
            if low.startswith("0f") and len(low) == 10:
                return Operand("float", value=(32, int(low[2:], 16)))
            if low.startswith("0d") and len(low) == 18:
                return Operand("float", value=(64, int(low[2:], 16)))
            if not low.startswith("0x") and ("." in low or "e" in low):
                return Operand("float", value=(0, -float(low) if neg else float(low)))
            v = int(tok.rstrip("U"), 0)
            return Operand("int", value=-v if neg else v)
        if kind != "id" or neg:
            self.fail(f"expected an operand, found {tok!r}")
        self.i += 1
        if tok == "_":
            return Operand("sink")
        if tok.startswith("%"):
            reg = self.resolve(tok)
            if reg is not None:
                return Operand("reg", name=reg)
            if tok in SPECIAL:
                return Operand("special", name=tok)
            self.i -= 1
            self.fail(f"undeclared register {tok!r}")
        return Operand("sym", name=tok)


def parse(text):
    """Parses a module; raises `PtxError`."""
    return Parser(text).module()
