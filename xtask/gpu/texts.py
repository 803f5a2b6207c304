"""Kernels as text, for tiles of any extents: what a user would write for the work that is raced."""


def gemm(bm, bn, bk, elem="bf16", order="plain", group=8):
    """C = A Bᵀ: A is M x K, B is N x K. `order`: a CTA for each tile (`plain`), or one for each processor that takes tiles in turn, rows of tiles
    in groups (`persistent`)."""
    body = f"""
    %acc = for %k = 0 to %kt step 1 iter (%s = %z : tile<{bm}x{bn}xf32>) {{
      %ta = tiled_load %a[%i, %k] : tile<{bm}x{bk}x{elem}>
      %tb = tiled_load %b[%j, %k] : tile<{bn}x{bk}x{elem}>
      %r = dot %ta, %tb, %s <{{transpose_b}}> : tile<{bm}x{bn}xf32>
      yield %r
    }}
    %o = ftof %acc : tile<{bm}x{bn}x{OUT.get(elem, elem)}>
    tiled_store %o, %c[%i, %j]"""
    if order == "plain":
        inner = f"""
    %i = program_id <{{axis = 0}}> : i32
    %j = program_id <{{axis = 1}}> : i32{body}"""
    else:
        inner = f"""
  %first = program_id <{{axis = 0}}> : i32
  %ctas = num_programs <{{axis = 0}}> : i32
  %rows = dim %a <{{axis = 0}}> : i32
  %columns = dim %b <{{axis = 0}}> : i32
  %mt = divi %rows, {bm} <{{rounding = positive_inf}}>
  %nt = divi %columns, {bn} <{{rounding = positive_inf}}>
  %tiles = muli %mt, %nt
  for %tile = %first to %tiles step %ctas {{
    %at = tile_order %tile, %mt, %nt <{{order = grouped({group})}}>
    %i = divi %at, %nt
    %j = remi %at, %nt{body}
  }}"""
    out = OUT.get(elem, elem)
    return f"""kernel @gemm(%a: view<gmem, ?x?x{elem}>, %b: view<gmem, ?x?x{elem}>, %c: view<gmem, ?x?x{out}>, %kt: i32) {{
  %z = constant 0.0 : tile<{bm}x{bn}xf32>{inner}
  return
}}
"""


# What a product of such elements is stored as.
OUT = {"e4m3": "bf16"}


def attention(bm, bn, d, elem="f16", causal=False):
    """softmax(Q Kᵀ c) V of heads; `c` is the scale times log2 e. The maximum is kept negative, so that an exponent is one multiply-add. Causal:
    tiles of keys that no mask touches are a loop of their own, and the longest rows of tiles come first."""

    def step(keep, masked):
        mask = f"""
    %at = muli %j, {bn}
    %ats = splat %at : tile<{bn}xi32>
    %col = addi %iota, %ats
    %col1 = reshape %col : tile<1x{bn}xi32>
    %cols = broadcast %col1 : tile<{bm}x{bn}xi32>
    %in = cmpi %cols, %rows <{{predicate = le}}>
    %qk = select %in, %qk0, %none"""
        return f"""{{
    %k3 = tiled_load %k[%h, %j, 0] : tile<1x{bn}x{d}x{elem}>
    %tk = reshape %k3 : tile<{bn}x{d}x{elem}>
    %{"qk0" if masked else "qk"} = dot %tq, %tk, %zs <{{transpose_b}}> : tile<{bm}x{bn}xf32>{mask if masked else ""}
    %rx = reduce %qk <{{mode = max, axis = 1}}> : tile<{bm}xf32>
    %rc = mulf %rx, %ncs
    %m = minf %m0, %rc
    %dm = subf %m, %m0
    %al = exp2 %dm <{{ftz}}>
    %m1 = reshape %m : tile<{bm}x1xf32>
    %mb = broadcast %m1 : tile<{bm}x{bn}xf32>
    %x = fma %qk, %cc, %mb
    %p = exp2 %x <{{ftz}}>
    %rs = reduce %p <{{mode = add, axis = 1}}> : tile<{bm}xf32>
    %l = fma %l0, %al, %rs
    %ph = ftof %p : tile<{bm}x{bn}x{elem}>
    %al1 = reshape %al : tile<{bm}x1xf32>
    %alb = broadcast %al1 : tile<{bm}x{d}xf32>
    %om = mulf %o0, %alb
    %v3 = tiled_load %v[%h, %j, 0] : tile<1x{bn}x{d}x{elem}>
    %tv = reshape %v3 : tile<{bn}x{d}x{elem}>
    %pv = dot %ph, %tv, %om : tile<{bm}x{d}xf32>
    yield %pv, %m, %l
  }}"""

    def loop(out, low, high, start, masked):
        o, m, s = start
        head = f"%{out}o, %{out}m, %{out}l = for %j = {low} to {high} step 1"
        carried = f"iter (%o0 = {o} : tile<{bm}x{d}xf32>, %m0 = {m} : tile<{bm}xf32>, %l0 = {s} : tile<{bm}xf32>)"
        return f"  {head} {carried} {step(out, masked)}"

    zero = ("%z", "%top", "%nought")
    if causal:
        loops = f"""
  %start = muli %i, {bm}
  %full = divi %start, {bn}
  %behind = addi %start, {bm}
  %some = divi %behind, {bn} <{{rounding = positive_inf}}>
  %all = divi %keys, {bn} <{{rounding = positive_inf}}>
  %end = mini %some, %all
  %iota = iota : tile<{bn}xi32>
  %iotam = iota : tile<{bm}xi32>
  %starts = splat %start : tile<{bm}xi32>
  %row = addi %iotam, %starts
  %row1 = reshape %row : tile<{bm}x1xi32>
  %rows = broadcast %row1 : tile<{bm}x{bn}xi32>
  %none = constant -inf : tile<{bm}x{bn}xf32>
{loop("whole_", "0", "%full", zero, False)}
{loop("all_", "%full", "%end", ("%whole_o", "%whole_m", "%whole_l"), True)}"""
        result = "all_"
    else:
        loops = f"""
  %end = divi %keys, {bn} <{{rounding = positive_inf}}>
{loop("all_", "0", "%end", zero, False)}"""
        result = "all_"
    order = (
        """  %tiles = num_programs <{axis = 0}> : i32
  %last = subi %tiles, 1
  %i = subi %last, %pid"""
        if causal
        else "  %i = addi %pid, 0"
    )
    return f"""kernel @attention(%q: view<gmem, ?x?x?x{elem}>, %k: view<gmem, ?x?x?x{elem}>, %v: view<gmem, ?x?x?x{elem}>, %o: view<gmem, ?x?x?x{elem}>, %c: f32) {{
  %pid = program_id <{{axis = 0}}> : i32
  %h = program_id <{{axis = 1}}> : i32
{order}
  %keys = dim %k <{{axis = 1}}> : i32
  %q3 = tiled_load %q[%h, %i, 0] : tile<1x{bm}x{d}x{elem}>
  %tq = reshape %q3 : tile<{bm}x{d}x{elem}>
  %z = constant 0.0 : tile<{bm}x{d}xf32>
  %zs = constant 0.0 : tile<{bm}x{bn}xf32>
  %top = constant inf : tile<{bm}xf32>
  %nought = constant 0.0 : tile<{bm}xf32>
  %nc = negf %c : f32
  %cc = splat %c : tile<{bm}x{bn}xf32>
  %ncs = splat %nc : tile<{bm}xf32>{loops}
  %s1 = reshape %{result}l : tile<{bm}x1xf32>
  %sb = broadcast %s1 : tile<{bm}x{d}xf32>
  %x = divf %{result}o, %sb
  %r = ftof %x : tile<{bm}x{d}x{elem}>
  %r3 = reshape %r : tile<1x{bm}x{d}x{elem}>
  tiled_store %r3, %o[%h, %i, 0]
  return
}}
"""
