# SPDX-License-Identifier: Apache-2.0
"""What the families are asked to reach on an H200, and whether committed results do. gemm_bars.py and
attention_bars.py have those of their families."""

from dataclasses import dataclass

from bench import attention_bars, gemm_bars

NOISE = 0.02  # of the board: a bar counts as met within it
MB = 1e6
OTHER = ("gemm", "attention")  # families with bars of their own
BACKWARD = ("rms_norm_backward", "layer_norm_backward")

# op, case, PDL -> microseconds a call, in a graph of 50 dependent calls
LAUNCH = (
    ("rms_norm", {"rows": 1, "dim": 4096}, False, 2.6),
    ("rms_norm", {"rows": 64, "dim": 4096}, False, 2.6),
    ("rms_norm", {"rows": 1, "dim": 4096}, True, 1.58),
    ("rms_norm", {"rows": 64, "dim": 4096}, True, 1.75),
    ("add_rms_norm", {"rows": 1, "dim": 4096}, True, 1.85),
    ("add_rms_norm", {"rows": 64, "dim": 4096}, True, 2.05),
    ("swiglu", {"rows": 1, "dim": 14336}, True, 2.0),
)
HOST = {"c": 500, "python": 2500}  # ns beyond a bare launch


@dataclass
class Bar:
    what: str
    bound: str
    value: float | None  # the worst of what the bar speaks about; None: nothing measured
    where: str  # which case that was
    met: bool


def _bar(what, sign, bound, unit, values):
    """values: (number, where). sign >=: the least must reach the bound; <=: the most must stay under it."""
    text = f"{sign} {bound:g} {unit}"
    if not values:
        return Bar(what, text, None, "", False)
    value, where = min(values) if sign == ">=" else max(values)
    met = value >= bound * (1 - NOISE) if sign == ">=" else value <= bound * (1 + NOISE)
    return Bar(what, text, value, where, met)


def tb_s_moved(entry):
    """The speed with all that a row moves: group_norm reads a group twice that does not fit on the chip."""
    twice = entry["row"] in ("group_norm_cuda_split", "group_norm_cuda")
    return entry["tb_s"] * (1.5 if twice else 1)


def bars(results):
    """results: family -> the parsed JSON of bench/run.py."""
    entries = [e for family, r in results.items() if family not in OTHER for e in r["cases"] if e["selected"]]
    large = [e for e in entries if not e["launch"] and e["dtype"].split("_")[0] == "bf16"]
    forward = [e for e in large if "backward" not in e["op"] and not e["op"].endswith("_quant")]
    plain = [e for e in forward if not e["pdl"]]

    def speed(some, least, most=float("inf")):
        return [(tb_s_moved(e), f"{e['op']} {e['case']}") for e in some if least * MB <= e["bytes"] < most * MB]

    def of_copy(some, least, most=float("inf")):
        fits = [e for e in some if least * MB <= e["bytes"] < most * MB]
        return [(100 * e["of_ceiling"], f"{e['op']} {e['case']}") for e in fits]

    backward = [e for e in large if e["op"] in BACKWARD]
    quant = [e for e in large if e["op"].endswith("_quant")]
    found = [
        _bar("bf16 forward from 128 MB", ">=", 3.83, "TB/s", speed(plain, 128)),
        _bar("bf16 forward from 64 MB", ">=", 3.7, "TB/s", speed(plain, 64, 128)),
        _bar("the same, with PDL where that was timed", ">=", 3.7, "TB/s", speed(_better(forward), 64, 128)),
        _bar("norm backward from 128 MB, as 3 tensors", ">=", 3.5, "TB/s", speed(backward, 128)),
        _bar("norm backward from 64 MB, as 3 tensors", ">=", 3.5, "TB/s", speed(backward, 64, 128)),
        _bar("quantizing ops from 128 MB, of copy", ">=", 85, "%", of_copy(quant, 128)),
        _bar("quantizing ops from 64 MB, of copy", ">=", 85, "%", of_copy(quant, 64, 128)),
        *_compiled(large),
        *_launch(entries),
        *_host(results),
        *gemm_bars.bars(results.get("gemm"), _bar),
        *attention_bars.bars(results.get("attention"), _bar),
    ]  # fmt: skip
    return found


def _better(entries):
    """The faster of an op's case with and without PDL."""
    best = {}
    for e in entries:
        key = e["op"], e["case"]
        if key not in best or e["us"] < best[key]["us"]:
            best[key] = e
    return list(best.values())


def _compiled(large):
    for rows, dim in ((8192, 8192), (4096, 16384)):
        pairs = [
            (e["us"] / e["baselines"]["torch_compile"], f"{e['us']} us to {e['baselines']['torch_compile']} us")
            for e in large
            if e["op"] == "rms_norm" and e["dims"] == {"rows": rows, "dim": dim} and "torch_compile" in e["baselines"]
        ]
        yield _bar(f"rms_norm {rows}x{dim}, time to torch.compile's", "<=", 1, "x", pairs)


def _launch(entries):
    for op, dims, pdl, bound in LAUNCH:
        fits = [
            (e["us"], e["row"])
            for e in entries
            if e["launch"] and e["op"] == op and e["pdl"] == pdl and dims.items() <= e["dims"].items()
        ]
        shape = "x".join(str(n) for n in dims.values())
        yield _bar(f"{op} {shape}, graph of 50{', PDL' if pdl else ''}", "<=", bound, "us", fits)


def _host(results):
    for language, bound in HOST.items():
        fits = [(h["ns"], h["op"]) for r in results.values() for h in r["host"] if h["language"] == language]
        yield _bar(f"host time of a call from {language}, beyond a bare launch", "<=", bound, "ns", fits)
