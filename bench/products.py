# SPDX-License-Identifier: Apache-2.0
"""float64 results of matrix products for the bench, by samples: whole rows and whole columns of the result, at least one
of each in every stretch of STRETCH, so that no tile of a kernel goes unseen and no column or row of a tile does either.
All of a large product in float64 would take longer than everything that is timed."""

import random
from types import SimpleNamespace

STRETCH = 64  # no kernel has a smaller tile in a product this large
ALL = 128  # up to so many rows or columns, every one


class Sampled:
    """Some rows and some columns of a matrix, or of each of a batch."""

    def __init__(self, shape, lines, values):
        self.shape, self.lines, self.values = shape, lines, values

    def pairs(self, have):
        """(what is there, what should be) for both."""
        rows, columns = self.lines
        return [(have[..., rows, :], self.values[0]), (have[..., columns], self.values[1])]


def pick(n, seed):
    if n <= ALL:
        return list(range(n))
    rng = random.Random(seed)
    some = {rng.randrange(s, min(s + STRETCH, n)) for s in range(0, n, STRETCH)}
    return sorted(some | {0, n - 1})


def _activate(m, act, x):
    from bench import reference

    functions = {
        "none": lambda: x,
        "silu": lambda: reference._silu(m, x),
        "gelu_erf": lambda: reference._gelu(m, x, "erf"),
        "gelu_tanh": lambda: reference._gelu(m, x, "tanh"),
        "relu": lambda: m.xp.clip(x, 0, float("inf")),
        "relu2": lambda: m.xp.clip(x, 0, float("inf")) ** 2,
    }
    return functions[act]()


def _epilogue(m, a, z):
    return _activate(m, a.act, z[..., 0::2]) * z[..., 1::2] if a.gated else _activate(m, a.act, z)


def _pairs(columns):
    return [c for j in columns for c in (2 * j, 2 * j + 1)]


def _with_c(m, a):
    rows, columns = pick(a.d.shape[-2], 1), pick(a.d.shape[-1], 2)

    def value(x, y, c):
        z = a.alpha * (m.f64(x) @ m.f64(y))
        return z if a.beta == 0 else z + a.beta * m.f64(c)

    c = a.c if a.beta != 0 else a.d
    values = value(a.a[..., rows, :], a.b, c[..., rows, :]), value(a.a, a.b[..., columns], c[..., columns])
    return {"d": Sampled(tuple(a.d.shape), (rows, columns), values)}


def gemm_epilogue(m, a):
    rows, columns = pick(a.y.shape[0], 1), pick(a.y.shape[1], 2)

    def value(x, y, bias, residual):
        z = m.f64(x) @ m.f64(y)
        z = z if bias is None else z + m.f64(bias)
        v = a.out_scale * _epilogue(m, a, z)
        return v if residual is None else v + m.f64(residual)

    of_b = _pairs(columns) if a.gated else columns
    some = lambda t, at: None if t is None else t[at]  # noqa: E731
    values = (
        value(a.a[rows], a.b, a.bias, some(a.residual, rows)),
        value(a.a, a.b[:, of_b], some(a.bias, of_b), None if a.residual is None else a.residual[:, columns]),
    )
    return {"y": Sampled(tuple(a.y.shape), (rows, columns), values)}


def mlp(m, a):
    rows, columns = pick(a.y.shape[0], 1), pick(a.y.shape[1], 2)

    def hidden(x):
        z = m.f64(x) @ m.f64(a.w1)
        return m.round(_epilogue(m, a, z if a.b1 is None else z + m.f64(a.b1)), a.T)

    def value(x, at):
        y = hidden(a.x[x]) @ m.f64(a.w2[:, at])
        y = y if a.b2 is None else y + m.f64(a.b2[at])
        return y if a.residual is None else y + m.f64(a.residual[x][:, at])

    every = slice(None)
    values = value(rows, every), value(every, columns)
    return {"y": Sampled(tuple(a.y.shape), (rows, columns), values)}


def gemm_pack_gated(m, a):
    gate, up = m.f64(a.gate), m.f64(a.up)
    return {"b": m.xp.stack([gate, up], -1).reshape(gate.shape[0], -1)}


REFERENCES = {
    "gemm": _with_c,
    "gemm_batched": _with_c,
    "gemm_epilogue": gemm_epilogue,
    "mlp": mlp,
    "gemm_pack_gated": gemm_pack_gated,
}


def compute(m, op, args, dtypes):
    return REFERENCES[op](m, SimpleNamespace(**args, **dtypes))
