"""The CUDA driver through ctypes: modules from PTX text, memory, tensor maps, launches.

Needs libcuda only. Guarantee: every call's error becomes a `CudaError` with the driver's text.
An error during a launch poisons the context; the caller starts a new process then.
Source: CUDA driver API.
"""
import ctypes as C
import ctypes.util

TYPES = {"u8": 0, "s8": 0, "e4m3": 0, "e5m2": 0, "u16": 1, "u32": 2, "s32": 3, "u64": 4, "s64": 5, "f16": 6, "f32": 7, "f64": 8, "bf16": 9, "f32.ftz": 10, "tf32": 11, "tf32.ftz": 12}
SWIZZLES = {"NONE": 0, "32B": 1, "64B": 2, "128B": 3, "128B_ATOM_32B": 4, "128B_ATOM_32B_FLIP_8B": 5, "128B_ATOM_64B": 6}
MAJOR, MINOR, SMEM_OPTIN = 75, 76, 97
MAX_DYNAMIC_SMEM = 8


class CudaError(Exception):
    """A driver call failed."""


class TensorMap(C.Structure):
    """CUtensorMap: 128 opaque bytes (aligned by `Driver.tensor_map`)."""
    _fields_ = [("words", C.c_uint64 * 16)]


class Driver:
    """One device and its primary context."""

    def __init__(self, ordinal=0):
        try:
            self.lib = C.CDLL("libcuda.so.1")
        except OSError as e:
            raise CudaError(f"libcuda is not here: {e}") from None
        self.call("cuInit", 0)
        self.device = C.c_int()
        self.call("cuDeviceGet", C.byref(self.device), ordinal)
        self.context = C.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", C.byref(self.context), self.device)
        self.call("cuCtxSetCurrent", self.context)

    def call(self, name, *args):
        code = getattr(self.lib, name)(*args)
        if code:
            text = C.c_char_p()
            self.lib.cuGetErrorString(code, C.byref(text))
            raise CudaError(f"{name}: {code} {(text.value or b'').decode()}")

    def attribute(self, which):
        value = C.c_int()
        self.call("cuDeviceGetAttribute", C.byref(value), which, self.device)
        return value.value

    def describe(self):
        name = C.create_string_buffer(128)
        self.call("cuDeviceGetName", name, 128, self.device)
        version = C.c_int()
        self.call("cuDriverGetVersion", C.byref(version))
        return {"name": name.value.decode(), "cc": [self.attribute(MAJOR), self.attribute(MINOR)], "driver": version.value, "smem": self.attribute(SMEM_OPTIN)}

    def module(self, ptx):
        """Compiles PTX text; the JIT's log is part of the error."""
        log = C.create_string_buffer(8192)
        options = (C.c_int * 2)(5, 6)                     # ERROR_LOG_BUFFER, its size
        values = (C.c_void_p * 2)(C.cast(log, C.c_void_p), C.c_void_p(len(log)))
        module = C.c_void_p()
        try:
            self.call("cuModuleLoadDataEx", C.byref(module), C.c_char_p(ptx.encode()), 2, options, values)
        except CudaError as e:
            raise CudaError(f"{e}: {log.value.decode(errors='replace').strip()}") from None
        return module

    def function(self, module, name, smem):
        f = C.c_void_p()
        self.call("cuModuleGetFunction", C.byref(f), module, name.encode())
        if smem > 48 * 1024:
            self.call("cuFuncSetAttribute", f, MAX_DYNAMIC_SMEM, smem)
        return f

    def alloc(self, data):
        p = C.c_uint64()
        self.call("cuMemAlloc_v2", C.byref(p), C.c_size_t(max(len(data), 16)))
        self.call("cuMemcpyHtoD_v2", p, C.c_char_p(bytes(data)), C.c_size_t(len(data)))
        return p.value

    def read(self, address, n):
        out = C.create_string_buffer(n)
        self.call("cuMemcpyDtoH_v2", out, C.c_uint64(address), C.c_size_t(n))
        return out.raw

    def free(self, address):
        self.call("cuMemFree_v2", C.c_uint64(address))

    def unload(self, module):
        self.call("cuModuleUnload", module)

    def tensor_map(self, address, m):
        """Encodes a map; returns 128 bytes. `m` as in the launch descriptions."""
        raw = (C.c_uint8 * 256)()
        at = -C.addressof(raw) % 128
        rank = len(m["dims"])
        self.call("cuTensorMapEncodeTiled", C.c_void_p(C.addressof(raw) + at), TYPES[m["type"]], rank, C.c_void_p(address), (C.c_uint64 * rank)(*m["dims"]), (C.c_uint64 * max(rank - 1, 1))(*m["strides"]),
                  (C.c_uint32 * rank)(*m["box"]), (C.c_uint32 * rank)(*(m.get("element_strides") or [1] * rank)), 0, SWIZZLES[m["swizzle"]], 0, 1 if m.get("oob") == "nan" else 0)
        return bytes(raw[at:at + 128])

    def launch(self, f, grid, block, smem, params):
        """`params`: bytes objects, one per kernel parameter. Waits for the end."""
        # Tensor maps want 64-byte alignment where they are read from.
        keep, pointers = [], []
        for p in params:
            raw = (C.c_uint8 * (len(p) + 128))()
            at = -C.addressof(raw) % 128
            C.memmove(C.addressof(raw) + at, p, len(p))
            keep.append(raw)
            pointers.append(C.c_void_p(C.addressof(raw) + at))
        array = (C.c_void_p * max(len(pointers), 1))(*pointers)
        self.call("cuLaunchKernel", f, *map(C.c_uint, grid), *map(C.c_uint, block), C.c_uint(smem), None, array, None)
        self.call("cuCtxSynchronize")
