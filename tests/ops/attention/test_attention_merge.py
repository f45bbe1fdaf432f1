# SPDX-License-Identifier: Apache-2.0
import einkorn
import numpy as np
import pytest
from harness import AUTO, Expected, Prepared, Spec, encode, rows
from harness.attention_checks import name_of
from harness.tolerance import F32, product_error

SHARDS = 2  # processes of tools/gpu-check


def reference(t, a):
    seen = t.lse != -np.inf
    x = np.where(seen[..., None], t.x, 0.0)
    most = np.max(t.lse, -1, keepdims=True, initial=-np.inf)
    most = np.where(most == -np.inf, 0.0, most)
    p = np.exp(t.lse - most)
    total = p.sum(-1, keepdims=True)
    w = np.divide(p, total, out=np.zeros_like(p), where=total != 0)
    y = (w[..., None] * x).sum(-2)
    # A rounding of lse or of the largest one is a factor of a weight.
    e = np.where(seen, F32 * (8 + 4 * np.abs(np.where(seen, t.lse, 0)) + 4 * np.abs(most)), 0.0)
    mean = (w * e).sum(-1)
    error = ((w * e)[..., None] * np.abs(x)).sum(-2) + np.abs(y) * mean[..., None]
    error = error + product_error((w[..., None] * np.abs(x)).sum(-2), a.states)
    lse = np.where(total[..., 0] == 0, -np.inf, np.log(total[..., 0]) + most[..., 0])
    lse_error = mean + F32 * (8 + 2 * np.log2(max(a.states, 1)) + 4 * np.abs(most[..., 0]))
    return {"y": Expected(y, error=error), "lse_out": Expected(lse, error=lse_error)}


def inputs(rng, t, a):
    """States that saw nothing, and whose x was never written; rows without any other."""
    t["lse"] = np.clip(t["lse"], -50, 50)
    t["lse"][rng.random(t["lse"].shape) < 0.2] = -np.inf
    if t["lse"].ndim > 1 and t["lse"].shape[0] > 1:
        t["lse"][1] = -np.inf
    t["x"][t["lse"] == -np.inf] = np.nan


def dims(n, a, i):
    return {"states": (2, 1, 3, 8, 5, 17, 40)[i % 7], "dim": min(n, 2048)}


SIZES = {
    "smoke": [1, 8, 129], "ci": [1, 7, 8, 32, 33, 40, 64, 65, 72, 96, 128, 129, 192, 256, 257, 512, 576, 1000, 1024],
    "full": [*range(1, 70), 72, 80, 96, 128, 129, 192, 255, 256, 257, 512, 576, 1000, 1024, 2048],
}  # fmt: skip
SPEC = Spec(
    "attention_merge", reference, dims=dims, inputs=inputs, sizes=SIZES, special=("zero", "denormal", "large"),
    large={"states": 4, "dim": 128},
)  # fmt: skip


def test_attention_merge(plan):
    plan.check()


@pytest.mark.parametrize("dtypes", SPEC.combos(), ids=name_of)
def test_near_the_largest(dtypes, device):
    """A mean of states is no larger than they are: also where a sum of them would overflow."""
    most = 6e4 if "f16" in dict(dtypes).values() else 3e38
    for i in (0, 2, 5, 6):  # 2, 3, 17 and 40 states
        drawn = Prepared(SPEC, SPEC.case(dtypes, 72, i, lead=(9,)))
        lse = np.zeros(drawn.shapes["lse"])
        lse[::3] = np.arange(lse.shape[1]) / 4
        sign = np.where(np.arange(9) % 2, 1.0, -1.0)[:, None, None]
        x = np.broadcast_to(sign * most, drawn.shapes["x"])
        large = Prepared(SPEC, drawn.case, {"x": encode(x, drawn.dtypes["x"]), "lse": encode(lse, "f32")})
        for row in [*(k.name for k in rows.usable(SPEC.op, device)), AUTO]:
            large.check(large.run(device, row, einkorn.Context(device)))
