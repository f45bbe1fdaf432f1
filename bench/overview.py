# SPDX-License-Identifier: Apache-2.0
"""The picture of README.md: every family beside the fastest of the others, from the results that docs/performance.md shows."""

from math import inf
from statistics import geometric_mean

from bench import plot


def _products(least, most, *ops):
    return lambda e: e["op"] in ops and least <= e["dims"]["m"] <= most


# what a line shows, and which results of which family
LINES = (
    ("attention, prefill", "attention", lambda e: e["op"] == "attention"),
    ("products, 1 to 64 rows", "gemm", _products(1, 64, "gemm", "gemm_batched")),
    ("products, more rows", "gemm", _products(65, inf, "gemm", "gemm_batched")),
    ("products with epilogue, mlp", "gemm", _products(1, inf, "gemm_epilogue", "mlp")),
    ("norms", "norm", lambda e: not e["op"].endswith(("_quant", "_backward"))),
    ("norms, quantizing", "norm", lambda e: e["op"].endswith("_quant")),
    ("norms, backward", "norm", lambda e: e["op"].endswith("_backward")),
    ("activations", "activation", lambda e: not e["op"].endswith(("_quant", "_backward"))),
    ("activations, quantizing", "activation", lambda e: e["op"].endswith("_quant")),
    ("activations, backward", "activation", lambda e: e["op"].endswith("_backward")),
    ("elementwise", "elementwise", lambda e: True),
)


def ratios(result, fits):
    """Time of the fastest other over that of the kernel that the library selects, of each case that has both."""
    found = []
    for e in result["cases"]:
        single = e["selected"] and not e["launch"] and not e["pdl"]
        if single and e["dtype"].split("_")[0] == "bf16" and fits(e):
            others = [us for name, us in e["baselines"].items() if us and name != "plain"]
            if others:
                found.append(min(others) / e["us"])
    return found


def picture(gpu, results):
    """SVG text, or "" where there is nothing to show."""
    rows = []
    for name, family, fits in LINES:
        found = ratios(results[family], fits) if family in results else []
        if found:
            rows.append((f"{name} ({len(found)} cases)", [geometric_mean(found)], [min(found), max(found)]))
    title = f"{gpu.upper()}, bf16: time of the fastest other over einkorn's"
    marks = ("worst case", "best case")
    return plot.bars(title, "x", rows, 1.0, "as fast", marks, 0.5, ("geometric mean",)) if rows else ""
