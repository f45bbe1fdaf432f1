# SPDX-License-Identifier: Apache-2.0
"""The Python package: what goes in, what comes out, and what it says when it can't."""

import inspect
import threading
import time
from pathlib import Path

import einkorn
import numpy as np
import pytest
from einkorn.schema import OPS

X = np.random.default_rng(0).standard_normal((6, 64)).astype(np.float32)
W = np.linspace(0.5, 1.5, 64, dtype=np.float32)


def reference(x, w=None):
    x = np.asarray(x, np.float64)
    y = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6)
    return y if w is None else y * w


def close(got, want, tolerance=1e-6):
    return np.allclose(np.asarray(got, np.float64), want, rtol=tolerance, atol=tolerance)


# ---- NumPy ----------------------------------------------------------------------------------------------------------------


def test_numpy():
    y = einkorn.rms_norm(X, W)
    assert isinstance(y, np.ndarray) and y.dtype == np.float32 and close(y, reference(X, W))
    assert einkorn.last_kernel().startswith("rms_norm_cpu")


def test_outputs_given_asked_for_and_left_out():
    y = np.empty_like(X)
    assert einkorn.rms_norm(X, W, y=y) is y and close(y, reference(X, W))
    y, rstd = einkorn.rms_norm(X, rstd=True)
    assert rstd.shape == (6,) and rstd.dtype == np.float32
    _, mean = einkorn.layer_norm(X, mean=True)
    assert close(mean, X.mean(-1))
    assert len(einkorn.layer_norm(X, mean=True, rstd=True)) == 3


def test_output_that_a_requirement_asks_for():
    """swiglu_backward has dup exactly in layout separate: no need to say so."""
    assert isinstance(einkorn.swiglu_backward(X, np.hstack([X, X])), np.ndarray)
    dx, dup = einkorn.swiglu_backward(X, X, X, layout="separate")
    assert dx.shape == dup.shape == X.shape


def test_inout_is_changed_in_place():
    residual = X.copy()
    y = einkorn.add_rms_norm(X, residual, W)
    assert np.array_equal(residual, 2 * X) and close(y, reference(2 * X, W))
    z = X.copy()
    assert einkorn.axpby(X, z, alpha=2, beta=1) is z and close(z, 3 * X)


def test_shapes_of_outputs():
    assert einkorn.swiglu(X).shape == (6, 32)
    assert einkorn.transpose_2d(X).shape == (64, 6)
    assert einkorn.upsample_nearest_2x(X.reshape(2, 3, 8, 8)).shape == (2, 3, 16, 16)
    y, scale = einkorn.rms_norm_quant(X, group=48, dtype="i8")
    assert y.shape == X.shape and y.dtype == np.int8 and scale.shape == (6, 2)


def test_strided_views():
    packed = np.random.default_rng(1).standard_normal((5, 12, 64)).astype(np.float32)
    q = packed[:, 2:6]
    assert close(einkorn.rms_norm(q), reference(q))
    einkorn.rms_norm(q, y=q)
    assert close(np.mean(packed[:, 2:6] ** 2, -1), 1, 1e-4) and not close(np.mean(packed[:, 6:] ** 2, -1), 1, 1e-4)


def test_float16_and_attributes_as_numpy_numbers():
    y = einkorn.scale(X.astype(np.float16), alpha=np.float64(2))
    assert y.dtype == np.float16 and close(y, 2 * X, 2e-3)


def test_ml_dtypes():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = X.astype(ml_dtypes.bfloat16)
    y = einkorn.rms_norm(x, W.astype(ml_dtypes.bfloat16))
    assert y.dtype == ml_dtypes.bfloat16 and close(y, reference(x, W.astype(ml_dtypes.bfloat16)), 0.01)
    assert close(einkorn.rms_norm(x[:, ::1][1:4]), reference(x[1:4]), 0.01)
    q, scale = einkorn.rms_norm_quant(x, dtype="e4m3")
    assert q.dtype == ml_dtypes.float8_e4m3fn and close(q.astype(np.float32) * scale, reference(x), 0.1)
    assert einkorn.cast(X, dtype=ml_dtypes.bfloat16).dtype == ml_dtypes.bfloat16
    read_only = x.copy()
    read_only.flags.writeable = False
    with pytest.raises(einkorn.InvalidArgument, match="y is read-only"):
        einkorn.rms_norm(x, y=read_only)


# ---- errors -----------------------------------------------------------------------------------------------------------------


def test_errors():
    with pytest.raises(ValueError, match=r"weight has shape \[3\], expected \[dim = 64\] \(dim from x\)") as e:
        einkorn.rms_norm(X, W[:3])
    assert (
        isinstance(e.value, einkorn.Error)
        and isinstance(e.value, RuntimeError)
        and e.value.status == "invalid_argument"
    )
    read_only = X.copy()
    read_only.flags.writeable = False
    with pytest.raises(einkorn.InvalidArgument, match="silu: y is read-only"):
        einkorn.silu(X, y=read_only)
    with pytest.raises(einkorn.InvalidArgument, match="form is 'cubic', expected one of erf, tanh"):
        einkorn.gelu(X, form="cubic")
    with pytest.raises(einkorn.InvalidArgument, match="does not fit 32 bits"):
        einkorn.rms_norm_quant(X, group=2**40, dtype="i8")
    with pytest.raises(einkorn.InvalidArgument, match="dtype"):
        einkorn.silu(X.astype(np.complex64), y=X.copy())
    with pytest.raises(TypeError, match="cap must be a number, not 'high'"):
        einkorn.softcap(X, cap="high")
    with pytest.raises(TypeError, match="must be a NumPy array, a torch tensor or have __dlpack__"):
        einkorn.silu(X, y=object())
    with pytest.raises(TypeError, match="give dtype=, or y="):
        einkorn.cast(X)
    with pytest.raises(TypeError, match="ctx must be"):
        einkorn.silu(X, ctx="cpu")
    with pytest.raises(TypeError):
        einkorn.silu()
    with pytest.raises(ValueError, match="not a dtype"):
        einkorn.cast(X, dtype="f7")
    with pytest.raises(einkorn.InvalidArgument, match="stride of 6 bytes"):
        odd = np.zeros(96, np.uint8)
        einkorn.silu(X[:2, :4], y=np.ndarray((2, 4), np.float32, odd, 0, (48, 6)))
    with pytest.raises(einkorn.InvalidArgument, match="9 dimensions"):
        einkorn.silu(X, y=np.zeros((1,) * 9, np.float32))
    assert close(einkorn.rms_norm(X), reference(X))


def test_errors_of_inputs_where_the_output_is_allocated():
    """The op and the argument are named though the shape of the output could not be found."""
    with pytest.raises(einkorn.InvalidArgument, match="rms_norm: x is NULL, expected a tensor"):
        einkorn.rms_norm(None)
    with pytest.raises(TypeError, match="swiglu: x must be a NumPy array"):
        einkorn.swiglu([1.0, 2.0])
    with pytest.raises(einkorn.InvalidArgument, match="gemm: b has 1 dimensions, expected 2"):
        einkorn.gemm(X, X[0])
    with pytest.raises(einkorn.InvalidArgument, match=r"multiple of groups \(channels = 4, groups = 3\)"):
        einkorn.group_norm(np.zeros((2, 4, 8), np.float32), groups=3)
    with pytest.raises(einkorn.InvalidArgument, match=r"x is of an unknown dtype \(code 1, 16 bits, 1 lanes\)"):
        einkorn.rms_norm(np.zeros((2, 8), np.uint16))
    q, k = np.zeros((3, 4, 2, 16), np.float32), np.zeros((2, 9, 2, 16), np.float32)
    with pytest.raises(einkorn.InvalidArgument, match=r"tokens of one sequence, or of all \(rows = 12, batch = 2"):
        einkorn.attention(q, k, k)


# ---- contexts ---------------------------------------------------------------------------------------------------------------


def test_contexts():
    ctx = einkorn.Context("cpu", flags=("deterministic", "batch_invariant"))
    row = [k.name for k in einkorn.kernels("rms_norm") if k.device == "cpu"][-1]
    ctx.force("rms_norm", row)
    einkorn.rms_norm(X, ctx=ctx)
    assert ctx.last_kernel() == row
    assert "forced" in ctx.explain("rms_norm", X)
    with einkorn.use(ctx):
        einkorn.rms_norm(X)
        assert einkorn.last_kernel() == row
        with einkorn.use(einkorn.Context("cpu")):
            einkorn.rms_norm(X)
            assert einkorn.last_kernel() != row or row == einkorn.kernels("rms_norm")[0].name
        einkorn.rms_norm(X)
        assert einkorn.last_kernel() == row
    assert ctx.workspace("rms_norm", X) == 0
    with pytest.raises(ValueError, match="unknown flag"):
        einkorn.Context("cpu", flags="fast")
    with pytest.raises(ValueError, match="expected cpu, cuda"):
        einkorn.Context("tpu")
    with pytest.raises(ValueError, match="no op"):
        ctx.explain("nothing")


def test_use_is_per_thread():
    ctx, seen = einkorn.Context("cpu"), []
    row = [k.name for k in einkorn.kernels("silu") if k.device == "cpu"][-1]
    ctx.force("silu", row)

    def other():
        einkorn.silu(X)
        seen.append(einkorn.last_kernel())

    with einkorn.use(ctx):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        einkorn.silu(X)
        assert einkorn.last_kernel() == row
    einkorn.silu(X)
    assert seen == [einkorn.last_kernel()]


def test_queries():
    assert einkorn.version() == einkorn.__version__ and einkorn.version() in einkorn.build_info()
    assert einkorn.devices()[0].device == "cpu"
    assert set(einkorn.ops()) == set(OPS)
    # The one that is loaded, not just one that lies there
    mapped = {Path(line.split(maxsplit=5)[-1]) for line in Path("/proc/self/maps").read_text().splitlines()}
    assert {p for p in mapped if p.name.startswith("libeinkorn.so")} == {Path(einkorn.library_path()).resolve()}
    with pytest.raises(ValueError, match="no op"):
        einkorn.kernels("nothing")


def test_table(device):
    """A rule of a table sends calls to another row, those that it says and no others."""
    ctx = einkorn.Context(device)
    row = [k.name for k in einkorn.kernels("rms_norm") if k.device == device.partition(":")[0]][-1]

    def ran(dim):
        x = einkorn.from_numpy(np.ascontiguousarray(X[:, :dim]), device)
        assert close(einkorn.rms_norm(x, ctx=ctx).numpy(), reference(X[:, :dim]))
        return ctx.last_kernel()

    ctx.set_table("")
    first = ran(64)
    if first == row:
        pytest.skip("the last row is the only one that can run here")
    assert ran(32) == first
    ctx.set_table(f"# a comment\nrms_norm T=f32 dim=64 : {row}\n")
    assert (ran(64), ran(32)) == (row, first)
    assert "line 2 of the routing table" in ctx.explain("rms_norm", einkorn.from_numpy(X, device))
    with pytest.raises(einkorn.InvalidArgument, match='line 1: the op has no such row: "nothing"'):
        ctx.set_table("rms_norm : nothing")
    assert ran(64) == row  # a table that can't be read changes nothing
    ctx.set_table(None)
    assert "routing table" not in ctx.explain("rms_norm", einkorn.from_numpy(X, device))


# ---- streams and events -------------------------------------------------------------------------------------------------------


def test_events(device):
    stream = einkorn.Stream(device)
    ctx, start, stop = einkorn.Context(device, stream=stream), einkorn.Event(device), einkorn.Event(device)
    with pytest.raises(einkorn.InvalidArgument, match="start was never recorded"):
        stop.elapsed_ms(start)
    begin = time.perf_counter()
    start.record(ctx)
    with pytest.raises(einkorn.InvalidArgument, match="stop was never recorded"):
        stop.elapsed_ms(start)
    stop.synchronize()  # never recorded: nothing to wait for
    start.synchronize()
    time.sleep(0.02)
    stop.record(ctx)
    stop.wait(einkorn.Context(device))
    stop.synchronize()
    most = 1e3 * (time.perf_counter() - begin)
    assert 19 < stop.elapsed_ms(start) <= most
    start.record(ctx)  # again: its time is now the later one
    stream.synchronize()
    assert start.elapsed_ms(stop) >= 0


@pytest.mark.parametrize("how", ["event.wait", "event.synchronize", "stream.synchronize", "context.synchronize"])
def test_waiting(cuda, how):
    """What a stream of its own has to do takes milliseconds longer than to ask for it; each way to wait ends after it."""
    stream, event, reader = einkorn.Stream(cuda), einkorn.Event(cuda), einkorn.context(cuda)
    ctx, calls = einkorn.Context(cuda, stream=stream), 20
    x = einkorn.empty((16384, 4096), "f32", cuda).fill_bytes(0)
    one = einkorn.from_numpy(np.ones(4096, np.float32), cuda).view(x.shape, (0, 1))
    reader.synchronize()
    for _ in range(calls):
        einkorn.add(x, one, y=x, ctx=ctx)
    event.record(ctx)
    ways = {
        "event.wait": lambda: event.wait(reader),  # numpy() copies in its order
        "event.synchronize": event.synchronize,
        "stream.synchronize": stream.synchronize,
        "context.synchronize": ctx.synchronize,
    }
    ways[how]()
    last = x.view((4096,), (1,), 4 * 16383 * 4096)
    assert (last.numpy() == calls).all()


# ---- DLPack and device memory -----------------------------------------------------------------------------------------------


def test_device_array(device):
    d = einkorn.from_numpy(X, device)
    y = einkorn.rms_norm(d)
    assert isinstance(y, einkorn.DeviceArray) and y.device == device and close(y.numpy(), reference(X))
    half = d.view((6, 32), (64, 1), 128)
    assert close(einkorn.rms_norm(half).numpy(), reference(X[:, 32:]))
    assert einkorn.empty((0, 5), "f32", device).numpy().shape == (0, 5)
    with pytest.raises(ValueError, match="dense"):
        half.numpy()


def test_device_array_as_dlpack():
    d = einkorn.from_numpy(X, "cpu")
    a = np.from_dlpack(d)
    assert np.array_equal(a, X)
    del d
    assert np.array_equal(a, X)  # the memory lives as long as its last reader


class Producer:
    """An array that offers __dlpack__ and nothing else; old: as before DLPack 1.0."""

    def __init__(self, array, old=False):
        self.array, self.old = array, old

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, **options):
        if self.old and "max_version" in options:
            raise TypeError("unexpected max_version")
        return self.array.__dlpack__(**options)


@pytest.mark.parametrize("old", [False, True])
def test_any_dlpack_producer(old):
    y = np.empty_like(X)
    einkorn.rms_norm(Producer(einkorn.from_numpy(X, "cpu"), old), y=y)
    assert close(y, reference(X))
    with pytest.raises(TypeError, match="pass the outputs yourself"):
        Producer.shape = X.shape
        einkorn.rms_norm(Producer(X))


def test_wrong_device(cuda):
    with pytest.raises(einkorn.InvalidArgument, match="y is on"):
        einkorn.silu(einkorn.from_numpy(X, cuda), y=X.copy())
    with pytest.raises(einkorn.InvalidArgument, match="event is of cpu:0, the context of cuda:0"):
        einkorn.Event("cpu").record(einkorn.Context(cuda))


# ---- torch --------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


def test_torch(torch, device):
    x, w = torch.tensor(X, device=device), torch.tensor(W, device=device)
    y = einkorn.rms_norm(x, w)
    assert isinstance(y, torch.Tensor) and y.device == x.device and close(y.cpu().numpy(), reference(X, W))
    assert einkorn.rms_norm(x.bfloat16()).dtype == torch.bfloat16
    q, scale = einkorn.rms_norm_quant(x, dtype=torch.float8_e4m3fn)
    assert q.dtype == torch.float8_e4m3fn and scale.dtype == torch.float32
    packed = torch.randn(5, 12, 64, device=device)
    assert close(einkorn.rms_norm(packed[:, 2:6]).cpu().numpy(), reference(packed[:, 2:6].cpu().numpy()))
    assert einkorn.rms_norm(torch.nn.Parameter(x)).shape == x.shape
    with pytest.raises(einkorn.InvalidArgument, match="contiguous"):
        einkorn.silu(x.t(), y=torch.empty(64, 6, device=device))


def as_torch(torch, x, how):
    """A tensor as a torch of before 2.10 would give it, without DLPack's table: what there is to take is __dlpack__."""
    if how == "table":
        return x
    return x.as_subclass(type("Older", (torch.Tensor,), {"__dlpack_c_exchange_api__": None}))


@pytest.mark.parametrize("how", ["table", "older torch"])
def test_torch_streams(torch, cuda, how):
    """A call runs on torch's current stream; work queued there before it is seen."""
    x = as_torch(torch, torch.zeros(1 << 22, device=cuda), how)
    streams = [torch.cuda.Stream() for _ in range(4)]
    torch.cuda.synchronize()
    for i in range(40):
        with torch.cuda.stream(streams[i % 4]):
            x.record_stream(streams[i % 4])
            streams[i % 4].wait_stream(streams[(i - 1) % 4])
            x.add_(1)
            einkorn.scale(x, alpha=1.0, y=x)
            x.add_(1)
    torch.cuda.synchronize()
    assert (x == 80).all()


@pytest.mark.parametrize("how", ["table", "older torch"])
def test_torch_graph(torch, cuda, how):
    """Captured by torch's own graphs."""
    x, y = (as_torch(torch, t, how) for t in (torch.randn(8, 64, device=cuda), torch.empty(8, 64, device=cuda)))
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        einkorn.rms_norm(x, y=y)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        einkorn.rms_norm(x, y=y)
    x.copy_(torch.randn(8, 64, device=cuda))
    graph.replay()
    torch.cuda.synchronize()
    assert close(y.cpu().numpy(), reference(x.cpu().numpy()), 1e-5)


# ---- the generated functions --------------------------------------------------------------------------------------------------


def test_functions_match_the_schema(op):
    function, schema = getattr(einkorn, op), OPS[op]
    parameters = inspect.signature(function).parameters
    names = {t.name for t in schema.tensors} | {a.name for a in schema.attrs} | {"ctx"}
    assert names <= set(parameters) and set(parameters) - names <= {"dtype"}
    assert schema.doc.split()[0] in function.__doc__
    for a in schema.attrs:
        assert parameters[a.name].default == a.default
    for t in schema.tensors:
        required = t.role != "out" and not t.optional
        assert (parameters[t.name].default is inspect.Parameter.empty) == required


def test_the_lock_is_released():
    """A long call on the CPU lets other Python threads run."""
    x, ticks, done = np.zeros((3000, 4096), np.float32), [], threading.Event()

    def tick():
        while not done.wait(0.0005):
            ticks.append(1)

    thread = threading.Thread(target=tick)
    thread.start()
    for _ in range(20):
        einkorn.gelu(x, y=x)
    done.set()
    thread.join()
    assert len(ticks) > 2
