# SPDX-License-Identifier: Apache-2.0
"""What the gemm family is asked to reach on an H200. Ratios are times of others over ours: above 1 we are faster."""

import math

EPILOGUE = {2048: 1.10, 4096: 1.03, 8192: 1.03, 16384: 1.03}  # cube -> the most its time may be of the plain product's
OTHERS = ("cublaslt", "torch", "torch_compile")


class Group:
    """All rows of one case, launched one after the other. overlapped: the best of ours with PDL or without."""

    def __init__(self, entries, overlapping):
        first = self.entry = entries[0]
        self.selected = next((e for e in entries if e["selected"]), None)
        self.best = min(entries, key=lambda e: e["us"])
        # cuBLASLt is also one of the library's rows; a bar against it speaks of the others.
        own = [e for e in entries if "cublaslt" not in e["row"]]
        self.own = min(own, key=lambda e: e["us"]) if own else None
        either = own + [e for e in overlapping if "cublaslt" not in e["row"]]
        self.overlapped = min(either, key=lambda e: e["us"]) if either else None
        self.op, self.dims, self.attrs, self.model = first["op"], first["dims"], first["attrs"], first["model"]
        self.where = f"{first['op']} {first['case']}"
        self.m = first["dims"].get("m", 0)
        self.bf16 = first["dtype"] == "bf16"

    @property
    def cube(self):
        """The side of a product with m = n = k, stored as usual; else 0."""
        d = self.dims
        same = {d.get(k) for k in ("m", "n", "k")}
        return self.m if len(same) == 1 and self.bf16 and not self.entry["case"].endswith(("nn", "tn", "tt")) else 0

    def over(self, other, entry):
        us = entry["baselines"].get(other) if entry else None
        return us / entry["us"] if us else None


def groups(result):
    found = {}
    for e in result["cases"] if result else ():
        if e["row"].endswith("_tf32"):
            continue  # less exact than what it would be beside
        found.setdefault((e["op"], e["case"], e["dtype"]), ([], []))[e["pdl"]].append(e)
    return [Group(*entries) for entries in found.values() if entries[0]]


def ratios(some, other, of="own"):
    """(ratio, where) of each case that has both."""
    found = [(g.over(other, getattr(g, of)), g.where) for g in some]
    return [(r, where) for r, where in found if r is not None]


def geomean(values):
    if not values:
        return []
    mean = math.exp(sum(math.log(v) for v, _ in values) / len(values))
    return [(mean, f"geometric mean of {len(values)} cases")]


def bars(result, bar):
    """result: that of the family, or None. bar(what, sign, bound, unit, values) makes one."""
    every = groups(result)
    gemm = [g for g in every if g.op == "gemm"]
    layers = [g for g in gemm if g.model and g.bf16]  # the n x k of models
    small = [g for g in layers if g.m <= 64]
    heavy = [g for g in layers if g.m <= 16 and 2 * g.dims["n"] * g.dims["k"] >= 100e6]
    epilogues = [g for g in every if g.op == "gemm_epilogue"]

    def selected(g):
        """The row that is taken by itself, or the best of ours where that is cuBLASLt."""
        return "selected" if g.selected and "cublaslt" not in g.selected["row"] else "own"

    for attrs, name in ((False, "cube"), (True, "cube with alpha and beta")):
        cubes = [g for g in gemm if g.cube and not g.model and bool(g.attrs) == attrs]
        large = [r for g in cubes if g.cube >= 4096 for r in ratios([g], "cublaslt", selected(g))]
        yield bar(f"gemm, {name} from 4096, to cuBLASLt", ">=", 1.0, "x", large)
        rest = [r for g in cubes if g.cube < 4096 for r in ratios([g], "cublaslt", selected(g))]
        yield bar(f"gemm, {name} below 4096, to cuBLASLt", ">=", 0.95, "x", rest)
    for of, how in (("own", ""), ("overlapped", ", PDL or not")):
        to_lt = ratios(layers, "cublaslt", of)
        yield bar(f"gemm, layers of models{how}, to cuBLASLt, mean", ">=", 1.05, "x", geomean(to_lt))
        yield bar(f"gemm, layers of models{how}, to cuBLASLt, each", ">=", 0.90, "x", to_lt)
        for other, name, bound in (("cublaslt", "cuBLASLt", 1.15), ("torch", "torch", 1.3)):
            mean = geomean(ratios(small, other, of))
            yield bar(f"gemm, layers with m <= 64{how}, to {name}, mean", ">=", bound, "x", mean)
        speed = [(e["tb_s"], g.where) for g in heavy if (e := getattr(g, of))]
        yield bar(f"gemm, m <= 16, weights from 100 MB{how}", ">=", 3.9, "TB/s", speed)
    # Cases of no model that are no cubes show what happens off the list of shapes, where nothing is asked.
    listed = [g for g in every if g.op != "gemm" or g.model or g.dims["m"] == g.dims["n"]]
    chosen = [(g.best["us"] / g.selected["us"], g.where) for g in listed if g.selected]
    yield bar("gemm family, the selected row to the best", ">=", 0.98, "x", chosen)
    for side, bound in EPILOGUE.items():
        cost = [(1 / r, w) for r, w in ratios([g for g in epilogues if g.cube == side], "plain", "selected")]
        yield bar(f"gemm_epilogue, {side}, time to the plain product's", "<=", bound, "x", cost)
    for op in ("gemm_epilogue", "mlp"):
        vision = [g for g in every if g.op == op and g.model.startswith("Moondream") and g.bf16]
        for other in OTHERS[1:]:
            yield bar(f"{op} of the vision tower, to {other}", ">=", 1.0, "x", ratios(vision, other, "selected"))
