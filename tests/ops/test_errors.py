# SPDX-License-Identifier: Apache-2.0
"""Every op, called from C with each of its arguments damaged in each way: an error that names it, and nothing written."""

import ctypes
import re

import numpy as np
from einkorn.schema import OPS
from harness import Prepared, raw
from harness.dtypes import ITEMSIZE
from harness.memory import Arena, dense

I64 = 0 | 64 << 8 | 1 << 16
F64 = 2 | 64 << 8 | 1 << 16


def small_cases(spec):
    """A call for each variant of the op with as many tensors as it can have."""
    dtypes = spec.combos()[-1]
    return [spec.case(dtypes, 16, 0, (3, 2), variant, presence=None) for variant in spec.variants]


class Damaged:
    """Each way to damage a good call, as (what was done, the call, words that the message must have)."""

    def __init__(self, prepared, arena, device):
        self.prepared, self.arena, self.device = prepared, arena, device
        self.schema, self.op = prepared.spec.schema, prepared.spec.op

    def call(self):
        return raw.Call(self.prepared, self.arena, self.device)

    def tensor(self, name):
        call = self.call()
        return call, call.tensors[name]

    def all(self):
        yield from self.structs()
        yield from self.attrs()
        for name in self.prepared.placed:
            yield from self.pointers(name)
            yield from self.dims(name)
            yield from self.strides(name)
        yield from self.overlaps()

    def structs(self):
        size = ctypes.sizeof(raw.args_type(self.op))
        for wrong in (0, 4, size - 8, size + 8):
            call = self.call()
            call.args.struct_size = wrong
            yield f"struct_size {wrong}", call, "struct_size"

    def attrs(self):
        for a in self.schema.attrs:
            wrong = {"enum": (-1, 99), "bool": (2,), "i32": (-1,), "i64": (-1,)}.get(a.type, ())
            for value in wrong:
                if a.type[0] == "i" and self.allowed({**self.prepared.values, a.name: value}):
                    continue
                call = self.call()
                setattr(call.args, a.name, value)
                yield f"{a.name} = {value}", call, a.name

    def allowed(self, values):
        """Whether the schema's requirements, which alone limit a number, let these values pass."""
        present = self.prepared.case.present
        return all(self.schema.evaluate(e, values, present) for e in self.schema.require)

    def pointers(self, name):
        spec = self.schema.tensor(name)
        if not spec.optional:
            call = self.call()
            setattr(call.args, name, None)
            yield f"{name} NULL", call, name
        call, t = self.tensor(name)
        t.data = None
        yield f"{name} without data", call, name
        call, t = self.tensor(name)
        t.dtype = F64 if "i64" in self.schema.dtypes.get(spec.dtype, ()) else I64
        yield f"{name} of another dtype", call, name
        call, t = self.tensor(name)
        t.dtype = 0
        yield f"{name} without a dtype", call, name
        call, t = self.tensor(name)
        t.device.type = 1 if t.device.type == 2 else 2
        yield f"{name} on another device", call, name
        size = ITEMSIZE[self.prepared.dtypes[name]]
        if size > 1:
            call, t = self.tensor(name)
            t.data += 1
            yield f"{name} off by a byte", call, name

    def dims(self, name):
        shape = self.prepared.placed[name].shape
        wrong = [9 * (1,), (*shape, 1), (*shape, 2)]
        if shape and not self.free(self.schema.tensor(name).dims[-1]):
            wrong.append((*shape[:-1], shape[-1] + 1))
        if shape:
            wrong += [(2**62, *shape[1:]), (-1, *shape[1:]), shape[1:]]
        for w in wrong:
            call, t = self.tensor(name)
            t.set_dims(w, dense(w) if max((0, *w)) < 2**62 else w)
            yield f"{name} of shape {w}", call, ""  # another tensor may be the first that does not fit
        if shape:
            call, t = self.tensor(name)
            t.shape = None
            yield f"{name} without a shape", call, name

    def free(self, dim):
        """Whether a dim may have any size: one tensor has it, and no requirement names it (the width of a page table)."""
        has = [t for t in self.prepared.tensors.values() if dim in t.dims]
        return len(has) == 1 and dim != "..." and not any(re.search(rf"\b{dim}\b", e) for e in self.schema.require)

    def strides(self, name):
        spec, placed = self.schema.tensor(name), self.prepared.placed[name]
        wide = [d for d, n in enumerate(placed.shape) if n > 1]
        for d in wide:
            call, t = self.tensor(name)
            t.strides[d] = -1
            yield f"{name} with a negative stride", call, name
            if spec.role != "in":
                call, t = self.tensor(name)
                t.strides[d] = 0
                yield f"{name} overlapping itself", call, name
        own_last = spec.dims and spec.dims[-1] != "..."
        if own_last and not spec.strided and placed.shape[-1] > 1:
            call, t = self.tensor(name)
            t.strides[len(placed.shape) - 1] = 2
            yield f"{name} with gaps in its last dimension", call, name

    def overlaps(self):
        placed = self.prepared.placed
        for out in self.prepared.outputs:
            for other in placed:
                if other == out:
                    continue
                call, t = self.tensor(out)
                # Where being the same memory is allowed, one element off is not.
                allowed = (out, other) in self.schema.alias and placed[out].shape == placed[other].shape
                t.data = call.tensors[other].data + ITEMSIZE[self.prepared.dtypes[out]] * allowed
                yield f"{out} over {other}", call, "overlaps"


def test_damaged_arguments(spec, device):
    context = raw.Context(device)
    for case in small_cases(spec):
        prepared = Prepared(spec, case)
        arena = Arena.at_least(device, prepared.nbytes)
        arena.upload(prepared.block)
        wrong = []
        for what, call, words in Damaged(prepared, arena, device).all():
            for function in (call.run, call.workspace, call.explain):
                status, message, *_ = function(context)
                if status != raw.INVALID_ARGUMENT:
                    wrong.append(f"{function.__name__}, {what}: status {status}, message {message!r}")
                elif spec.op not in message or words not in message:
                    wrong.append(f"{function.__name__}, {what}: the message does not name it: {message!r}")
            if not np.array_equal(arena.download(prepared.nbytes), prepared.block):
                wrong.append(f"{what}: memory was written")
                arena.upload(prepared.block)
        assert not wrong, f"{case}:\n" + "\n".join(wrong)
        # The context works on, and a success clears the message.
        call = raw.Call(prepared, arena, device)
        assert call.run(context) == (raw.OK, "")
        prepared.check(arena.download(prepared.nbytes))


def test_null(op, device):
    lib, context = raw.library(), raw.Context(device)
    args, bytes_out = raw.args_type(op)(), ctypes.c_size_t(7)
    assert getattr(lib, f"ek_{op}")(None, ctypes.byref(args)) == raw.INVALID_ARGUMENT
    assert f"{op}: context is NULL" in lib.ek_last_error().decode()
    assert getattr(lib, f"ek_{op}")(context.handle, None) == raw.INVALID_ARGUMENT
    assert f"{op}: args is NULL" in context.error()
    workspace = getattr(lib, f"ek_{op}_workspace")
    assert workspace(None, ctypes.byref(args), ctypes.byref(bytes_out)) == raw.INVALID_ARGUMENT
    assert workspace(context.handle, None, ctypes.byref(bytes_out)) == raw.INVALID_ARGUMENT
    assert workspace(context.handle, ctypes.byref(args), None) == raw.INVALID_ARGUMENT
    assert bytes_out.value == 7


def test_every_op_has_a_test(op, spec):
    assert spec.op == op and OPS[op] is spec.schema
