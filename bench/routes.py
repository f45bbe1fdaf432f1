#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the routing rules of the products for a measured GPU from its committed results: for each n x k that
was timed, ranges of m with the row that was fastest there, and those for a constant b where another one is with PDL. A row
of our own is kept unless another is faster by more than 2 %, the noise of the board. Which rows are selected the results say
after the next run. OTHERS are the rules for all other shapes, NORMS those of backward norms.

    bench/routes.py                      rewrites src/dispatch/tables/<GPU>.table; then run tools/gen.py and build
    bench/routes.py --also FILE          with the times of an earlier run too (git show <commit>:<file>): what is fastest in
                                         the mean of both is less often an accident
"""

import argparse
import copy
import json
import math
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NOISE = 0.02
OPS = ("gemm", "gemm_epilogue")
OUT = {"bf16": "bf16", "bf16_f32": "f32"}  # dtype of a case -> of d
TABLES = {"h200": "NVIDIA_H200"}
HEAD = """\
# Measured routing for the NVIDIA H200: one rule a line, docs/dispatch.md has the format. Written by bench/routes.py from
# timings like those of bench/results/h200/gemm.json, of one run or the mean of two. Shapes that no rule names are left to
# the order of the rows and the plans of gemm_config.h.
"""
# By trials of shapes that have no case in the bench (docs/measured-facts/gemm.md, few-rows.md); gemm_batched by one that has.
OTHERS_HEAD = "# Any other shape, by ranges."
# gemm_sm90_narrow takes up to 64 rows, 128 of few columns, but for: a small b; one or two rows of a b that is not constant, up to 6144
# columns; more than 32 rows of many columns, most of all where b is not constant.
NARROW = (
    ("gemm", "n=..4096 k=..511 m=1..16", "sm80_skinny"),
    ("gemm", "constant_b=1 n=..1056 k=512..1024 m=1..8", "sm90_skinny"),
    ("gemm", "constant_b=1 n=1057..2112 k=512..767 m=1..8", "sm90_skinny"),
    ("gemm", "constant_b=1 n=..1056 k=512..1024 m=9..16", "sm80_skinny"),
    ("gemm", "constant_b=1 n=16384.. k=1024.. m=1..2", "sm90_skinny"),
    ("gemm", "constant_b=0 n=..6144 k=512..1024 m=1..8", "sm90_skinny"),
    ("gemm", "constant_b=0 n=..6144 k=1025.. m=1..2", "sm90_skinny"),
    ("gemm", "constant_b=0 n=..2112 k=512..1024 m=9..16", "sm80_skinny"),
    ("gemm", "constant_b=0 n=4096..16384 k=..1024 m=17..32", "sm90"),
    ("gemm", "constant_b=0 n=4800..5632 m=33..64", "sm90_swap"),
    ("gemm", "constant_b=0 n=10240.. m=33..64", "sm90_swap"),
    ("gemm", "constant_b=1 n=16384..20480 m=33..64", "sm90_swap"),
    ("gemm", "constant_b=1 n=20481.. k=..2048 m=33..64", "sm90_swap"),
    ("gemm", "constant_b=1 n=5120.. k=..1024 m=33..64", "sm90_swap"),
    ("gemm", "constant_b=0 n=..1056 k=..767 m=65..128", "sm90"),
    ("gemm", "m=1..128", "sm90_narrow"),  # of more than 64 rows and many columns it takes none
    ("gemm_epilogue", "n=2049.. k=..1024 m=33..64", "sm90"),
    ("gemm_epilogue", "n=24576.. m=33..64", "sm90_swap"),
    ("gemm_epilogue", "k=1025.. m=5..64", "sm90_narrow"),
    ("gemm_epilogue", "constant_b=1 k=1025.. m=1..4", "sm90_narrow"),
)
# What it refuses. With an epilogue gemm_sm90_skinny gains only where kernels overlap.
FEW = (("gemm", ""), ("gemm_epilogue", "constant_b=1 "))
FEW_RANGES = (
    "n=..1056 k=512..4096 m=1..8",
    "n=1057..6144 k=512..8192 m=1..4",
    "n=1057..6144 k=512..2048 m=5..8",
    "n=4096..6144 k=2049..14336 m=5..8",
    "n=8192.. k=512.. m=1..4",
    "n=8192.. k=512..1024 m=5..8",
)
OTHERS = (
    *NARROW,
    ("gemm", "constant_b=0 n=..6144 k=512.. m=1..8", "sm90_skinny"),
    *((op, where + conditions, "sm90_skinny") for op, where in FEW for conditions in FEW_RANGES),
    ("gemm", "n=..10240 k=..1024 m=1..8", "sm80_skinny"),
    *((op, "n=..4096 k=..1024 m=1..16", "sm80_skinny") for op in OPS),
    *((op, "n=..4096 k=..2048 m=1..8", "sm80_skinny") for op in OPS),
    *((op, "constant_b=0 n=..4096 k=..2048 m=9..16", "sm80_skinny") for op in OPS),
    *((op, "constant_b=0 n=..4096 k=..4096 m=1..8", "sm80_skinny") for op in OPS),
    # Timed at 1 row, 32x1x1024x1024; up to 8 are one tile of skinny. 16 are two, and slower there.
    ("gemm_batched", "n=..1024 k=..1024 m=1..8", "sm80_skinny"),
)


# By trials of both kernels, two to six times (docs/measured-facts/norm.md): 1 to 5 % less time than with bulk copies, which
# come first; with PDL up to 4 %, or as much.
NORMS_HEAD = "# Backward norms that are quicker with their rows in registers."
NORMS = (
    ("rms_norm_backward", "T=bf16 rows=2048..3072 dim=4096"),
    ("rms_norm_backward", "T=bf16 rows=2560..2560 dim=5120"),
    ("rms_norm_backward", "T=bf16 rows=1536..8192 dim=8192"),
    ("rms_norm_backward", "T=f16 rows=3072..3072 dim=4096"),
    ("rms_norm_backward", "T=f32 rows=8192..8192 dim=4096"),
    ("layer_norm_backward", "T=bf16 rows=2048..3072 dim=4096"),
    ("layer_norm_backward", "T=f16 rows=3072..3072 dim=4096"),
    ("layer_norm_backward", "T=f32 rows=3072..8192 dim=4096"),
)


def plain(entry):
    usual = entry["case"].count(" ") == 0  # the usual layout
    dims = entry["dims"]
    named = entry["model"] or dims["m"] == dims["n"]  # layers and cubes; other cases are there to see what OTHERS do
    return entry["op"] in OPS and entry["dtype"] in OUT and not entry["attrs"] and usual and named


def weights(entry):
    """What a rule asks for: the op, the dtype of d, and the shape of b."""
    return entry["op"], OUT[entry["dtype"]], entry["dims"]["n"], entry["dims"]["k"]


def best(entries):
    fastest = min(entries, key=lambda e: e["us"])
    own = min((e for e in entries if "cublaslt" not in e["row"]), key=lambda e: e["us"])
    return own if own["us"] <= fastest["us"] * (1 + NOISE) else fastest


def ranges(times):
    """m -> row, as (first, last, row) with neighbours of the same row joined. A time speaks for the m's down to the one
    that was measured before it, and at most down to half."""
    found = []
    before = 0
    for m, row in sorted(times.items()):
        first = max(before + 1, m // 2 + 1)
        if found and found[-1][2] == row and found[-1][1] == first - 1:
            found[-1] = (found[-1][0], m, row)
        else:
            found.append((first, m, row))
        before = m
    return found


def averaged(result, other):
    """The result with the geometric means of both times of a row, where it has two."""
    key = lambda e: tuple(e[k] for k in ("op", "case", "dtype", "row", "pdl"))  # noqa: E731
    before, both = {key(e): e["us"] for e in other["cases"]}, copy.deepcopy(result)
    for e in both["cases"]:
        e["us"] = math.sqrt(e["us"] * before.get(key(e), e["us"]))
    return both


def routed(result, pdl):
    """weights -> m -> the row that is taken."""
    cases = {}
    for e in result["cases"]:
        if plain(e) and e["pdl"] == pdl:
            cases.setdefault(weights(e), {}).setdefault(e["dims"]["m"], []).append(e)
    return {w: {m: best(entries)["row"] for m, entries in by_m.items()} for w, by_m in sorted(cases.items())}


def rules(rows, overlapping):
    """Those for a constant b come first, and only where the others would take another row."""
    for (op, out, n, k), by_m in overlapping.items():
        for first, last, row in ranges(by_m):
            if any(by_m[m] != rows[op, out, n, k][m] for m in by_m if first <= m <= last):
                yield f"{op} T=bf16 D={out} constant_b=1 n={n} k={k} m={first}..{last} : {row}"
    for (op, out, n, k), by_m in rows.items():
        for first, last, row in ranges(by_m):
            yield f"{op} T=bf16 D={out} n={n} k={k} m={first}..{last} : {row}"


def other_rules():
    for op, conditions, row in OTHERS:
        for dtype in ("bf16", "f16"):
            yield f"{op} T={dtype} {conditions} : {op}_{row}"


def norm_rules():
    return [f"{op} {conditions} : {op}_cuda_vec" for op, conditions in NORMS]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=ROOT / "bench" / "results" / "h200")
    parser.add_argument("--also", type=Path, metavar="FILE", help="gemm.json of another run on the same GPU")
    options = parser.parse_args()
    result = json.loads((options.results / "gemm.json").read_text())
    times = averaged(result, json.loads(options.also.read_text())) if options.also else result
    rows, overlapping = routed(times, False), routed(times, True)
    lines = list(rules(rows, overlapping))
    path = ROOT / "src" / "dispatch" / "tables" / f"{TABLES[result['gpu']]}.table"
    norms, others = norm_rules(), list(other_rules())
    text = [HEAD, *lines, "", NORMS_HEAD, *norms, "", OTHERS_HEAD, *others]
    path.write_text("".join(line + "\n" for line in text))
    print(f"{len(lines) + len(norms) + len(others)} rules in {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
