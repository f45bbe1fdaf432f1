# SPDX-License-Identifier: Apache-2.0
"""What the attention family is asked to reach on an H200. Cases are named as bench/attention.py names them: batch x heads x
kv_heads x lengths. A time is that of the selected row, with PDL or without, whichever is less."""

from operator import itemgetter

PREFILL = {"4x32x32x4096": (640, 580), "2x32x8x8192": (655, 615), "1x64x8x16384": (670, 615)}  # TFLOP/s: full, causal
SHORT = "1x32x8x1024_causal"
TO_CUDNN = {64: "8x16x16x2048_hd64", 256: "4x16x8x4096_hd256"}
WINDOW = "8x16x16x4096_hd64_causal_window_left=1023"
DENSE = "4x32x8x4096"
BESIDE_DENSE = {"varlen": 1.05, "page16": 1.08, "page64": 1.08}  # layout of K and V -> time to that of dense ones

# bf16, pages of 64 -> microseconds
DECODE = {
    "1x32x8x1x1024": 7.5,
    "1x32x8x1x8192": 15,
    "1x32x4x1x131072": 70,
    "8x32x8x1x2048": 22,
    "32x32x8x1x4096": 126,
    "64x32x8x1x2048": 128,
    "128x64x8x1x1024": 133,
    "32x32x8x1x128": 8.5,
}
FP8 = {"32x32x8x1x4096_page64": 75} | {
    f"{batch}x32x32x1x{kv_len}_hd64_page1": 8
    for batch, kv_len in ((1, 740), (1, 1024), (4, 740), (8, 512), (16, 256), (32, 128))
}
# 67 MB of K and V, and more
GEMMA = (
    "8x16x2x1x2048_hd512_page64",
    "16x16x2x1x2048_hd512_page64",
    "8x16x8x1x4096_hd256_page64_window_left=1023",
    "32x16x8x1x4096_hd256_page64_window_left=1023",
)


def fastest(result, pdl=True):
    """(op, case, dtype) -> the entry of the selected row, with PDL or without; pdl=False: without."""
    found = {}
    for e in result["cases"] if result else ():
        key = e["op"], e["case"], e["dtype"]
        if e["selected"] and (pdl or not e["pdl"]) and (key not in found or e["us"] < found[key]["us"]):
            found[key] = e
    return found


def bars(result, bar):
    """result: that of the family, or None. bar(what, sign, bound, unit, values) makes one."""
    found = fastest(result)

    def values(op, cases, value, dtype="bf16"):
        """(value, where) of these cases; nothing, unless all were measured and have the value."""
        some = [found[op, c, dtype] for c in cases if (op, c, dtype) in found]
        pairs = [(value(e), e["case"] + " with PDL" * e["pdl"]) for e in some]
        return pairs if len(pairs) == len(cases) and all(v is not None for v, _ in pairs) else []

    def time_to(layout, other):
        """The time of a case over that of the same with K and V in another layout."""

        def value(e):
            base = found.get((e["op"], e["case"].replace(layout, other), e["dtype"]))
            return e["us"] / base["us"] if base else None

        return value

    us, tflop_s, tb_s = itemgetter("us"), itemgetter("tflop_s"), itemgetter("tb_s")
    prefill, decode = "attention", "attention_decode"
    for case, bounds in PREFILL.items():
        for name, bound in zip((case, f"{case}_causal"), bounds, strict=True):
            yield bar(f"{prefill} {name}", ">=", bound, "TFLOP/s", values(prefill, [name], tflop_s))
    yield bar(f"{prefill} {SHORT}", "<=", 24, "us", values(prefill, [SHORT], us))
    plain = fastest(result, pdl=False).get((prefill, SHORT, "bf16"))
    yield bar(f"{prefill} {SHORT}, without PDL", "<=", 24, "us", [(plain["us"], SHORT)] if plain else [])
    for head_dim, case in TO_CUDNN.items():
        both = values(prefill, [case, f"{case}_causal"], over_cudnn)
        yield bar(f"{prefill}, head_dim {head_dim}, to cuDNN", ">=", 1.05, "x", both)
    yield bar(f"{prefill}, window of 1024", ">=", 310, "TFLOP/s", values(prefill, [WINDOW], tflop_s))
    for layout, bound in BESIDE_DENSE.items():
        cases = [f"{DENSE}_{layout}", f"{DENSE}_{layout}_causal"]
        both = values(prefill, cases, time_to(f"_{layout}", ""))
        yield bar(f"{prefill}, {layout}, time to that of dense K and V", "<=", bound, "x", both)
    for case, bound in DECODE.items():
        yield bar(f"{decode} {case}", "<=", bound, "us", values(decode, [f"{case}_page64"], us))
    for page in (1, 16):
        every = values(decode, [f"{c}_page{page}" for c in DECODE], time_to(f"_page{page}", "_page64"))
        yield bar(f"{decode}, pages of {page}, time to that of 64", "<=", 1.04, "x", every)
    for case, bound in FP8.items():
        yield bar(f"{decode} {case}, e4m3", "<=", bound, "us", values(decode, [case], us, "bf16_e4m3"))
    for case in GEMMA:
        yield bar(f"{decode} {case}", ">=", 3.3, "TB/s", values(decode, [case], tb_s))


def over(e, other):
    """The time of another over ours: above 1 we are faster."""
    us = e["baselines"].get(other)
    return us / e["us"] if us else None


def over_cudnn(e):
    return over(e, "cudnn")
