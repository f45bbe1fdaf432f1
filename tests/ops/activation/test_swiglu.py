# SPDX-License-Identifier: Apache-2.0
from harness import Expected, Spec
from harness.functions import LAYOUTS, gate_dims, silu, silu_size, split_gate


def reference(t, a):
    gate, up = split_gate(t, a)
    return {"y": Expected(silu(gate) * up, **silu_size(gate, up), math=True)}


SPEC = Spec(
    "swiglu",
    reference,
    variants=[*LAYOUTS],
    dims=gate_dims,
    more_large=[{"dims": {}, "variant": v} for v in LAYOUTS[1:]],
)


def test_swiglu(plan):
    plan.check()
