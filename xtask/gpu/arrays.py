"""Arrays with a seed: torch's on a GPU, numpy's where it is dry."""

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
            return values.astype(getattr(np, TORCH[elem]))
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

    # ---- reading

    def numpy(self, array):
        """As an array of numpy's."""
        return np.asarray(array) if self.dry or isinstance(array, np.ndarray) else array.cpu().numpy()

    def wide(self, array):
        """In 64 bits, for formulas."""
        return array.astype(np.float64) if self.dry else array.double()

    # ---- computing

    def relu(self, array):
        """No negative numbers."""
        return array * (array > 0)

    def attention(self, q, k, v, scale):
        """softmax(q k^T scale) v, of heads one after the other."""
        if self.dry:
            exp, stack = np.exp, np.stack
        else:
            from torch import exp, stack
        q, k, v = self.wide(q), self.wide(k), self.wide(v)
        heads = []
        for n in range(q.shape[0]):
            weights = exp(q[n] @ k[n].T * scale - 8)
            heads.append((weights @ v[n]) / weights.sum(1)[:, None])
        return stack(heads)


TORCH = {
    **{"f16": "float16", "bf16": "bfloat16", "f32": "float32", "tf32": "float32", "e4m3": "float8_e4m3fn"},
    **{"i1": "bool", "i8": "int8", "i32": "int32"},
}
