# SPDX-License-Identifier: Apache-2.0
"""The parts of the bench that need no GPU: cases against the schema, formulas, references, bars, the report."""

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from bench import (  # noqa: E402
    attention_bars,
    attention_timeline,
    bars,
    cases,
    cublaslt,
    devices,
    overview,
    reference,
    report,
    routes,
)
from bench import run as bench_run  # noqa: E402
from bench.arrays import NumpyArrays  # noqa: E402
from bench.formulas_gen import FORMULAS  # noqa: E402

OPS = cases.load_ops()
CASES = {family: cases.load(family, OPS) for family in cases.families(OPS)}
ALL = [c for found in CASES.values() for c in found]


def test_every_op_has_cases_of_every_size_and_dtype():
    for op in OPS:
        mine = [c for c in ALL if c.op.name == op.name]
        bf16 = [c.bytes for c in mine if "bf16" in c.dtypes.values()]
        assert any(b >= 128e6 for b in bf16), f"{op.name}: no bf16 case from 128 MB"
        assert any(64e6 <= b < 128e6 for b in bf16), f"{op.name}: no bf16 case of 64 to 128 MB"
        used = {d for c in mine for d in c.dtypes.values()}
        assert {"f32", "f16"} <= used, f"{op.name}: no case in { ({'f32', 'f16'} - used) }"


def test_every_op_has_a_formula_and_a_reference():
    names = {op.name for op in OPS}
    assert set(FORMULAS) == names
    assert set(reference.REFERENCES) < names  # the others are held against the references of their tests


def test_an_op_without_a_reference_of_its_own_takes_that_of_its_test():
    m = NumpyArrays()
    x = m.randn((3, 64), "f32")
    assert "softcap" not in reference.REFERENCES
    want = reference.compute(m, "softcap", {"x": x, "y": None, "cap": 2.0}, {"T": "f32"})
    right = {"y": 2 * m.xp.tanh(x / 2)}
    assert reference.check(m, right, want, {"y": "f32"}) is None
    assert "192 of 192" in reference.check(m, {"y": right["y"] + 1}, want, {"y": "f32"})
    # Dims, attributes that were not given, and optional tensors that are absent.
    args = {"x": x, "weight": None, "y": None, "rstd": None}
    mine = reference._of_the_test(
        m, "rms_norm", {k: m.f64(v) if v is not None else v for k, v in args.items()}, {"T": "f32"}
    )
    other = reference.compute(m, "rms_norm", {**args, "eps": 1e-6, "weight_offset": 0.0}, {"T": "f32"})
    assert abs(mine["y"] - other["y"]).max() < 1e-9


def test_formulas_agree_with_the_tensors():
    """The least that an op moves is each large tensor once; a formula may leave out weights and statistics."""
    for c in ALL:
        if "decode" in c.op.name and "window_left" in c.attrs:
            continue  # of its cache it reads a part
        inout = sum(c.set_bytes_of(t) for t in c.tensors() if t.role == "inout")
        assert c.bytes == pytest.approx(c.set_bytes + inout, rel=0.03, abs=2**20), f"{c.op.name} {c.label}"
        assert c.flops >= 0


def test_the_sizes_the_bars_speak_of_are_there():
    for op, dims, _, _ in bars.LAUNCH:
        assert any(c.op.name == op and "launch" in c.tags and dims.items() <= c.dims.items() for c in ALL), (op, dims)
    for rows, dim in ((16384, 4096), (8192, 8192), (4096, 16384), (131072, 128)):
        (case,) = [
            c for c in ALL if c.op.name == "rms_norm" and c.dims == {"rows": rows, "dim": dim} and c.dtype == "bf16"
        ]
        assert "compile" in case.tags
    for op in ("rms_norm", "add_rms_norm", "layer_norm"):  # rows of clusters
        assert any(c.op.name == op and c.dims["dim"] == 131072 and c.bytes >= 128e6 for c in ALL)
    for op in OPS:
        if op.family not in bars.OTHER:
            assert any(c.op.name == op.name and "compile" in c.tags for c in ALL), f"{op.name}: no compiled baseline"


def test_a_wrong_case_is_named(tmp_path):
    def complaint(line):
        (tmp_path / "norm.toml").write_text(f"[rms_norm]\ncases = [{{ {line} }}]\n")
        with pytest.raises(cases.CaseError) as error:
            cases.load("norm", OPS, tmp_path)
        return str(error.value)

    assert "rms_norm.cases[0].size: neither" in complaint("rows = 1, dim = 8, size = 3")
    assert "dim: missing" in complaint("rows = 1")
    assert "'e4m3' is not one of f32, f16, bf16" in complaint('rows = 1, dim = 8, T = "e4m3"')
    assert "'fast' is not one of compile, launch" in complaint('rows = 1, dim = 8, tags = ["fast"]')
    assert "'y' is not an optional tensor" in complaint('rows = 1, dim = 8, give = ["y"]')


def test_a_packed_case_keeps_its_pitch_when_it_shrinks():
    (case,) = [c for c in ALL if c.pitch]
    small = cases.shrink(case, 1e6)
    assert small.bytes <= 1e6 and small.pitch == case.pitch and small.lead[1:] == case.lead[1:]
    assert small.dims["rows"] == small.lead[0] * small.lead[1]


# ---- the gate before timing -----------------------------------------------------------------------------------------


def test_check_refuses_what_is_wrong():
    m = NumpyArrays()
    args = {"x": m.randn((4, 64), "bf16"), "weight": None, "rstd": None, "eps": 1e-6, "weight_offset": 0.0}
    want = reference.compute(m, "rms_norm", args, {"T": "bf16"})
    right = want["y"].astype(m.dtypes["bf16"])
    dtypes = {"y": "bf16"}
    assert reference.check(m, {"y": right}, want, dtypes) is None
    off = right.copy()
    off[2, 3] += 0.2
    assert "1 of 256 values" in reference.check(m, {"y": off}, want, dtypes)
    off[2, 3] = np.nan
    assert "nan" in reference.check(m, {"y": off}, want, dtypes)
    m.poison(off)
    assert "256 of 256" in reference.check(m, {"y": off}, want, dtypes)


def test_check_knows_the_steps_of_quantized_values():
    m = NumpyArrays()
    args = {"x": m.randn((4, 96), "bf16"), "up": None, "layout": "halves", "group": 32}
    want = reference.compute(m, "swiglu_quant", args, {"T": "bf16", "Q": "i8"})
    assert want["scale"].shape == (4, 2)
    scale = np.repeat(want["scale"], 32, axis=-1)[:, :48]
    q = np.rint(want["y"] / scale).astype(np.int8)
    dtypes = {"y": "i8", "scale": "f32"}
    got = {"y": q, "scale": want["scale"].astype(np.float32)}
    assert reference.check(m, got, want, dtypes, 32) is None
    got["y"] = q.copy()
    got["y"][1, 2] += 1
    assert "1 of 192" in reference.check(m, got, want, dtypes, 32)


# ---- results to page ------------------------------------------------------------------------------------------------


def entry(case, us, row, selected=True, pdl=False, **baselines):
    speed = case.bytes / us * 1e-6
    return {
        "op": case.op.name, "case": case.label, "model": case.model, "dtype": case.dtype, "dims": case.result_dims,
        "attrs": case.attrs, "launch": "launch" in case.tags, "row": row, "selected": selected, "pdl": pdl, "us": us,
        "bytes": case.bytes, "tb_s": speed, "tflop_s": case.flops / us * 1e-6, "of_ceiling": speed / 4.26, "baselines": baselines,
    }  # fmt: skip


@pytest.fixture
def results():
    """A made-up run in which everything moves 4 TB/s, beside a PyTorch half as fast."""
    found = {}
    for family, some in CASES.items():
        entries = []
        for c in some:
            launch = "launch" in c.tags
            us = 1.5 if launch else c.bytes / 4e6
            others = {"torch": 2, "torch_compile": 1.1}
            if family == "gemm":
                others |= {"cublaslt": 1.2, "plain": 1}
                us = c.flops / 600e6 if c.dims.get("m", 0) > 64 else us
            if c.op.name in ("attention", "attention_decode"):
                others["cudnn"] = 1.2
                us = max(c.flops / 700e6, c.bytes / 4.4e6)
            for pdl in (False, True) if launch or "pdl" in c.tags else (False,):
                slower = {name: factor * us for name, factor in others.items()}
                entries.append(entry(c, us, f"{c.op.name}_cuda", pdl=pdl, **slower))
        found[family] = {
            "gpu": "h200", "driver": "1", "cuda": "13.0", "date": "2000-01-01", "commit": "abc", "source_hash": "0",
            "ceilings": {"copy_tb_s": 4.26}, "dependent_us": [1.1, 1.1], "cases": entries, "host": [],
        }  # fmt: skip
    found["norm"]["host"] = [
        {"op": "rms_norm", "language": "c", "ns": 300, "bare_launch_ns": 2000},
        {"op": "rms_norm", "language": "python", "ns": 2600, "bare_launch_ns": 2000},
    ]
    return found


def test_bars_take_the_worst_case(results):
    found = {b.what: b for b in bars.bars(results)}
    missed = [b.what for b in found.values() if not b.met]
    assert missed == ["host time of a call from python, beyond a bare launch"]
    slow = next(e for e in results["activation"]["cases"] if e["op"] == "swiglu" and e["bytes"] > 128e6)
    slow["tb_s"] = 3.8
    assert next(b for b in bars.bars(results) if b.what == "bf16 forward from 128 MB").met  # within the noise
    slow["tb_s"] = 3.7
    bar = next(b for b in bars.bars(results) if b.what == "bf16 forward from 128 MB")
    assert not bar.met and bar.value == 3.7 and bar.where.startswith("swiglu")
    assert not any(b.met for b in bars.bars({})), "nothing measured, nothing met"


def test_bars_of_streaming_ops(results):
    """Each bar misses when what it speaks of is slow, by its op and its bytes, and only then."""

    def missed_with(op, least, most, tb_s):
        (family,) = {o.family for o in OPS if o.name == op}
        fits = [e for e in results[family]["cases"] if e["op"] == op and e["dtype"].startswith("bf16")]
        entry = next(e for e in fits if least * 1e6 <= e["bytes"] < most * 1e6 and not e["pdl"])
        kept = dict(entry)
        entry |= {"tb_s": tb_s, "of_ceiling": tb_s / 4.26}
        found = [b.what for b in bars.bars(results) if not b.met and not b.what.startswith("host")]
        entry |= kept
        return found

    large, small = (128, 1e6), (64, 128)
    assert missed_with("rms_norm_gated", *large, 3.74) == ["bf16 forward from 128 MB"]
    assert missed_with("rms_norm_gated", *small, 3.74) == []
    assert missed_with("rms_norm_gated", *small, 3.6) == [
        "bf16 forward from 64 MB", "the same, with PDL where that was timed",
    ]  # fmt: skip
    assert missed_with("rms_norm_backward", *large, 3.44) == []
    assert missed_with("rms_norm_backward", *large, 3.4) == ["norm backward from 128 MB, as 3 tensors"]
    assert missed_with("rms_norm_backward", *small, 3.4) == ["norm backward from 64 MB, as 3 tensors"]
    assert missed_with("silu_backward", *large, 1.0) == []  # no bar speaks of it
    assert missed_with("swiglu_quant", *large, 3.5) == ["quantizing ops from 128 MB, of copy"]
    assert missed_with("swiglu_quant", *small, 3.5) == ["quantizing ops from 64 MB, of copy"]


def test_bars_of_gemm(results):
    """Each bar misses when what it speaks of is slow, and only then."""

    def missed():
        return [b.what for b in bars.bars(results) if "gemm" in b.what and not b.met]

    def slow(factor, op="gemm", beta=None, **dims):
        for e in results["gemm"]["cases"]:
            if e["op"] == op and dims.items() <= e["dims"].items() and e["attrs"].get("beta") == beta:
                e["us"], e["tb_s"] = e["us"] * factor, e["tb_s"] / factor

    assert not missed()
    for beta, side, where in ((1.0, 1024, "below"), (2.0, 2048, "below"), (3.0, 4096, "from"), (1.0, 16384, "from")):
        slow(1.3, beta=beta, m=side, n=side)
        assert missed() == [f"gemm, cube with alpha and beta {where} 4096, to cuBLASLt"]
        slow(1 / 1.3, beta=beta, m=side, n=side)
    slow(1.2, "gemm_epilogue", m=16384)
    assert missed() == ["gemm_epilogue, 16384, time to the plain product's"]
    slow(1 / 1.2, "gemm_epilogue", m=16384)
    slow(1.3, m=4096, n=4096, k=4096)
    assert missed() == ["gemm, cube from 4096, to cuBLASLt"]
    slow(1 / 1.3, m=4096, n=4096, k=4096)
    slow(1.2, "gemm_epilogue", m=8192)
    assert missed() == ["gemm_epilogue, 8192, time to the plain product's"]
    slow(1 / 1.2, "gemm_epilogue", m=8192)
    slow(1.5, m=1, n=57344)
    each, heavy = ("gemm, layers of models{}, to cuBLASLt, each", "gemm, m <= 16, weights from 100 MB{}")
    assert missed() == [bar.format(how) for how in ("", ", PDL or not") for bar in (each, heavy)]
    results.pop("gemm")
    assert all(b.value is None for b in bars.bars(results) if b.what.startswith(("gemm", "mlp")))


def test_routes_of_gemm():
    """Ranges of m by the fastest row, ours within the noise; with PDL those for a constant b, only where they differ. Shapes of no
    model are left to the rules for all others."""

    def timed(m, row, us, pdl=False, model="some"):
        dims = {"m": m, "n": 8, "k": 16}
        both = {"op": "gemm", "dtype": "bf16", "attrs": {}, "case": f"{m}x8x16", "model": model}
        return {**both, "dims": dims, "row": row, "us": us, "pdl": pdl}

    times = {1: (2.0, 3.0, 2.5, 2.0), 2: (2.0, 3.0, 2.0, 3.0), 64: (1.01, 1.0, 1.0, 2.0), 256: (2.0, 1.0)}
    result = {"cases": []}
    for m, found in times.items():
        for i, us in enumerate(found):
            result["cases"].append(timed(m, ("gemm_a", "gemm_cublaslt")[i % 2], us, i > 1))
    result["cases"].append(timed(1024, "gemm_a", 1.0, model=""))
    taken = routes.routed(result, False), routes.routed(result, True)
    assert list(routes.rules(*taken)) == [
        "gemm T=bf16 D=bf16 constant_b=1 n=8 k=16 m=1..1 : gemm_cublaslt",
        "gemm T=bf16 D=bf16 n=8 k=16 m=1..2 : gemm_a",
        "gemm T=bf16 D=bf16 n=8 k=16 m=33..64 : gemm_a",
        "gemm T=bf16 D=bf16 n=8 k=16 m=129..256 : gemm_cublaslt",
    ]


def test_routes_of_other_shapes():
    """The committed table ends with them."""
    for name in routes.TABLES.values():
        lines = (routes.ROOT / "src" / "dispatch" / "tables" / f"{name}.table").read_text().splitlines()
        norms, others = lines.index(routes.NORMS_HEAD), lines.index(routes.OTHERS_HEAD)
        assert lines[norms + 1 : others - 1] == routes.norm_rules()
        assert lines[others + 1 :] == list(routes.other_rules())


def test_bars_of_attention(results):
    """Each bar misses when what it speaks of is slow, and only then; of PDL and none the better counts."""
    cases = results["attention"]["cases"]

    def missed():
        return [b.what for b in bars.bars(results) if b.what.startswith("attention") and not b.met]

    def slow(factor, case, dtype="bf16", pdl=(False, True)):
        some = [e for e in cases if (e["case"], e["dtype"]) == (case, dtype) and e["pdl"] in pdl]
        assert some, case
        for e in some:
            e["us"] *= factor
            e["tb_s"], e["tflop_s"] = e["tb_s"] / factor, e["tflop_s"] / factor

    def only(case, bar, factor=1.5, **what):
        slow(factor, case, **what)
        assert missed() == (bar if isinstance(bar, list) else [bar])
        slow(1 / factor, case, **what)

    assert not missed()
    only("4x32x32x4096", "attention 4x32x32x4096")
    only("1x64x8x16384_causal", "attention 1x64x8x16384_causal")
    short = "attention 1x32x8x1024_causal"
    only("1x32x8x1024_causal", [short, f"{short}, without PDL"], 3)
    only("1x32x8x1024_causal", f"{short}, without PDL", 3, pdl=(False,))
    only("4x16x8x4096_hd256_causal", "attention, head_dim 256, to cuDNN")
    only("8x16x16x4096_hd64_causal_window_left=1023", "attention, window of 1024", 3)
    only("4x32x8x4096_varlen", "attention, varlen, time to that of dense K and V", 1.08)
    only("4x32x8x4096_page16_causal", "attention, page16, time to that of dense K and V", 1.11)
    only("64x32x8x1x2048_page64", "attention_decode 64x32x8x1x2048")
    only("32x32x8x1x4096_page1", "attention_decode, pages of 1, time to that of 64")
    only("32x32x8x1x4096_page64", "attention_decode 32x32x8x1x4096_page64, e4m3", dtype="bf16_e4m3")
    only("16x16x2x1x2048_hd512_page64", "attention_decode 16x16x2x1x2048_hd512_page64")
    slow(1.5, "64x32x8x1x2048_page64", pdl=(False,))
    assert not missed()
    (bar,) = [b for b in bars.bars(results) if b.what == "attention_decode 64x32x8x1x2048"]
    assert bar.where == "64x32x8x1x2048_page64 with PDL"
    results.pop("attention")
    found = [b for b in bars.bars(results) if b.what.startswith("attention")]
    assert len(found) > 25 and all(b.value is None for b in found)


def test_cases_of_attention():
    """Names, the dims of results, and flops of the keys that are seen."""
    found = {(c.op.name, c.label, c.dtype): c for c in CASES["attention"]}
    case = found["attention", "4x32x32x4096_causal", "bf16"]
    assert case.result_dims == {
        "batch": 4, "heads": 32, "kv_heads": 32, "q_len": 4096, "kv_len": 4096, "head_dim": 128, "page_size": 0,
    }  # fmt: skip
    full = 4 * 4 * 32 * 4096**2 * 128
    assert found["attention", "4x32x32x4096", "bf16"].flops == full
    assert case.flops == full * 4097 // 8192
    case = found["attention", "8x16x16x4096_hd64_causal_window_left=1023", "bf16"]
    assert case.flops == 4 * 8 * 16 * 64 * sum(min(p + 1, 1024) for p in range(4096))
    case = found["attention_decode", "1x32x32x1x740_hd64_page1", "bf16_e4m3"]
    assert list(case.result_dims.values()) == [1, 32, 32, 1, 740, 64, 1]
    for label in attention_bars.GEMMA:
        assert found["attention_decode", label, "bf16"].bytes > 64e6


def test_a_line_of_cases_expands():
    gemm = [c for c in CASES["gemm"] if c.op.name == "gemm"]
    assert len({(c.label, c.dtype) for c in gemm}) == len(gemm) > 150
    assert len([c for c in gemm if c.model == "Llama-3 8B"]) == 4 * 12
    (case,) = [c for c in gemm if c.label == "4096x4096x4096 tn"]
    tensors = {t.name: t for t in case.op.tensors}
    assert case.by_columns(tensors["a"]) and not case.by_columns(tensors["b"]) and not case.by_columns(tensors["d"])


@pytest.mark.parametrize("n, rounds", [(1, 3), (2, 2), (4, 4), (5, 10), (9, 18)])
def test_every_variant_follows_every_other(n, rounds):
    found = [list(order) for order in devices.orders(list(range(n)), rounds)]
    assert len(found) == rounds and all(sorted(order) == list(range(n)) for order in found)
    pairs = [pair for order in found for pair in zip(order, order[1:], strict=False)]
    assert all(pairs.count((a, b)) == rounds // n for a in range(n) for b in range(n) if a != b)


def test_samples_of_a_product():
    """Every tile of 64 x 64 is seen, and what is wrong in one is found."""
    m = NumpyArrays()
    args = {
        "a": m.randn((300, 40), "bf16"), "b": m.randn((40, 200), "bf16"), "c": None, "alpha": 1.0, "beta": 0.0,
        "d": m.empty((300, 200), "bf16"),
    }  # fmt: skip
    want = reference.compute(m, "gemm", args, {"T": "bf16", "D": "bf16"})
    right = (m.f64(args["a"]) @ m.f64(args["b"])).astype(m.dtypes["bf16"])
    assert reference.check(m, {"d": right}, want, {"d": "bf16"}) is None
    for row in range(0, 300, 64):
        for column in range(0, 200, 64):
            off = right.copy()
            off[row : row + 64, column : column + 64] += 3
            assert "sampled values are off" in reference.check(m, {"d": off}, want, {"d": "bf16"})
    off = right.copy()
    off[:, 17] = right[:, 18]
    assert reference.check(m, {"d": off}, want, {"d": "bf16"})


def test_the_search_of_cublaslt_is_not_led_by_one_lucky_sample(monkeypatch):
    """Algorithms that a few samples do not tell apart are timed again; one that is refused or far off is out."""
    times = {"steady": [10.0] * 20, "lucky": [9.8] + [10.4] * 20, "slow": [20.0] * 20, "near": [10.2] * 20}
    asked = []

    class Product:
        def __init__(self, case, torch):
            self.algorithms = lambda: ["refused", *times]

        def point_to_bias(self, args):
            pass

        def build(self, algorithm, args):
            return algorithm

    class Device:
        torch = None

        def guess_us(self, case):
            return 10.0

        def timed_replays(self, calls, count, samples, to):
            if calls[0] == "refused":
                raise RuntimeError
            asked.append((calls[0], samples))
            for us in times[calls[0]][:samples]:
                to.append(us)
                yield

    monkeypatch.setattr(cublaslt, "Product", Product)
    assert cublaslt.best(None, Device(), [{}], lambda text: None) == ["steady"]
    assert {name for name, n in asked if n == cublaslt.FINAL_SAMPLES} == {"steady", "lucky", "near"}


def test_report_shows_every_selected_case_and_its_plots(results):
    files = report.outputs({"h200": results})
    page = files["docs/performance.md"]
    assert {p for p in files if p.endswith(".svg")} == {
        f"docs/performance/h200_{n}.svg" for n in ("norm", "activation", "elementwise", "gemm", "attention", "launch")
    }
    for op in OPS:
        assert f"| {op.name} |" in page
    assert "**missed**" in page and "faster than the selected" not in page
    for name, svg in files.items():
        if name.endswith(".svg"):
            assert svg.startswith("<svg") and name.removeprefix("docs/") in page
    decode = next(e for e in results["attention"]["cases"] if e["case"] == "8x32x8x1x2048_page64" and e["pdl"])
    decode |= {"us": 15.0, "tb_s": 4.48}
    line = "| attention_decode | 8x32x8x1x2048_page64 | bf16 | `attention_decode_cuda` | 15.28 | 15.00 | 4.48 |"
    assert line in report.outputs({"h200": results})["docs/performance.md"]
    case = results["norm"]["cases"][0]
    results["norm"]["cases"].append({**case, "row": "other", "selected": False, "us": case["us"] / 2})
    assert "faster than the selected" in report.outputs({"h200": results})["docs/performance.md"]


def test_report_lists_where_others_are_faster(results):
    def listed():
        page = report.outputs({"h200": results})["docs/performance.md"]
        section = page.split("### Where others are faster")[1].split("\n### ")[0]
        return [line for line in section.splitlines() if line.startswith("| ")][1:], section

    lines, section = listed()
    assert not lines and "Nowhere" in section  # `plain`, which is as fast as ours, is no other's
    gemm, norm = results["gemm"]["cases"], results["norm"]["cases"]
    first = next(e for e in gemm if e["pdl"])
    alone = next(e for e in gemm if e["case"] == first["case"] and not e["pdl"])
    alone["baselines"]["cublaslt"] = alone["us"] / 2
    gemm.append({**alone, "row": "gemm_cublaslt", "us": alone["us"] / 2, "selected": True})
    norm[0]["baselines"]["torch"] = norm[0]["us"] * 0.9
    norm[1]["baselines"]["torch"] = norm[1]["us"] * 0.99  # the noise of the board
    lines, section = listed()
    assert [line.split(" | ")[0] for line in lines] == [f"| {alone['op']}", f"| {norm[0]['op']}"]
    assert f"| cublaslt | {alone['us'] / 2:.2f} | 0.500 | {first['us']:.2f} |" in lines[0]
    assert "| 0.900 |  |" in lines[1] and "the 2 in which" in section


def test_a_family_that_was_not_measured_has_no_section(results):
    for family in ("gemm", "attention"):
        files = report.outputs({"h200": {k: v for k, v in results.items() if k != family}})
        assert (
            f"### {family}" not in files["docs/performance.md"] and f"docs/performance/h200_{family}.svg" not in files
        )


def test_without_results_the_page_has_no_numbers():
    (page,) = report.outputs({}).values()
    assert "No results are in" in page and "|" not in page


def test_the_committed_page_is_that_of_the_committed_results():
    done = subprocess.run([sys.executable, ROOT / "bench/report.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_timeline_of_attention_is_what_the_stamps_say():
    early = [[t, t + 10, t + 30, t + 40, t + 50, t + 90] for t in range(0, 400, 100)]
    late = [[stamp + 45 for stamp in block] for block in early]
    run = {"keys": 64, "us": 1.0, "warpgroups": [early, late]}
    got = dict(attention_timeline.medians(run))
    assert [got[name] for _, name in attention_timeline.PHASES] == [[10, 10], [20, 20], [10, 10], [10, 10], [40, 40]]
    # Products are under way in 10..50 and 55..95 of each 100, softmax is in 50..90 and, of the late one, in 95..135.
    assert got["of it with products of the other under way"] == [35, 25]
    assert got["from there to the next block"] == [10, 10] and got["from block to block"] == [100, 100]
    assert attention_timeline.union([(5, 9), (0, 3), (2, 4)]) == [(0, 4), (5, 9)]
    data = {"row": "attention_sm90", "case": "1x1x1x64", "dims": {"head_dim": 64}, "runs": [run]}
    svg = ElementTree.fromstring(attention_timeline.picture("h200", data))
    drawn = [e.get("class") for e in svg.iter("{http://www.w3.org/2000/svg}rect")]
    # From the second block of the early one on, each in full, and what is left of the late one's first; one more a legend.
    assert drawn.count("issue") == 1 + 3 + 3 and drawn.count("softmax") == 1 + 3 + 4 and drawn.count("busy") == 6


def test_measured_facts_have_the_medians_of_the_committed_timeline():
    page = (ROOT / "docs/measured-facts.md").read_text()
    for file in (ROOT / "bench/results").glob("*/attention_timeline.json"):
        for line in attention_timeline.lines(json.loads(file.read_text())):
            assert line in page
        assert f"(performance/{file.parent.name}_attention_timeline.svg)" in page


def test_a_run_on_the_cpu_from_case_to_json(tmp_path):
    command = [sys.executable, ROOT / "bench/run.py", "--device", "cpu", "--quick", "--family", "norm"]
    command += ["--filter", "rms_norm_gated", "--filter", "4096", "--out", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    data = json.loads((tmp_path / "norm.json").read_text())
    assert list(data) == [
        "gpu", "driver", "cuda", "date", "commit", "source_hash", "ceilings", "dependent_us", "cases", "host",
    ]  # fmt: skip
    rows = [e for e in data["cases"] if e["case"] == data["cases"][0]["case"]]
    assert sum(e["selected"] for e in rows) == 1 and all(e["us"] > 0 for e in rows)
    assert rows[0]["dims"]["dim"] == 4096 and rows[0]["row"].startswith("rms_norm_gated_cpu")


def test_the_picture_of_every_family():
    """Selected kernels beside the fastest of the others: not calls in chains, with PDL or in f32, and no product of our own."""

    def timed(us, baselines, **what):
        usual = {"op": "rms_norm", "dims": {}, "dtype": "bf16", "selected": True, "launch": False, "pdl": False}
        return {**usual, "us": us, "baselines": baselines, **what}

    cases_ = [timed(2.0, {"torch": 8.0, "torch_compile": 4.0}), timed(1.0, {"torch": 8.0}), timed(1.0, {}),
              timed(1.0, {"torch": 0.5}, launch=True), timed(1.0, {"torch": 0.5}, pdl=True),
              timed(1.0, {"torch": 0.5}, dtype="f32"), timed(1.0, {"torch": 0.5}, selected=False)]  # fmt: skip
    assert overview.ratios({"cases": cases_}, lambda e: True) == [2.0, 8.0]
    assert overview.ratios({"cases": [timed(1.0, {"plain": 0.5, "torch": 3.0})]}, lambda e: True) == [3.0]

    drawn = overview.picture("h1", {"norm": {"cases": cases_}})
    texts = [t.text for t in ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")]
    assert "norms (2 cases)" in texts and any("H1" in t for t in texts) and not any("attention" in t for t in texts)
    assert overview.picture("h1", {}) == ""


def test_sets_are_enough_for_what_moves_least():
    """A plain product beside an epilogue leaves the residual alone, and must not find its operands in L2 either."""
    run = object.__new__(bench_run.Run)
    found = [c for c in CASES["gemm"] if c.op.name == "gemm_epilogue" and c.label.startswith("2048x2048x2048")]
    (case,) = (c for c in found if c.dtype == "bf16")
    assert case.set_bytes == pytest.approx(4 * 2 * 2048**2, rel=0.01) and run.touched(case) == 3 * 2 * 2048**2
    other = next(c for c in CASES["gemm"] if c.op.name == "gemm")
    assert run.touched(other) == other.set_bytes
