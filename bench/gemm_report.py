# SPDX-License-Identifier: Apache-2.0
"""The part of docs/performance.md on the gemm family: TFLOP/s for large products, TB/s for those that read weights."""

from bench import plot
from bench.gemm_bars import OTHERS, groups

SMALL = 64  # rows of a up to which a product is limited by reading its weights
TITLES = ("cuBLASLt", "torch", "compiled")
NOTE = """
Products with more than {small} rows are shown by TFLOP/s, the others by TB/s. `x cuBLASLt`, `x torch`, `x compiled`: their
time over ours. cuBLASLt is the fastest of up to 32 algorithms that its heuristic proposes, each of them timed here; torch
is its own call (`matmul`, or `linear` and what follows it). Weights are stored [n, k], as in PyTorch, unless the case says
otherwise (nn, tn, tt). A case is m x n x k, with a batch in front; that of mlp ends in the width of its hidden layer.
"""


def number(value, digits=2):
    return "" if value is None else f"{value:.{digits}f}"


def section(gpu, result, table):
    """(text, files). table(head, rows) makes a Markdown table."""
    shown = [g for g in groups(result) if g.selected]
    pdl = {(e["op"], e["case"], e["dtype"]): e["us"] for e in result["cases"] if e["pdl"] and e["selected"]}
    large = [g for g in shown if g.m > SMALL]
    small = [g for g in shown if g.m <= SMALL]
    name = f"performance/{gpu}_gemm.svg"
    text, files = "\n### gemm\n" + NOTE.format(small=SMALL), {}
    if large:
        files[f"docs/{name}"] = picture(gpu, large)
        text += f"\n![]({name})\n"
        head = ["op", "case", "dtype", "kernel", "us", "TFLOP/s", *(f"x {t}" for t in TITLES)]
        text += "\n" + table(head, [line(g, g.selected["tflop_s"], 0) for g in large])
    if small:
        head = ["op", "case", "dtype", "kernel", "us", "TB/s", *(f"x {t}" for t in TITLES), "us with PDL"]
        rows = [[*line(g, g.selected["tb_s"], 2), number(pdl.get(key(g)))] for g in small]
        text += "\n" + table(head, rows)
    return text, files


def key(g):
    return g.op, g.entry["case"], g.entry["dtype"]


def line(g, speed, digits):
    e = g.selected
    case = f"{e['case']} ({g.model})" if g.model else e["case"]
    faster = [number(g.over(other, e)) for other in OTHERS]
    dtype = e["dtype"].replace("_", " to ")
    return [g.op, case, dtype, f"`{e['row']}`", number(e["us"], 1), number(speed, digits), *faster]


def picture(gpu, large):
    def tflops(g, other):
        us = g.selected["baselines"].get(other)
        return g.selected["tflop_s"] * g.selected["us"] / us if us else None

    # Cubes, and of the models one m that they all have.
    some = [g for g in large if g.bf16 and (g.cube or g.m in (2048, 2187))]
    rows = [
        (f"{g.op} {g.entry['case']}", [g.selected["tflop_s"]], [tflops(g, "cublaslt"), tflops(g, "torch")])
        for g in some
    ]
    title = f"{gpu.upper()}: products in bf16"
    return plot.bars(title, "TFLOP/s", rows, marks=TITLES[:2], step=100.0, groups=("einkorn",))
