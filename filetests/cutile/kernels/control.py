"""Control flow, printing and assertions."""
import cuda.tile as ct
import numpy as np

from .common import arr, case, exact, f32, i32, inout, Launch, near, out


@ct.kernel
def collatz_kernel(x, steps, limit):
    """A scalar while loop with break and continue."""
    i = ct.bid(0)
    v = ct.gather(x, i)
    n = 0
    while v != 1:
        if n >= limit:
            break
        n = n + 1
        if v % 2 == 0:
            v = v // 2
            continue
        v = 3 * v + 1
    ct.scatter(steps, i, n)


@case("control")
def while_break_continue(r):
    x, limit = np.array([1, 6, 7, 27, 97, 16, 9, 3]), 60
    want = []
    for v in x.tolist():
        n = 0
        while v != 1 and n < limit:
            v, n = (v // 2 if v % 2 == 0 else 3 * v + 1), n + 1
        want.append(n)
    return Launch(collatz_kernel, (8,), [arr(x, "i32"), out(8, "i32"), i32(limit)],
                  {"steps": exact(want)})


@ct.kernel
def newton_kernel(x, y, rounds, eps, T: ct.Constant[int]):
    """Square roots by Newton's method until the whole tile has settled."""
    i = ct.bid(0)
    v = ct.load(x, i, (T,))
    s = ct.maximum(v, 1.0)
    n = 0
    while True:
        new = 0.5 * (s + v / s)
        change = ct.max(ct.abs(new - s))
        s = new
        n = n + 1
        if change < eps or n == 40:
            break
    ct.store(y, i, s)
    ct.scatter(rounds, i, n)


@case("control")
def while_newton(r):
    x = arr(r.uniform(256, lo=0.01, hi=1000))
    return Launch(newton_kernel, (2,), [x, out(256), out(2, "i32"), f32(1e-4), 128],
                  {"y": near(np.sqrt(x.f64), 1e-5, 1e-5)})


@ct.kernel
def early_return_kernel(x, y, n, T: ct.Constant[int]):
    i = ct.bid(0)
    if i * T >= n:
        return
    v = ct.load(x, i, (T,))
    if i == 1:
        ct.store(y, i, -v)
        return
    ct.store(y, i, v + 1.0)


@case("control")
def early_return(r):
    x, y = arr(r.normal(256)), inout(np.zeros(256))
    want = np.zeros(256)
    want[:192] = x.f64[:192] + 1
    want[64:128] = -x.f64[64:128]
    return Launch(early_return_kernel, (4,), [x, y, i32(170), 64], {"y": near(want)})


@ct.kernel
def for_break_kernel(x, at, key, N: ct.Constant[int]):
    """Linear search: a for loop that ends early."""
    row = ct.bid(0)
    found = -1
    for j in range(N):
        if ct.gather(x, (row, j)) == key:
            found = j
            break
    ct.scatter(at, row, found)


@case("control")
def for_break(r):
    x = r.ints(0, 30, 6, 20)
    want = [next((j for j, v in enumerate(row) if v == 5), -1) for row in x]
    return Launch(for_break_kernel, (6,), [arr(x, "i32"), out(6, "i32"), i32(5), 20],
                  {"at": exact(want)})


@ct.kernel
def nested_kernel(x, y, op, T: ct.Constant[int]):
    """Nested conditions whose branches yield tiles of the same type."""
    i = ct.bid(0)
    v = ct.load(x, i, (T,))
    if op == 0:
        v = v + 1.0
    elif op == 1:
        if i % 2 == 0:
            v = v * 2.0
        else:
            v = -v
    else:
        v = ct.zeros((T,), ct.float32)
    for k in range(3):
        if k == 1:
            continue
        v = v + k
    ct.store(y, i, v)


@case("control")
def nested_if(r):
    x = arr(r.normal(4, 64))
    want = x.f64.copy()
    want[::2] *= 2
    want[1::2] *= -1
    flat = arr(x.val.reshape(-1))
    return Launch(nested_kernel, (4,), [flat, out(256), i32(1), 64],
                  {"y": near((want + 2).reshape(-1))})


@ct.kernel
def steps_kernel(y, start, stop, step, LIMIT: ct.Constant[int]):
    """Loop bounds known at run time only, among them empty ranges."""
    n, total = 0, 0
    for k in range(start, stop, step):
        n, total = n + 1, total + k
    for _ in range(stop, start):
        n = n + 1000
    ct.scatter(y, 0, n)
    ct.scatter(y, 1, total)
    for a in range(LIMIT):
        for b in range(a):
            total = total + a * b
    ct.scatter(y, 2, total)


@case("control")
def loop_bounds(r):
    total = sum(range(3, 50, 7))
    more = total + sum(a * b for a in range(6) for b in range(a))
    return Launch(steps_kernel, (1,), [out(3, "i32"), i32(3), i32(50), i32(7), 6],
                  {"y": exact([7, total, more])})


@ct.kernel
def bisect_kernel(keys, x, y, n, T: ct.Constant[int]):
    """Binary search of T keys at once: a while loop over tiles of bounds."""
    at = ct.bid(0) * T + ct.arange(T, dtype=ct.int32)
    key = ct.gather(keys, at)
    low, high = ct.zeros((T,), ct.int32), ct.full((T,), 0, ct.int32) + n
    while ct.max(high - low) > 0:
        mid = (low + high) // 2
        right = ct.gather(x, mid) < key
        open_ = low < high
        low = ct.where(open_ & right, mid + 1, low)
        high = ct.where(open_ & ~right, mid, high)
    ct.scatter(y, at, low)


@case("control")
def binary_search(r):
    x, keys = arr(np.sort(r.normal(300))), arr(r.normal(100))
    return Launch(bisect_kernel, (2,), [keys, x, out(100, "i32"), i32(300), 64],
                  {"y": exact(np.searchsorted(x.val, keys.val))})


@ct.kernel
def print_kernel(x, n, T: ct.Constant[int]):
    v = ct.load(x, 0, (T,))
    ct.printf("n = %d, sum = %.3f\n", n, ct.sum(v))
    print("tile:", v)
    if n > 3:
        ct.printf("large\n")


@case("debug")
def print_values(r):
    x = arr(np.array([1.5, -2.0, 0.25, 4.0]))
    return Launch(print_kernel, (1,), [x, i32(5), 4], {},
                  stdout="n = 5, sum = 3.750\n"
                         "tile: [1.500000, -2.000000, 0.250000, 4.000000]\nlarge\n")


@ct.kernel
def assert_kernel(x, y, n, T: ct.Constant[int]):
    v = ct.load(x, ct.bid(0), (T,))
    ct.assert_(v >= 0, "negative input")
    ct.assert_(n > 0)
    ct.store(y, ct.bid(0), v // n)


@case("debug")
def assert_holds(r):
    x = arr(r.ints(0, 1000, 128), "i32")
    return Launch(assert_kernel, (2,), [x, out(128, "i32"), i32(7), 64], {"y": exact(x.val // 7)})


@case("debug")
def assert_fails(r):
    x = r.ints(0, 1000, 128)
    x[100] = -1
    return Launch(assert_kernel, (2,), [arr(x, "i32"), out(128, "i32"), i32(7), 64], {},
                  trap="negative input")
