# SPDX-License-Identifier: Apache-2.0
import einkorn
import numpy as np
from harness import Expected, Spec


def reference(t, a):
    def scaled(x, tok, table):
        row, factor = table[t.pos.astype(np.int64)], np.tanh(tok)
        size = np.abs(x) * (np.abs(factor) + np.abs(row))[..., None]
        return Expected(x * (factor + row)[..., None], magnitude=size, math=True)

    return {"q": scaled(t.q, t.tok_q, t.table_q), "v": scaled(t.v, t.tok_v, t.table_v)}


def inputs(rng, t, a):
    t["pos"] = rng.integers(0, a.max_pos, t["pos"].shape)


def dims(n, a, i):
    heads, kv_heads = [(4, 2), (3, 3), (8, 1), (1, 1)][i % 4]
    return {
        "heads": heads,
        "kv_heads": kv_heads,
        "max_pos": 1 + 13 * (i % 3),
        "head_dim": min(n, 2048),
        "v_dim": min(n, 576),
    }


SIZES = {
    "smoke": [1, 8, 129], "ci": [1, 7, 8, 16, 33, 40, 64, 65, 72, 96, 128, 129, 192, 256, 512, 1000],
    "full": [*range(1, 70), 72, 80, 96, 128, 129, 192, 256, 257, 512, 576, 1000, 2048],
}  # fmt: skip
SPEC = Spec(
    "tau_scale",
    reference,
    dims=dims,
    inputs=inputs,
    sizes=SIZES,
    nonzero=("max_pos",),  # pos is a row of the table
    large={"heads": 8, "kv_heads": 8, "head_dim": 64, "v_dim": 64},
)


def test_tau_scale(plan):
    plan.check()


def heads_of(x, first, n):
    """A view of n heads of x, f32[rows, heads, ...]."""
    return x.view((x.shape[0], n, *x.shape[2:]), x.strides, 4 * first * x.strides[1])  # 4 bytes


def test_packed_qkv(device):
    """q and v are views of one tensor; k between them stays as it was."""
    rng = np.random.default_rng(1)
    before, tok = rng.standard_normal((5, 12, 16), np.float32), rng.standard_normal((5, 8), np.float32)
    table, pos = rng.standard_normal((9, 8), np.float32), np.array([0, 8, 3, 3, 1], np.int32)
    x, t, there, at = (einkorn.from_numpy(a, device) for a in (before, tok, table, pos))
    factors = [heads_of(a, first, 4) for a in (t, there) for first in (0, 4)]
    einkorn.tau_scale(*factors, at, q=heads_of(x, 0, 4), v=heads_of(x, 8, 4))
    qkv = x.numpy()
    factor = np.tanh(tok.astype(np.float64)) + table[pos]
    assert np.abs(qkv[:, :4] - before[:, :4] * factor[:, :4, None]).max() < 1e-5
    assert np.abs(qkv[:, 8:] - before[:, 8:] * factor[:, 4:, None]).max() < 1e-5
    assert np.array_equal(qkv[:, 4:8], before[:, 4:8])
