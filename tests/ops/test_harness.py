# SPDX-License-Identifier: Apache-2.0
"""The harness finds what it is for: results made wrong on purpose are all refused."""

import itertools
from collections import Counter

import numpy as np
import pytest
from harness import MatrixSpec, Prepared, Quantized, Spec, all_specs, decode, encode, over_rows, rows
from harness.case import Case
from harness.dtypes import ITEMSIZE


def perfect(prepared):
    """The block as a perfect op would leave it."""
    after = prepared.block.copy()
    for name in prepared.outputs:
        expected = prepared.expected()[name]
        if isinstance(expected, Quantized):
            scale = np.repeat(expected.scale().value.astype(np.float32), expected.group, -1)
            value = np.clip(np.rint(expected.value / scale[..., : expected.value.shape[-1]]), -127, 127)
        else:
            value = np.broadcast_to(expected.value, prepared.shapes[name])
        prepared.placed[name].view(after)[...] = encode(value, prepared.dtypes[name])
    return after


CASES = [
    ("rms_norm", "T=bf16 lead=3,2 dim=129 with=weight,rstd strides=random seed=5"),
    ("layer_norm", "T=f32 lead=4 dim=64 with=weight,bias seed=2"),
    ("add_rms_norm", "T=f16 lead=4 dim=33 with=weight alias=y:x"),
    ("swiglu_quant", "T=bf16 Q=i8 lead=2 width=64 group=7"),
    ("transpose_2d", "T=f32 lead=2 m=5 n=9"),
    ("gemm", "T=f32 D=f32 m=9 n=17 k=64 beta=2.0 with=c strides=columns:b seed=1"),
    ("gemm_epilogue", "T=bf16 D=bf16 m=9 n=16 k=300 act=gelu_tanh with=bias,residual alias=y:residual"),
    (
        "attention",
        "T=f32 lead=2,5 heads=4 head_dim=40 kv_heads=2 v_dim=24 pages=2 page_size=70 causal=True with=sinks,lse",
    ),
    (
        "attention_decode",
        "T=bf16 K=i8 heads=4 head_dim=32 kv_heads=2 v_dim=32 batch=3 q_len=2 pages=9 page_size=16"
        " max_pages=3 window_left=20 with=page_table,prefix_len,k_scale,v_scale,alibi seed=1",
    ),
    ("attention_merge", "T=f32 D=bf16 lead=3,2 states=3 dim=33"),
    ("mlp", "T=f16 D=f16 m=5 n=24 k=40 width=48 act=silu gated=True with=b1,b2"),
]


@pytest.fixture(params=CASES, ids=lambda c: c[0])
def prepared(request):
    op, text = request.param
    return Prepared(all_specs()[op], Case.parse(op, text))


def test_perfect_results_pass(prepared):
    prepared.check(perfect(prepared))


def test_a_wrong_element(prepared):
    """One element of one output, three units in the last place off (of the output, beyond f32's own errors)."""
    for name in prepared.outputs:
        after = perfect(prepared)
        view = prepared.placed[name].view(after)
        at = np.unravel_index(np.argmax(np.abs(decode(view, prepared.dtypes[name]))), view.shape)
        if prepared.dtypes[name] == "f32":
            # The scale of swiglu_quant goes through lean math for 16-bit inputs: see FAST_SIGMOID. Attention turns the
            # errors of a product into factors.
            view[at] *= 1 + 2.0 ** (-13 if prepared.spec.op in ("swiglu_quant", "attention") else -16)
        else:
            bits = view.view(np.uint8 if ITEMSIZE[prepared.dtypes[name]] == 1 else np.uint16)
            bits[at] += 3 if bits[at] % 128 < 120 else -3
        with pytest.raises(AssertionError, match=name):
            prepared.check(after)


def test_an_element_not_written(prepared):
    for name in prepared.outputs:
        if prepared.tensors[name].role == "inout" or dict(prepared.case.alias).get(name):
            continue
        after = perfect(prepared)
        view, before = prepared.placed[name].view(after), prepared.placed[name].view(prepared.block)
        view[..., -1:] = before[..., -1:]
        with pytest.raises(AssertionError, match="wrong"):
            prepared.check(after)


def test_bytes_beside_the_outputs(prepared):
    """Before, after and, where rows are apart, between them; and in an input."""
    for name, placed in prepared.placed.items():
        spots = [placed.start - 1, placed.end, placed.end + 4000]
        if name not in prepared.outputs and name not in dict(prepared.case.alias).values():
            spots.append(placed.start)
        for at in spots:
            after = perfect(prepared)
            after[at] ^= 1
            with pytest.raises(AssertionError, match="beside the outputs"):
                prepared.check(after)


@pytest.mark.parametrize("text", [
    "T=bf16 D=bf16 m=40 n=48 k=1000", "T=f32 D=f32 m=40 n=48 k=1000", "T=f16 D=f32 m=4 n=8 k=4096", "T=f32 D=f32 m=8 n=8 k=17",
])  # fmt: skip
def test_a_product_with_a_wrong_tail(text):
    """A product that leaves out the last of its terms or takes it twice; results that changed places; also for TF32."""
    prepared = Prepared(all_specs()["gemm"], Case.parse("gemm", text))
    a, b = (decode(prepared.inputs[n], prepared.dtypes[n]) for n in ("a", "b"))
    last, dtype = a[:, -1:] @ b[-1:], prepared.dtypes["d"]
    right = a @ b
    for tf32 in (False, True) if dtype == prepared.dtypes["a"] == "f32" else (False,):
        wrong = {"the last term missing": right - last, "twice": right + last, "swapped": right[:, ::-1]}
        for what, values in {"right": right, **wrong}.items():
            after = prepared.block.copy()
            prepared.placed["d"].view(after)[...] = encode(values, dtype)
            if what == "right":
                prepared.check(after, tf32)
            else:
                with pytest.raises(AssertionError, match="d: "):
                    prepared.check(after, tf32)


def test_case_text():
    for op, text in CASES:
        assert str(Case.parse(op, text)) == text
    for spec in all_specs().values():
        for group in ("shapes", "options", "inplace", "special", "misaligned", "empty", "fuzz"):
            for case in spec.cases(group, spec.combos()[0], "smoke"):
                assert Case.parse(spec.op, str(case)) == case
                assert spec.legal(case)


KINDS = {
    "nan": lambda x: np.isnan(x).any(),
    "inf": lambda x: (x == np.inf).any(),
    "-inf": lambda x: (x == -np.inf).any(),
    "zero": lambda x: (x == 0).all(),
    "denormal": lambda x: (np.abs(x) == 2.0**-140).all(),
    "large": lambda x: (x == 1000).any(),
}


@pytest.mark.parametrize("name", [
    "rms_norm", "rms_norm_backward", "layer_norm_backward", "group_norm", "nchw_to_nhwc", "nhwc_to_nchw",
    "upsample_nearest_2x", "transpose_2d", "swiglu_backward", "gemm_batched",
])  # fmt: skip
def test_special_rows(name):
    """A row or entry of each kind, whatever the op calls them, and ordinary ones after."""
    spec = all_specs()[name]
    for level in ("smoke", "ci"):
        for case in spec.cases("special", next(c for c in spec.combos() if dict(c)["T"] == "f32"), level):
            if case.fill == "special":
                inputs = Prepared(spec, case).inputs
                x = inputs["a" if name == "gemm_batched" else "x"]
                assert len(x) > len(spec.special)
                for entry, kind in zip(x, spec.special, strict=False):
                    parts = [entry]
                    if name == "group_norm":  # its tests move half of the channels away from 0
                        channels = entry.T if dict(case.attrs).get("layout") == "nhwc" else entry
                        parts = [channels[: len(channels) // 2], channels[len(channels) // 2 :] - 12]
                    found = any(KINDS[kind](part) for part in parts)
                    assert found or dict(case.attrs).get("alpha") == 0, f"no {kind} in {case}"
                assert np.isfinite(x[len(spec.special) :]).all()


def test_every_tensor_is_misaligned():
    """By all that moves it, beside others and alone."""
    spec = all_specs()["rms_norm_quant"]
    for dtypes in spec.combos():
        starts, alone = {}, set()
        for case in spec.cases("misaligned", dtypes, "smoke"):
            own = {name: placed.start % 256 for name, placed in Prepared(spec, case).placed.items()}
            for name, start in own.items():
                starts.setdefault(name, set()).add(start)
            off = [name for name, start in own.items() if start]
            alone |= {*off} if len(off) == 1 else set()
        for name, found in starts.items():
            size = ITEMSIZE[dict(dtypes).get(spec.schema.tensor(name).dtype, "f32")]
            assert found == {0} | {s for s in (1, 2, 4, 8) if s >= size}, f"{name}, {dtypes}"
        assert alone == starts.keys(), dtypes


def test_uneven_products_are_for_tiled_rows():
    """Lines of matrices begin at whole vectors, or all but the last rows would refuse them, and end within one."""
    for spec in (s for s in all_specs().values() if isinstance(s, MatrixSpec) and "k" in s.schema.free_dims):
        for case in spec.cases("uneven", spec.combos()[-1], "ci"):
            placed = [p for p in Prepared(spec, case).placed.values() if len(p.shape) > 1]
            off = [s for p in placed for s in p.strides if s != 1 and s % 16]
            assert not off, f"{off} {case}"
            ends = {p.shape[p.strides.index(1)] % 8 for p in placed}
            assert ends - {0} or dict(case.dims)["m"] == 1, case


def test_every_dim_is_empty_once(spec):
    """Each dim that can be 0 is, with rows left."""
    cases = spec.cases("empty", spec.combos()[0], "smoke")
    if type(spec) is Spec:
        for name in spec.schema.free_dims:
            assert name in spec.nonzero or any(dict(c.dims)[name] == 0 and 0 not in c.lead for c in cases), name
    assert cases


def test_a_row_that_refuses_everything():
    spec, asked = all_specs()["cast"], []
    over_rows(spec, ["takes the last"], spec.combos()[:1], lambda row, case: case.dtypes == spec.combos()[-1])
    with pytest.raises(AssertionError, match="refused every case: takes nothing"):
        over_rows(spec, ["takes nothing"], spec.combos()[:1], lambda row, case: asked.append(case))
    assert {c.dtypes for c in asked} == {*spec.combos()}


@pytest.mark.parametrize("change", [{"window_left": 39}, {"softcap": 29.0}, {"scale": 0.1255}, {"window_right": 0}])
def test_attention_of_other_keys(change):
    """One key less of forty, or a score a little other, is outside of what bf16 allows."""
    text = "T=bf16 lead=2,100 heads=4 head_dim=64 kv_heads=2 v_dim=64 pages=2 page_size=100"
    attrs = {"window_left": 40, "window_right": 1, "softcap": 30.0, "scale": 0.125}
    spec = all_specs()["attention"]
    right, wrong = (
        Case.parse("attention", f"{text} {' '.join(f'{k}={v}' for k, v in a.items())} with=lse")
        for a in (attrs, attrs | change)
    )
    right = Prepared(spec, right)
    after = perfect(Prepared(spec, wrong, right.inputs))
    with pytest.raises(AssertionError, match="y: |lse: "):
        right.check(after)


@pytest.mark.parametrize(("name", "layouts"), [("attention", 3), ("attention_decode", 2)])
def test_every_combination_of_masks(name, layouts):
    """Causal, a prefix, a window to either side, softcap, sinks, ALiBi and lse, each with each other in each layout."""
    spec, seen = all_specs()[name], set()
    for case in spec.cases("combined", spec.combos()[-1], "full"):
        a, given = spec.attributes(case.attrs), case.present
        on = (a["causal"], a["window_left"] >= 0, a["window_right"] >= 0, a["softcap"] > 0)
        on += tuple(n in given for n in ("prefix_len", "sinks", "alibi", "lse"))
        seen.add((*on, "packed" if "cu_kv" in given else "paged" if "page_table" in given else "a page each"))
        assert spec.legal(case), case
    # A prefix needs causal.
    wanted = [on for on in itertools.product((False, True), repeat=8) if on[0] or not on[4]]
    assert {on[:-1] for on in seen} == {*wanted} and len(seen) == layouts * len(wanted)


def test_rows_that_did_not_run(monkeypatch):
    """What could have run here is told apart from what only lacks its library."""
    lacking, missed, *ran = (k.name for k in rows.usable("gemm", "cpu"))
    monkeypatch.setattr(rows, "_ran", Counter(ran))
    monkeypatch.setattr(rows, "_refusals", {})
    assert rows.never_ran(["gemm"], ["cpu"]) == ([lacking, missed], [])
    rows.refused(lacking, "no BLAS library is found")
    rows.refused(missed, "k is too long")
    assert rows.never_ran(["gemm"], ["cpu"]) == ([missed], [lacking])
    assert rows.refusals(missed) == ["1x k is too long"]
