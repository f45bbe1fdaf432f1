# SPDX-License-Identifier: Apache-2.0
"""Every op, called from C with each of its arguments damaged in each way, each of its requirements broken, and in dtypes
that do not go together: an error that names it, and nothing written."""

import ctypes
import dataclasses
import itertools
import math
import re

import numpy as np
import pytest
from einkorn.schema import ENUMS, OPS
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
    """Each way to damage a good call, as (what was done, the call, the message that it must get as an expression)."""

    def __init__(self, prepared, arena, device):
        self.prepared, self.arena, self.device = prepared, arena, device
        self.schema, self.op = prepared.spec.schema, prepared.spec.op

    def call(self):
        return raw.Call(self.prepared, self.arena, self.device)

    def expected(self, *names, or_rule=False):
        """The op, one of these arguments, what it is, and what was expected; or a broken requirement's own sentence."""
        said = rf"(?:{'|'.join(names)}) .*\bexpected .*"
        rules = "|".join(re.escape(s) for s in self.schema.require.values()) if or_rule else ""
        return rf"{self.op}: (?:{said}{rf'|(?:{rules})(?: .*)?' if rules else ''})"

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
            yield f"struct_size {wrong}", call, self.expected("struct_size")

    def attrs(self):
        for a in self.schema.attrs:
            wrong = {"enum": (-1, 99), "bool": (2,), "i32": (-1,), "i64": (-1,)}.get(a.type, ())
            for value in wrong:
                if a.type[0] == "i" and self.allowed({**self.prepared.values, a.name: value}):
                    continue
                call = self.call()
                setattr(call.args, a.name, value)
                rules = [s for e, s in self.schema.require.items() if re.search(rf"\b{a.name}\b", e)]
                rule = "|".join(re.escape(s) for s in rules)
                number = rf"{self.op}: (?:{rule}) \(.*\b{a.name} = {value}\b.*\)"
                yield f"{a.name} = {value}", call, number if a.type[0] == "i" else self.expected(a.name)

    def allowed(self, values):
        """Whether the schema's requirements, which alone limit a number, let these values pass."""
        present = self.prepared.case.present
        return all(self.schema.evaluate(e, values, present) for e in self.schema.require)

    def pointers(self, name):
        spec = self.schema.tensor(name)
        if not spec.optional:
            call = self.call()
            setattr(call.args, name, None)
            yield f"{name} NULL", call, self.expected(name)
        call, t = self.tensor(name)
        t.data = None
        yield f"{name} without data", call, self.expected(name)
        call, t = self.tensor(name)
        t.dtype = F64 if "i64" in self.schema.dtypes.get(spec.dtype, ()) else I64
        yield f"{name} of another dtype", call, self.expected(name)
        call, t = self.tensor(name)
        t.dtype = 0
        yield f"{name} without a dtype", call, self.expected(name)
        call, t = self.tensor(name)
        t.device.type = 1 if t.device.type == 2 else 2
        yield f"{name} on another device", call, self.expected(name)
        if self.device != "cpu" and not spec.host:
            call, t = self.tensor(name)
            t.device.id += 1
            yield f"{name} on another GPU", call, self.expected(name)
        size = ITEMSIZE[self.prepared.dtypes[name]]
        if size > 1:
            call, t = self.tensor(name)
            t.data += 1
            yield f"{name} off by a byte", call, self.expected(name)

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
            # Another tensor may be the first that does not fit.
            yield f"{name} of shape {w}", call, self.expected(*self.prepared.placed, or_rule=True)
        if shape:
            call, t = self.tensor(name)
            t.shape = None
            yield f"{name} without a shape", call, self.expected(name)

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
            yield f"{name} with a negative stride", call, self.expected(name)
            if spec.role != "in":
                call, t = self.tensor(name)
                t.strides[d] = 0
                yield f"{name} overlapping itself", call, self.expected(name)
        own_last = spec.dims and spec.dims[-1] != "..."
        if own_last and not spec.strided and placed.shape[-1] > 1:
            call, t = self.tensor(name)
            t.strides[len(placed.shape) - 1] = 2
            yield f"{name} with gaps in its last dimension", call, self.expected(name)

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
                said = rf"{self.op}: (?:{out} overlaps \w+|\w+ overlaps {out}), expected .*"
                yield f"{out} over {other}", call, said


def faults(prepared, arena, call, context, right):
    """What is wrong with the answers to a bad call. right(message): whether it says what is wrong with the call."""
    for function in (call.run, call.workspace, call.explain):
        status, message, *_ = function(context)
        if status != raw.INVALID_ARGUMENT:
            yield f"{function.__name__}: status {status}, message {message!r}"
        elif not right(message):
            yield f"{function.__name__}: the message does not name it: {message!r}"
    if not np.array_equal(arena.download(prepared.nbytes), prepared.block):
        yield "memory was written"
        arena.upload(prepared.block)


def test_damaged_arguments(spec, device):
    context = raw.Context(device)
    for case in small_cases(spec):
        prepared = Prepared(spec, case)
        arena = Arena.at_least(device, prepared.nbytes)
        arena.upload(prepared.block)
        wrong = []
        for what, call, message in Damaged(prepared, arena, device).all():
            right = re.compile(message, re.DOTALL).fullmatch
            wrong += [f"{what}, {fault}" for fault in faults(prepared, arena, call, context, right)]
        assert not wrong, f"{case}:\n" + "\n".join(wrong)
        # The context works on, and a success clears the message.
        call = raw.Call(prepared, arena, device)
        assert call.run(context) == (raw.OK, "")
        prepared.check(arena.download(prepared.nbytes))


def check_refused(spec, device, context, case, right):
    """For a case that breaks a rule. Its inputs are not drawn: specs know legal ones only."""
    prepared = Prepared(spec, case, {spec.schema.tensors[0].name: 0})
    arena = Arena.at_least(device, prepared.nbytes)
    arena.upload(prepared.block)
    wrong = [*faults(prepared, arena, raw.Call(prepared, arena, device), context, right)]
    assert not wrong, f"{case}:\n" + "\n".join(wrong)


# What an attribute, whatever it means, may not be; and what it may be, but not beside others.
VALUES = {"i32": (-1, 0, 7), "i64": (-1, 0, 7), "f32": (-1.0, 2.0, math.nan), "f64": (-1.0, 2.0, math.nan),
          "bool": (False, True)}  # fmt: skip


def changes(spec, case):
    """The case with one thing changed: an attribute, an optional tensor, a dim, the leading dims, or the dtypes."""
    schema, attrs, dims = spec.schema, dict(case.attrs), dict(case.dims)
    for a in schema.attrs:
        for value in ENUMS[a.enum] if a.type == "enum" else VALUES[a.type]:
            yield dataclasses.replace(case, attrs=tuple({**attrs, a.name: value}.items()))
    for changed in (t.name for t in schema.tensors if t.optional):
        present = tuple(t.name for t in schema.tensors if (t.name in case.present) != (t.name == changed))
        yield dataclasses.replace(case, present=present)
    for name, n in dims.items():
        for size in (0, n - 1, n + 1, 1025):  # 1025: more than head_dim may be
            if size >= 0:
                yield dataclasses.replace(case, dims=tuple({**dims, name: size}.items()))
    for lead in ((2, 3), (7,)) if schema.has_lead else ():
        yield dataclasses.replace(case, lead=lead)
    for dtypes in spec.combos():
        yield dataclasses.replace(case, dtypes=dtypes)


def broken(spec, case):
    """The sentence of the first requirement that the case breaks, or None."""
    values = spec.values(case)
    sentences = spec.schema.require.items()
    return next((s for e, s in sentences if not spec.schema.evaluate(e, values, case.present)), None)


def test_requirements(spec, device):
    """Each requirement broken, as a single change of a legal call can break it, and refused with its own sentence."""
    if not spec.schema.require:
        pytest.skip("no requirements")
    context, seen = raw.Context(device), set()
    for case in small_cases(spec):
        assert broken(spec, case) is None
        for bad in dict.fromkeys(changes(spec, case)):
            sentence = broken(spec, bad)
            if sentence is not None:
                says = re.compile(rf"{spec.op}: {re.escape(sentence)}( \(.+ = .+\))?").fullmatch
                check_refused(spec, device, context, bad, says)
                seen.add(sentence)
    assert seen == {*spec.schema.require.values()}, "no call that breaks them: small_cases() or changes() lacks one"


def test_dtypes_that_do_not_go_together(spec, device):
    schema, context = spec.schema, raw.Context(device)
    if not schema.combos:
        pytest.skip("all do")
    every = [tuple(zip(schema.dtypes, c, strict=True)) for c in itertools.product(*schema.dtypes.values())]
    wrong = [dtypes for dtypes in every if dict(dtypes) not in schema.combos]
    assert wrong, "all dtypes go together: the schema needs no combos"
    for case, dtypes in itertools.product(small_cases(spec)[:1], wrong):
        text = f"{spec.op}: {', '.join(f'{v} = {d}' for v, d in dtypes)}, expected one of ("
        check_refused(
            spec, device, context, dataclasses.replace(case, dtypes=dtypes), lambda m, text=text: m.startswith(text)
        )


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
