# SPDX-License-Identifier: Apache-2.0
"""A float64 result for every op, and how far from it a result may be before the bench refuses to time it.

This is a gate, not the test suite (tests/ops/ is): one shape, plain tolerance. References are written once against the
methods that torch tensors and NumPy arrays share; `m` is one of bench/arrays.py, `a` the arguments, tensors in float64.
An op that has none here is held against the reference of its test, which is slower: it computes on the CPU.
"""

import math
import sys
from pathlib import Path
from types import SimpleNamespace

from bench import attention, products
from bench.arrays import ROUNDOFF


def _mean(x):
    return x.mean(axis=-1, keepdims=True)


def _rstd(m, x, eps):
    return 1 / m.xp.sqrt(_mean(x * x) + eps)


def _sigmoid(m, x):
    return 1 / (1 + m.xp.exp(-x))


def _silu(m, x):
    return x * _sigmoid(m, x)


def _gelu(m, x, form):
    if form == "erf":
        return 0.5 * x * (1 + m.erf(x * math.sqrt(0.5)))
    return 0.5 * x * (1 + m.xp.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _gelu_slope(m, x, form):
    if form == "erf":
        return 0.5 * (1 + m.erf(x * math.sqrt(0.5))) + x * m.xp.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
    k = math.sqrt(2 / math.pi)
    t = m.xp.tanh(k * (x + 0.044715 * x**3))
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * k * (1 + 3 * 0.044715 * x * x)


def _weighted(a, y, offset=0.0):
    return y if a.weight is None else y * (a.weight + offset)


def _layer_norm(m, a, x):
    centred = x - _mean(x)
    y = _weighted(a, centred * _rstd(m, centred, a.eps))
    return y if a.bias is None else y + a.bias


def _gate(a):
    """(gate, up) in each layout."""
    if a.layout == "separate":
        return a.x, a.up
    if a.layout == "interleaved":
        return a.x[..., 0::2], a.x[..., 1::2]
    half = a.x.shape[-1] // 2
    return a.x[..., :half], a.x[..., half:]


def _ungate(m, a, dgate, dup):
    """Gradients in the layout of x."""
    if a.layout == "separate":
        return {"dx": dgate, "dup": dup}
    stack = m.xp.stack([dgate, dup], -1 if a.layout == "interleaved" else -2)
    return {"dx": stack.reshape(a.x.shape)}


def _quantized(m, a, v):
    """Values and scales; check() knows how coarse the stored values are."""
    limit = {"e4m3": 448.0, "i8": 127.0}[a.Q]
    dim = v.shape[-1]
    group = a.group or dim
    whole = dim // group * group
    parts = [m.xp.amax(abs(v[..., :whole]).reshape(*v.shape[:-1], -1, group), axis=-1)]
    if whole < dim:
        parts.append(m.xp.amax(abs(v[..., whole:]), axis=-1, keepdims=True))
    scale = m.xp.concatenate(parts, axis=-1) / limit
    return {"y": v, "scale": scale}


def _round_sum(m, a):
    return m.round(a.x + a.residual, a.T)


def rms_norm(m, a):
    return {"y": _weighted(a, a.x * _rstd(m, a.x, a.eps), a.weight_offset)}


def add_rms_norm(m, a):
    r = _round_sum(m, a)
    return {"residual": r, "y": _weighted(a, r * _rstd(m, r, a.eps), a.weight_offset)}


def rms_norm_gated(m, a):
    def norm(v):
        grouped = v.reshape(*v.shape[:-1], -1, a.group or v.shape[-1])
        return _weighted(a, (grouped * _rstd(m, grouped, a.eps)).reshape(v.shape))

    z = _silu(m, a.z)
    return {"y": norm(a.x) * z if a.norm_before_gate else norm(a.x * z)}


def layer_norm(m, a):
    return {"y": _layer_norm(m, a, a.x)}


def add_layer_norm(m, a):
    r = _round_sum(m, a)
    return {"residual": r, "y": _layer_norm(m, a, r)}


def l2_norm(m, a):
    return {"y": a.x / m.xp.sqrt((a.x * a.x).sum(axis=-1, keepdims=True) + a.eps)}


def group_norm(m, a):
    x = a.x if a.layout == "nchw" else a.x.swapaxes(1, 2)
    batch, channels, positions = x.shape
    g = x.reshape(batch, a.groups, -1)
    g = g - _mean(g)
    y = (g * _rstd(m, g, a.eps)).reshape(batch, channels, positions)
    if a.weight is not None:
        y = y * a.weight[:, None]
    if a.bias is not None:
        y = y + a.bias[:, None]
    return {"y": y if a.layout == "nchw" else y.swapaxes(1, 2)}


def rms_norm_quant(m, a):
    return _quantized(m, a, rms_norm(m, a)["y"])


def add_rms_norm_quant(m, a):
    out = add_rms_norm(m, a)
    return {"residual": out["residual"], **_quantized(m, a, out["y"])}


def rms_norm_backward(m, a):
    xhat = a.x * _rstd(m, a.x, a.eps)
    dxhat = _weighted(a, a.dy, a.weight_offset)
    lead = tuple(range(a.x.ndim - 1))
    return {
        "dx": (dxhat - xhat * _mean(dxhat * xhat)) * _rstd(m, a.x, a.eps),
        "dweight": (a.dy * xhat).sum(axis=lead),
    }


def layer_norm_backward(m, a):
    centred = a.x - _mean(a.x)
    rstd = _rstd(m, centred, a.eps)
    xhat = centred * rstd
    dxhat = _weighted(a, a.dy)
    lead = tuple(range(a.x.ndim - 1))
    return {
        "dx": (dxhat - _mean(dxhat) - xhat * _mean(dxhat * xhat)) * rstd,
        "dweight": (a.dy * xhat).sum(axis=lead),
        "dbias": a.dy.sum(axis=lead),
    }


def silu(m, a):
    return {"y": _silu(m, a.x)}


def gelu(m, a):
    return {"y": _gelu(m, a.x, a.form)}


def relu(m, a):
    return {"y": m.xp.clip(a.x, 0, math.inf)}


def relu2(m, a):
    return {"y": m.xp.clip(a.x, 0, math.inf) ** 2}


def swiglu(m, a):
    gate, up = _gate(a)
    return {"y": _silu(m, gate) * up}


def geglu(m, a):
    gate, up = _gate(a)
    return {"y": _gelu(m, gate, a.form) * up}


def reglu(m, a):
    gate, up = _gate(a)
    return {"y": m.xp.clip(gate, 0, math.inf) * up}


def swiglu_clamped(m, a):
    gate, up = _gate(a)
    gate = m.xp.clip(gate, -math.inf, a.limit)
    up = m.xp.clip(up, -a.limit, a.limit)
    return {"y": gate * _sigmoid(m, a.alpha * gate) * (up + 1)}


def gelu_gate(m, a):
    gate, up = _gate(a)
    return {"y": _gelu(m, gate, a.form) * (up + 1)}


def swiglu_quant(m, a):
    return _quantized(m, a, swiglu(m, a)["y"])


def silu_backward(m, a):
    s = _sigmoid(m, a.x)
    return {"dx": a.dy * s * (1 + a.x * (1 - s))}


def gelu_backward(m, a):
    return {"dx": a.dy * _gelu_slope(m, a.x, a.form)}


def swiglu_backward(m, a):
    gate, up = _gate(a)
    s = _sigmoid(m, gate)
    return _ungate(m, a, a.dy * up * s * (1 + gate * (1 - s)), a.dy * gate * s)


def geglu_backward(m, a):
    gate, up = _gate(a)
    return _ungate(m, a, a.dy * up * _gelu_slope(m, gate, a.form), a.dy * _gelu(m, gate, a.form))


def add(m, a):
    return {"y": a.a + a.b}


def mul(m, a):
    return {"y": a.a * a.b}


def scale(m, a):
    return {"y": a.alpha * a.x if a.by is None else a.alpha * a.by * a.x}


def axpby(m, a):
    return {"y": a.alpha * a.x + a.beta * a.y}


def cast(m, a):
    return {"y": a.x}


def transpose_2d(m, a):
    return {"y": a.x.swapaxes(-1, -2)}


def nchw_to_nhwc(m, a):
    b, c, h, w = a.x.shape
    return {"y": a.x.reshape(b, c, h * w).swapaxes(1, 2).reshape(b, h, w, c)}


def nhwc_to_nchw(m, a):
    b, h, w, c = a.x.shape
    return {"y": a.x.reshape(b, h * w, c).swapaxes(1, 2).reshape(b, c, h, w)}


def upsample_nearest_2x(m, a):
    i, j, k = a.x.shape[1:]
    if a.layout == "nchw":
        wide = m.xp.broadcast_to(a.x[:, :, :, None, :, None], (a.x.shape[0], i, j, 2, k, 2))
        return {"y": wide.reshape(-1, i, 2 * j, 2 * k)}
    wide = m.xp.broadcast_to(a.x[:, :, None, :, None, :], (a.x.shape[0], i, 2, j, 2, k))
    return {"y": wide.reshape(-1, 2 * i, 2 * j, k)}


REFERENCES = {
    f.__name__: f
    for f in (
        rms_norm, add_rms_norm, rms_norm_gated, layer_norm, add_layer_norm, l2_norm, group_norm, rms_norm_quant,
        add_rms_norm_quant, rms_norm_backward, layer_norm_backward, silu, gelu, relu, relu2, swiglu, geglu, reglu,
        swiglu_clamped, gelu_gate, swiglu_quant, silu_backward, gelu_backward, swiglu_backward, geglu_backward, add,
        mul, scale, axpby, cast, transpose_2d, nchw_to_nhwc, nhwc_to_nchw, upsample_nearest_2x,
    )
} | products.REFERENCES | attention.REFERENCES  # fmt: skip


def prepare(m, args):
    """Inputs that must agree with each other: the statistics which a backward op gets from its forward."""
    x = args.get("x")
    attention.prepare(m, args)
    if args.get("mean") is not None:
        m.assign(args["mean"], m.f64(x).mean(axis=-1))
        centred = m.f64(x) - _mean(m.f64(x))
        m.assign(args["rstd"], _rstd(m, centred, args["eps"])[..., 0])
    elif args.get("rstd") is not None:
        m.assign(args["rstd"], _rstd(m, m.f64(x), args["eps"])[..., 0])


def compute(m, op, args, dtypes):
    """Expected outputs of `op` by name. args: its tensors (None where absent) and attributes."""
    if op in products.REFERENCES:
        return products.compute(m, op, args, dtypes)
    if op in attention.REFERENCES:
        return attention.compute(m, op, args, dtypes)
    in64 = {k: m.f64(v) if hasattr(v, "shape") else v for k, v in args.items()}
    if op in REFERENCES:
        return REFERENCES[op](m, SimpleNamespace(**in64, **dtypes))
    return _of_the_test(m, op, in64, dtypes)


def _of_the_test(m, op, args, dtypes):
    tests = str(Path(__file__).resolve().parent.parent / "tests")
    if tests not in sys.path:
        sys.path.append(tests)
    from harness.spec import all_specs

    spec, dims = all_specs()[op], {}
    tensors = {k: m.to_numpy(v) if hasattr(v, "shape") else v for k, v in args.items()}
    for t in spec.schema.tensors:
        if tensors.get(t.name) is not None:
            before = t.dims.index("...") if "..." in t.dims else len(t.dims)
            shape, after = tensors[t.name].shape, len(t.dims) - before - 1
            dims |= zip(t.dims[:before], shape, strict=False)
            dims |= zip(t.dims[before + 1 :], shape[len(shape) - after :] if after > 0 else (), strict=True)
    given = {a.name: a.default for a in spec.schema.attrs} | args
    found = spec.reference(SimpleNamespace(**tensors), SimpleNamespace(**{**given, **dims, **dtypes}))
    if any(hasattr(e, "q") for e in found.values()):
        raise NotImplementedError(f"{op}: a quantised result needs a reference of its own in bench/reference.py")
    return {name: m.from_numpy(getattr(e, "value", e)) for name, e in found.items()}


def check(m, got, expected, dtypes, group=0, slack=1.0):
    """None, or a sentence about the first output that is off. dtypes: by output name; group: of quantizing ops.

    A value v of rounded outputs may be off by 4 u (|v| + rms(v)), u the dtype's ROUNDOFF: two roundings of the result
    and one of an intermediate, with a floor for what cancels. Quantized values may be off by 0.55 of their own step
    (0.5 is rounding), their scales by 2^-10.
    """
    for name, want in expected.items():
        if isinstance(want, products.Sampled):
            problem = _check_samples(m, name, got[name], want, 4 * slack * ROUNDOFF[dtypes[name]])
            if problem:
                return problem
            continue
        have = m.f64(got[name])
        if tuple(have.shape) != tuple(want.shape):
            return f"{name} has shape {tuple(have.shape)}, expected {tuple(want.shape)}"
        if name == "scale":
            limit = 2.0**-10 * want
        elif dtypes[name] in ("e4m3", "i8"):
            step = _spread(m, expected["scale"], want, group)
            have = have * _spread(m, m.f64(got["scale"]), want, group)
            limit = 0.55 * (step if dtypes[name] == "i8" else m.xp.maximum(abs(want) / 8, step * 2.0**-9))
        else:
            limit = 4 * ROUNDOFF[dtypes[name]] * (abs(want) + (want * want).mean() ** 0.5)
        bad = ~(abs(have - want) <= slack * limit)  # a NaN is bad
        if bad.any():
            return f"{name}: {int(bad.sum())} of {math.prod(want.shape)} values are off by up to {_worst(have, want)}"
    return None


def _check_samples(m, name, have, want, limit):
    if tuple(have.shape) != want.shape:
        return f"{name} has shape {tuple(have.shape)}, expected {want.shape}"
    for some, values in want.pairs(have):
        some = m.f64(some)
        bad = ~(abs(some - values) <= limit * (abs(values) + (values * values).mean() ** 0.5))
        if bad.any():
            part = f"{int(bad.sum())} of {math.prod(values.shape)} sampled values"
            return f"{name}: {part} are off by up to {_worst(some, values)}"
    return None


def _spread(m, scale, values, group):
    """One scale for each value."""
    dim = values.shape[-1]
    wide = m.xp.broadcast_to(scale[..., None], (*scale.shape, group or dim))
    return wide.reshape(*scale.shape[:-1], -1)[..., :dim]


def _worst(have, want):
    worst = float(abs(have - want).max())
    return "nan" if worst != worst else f"{worst:.3g}"
