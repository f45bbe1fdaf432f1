# SPDX-License-Identifier: Apache-2.0
"""Contexts, streams, events, graphs, and the questions one can ask the dispatcher."""

import contextlib
import types
from pathlib import Path
from typing import NamedTuple

from . import _native
from ._native import build_info, last_kernel, ops, version

__all__ = ["build_info", "last_kernel", "ops", "version"]  # passed on to the package

_DEVICE_TYPES = {"cpu": 1, "cuda": 2}
_DEVICE_NAMES = {number: name for name, number in _DEVICE_TYPES.items()}
_FLAGS = {"deterministic": 1, "batch_invariant": 2, "pdl": 4, "tf32": 8}


def device_pair(device):
    """'cpu', 'cuda' or 'cuda:1' (or a torch.device) -> DLPack's type and id."""
    kind, _, index = str(device).partition(":")
    if kind not in _DEVICE_TYPES or not (index or "0").isdigit():
        raise ValueError(f"device is {device!r}, expected cpu, cuda or cuda:<number>")
    return _DEVICE_TYPES[kind], int(index or 0)


class Context:
    """A device, a stream, a workspace and flags; used by one thread at a time.

    flags: any of deterministic, batch_invariant, pdl, tf32. stream: a Stream, a CUDA stream's address, or None to follow
    torch's current stream (the default stream where there is no torch)."""

    def __init__(self, device="cpu", *, flags=(), stream=None):
        self.device = str(device)
        self._pair = device_pair(device)
        self._native = _native.context_create(*self._pair)
        self._owned = ()  # memory the library still looks at
        if flags:
            self.set_flags(*((flags,) if isinstance(flags, str) else flags))
        if stream is not None:
            self.set_stream(stream)

    @classmethod
    def _wrap(cls, device, native):
        self = cls.__new__(cls)
        self.device, self._pair, self._native, self._owned = str(device), device_pair(device), native, ()
        return self

    @property
    def stream(self):
        """The address of the CUDA stream it is on; 0 is the default stream."""
        return _native.context_stream(self._native) or 0

    def set_stream(self, stream):
        handle = stream.handle if isinstance(stream, Stream) else stream
        _native.context_set_stream(self._native, handle)
        self._stream = stream  # keeps it alive

    def set_flags(self, *names):
        unknown = [n for n in names if n not in _FLAGS]
        if unknown:
            raise ValueError(f"unknown flag {unknown[0]!r}, expected one of {', '.join(_FLAGS)}")
        _native.context_set_flags(self._native, sum({_FLAGS[n] for n in names}))

    def set_workspace(self, array):
        """Use a DeviceArray as workspace; None: let the context own one again."""
        pointer, nbytes = (None, 0) if array is None else (array.pointer, array._dense_bytes())
        _native.context_set_workspace(self._native, pointer, nbytes)
        self._owned = (array,)

    def reserve(self, nbytes):
        """Grow the owned workspace now, so that no later call has to (none can during capture)."""
        _native.context_reserve(self._native, nbytes)

    def synchronize(self):
        _native.context_synchronize(self._native)

    def force(self, op, kernel):
        """Calls of `op` here run this row or fail with its reason; kernel None: free choice again."""
        _native.kernel_force(self._native, op, kernel)

    def last_kernel(self):
        return _native.kernel_last(self._native)

    def set_table(self, text):
        """Replace the measured routing table; None: the built-in one."""
        _native.table_set(self._native, text)

    def explain(self, op, *args, **kwargs):
        """Which row a call with these arguments would run, and why not the others."""
        return _ask(op, "explain", self, args, kwargs)

    def workspace(self, op, *args, **kwargs):
        """The most workspace, in bytes, that any row may need for these arguments."""
        return _ask(op, "workspace", self, args, kwargs)

    @contextlib.contextmanager
    def capture(self):
        """Record calls instead of running them:  with ctx.capture() as graph: ...;  graph.replay()."""
        graph = Graph(self)
        _native.graph_begin(self._native)
        try:
            with use(self):
                yield graph
        except BaseException:
            # End the capture, or the stream stays unusable; the error that interrupted it is the one to report.
            with contextlib.suppress(_native.Error):
                _native.graph_end(self._native)
            raise
        graph._native = _native.graph_end(self._native)

    def __repr__(self):
        return f"einkorn.Context({self.device!r})"


class Graph:
    """Recorded calls. Tensor contents are read at each replay; attributes are frozen."""

    def __init__(self, ctx):
        self._context, self._native = ctx, None

    def replay(self, ctx=None):
        if self._native is None:
            raise RuntimeError("the capture of this graph did not end")
        _native.graph_launch(self._native, (ctx or self._context)._native)


class Stream:
    """A CUDA stream of the library's own."""

    def __init__(self, device="cuda"):
        self._pair = device_pair(device)
        self.handle = _native.stream_create(*self._pair)

    def synchronize(self):
        _native.stream_synchronize(*self._pair, self.handle)

    def __del__(self, destroy=_native.stream_destroy):  # bound here: at exit the module may be gone
        if getattr(self, "handle", None):
            destroy(*self._pair, self.handle)


class Event:
    """A point in a context's work."""

    def __init__(self, device="cuda"):
        self._native = _native.event_create(*device_pair(device))

    def record(self, ctx):
        _native.event_record(self._native, ctx._native)

    def wait(self, ctx):
        """Later work of ctx waits for the event."""
        _native.event_wait(self._native, ctx._native)

    def synchronize(self):
        _native.event_synchronize(self._native)

    def elapsed_ms(self, since):
        return _native.event_elapsed(since._native, self._native)


class use:
    """with einkorn.use(ctx): every op call of this thread runs on ctx."""

    def __init__(self, ctx):
        self._context, self._previous = ctx, []

    def __enter__(self):
        self._previous.append(_native.context_use(self._context._native))
        return self._context

    def __exit__(self, *_):
        _native.context_use(self._previous.pop())


def context(device="cpu"):
    """This thread's own context of a device: what a call without ctx runs on. Keep it inside the thread."""
    return Context._wrap(device, _native.context_default(*device_pair(device)))


# ---- questions -----------------------------------------------------------------------------------------------------------


class Kernel(NamedTuple):
    """A row of an op's dispatch table."""

    name: str
    device: str
    target: int  # the least Device.target that can run it
    deterministic: bool
    batch_invariant: bool
    needs_tf32: bool  # out unless the context has the flag tf32


class Device(NamedTuple):
    name: str
    device: str  # 'cpu', 'cuda:0'
    target: int  # CUDA: 90 for compute capability 9.0. CPU: x86-64 level in use, 0 elsewhere
    processors: int
    memory_bytes: int
    l2_bytes: int


def kernels(op):
    """The rows of an op in table order, best first on each device."""
    if op not in ops():
        raise ValueError(f"no op {op!r}")
    return [
        Kernel(name, _DEVICE_NAMES[kind], target, bool(flags & 1), bool(flags & 2), bool(flags & 8))
        for name, kind, target, flags in _native.kernels(op)
    ]


def devices():
    """What the library can run on here: the CPU, then the CUDA devices."""
    found = []
    for name, kind in _DEVICE_TYPES.items():
        for i in range(_native.device_count(kind)):
            title, target, processors, memory, l2 = _native.device_query(kind, i)
            found.append(Device(title, name if name == "cpu" else f"{name}:{i}", target, processors, memory, l2))
    return found


def library_path():
    """The shared library that is loaded, for callers in other languages."""
    return str(next(iter(sorted(Path(__file__).parent.glob("libeinkorn.so*")))))


def _ask(op, question, ctx, args, kwargs):
    """Run the op's own function with another native call in its last line, so that a question takes the op's arguments."""
    from . import ops_gen

    if op not in ops_gen.__all__:
        raise ValueError(f"no op {op!r}")
    answers = []
    function = getattr(ops_gen, op)
    namespace = function.__globals__ | {"_call": lambda *fields: answers.append(getattr(_native, question)(*fields))}
    asking = types.FunctionType(function.__code__, namespace, function.__name__, function.__defaults__)
    asking.__kwdefaults__ = function.__kwdefaults__
    asking(*args, **kwargs, ctx=ctx)
    return answers[0]
