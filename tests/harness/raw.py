# SPDX-License-Identifier: Apache-2.0
"""The C ABI without the Python package between: args structs laid out from the schema, calls through ctypes. For what a
binding would never do: NULL, wrong sizes, enum values that do not exist."""

import ctypes
import functools

import einkorn
from einkorn._tensor import dtype_code
from einkorn.schema import ENUMS, OPS

OK, INVALID_ARGUMENT, UNSUPPORTED, OUT_OF_MEMORY, WORKSPACE, CUDA, NOT_FOUND, INTERNAL = range(8)
DEVICES = {"cpu": 1, "cuda": 2}


class Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("id", ctypes.c_int32)]


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("device", Device), ("ndim", ctypes.c_int32), ("dtype", ctypes.c_uint32),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]  # fmt: skip

    def set_dims(self, shape, strides):
        self.ndim = len(shape)
        self.shape = (ctypes.c_int64 * max(len(shape), 1))(*shape)
        self.strides = (ctypes.c_int64 * max(len(shape), 1))(*strides)


_TYPES = {
    "f32": ctypes.c_float, "f64": ctypes.c_double, "i32": ctypes.c_int32, "i64": ctypes.c_int64, "bool": ctypes.c_int32,
    "enum": ctypes.c_int32,
}  # fmt: skip


@functools.cache
def library():
    lib = ctypes.CDLL(einkorn.library_path())
    lib.ek_context_error.restype = ctypes.c_char_p
    lib.ek_last_error.restype = ctypes.c_char_p
    lib.ek_kernel_last.restype = ctypes.c_char_p
    lib.ek_context_create.argtypes = [Device, ctypes.c_void_p]
    for name in ("ek_context_error", "ek_context_destroy", "ek_kernel_last"):
        getattr(lib, name).argtypes = [ctypes.c_void_p]
    lib.ek_context_set_workspace.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    lib.ek_context_set_stream.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    for op in OPS:
        getattr(lib, f"ek_{op}").argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        getattr(lib, f"ek_{op}_workspace").argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    lib.ek_explain.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t,
                               ctypes.c_void_p]  # fmt: skip
    return lib


@functools.cache
def args_type(op):
    """The public struct of an op, members in the schema's order."""
    schema = OPS[op]
    attrs = {a.name: a for a in schema.attrs}
    members = [("struct_size", ctypes.c_uint32), ("reserved", ctypes.c_uint32)]
    members += [(f, _TYPES[attrs[f].type] if f in attrs else ctypes.POINTER(Tensor)) for f in schema.fields]
    return type(f"ek_{op}_args", (ctypes.Structure,), {"_fields_": members})


class Context:
    def __init__(self, device, stream=None):
        kind, _, index = device.partition(":")
        self.handle, self.stream = ctypes.c_void_p(), stream
        assert library().ek_context_create(Device(DEVICES[kind], int(index or 0)), ctypes.byref(self.handle)) == OK
        if stream:
            assert library().ek_context_set_stream(self.handle, stream.handle) == OK

    def error(self):
        return library().ek_context_error(self.handle).decode()

    def __del__(self):
        library().ek_context_destroy(self.handle)


class Call:
    """The arguments of a prepared case as C structs, open to every kind of damage."""

    def __init__(self, prepared, arena, device):
        self.op, schema = prepared.spec.op, prepared.spec.schema
        kind, _, index = device.partition(":")
        self.tensors, self.args = {}, args_type(self.op)()
        self.args.struct_size = ctypes.sizeof(self.args)
        for name, placed in prepared.placed.items():
            t = self.tensors[name] = Tensor()
            t.data, t.dtype = arena.array.pointer + placed.start, dtype_code(placed.dtype)
            t.device = Device(DEVICES[kind], int(index or 0))
            t.set_dims(placed.shape, placed.strides)
            setattr(self.args, name, ctypes.pointer(t))
        for a in schema.attrs:
            value = prepared.values[a.name]
            setattr(self.args, a.name, ENUMS[a.enum].index(value) if a.type == "enum" else value)

    def run(self, context):
        status = getattr(library(), f"ek_{self.op}")(context.handle, ctypes.byref(self.args))
        return status, context.error()

    def workspace(self, context):
        """Status, message and the bytes asked for."""
        needed = ctypes.c_size_t(0)
        function = getattr(library(), f"ek_{self.op}_workspace")
        status = function(context.handle, ctypes.byref(self.args), ctypes.byref(needed))
        return status, context.error(), needed.value

    def explain(self, context):
        text = ctypes.create_string_buffer(4096)
        status = library().ek_explain(context.handle, self.op.encode(), ctypes.byref(self.args), text, 4096, None)
        return status, context.error()
