# SPDX-License-Identifier: Apache-2.0
"""What a PyTorch user would call instead of each op: run as it is (`torch`), compiled (`torch_compile`), and where PyTorch
can leave it to cuDNN, so (`cudnn`).

Each function takes the arguments of the op as a namespace and returns its outputs by name. They are written the plain
way, in the dtype of the inputs; where PyTorch has one function for the op, that function is used. Gradients are what
autograd gives for the plain forward. bench/run.py sees that their results are right, with more room for rounding.
"""

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

QMAX = {"e4m3": (448.0, torch.float8_e4m3fn), "i8": (127.0, torch.int8)}


def _weight(a):
    return a.weight if a.weight is None or not a.weight_offset else a.weight + a.weight_offset


def _gate(a):
    if a.layout == "separate":
        return a.x, a.up
    return (a.x[..., 0::2], a.x[..., 1::2]) if a.layout == "interleaved" else a.x.chunk(2, -1)


def _gelu(x, form):
    return F.gelu(x, approximate="tanh" if form == "tanh" else "none")


def _quantize(a, v):
    limit, dtype = QMAX[a.Q]
    groups = v.float().unflatten(-1, (-1, a.group or v.shape[-1]))
    scale = groups.abs().amax(-1, keepdim=True).clamp(min=1e-20) / limit
    q = groups / scale
    q = q.round().clamp(-limit, limit) if a.Q == "i8" else q.clamp(-limit, limit)
    return {"y": q.to(dtype).flatten(-2), "scale": scale[..., 0]}


def rms_norm(a):
    return {"y": F.rms_norm(a.x, a.x.shape[-1:], _weight(a), a.eps)}


def add_rms_norm(a):
    a.residual.add_(a.x)
    return {"residual": a.residual, "y": F.rms_norm(a.residual, a.x.shape[-1:], _weight(a), a.eps)}


def rms_norm_gated(a):
    def norm(v):
        grouped = v.unflatten(-1, (-1, a.group or v.shape[-1]))
        if not a.group:
            return F.rms_norm(v, v.shape[-1:], a.weight, a.eps)
        y = F.rms_norm(grouped, grouped.shape[-1:], None, a.eps).flatten(-2)
        return y if a.weight is None else y * a.weight

    return {"y": norm(a.x) * F.silu(a.z) if a.norm_before_gate else norm(a.x * F.silu(a.z))}


def layer_norm(a):
    return {"y": F.layer_norm(a.x, a.x.shape[-1:], a.weight, a.bias, a.eps)}


def add_layer_norm(a):
    a.residual.add_(a.x)
    return {"residual": a.residual, "y": F.layer_norm(a.residual, a.x.shape[-1:], a.weight, a.bias, a.eps)}


def l2_norm(a):
    x = a.x.float()
    return {"y": (x * torch.rsqrt((x * x).sum(-1, keepdim=True) + a.eps)).to(a.x.dtype)}


def group_norm(a):
    x = a.x if a.layout == "nchw" else a.x.transpose(1, 2)
    y = F.group_norm(x, a.groups, a.weight, a.bias, a.eps)
    return {"y": y if a.layout == "nchw" else y.transpose(1, 2)}


def rms_norm_quant(a):
    return _quantize(a, rms_norm(a)["y"])


def add_rms_norm_quant(a):
    out = add_rms_norm(a)
    return {"residual": out["residual"], **_quantize(a, out["y"])}


def silu(a):
    return {"y": F.silu(a.x)}


def gelu(a):
    return {"y": _gelu(a.x, a.form)}


def relu(a):
    return {"y": F.relu(a.x)}


def relu2(a):
    return {"y": F.relu(a.x).square()}


def swiglu(a):
    gate, up = _gate(a)
    return {"y": F.silu(gate) * up}


def geglu(a):
    gate, up = _gate(a)
    return {"y": _gelu(gate, a.form) * up}


def reglu(a):
    gate, up = _gate(a)
    return {"y": F.relu(gate) * up}


def swiglu_clamped(a):
    gate, up = _gate(a)
    gate, up = gate.clamp(max=a.limit), up.clamp(-a.limit, a.limit)
    return {"y": gate * torch.sigmoid(gate * a.alpha) * (up + 1)}


def gelu_gate(a):
    gate, up = _gate(a)
    return {"y": _gelu(gate, a.form) * (up + 1)}


def swiglu_quant(a):
    return _quantize(a, swiglu(a)["y"])


def add(a):
    return {"y": a.a + a.b}


def mul(a):
    return {"y": a.a * a.b}


def scale(a):
    return {"y": a.x * a.alpha if a.by is None else a.x * (a.alpha * a.by)}


def axpby(a):
    return {"y": a.y.mul_(a.beta).add_(a.x, alpha=a.alpha)}


def cast(a):
    return {"y": a.x.to({"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[a.D], copy=True)}


def softcap(a):
    return {"y": a.cap * torch.tanh(a.x / a.cap)}


def transpose_2d(a):
    return {"y": a.x.transpose(-1, -2).contiguous()}


def nchw_to_nhwc(a):
    return {"y": a.x.permute(0, 2, 3, 1).contiguous()}


def nhwc_to_nchw(a):
    return {"y": a.x.permute(0, 3, 1, 2).contiguous()}


def upsample_nearest_2x(a):
    if a.layout == "nchw":
        return {"y": F.interpolate(a.x, scale_factor=2, mode="nearest")}
    return {"y": F.interpolate(a.x.permute(0, 3, 1, 2), scale_factor=2, mode="nearest").permute(0, 2, 3, 1)}


def gemm(a):
    if a.D == "f32" and a.T != "f32":
        return {"d": torch.mm(a.a, a.b, out_dtype=torch.float32)}
    return {"d": torch.matmul(a.a, a.b) if a.beta == 0 else torch.addmm(a.c, a.a, a.b, beta=a.beta, alpha=a.alpha)}


def gemm_batched(a):
    return {"d": torch.bmm(a.a, a.b) if a.beta == 0 else torch.baddbmm(a.c, a.a, a.b, beta=a.beta, alpha=a.alpha)}


def _activate(act, gated, z):
    functions = {
        "none": lambda x: x, "silu": F.silu, "gelu_erf": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
        "relu": F.relu, "relu2": lambda x: F.relu(x).square(),
    }  # fmt: skip
    return functions[act](z[..., 0::2]) * z[..., 1::2] if gated else functions[act](z)


def gemm_epilogue(a):
    y = _activate(a.act, a.gated, F.linear(a.a, a.b.t(), a.bias))
    y = y if a.out_scale == 1 else a.out_scale * y
    return {"y": y if a.residual is None else a.residual + y}


def mlp(a):
    y = F.linear(_activate(a.act, a.gated, F.linear(a.x, a.w1.t(), a.b1)), a.w2.t(), a.b2)
    return {"y": y if a.residual is None else a.residual + y}


def gemm_pack_gated(a):
    if a.gate.is_contiguous():
        return {"b": torch.stack((a.gate, a.up), -1).flatten(1)}
    return {"b": torch.stack((a.gate.t(), a.up.t()), 1).flatten(0, 1).t()}


def attention(a):
    # Its causal mask is aligned to the first key: the same as ours where both sides are of one length.
    others = ("cu_q", "cu_kv", "page_table", "kv_len", "prefix_len", "sinks", "alibi", "lse")
    masked = a.window_left >= 0 or a.window_right >= 0 or a.softcap or (a.causal and a.q.shape[1] != a.k.shape[1])
    if masked or any(getattr(a, name) is not None for name in others):
        raise NotImplementedError("scaled_dot_product_attention has no such mask or layout")
    q, k, v = (x.transpose(1, 2) for x in (a.q, a.k, a.v))
    grouped = q.shape[1] != k.shape[1]
    y = F.scaled_dot_product_attention(q, k, v, is_causal=a.causal, scale=a.scale or None, enable_gqa=grouped)
    return {"y": y.transpose(1, 2)}


def attention_merge(a):
    y = (a.x * torch.softmax(a.lse, -1)[..., None]).sum(-2)
    return {"y": y.to(a.y.dtype), "lse_out": torch.logsumexp(a.lse, -1)}


def tau_scale(a):
    for x, tok, table in ((a.q, a.tok_q, a.table_q), (a.v, a.tok_v, a.table_v)):
        x.mul_((torch.tanh(tok) + table[a.pos])[..., None])
    return {"q": a.q, "v": a.v}


FORWARD = {
    f.__name__: f
    for f in (
        rms_norm, add_rms_norm, rms_norm_gated, layer_norm, add_layer_norm, l2_norm, group_norm, rms_norm_quant,
        add_rms_norm_quant, silu, gelu, relu, relu2, swiglu, geglu, reglu, swiglu_clamped, gelu_gate, swiglu_quant, add,
        mul, scale, axpby, cast, softcap, transpose_2d, nchw_to_nhwc, nhwc_to_nchw, upsample_nearest_2x,
        gemm, gemm_batched, gemm_epilogue, mlp, gemm_pack_gated, attention, attention_merge, tau_scale,
    )
}  # fmt: skip
CUDNN = ("attention",)


class Arguments:
    """Attribute access to the arguments of a call; a plain class, which torch.compile sees through."""

    def __init__(self, values):
        self.__dict__.update(values)


def names(op, compiled):
    """The baselines of an op."""
    if op.removesuffix("_backward") not in FORWARD:
        return []
    return ["torch", *["cudnn"] * (op in CUDNN), *["torch_compile"] * compiled]


def forward(op, name):
    """The forward of an op, or of the op whose gradient it is."""
    plain = FORWARD[op.removesuffix("_backward")]
    if name == "torch_compile":
        return torch.compile(plain, dynamic=False)
    # As a decorator it holds for each call, the one that is captured among them.
    return sdpa_kernel(SDPBackend.CUDNN_ATTENTION)(plain) if name == "cudnn" else plain


def build(op, call, args):
    """A callable without arguments that does the op's work on `args` and returns its outputs by name."""
    if not op.endswith("_backward"):
        a = Arguments(args)
        return lambda: call(a)

    # Only the gradient is timed: the forward, with what it saves, runs here, once.
    leaves = {k: args[k].detach().requires_grad_() for k in ("x", "up", "weight") if args.get(k) is not None}
    if args.get("dbias") is not None:
        leaves["bias"] = torch.zeros_like(args["weight"]).requires_grad_()
    y = call(Arguments({"bias": None, **args, **leaves}))["y"]

    def gradient():
        grads = torch.autograd.grad(y, list(leaves.values()), args["dy"], retain_graph=True)
        return {"d" + k: g for k, g in zip(leaves, grads, strict=True)}

    return gradient
