"""Arrays by the names that kernels and their cases use: torch's on a GPU, numpy's where it is dry."""

import numpy as np

DEVICE = "cuda"


class Maker:
    """Makes arrays with a seed; one seed, the same numbers."""

    def __init__(self, dry, seed):
        self.dry = dry
        self.rng = np.random.default_rng(seed)

    # ---- making

    def _of(self, values, elem):
        if self.dry:
            return values.astype(numpy_type(elem))
        import torch

        kind = getattr(torch, TORCH[elem])
        return torch.from_numpy(np.ascontiguousarray(values)).to(DEVICE).to(kind)

    def ints(self, shape, elem):
        """Whole numbers from -2 to 2."""
        return self._of(self.rng.integers(-2, 3, shape).astype(np.float32), elem)

    def normal(self, shape, elem):
        """Normally distributed numbers."""
        return self._of(self.rng.standard_normal(shape).astype(np.float32), elem)

    def full(self, shape, elem, number):
        """One number everywhere."""
        return self._of(np.full(shape, number, np.float32), elem)

    def view(self, case):
        """A view of a case."""
        shape, init, elem = tuple(case["shape"]), case.get("init", "ints"), case["dtype"]
        if init == "ints":
            made = self.ints(shape, elem)
        elif init == "normal":
            made = self.normal(shape, elem)
        elif init == "uniform":
            made = self._of(self.rng.random(shape).astype(np.float32), elem)
        elif isinstance(init, list):
            made = self._of(np.resize(np.array(init, np.float32), shape), elem)
        else:
            number = {"nan": float("nan"), "zeros": 0}.get(init, init)
            if number != number and elem[0] in "iu":
                number = 0
            made = self.full(shape, elem, number)
        return made

    # ---- reading

    def copy(self, array):
        """A copy in memory of its own."""
        return array.copy() if self.dry else array.clone()

    def numpy(self, array):
        """As an array of numpy's, in a type that it has."""
        if self.dry or isinstance(array, np.ndarray):
            return np.asarray(array)
        import torch

        if array.dtype in (torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2):
            array = array.float()
        return array.cpu().numpy()

    def wide(self, array):
        """In 64 bits, for formulas."""
        return array.astype(np.float64) if self.dry else array.double()

    def rounded(self, want, like):
        """As the elements of an array can have it, in 64 bits."""
        if self.dry:
            with np.errstate(over="ignore"):
                return np.asarray(want).astype(like.dtype).astype(np.float64)
        import torch

        want = torch.as_tensor(want, dtype=torch.float64, device=DEVICE)
        return want.to(like.dtype).double().cpu().numpy()

    # ---- computing

    def relu(self, array):
        """No negative numbers."""
        return array * (array > 0)

    def attention(self, q, k, v, scale):
        """softmax(q k^T scale) v, of heads one after the other."""
        q, k, v = self.wide(q), self.wide(k), self.wide(v)
        heads = []
        for n in range(q.shape[0]):
            logits = q[n] @ k[n].T * scale
            weights = self.formula("exp(x - 8)", {"x": logits})
            heads.append((weights @ v[n]) / self.formula("sum(w, axis=1)[:, None]", {"w": weights}))
        if self.dry:
            return np.stack(heads)
        import torch

        return torch.stack(heads)

    def formula(self, text, names):
        """The value of a formula such as `relu(a @ b.T)`."""
        if self.dry:
            known = {n: getattr(np, n) for n in NAMES}
            known |= {"relu": self.relu}
        else:
            import torch

            def pair(f):
                def of(a, b):
                    a, b = (torch.as_tensor(v, dtype=torch.float64, device=DEVICE) for v in (a, b))
                    return f(a, b)

                return of

            known = {n: getattr(torch, n) for n in NAMES if hasattr(torch, n)}
            known |= {
                "relu": torch.relu,
                "maximum": pair(torch.maximum),
                "minimum": pair(torch.minimum),
                "sum": lambda a, axis=None: a.sum() if axis is None else a.sum(dim=axis),
                "max": lambda a, axis: a.amax(dim=axis),
                "zeros": lambda shape: torch.zeros(shape, dtype=torch.float64, device=DEVICE),
                "arange": lambda n: torch.arange(n, dtype=torch.float64, device=DEVICE),
            }
        # The formulas are our own files'.
        return eval(text, {**known, **names})


NAMES = ["exp", "exp2", "log", "log2", "sqrt", "tanh", "abs", "tril", "where", "maximum", "minimum", "sum", "max", "zeros", "arange"]

TORCH = {
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "tf32": "float32",
    "f64": "float64",
    "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
    "i8": "int8",
    "s8": "int8",
    "u8": "uint8",
    "i16": "int16",
    "i32": "int32",
    "s32": "int32",
    "u32": "uint32",
    "i64": "int64",
}


def numpy_type(elem):
    """A type of numpy's or ml_dtypes'."""
    name = TORCH[elem]
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))
