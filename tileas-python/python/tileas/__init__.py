"""Compile, look at, tune and launch GPU tile kernels; on an emulator where there is no GPU.

>>> kernel = tileas.compile(text)       # for the emulator; device=tileas.Device.cuda(0) for a GPU
>>> kernel(a, b, bias, c, 3)            # numpy arrays; on a GPU also DLPack and the CUDA array interface
>>> print(kernel.explain())             # how it is scheduled, and why
>>> kernel.schedule()                   # a picture, in a notebook
"""

from . import cutile
from ._errors import CODES, Entry, Error
from ._kernel import Bound, Device, Jit, Kernel, Picture, Tensor, check, compile
from ._tileas import version
from ._tune import Look, Tuned, tune

__version__ = version
__all__ = [
    "CODES",
    "Bound",
    "Device",
    "Entry",
    "Error",
    "Jit",
    "Kernel",
    "Look",
    "Picture",
    "Tensor",
    "Tuned",
    "check",
    "compile",
    "cutile",
    "tune",
    "version",
]
