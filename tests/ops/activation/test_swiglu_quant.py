# SPDX-License-Identifier: Apache-2.0
from harness import Quantized, Spec
from harness.functions import LAYOUTS, gate_dims, silu, silu_size, split_gate


def reference(t, a):
    gate, up = split_gate(t, a)
    y = Quantized(silu(gate) * up, a.group, a.Q, silu_size(gate, up)["magnitude"], math=a.T != "f32")
    return {"y": y, "scale": y.scale()}


SPEC = Spec(
    "swiglu_quant",
    reference,
    variants=[
        *LAYOUTS,
        {"group": 128},
        {"group": 7, "layout": "interleaved"},
        {"group": 128, "layout": "interleaved"},
        {"group": 128, "layout": "separate"},
    ],
    dims=gate_dims,
    more_large=[{"dims": {}, "variant": v} for v in (*LAYOUTS[1:], {"group": 128})],
)


def test_swiglu_quant(plan):
    plan.check()
