"""A wide table of operators and input layouts for shape inference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

#: Layouts of a logical 2x3x4x5 tensor and its smaller relatives.
LAYOUTS: dict[str, Callable[[torch.dtype], torch.Tensor]] = {
    "contiguous": lambda d: make((2, 3, 4, 5), d),
    "channels_last": lambda d: make((2, 3, 4, 5), d).contiguous(memory_format=torch.channels_last),
    "transposed": lambda d: make((2, 3, 5, 4), d).transpose(2, 3),
    "permuted": lambda d: make((5, 2, 4, 3), d).permute(1, 3, 2, 0),
    "expanded": lambda d: make((2, 1, 4, 1), d).expand(2, 3, 4, 5),
    "gaps": lambda d: make((2, 6, 4, 10), d)[:, ::2, :, 1:6],
    "offset": lambda d: make((3, 3, 4, 5), d)[1:],
    "unit": lambda d: make((1, 3, 1, 5), d),
    "unit channels_last": lambda d: make((1, 3, 1, 5), d).contiguous(memory_format=torch.channels_last),
    "empty": lambda d: make((2, 0, 4, 5), d),
}
SMALL: dict[str, Callable[[torch.dtype], torch.Tensor]] = {
    "row": lambda d: make((5,), d),
    "scalar": lambda d: make((), d),
    "matrix": lambda d: make((4, 1), d),
    "image": lambda d: make((2, 3, 4, 5), d).contiguous(memory_format=torch.channels_last),
}
DTYPES = (
    torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.uint8, torch.bool, torch.complex64,
)


def make(sizes: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    if dtype is torch.bool:
        return torch.ones(sizes, dtype=dtype)
    if not dtype.is_floating_point and not dtype.is_complex:
        return torch.randint(1, 5, sizes).to(dtype)
    return (torch.rand(sizes) + 0.5).to(dtype)


UNARY = """relu neg abs sin cos tanh exp log sqrt rsqrt reciprocal sigmoid erf floor ceil round trunc sign square
logical_not isnan isfinite isinf expm1 log1p log2 log10 exp2 asin acos atan sinh cosh asinh atanh erfc lgamma digamma
bitwise_not positive frac sgn signbit isposinf deg2rad nan_to_num logit angle conj_physical isreal""".split()
BINARY = """add sub mul div maximum minimum pow eq ne lt le gt ge logical_and logical_or bitwise_and bitwise_or
bitwise_xor fmod remainder floor_divide atan2 fmax fmin true_divide hypot copysign nextafter xlogy logaddexp""".split()
SCALARS = (2, 2.5, True)

ACTIVATIONS: dict[str, Callable[[torch.Tensor], Any]] = {
    name: getattr(F, name)
    for name in "gelu silu hardswish hardsigmoid hardtanh leaky_relu elu softplus mish selu celu relu6 logsigmoid "
    "softsign tanhshrink hardshrink softshrink".split()
}

REDUCTIONS: dict[str, Callable[[torch.Tensor], Any]] = {
    "sum": lambda x: x.sum(),
    "sum dim": lambda x: x.sum(1),
    "sum dims": lambda x: x.sum((0, -1), keepdim=True),
    "sum dtype": lambda x: x.sum(-1, dtype=torch.float64),
    "mean": lambda x: x.mean(),
    "mean dims": lambda x: x.mean((2, 3)),
    "mean keep": lambda x: x.mean(1, keepdim=True),
    "amax": lambda x: x.amax((1, 2)),
    "amin": lambda x: x.amin(-1, keepdim=True),
    "max": lambda x: x.max(),
    "max dim": lambda x: x.max(2),
    "min dim": lambda x: x.min(-1, keepdim=True),
    "argmax": lambda x: x.argmax(),
    "argmin": lambda x: x.argmin(1, keepdim=True),
    "prod": lambda x: x.prod(),
    "prod dim": lambda x: x.prod(-1),
    "any": lambda x: x.any(),
    "all dim": lambda x: x.all(1),
    "var": lambda x: x.var(),
    "var dims": lambda x: x.var((1, 3), unbiased=False),
    "std": lambda x: x.std(-1, keepdim=True),
    "var_mean": lambda x: torch.var_mean(x, 1),
    "norm": lambda x: torch.linalg.vector_norm(x, dim=-1),
    "logsumexp": lambda x: x.logsumexp(1),
    "cumsum": lambda x: x.cumsum(-1),
    "cumprod": lambda x: x.cumprod(0),
    "cummax": lambda x: x.cummax(1),
    "softmax": lambda x: x.softmax(-1),
    "softmax inner": lambda x: x.softmax(1),
    "log_softmax": lambda x: x.log_softmax(-1),
    "softmax dtype": lambda x: x.softmax(-1, dtype=torch.float32),
    "sort": lambda x: x.sort(-1),
    "argsort": lambda x: x.argsort(1),
    "topk": lambda x: x.topk(2, -1),
    "median": lambda x: x.median(-1),
    "aminmax": lambda x: x.aminmax(dim=-1),
    "count_nonzero": lambda x: x.count_nonzero(1),
}

MOVEMENT: dict[str, Callable[[torch.Tensor], Any]] = {
    "clone": lambda x: x.clone(),
    "clone contiguous": lambda x: x.clone(memory_format=torch.contiguous_format),
    "clone channels_last": lambda x: x.clone(memory_format=torch.channels_last),
    "to half": lambda x: x.to(torch.float16),
    "to int": lambda x: x.to(torch.int32),
    "to channels_last": lambda x: x.to(memory_format=torch.channels_last),
    "contiguous": lambda x: x.contiguous(),
    "permute": lambda x: x.permute(3, 0, 2, 1),
    "transpose": lambda x: x.transpose(1, -1),
    "unsqueeze": lambda x: x.unsqueeze(2),
    "squeeze": lambda x: x.squeeze(),
    "squeeze dim": lambda x: x.squeeze(0),
    "slice": lambda x: x[:, 1:, ::2],
    "select": lambda x: x[1 if x.shape[0] > 1 else 0],
    "diagonal": lambda x: x.diagonal(dim1=2, dim2=3),
    "expand": lambda x: x.unsqueeze(0).expand(3, -1, -1, -1, -1),
    "as_strided": lambda x: x.as_strided((2, 2), (2, 1), 1) if x.numel() > 8 else x,
    "reshape": lambda x: x.reshape(x.shape[0], x.shape[1], -1) if x.numel() else x,
    "flatten": lambda x: x.flatten(),
    "unfold": lambda x: x.unfold(3, 2, 1),
    "split": lambda x: x.split(2, -1),
    "chunk": lambda x: x.chunk(2, 2),
    "unbind": lambda x: x.unbind(-1),
    "flip": lambda x: x.flip(1, 3),
    "roll": lambda x: x.roll(1, -1),
    "repeat": lambda x: x.repeat(1, 2, 1, 1),
    "repeat_interleave": lambda x: x.repeat_interleave(2, 1),
    "cat": lambda x: torch.cat([x, x], 1),
    "cat mixed": lambda x: torch.cat([x, x.contiguous(), x], -1),
    "stack": lambda x: torch.stack([x, x], 1),
    "pad": lambda x: F.pad(x, (1, 2)),
    "pad image": lambda x: F.pad(x, (1, 1, 2, 0), value=1),
    "tril": lambda x: x.tril(),
    "triu": lambda x: x.triu(1),
    "zeros_like": torch.zeros_like,
    "ones_like": lambda x: torch.ones_like(x, dtype=torch.int64),
    "empty_like": torch.empty_like,
    "full_like": lambda x: torch.full_like(x, 1),
    "rand_like": lambda x: torch.rand_like(x.to(torch.float32)),
    "new_zeros": lambda x: x.new_zeros(3, 4),
    "view dtype": lambda x: x.view(torch.int8) if x.dtype is torch.uint8 else x,
    "movedim": lambda x: x.movedim(0, 2),
    "unflatten": lambda x: x.unflatten(2, (2, 2)) if x.shape[2] == 4 else x,
    "meshgrid": lambda x: torch.meshgrid(x.flatten(), x.flatten(), indexing="ij"),
    "select_scatter": lambda x: x.select_scatter(x.select(2, 0), 2, 0),
    "slice_scatter": lambda x: x.slice_scatter(x[..., :1], -1, 0, 1),
    "index_select": lambda x: x.index_select(3, torch.tensor([0, 2])),
    "index": lambda x: x[:, :, torch.tensor([0, 0])],
    "index two": lambda x: x[torch.tensor([0, 0]), :, torch.tensor([0, 0])],
    "index apart": lambda x: x[torch.tensor([[0], [0]]), :, torch.tensor([0, 0])],
    "gather": lambda x: x.gather(3, torch.zeros(1, 2, 1, 3, dtype=torch.long)[:, : x.shape[1]]),
    "take_along": lambda x: torch.take_along_dim(x, x.argsort(-1), -1),
    "scatter": lambda x: x.scatter(3, torch.zeros(1, 1, 1, 1, dtype=torch.long)[:, : x.shape[1]], 1),
    "scatter_add": lambda x: x.scatter_add(-1, torch.zeros(*x.shape, dtype=torch.long), x),
    "index_add": lambda x: x.index_add(3, torch.tensor([0, 1]), x[..., :2]),
    "index_put": lambda x: x.index_put((torch.tensor([0]),), x[:1]),
    "where": lambda x: torch.where(x > 1, x, 0),
    "masked_fill": lambda x: x.masked_fill(x > 1, 0),
    "clamp": lambda x: x.clamp(1, 2),
    "clamp_min": lambda x: x.clamp_min(1.5),
    "lerp": lambda x: torch.lerp(x, x, 0.5),
    "addcmul": lambda x: torch.addcmul(x, x, x, value=2),
    "addcdiv": lambda x: torch.addcdiv(x, x, x),
    "glu": lambda x: F.glu(x[..., :4], -1),
    "pixel_shuffle": lambda x: F.pixel_shuffle(x.repeat(1, 4, 1, 1), 2),
    "one_hot": lambda x: F.one_hot(x.long(), 6),
    "cross": lambda x: torch.linalg.cross(x, x, dim=1),
    "bucketize": lambda x: torch.bucketize(x, torch.tensor([1, 2])),
    "isin": lambda x: torch.isin(x, torch.tensor([1, 2])),
    "logical": lambda x: ~(x > 1) & (x < 2),
    "outer": lambda x: torch.outer(x.flatten(), x.flatten()),
    "cdist": lambda x: torch.cdist(x, x),
}

IMAGES: dict[str, Callable[[torch.Tensor], Any]] = {
    "conv": lambda x: F.conv2d(x, torch.ones(6, 3, 3, 3), padding=1),
    "conv bias": lambda x: F.conv2d(x, torch.ones(6, 3, 2, 2), torch.ones(6), stride=2),
    "conv 1x1": lambda x: F.conv2d(x, torch.ones(4, 3, 1, 1)),
    "conv last": lambda x: F.conv2d(x, torch.ones(6, 3, 3, 3).to(memory_format=torch.channels_last), padding=1),
    "depthwise": lambda x: F.conv2d(x, torch.ones(3, 1, 3, 3), padding=1, groups=3),
    "dilated": lambda x: F.conv2d(x, torch.ones(6, 3, 2, 2), dilation=2, padding=2),
    "transposed conv": lambda x: F.conv_transpose2d(x, torch.ones(3, 6, 2, 2), stride=2),
    "conv1d": lambda x: F.conv1d(x[:, :, 0], torch.ones(2, 3, 3), padding=1),
    "conv3d": lambda x: F.conv3d(x.unsqueeze(2), torch.ones(2, 3, 1, 1, 1)),
    "batch_norm": lambda x: F.batch_norm(x, torch.zeros(3), torch.ones(3)),
    "batch_norm affine": lambda x: F.batch_norm(x, torch.zeros(3), torch.ones(3), torch.ones(3), torch.ones(3)),
    "batch_norm train": lambda x: F.batch_norm(x, None, None, training=True),
    "group_norm": lambda x: F.group_norm(x, 3),
    "layer_norm": lambda x: F.layer_norm(x, (5,)),
    "layer_norm affine": lambda x: F.layer_norm(x, (x.shape[2], 5), torch.ones(x.shape[2], 5)),
    "instance_norm": lambda x: F.instance_norm(x) if x.shape[2] > 1 else x,
    "rms_norm": lambda x: F.rms_norm(x, (5,)),
    "max_pool": lambda x: F.max_pool2d(x, (1, 2)),
    "max_pool stride": lambda x: F.max_pool2d(x, 3, 2, 1),
    "avg_pool": lambda x: F.avg_pool2d(x, (1, 2)),
    "avg_pool ceil": lambda x: F.avg_pool2d(x, (1, 3), 2, ceil_mode=True),
    "adaptive avg": lambda x: F.adaptive_avg_pool2d(x, 1),
    "adaptive avg 2": lambda x: F.adaptive_avg_pool2d(x, (1, 2)),
    "adaptive max": lambda x: F.adaptive_max_pool2d(x, 1),
    "nearest": lambda x: F.interpolate(x, scale_factor=2),
    "nearest size": lambda x: F.interpolate(x, size=(7, 3)),
    "bilinear": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "bilinear aligned": lambda x: F.interpolate(x, size=(3, 9), mode="bilinear", align_corners=True),
    "bicubic": lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"),
    "reflect": lambda x: F.pad(x, (1, 1), mode="reflect"),
    "replicate": lambda x: F.pad(x, (1, 1, 1, 1), mode="replicate"),
    "circular": lambda x: F.pad(x, (1, 1), mode="circular"),
    "im2col": lambda x: F.unfold(x, 1),
    "grid_sample": lambda x: F.grid_sample(x, torch.zeros(x.shape[0], 2, 2, 2), align_corners=False),
    "dropout": lambda x: F.dropout(x, 0.5),
    "linear": lambda x: F.linear(x, torch.ones(7, 5)),
    "linear bias": lambda x: F.linear(x, torch.ones(7, 5), torch.ones(7)),
    "linear flat": lambda x: F.linear(x.reshape(-1, 5), torch.ones(7, 5), torch.ones(7)),
    "matmul": lambda x: x @ x.transpose(-1, -2),
    "matmul vector": lambda x: x @ torch.ones(5),
    "mm": lambda x: x[0, 0] @ torch.ones(5, 2),
    "bmm": lambda x: torch.bmm(x[0], x[0].transpose(1, 2)),
    "baddbmm": lambda x: torch.baddbmm(torch.ones(1), x[0], x[0].transpose(1, 2)),
    "addmm": lambda x: torch.addmm(torch.ones(2), x[0, 0], torch.ones(5, 2)),
    "addmv": lambda x: torch.addmv(torch.ones(1), x[0, 0], torch.ones(5)),
    "dot": lambda x: torch.dot(x[0, 0, 0], torch.ones(5)),
    "einsum": lambda x: torch.einsum("bchw,bcvw->bhv", x, x),
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x),
    "attention causal": lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True),
    "attention masked": lambda x: F.scaled_dot_product_attention(x, x, x, torch.ones(x.shape[2], x.shape[2]) > 0),
    "attention dropout": lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.5),
    "max_unpool2d": lambda x: F.max_unpool2d(x, torch.zeros(x.shape, dtype=torch.long), 2),
    "max_unpool2d of a picture": lambda x: F.max_unpool2d(x[0], torch.zeros(x[0].shape, dtype=torch.long), 2),
    "embedding": lambda x: F.embedding(x.long(), torch.ones(6, 7)),
    "embedding_bag": lambda x: F.embedding_bag(x[0, 0].long(), torch.ones(6, 7)),
    "mse": lambda x: F.mse_loss(x, x),
    "l1": lambda x: F.l1_loss(x, x, reduction="none"),
    "smooth_l1": lambda x: F.smooth_l1_loss(x, x),
    "cross_entropy": lambda x: F.cross_entropy(x[:, :, 0], torch.zeros(x.shape[0], 5, dtype=torch.long)),
    "bce": lambda x: F.binary_cross_entropy_with_logits(x, x),
    "kl": lambda x: F.kl_div(x, x, reduction="batchmean"),
    "cosine": lambda x: F.cosine_similarity(x, x),
    "normalize": lambda x: F.normalize(x, dim=1),
    "lstm cell": lambda x: torch.lstm_cell(
        x[0, 0], (torch.ones(x.shape[2], 2), torch.ones(x.shape[2], 2)), torch.ones(8, 5), torch.ones(8, 2)
    ),
}

#: For a matrix (or a batch of them) of at least one element.
MATRICES: dict[str, Callable[[torch.Tensor], Any]] = {
    "svd full": lambda x: torch.ops.aten._linalg_svd.default(x, True),
    "svd": lambda x: torch.ops.aten._linalg_svd.default(x, False),
    "svd values": lambda x: torch.linalg.svdvals(x),
    "eig": lambda x: torch.linalg.eig(x @ x.mT),
    "eigh": lambda x: torch.linalg.eigh(x @ x.mT),
    "qr": lambda x: torch.linalg.qr(x),
    "lu": lambda x: torch.linalg.lu(x),
    "inv": lambda x: torch.linalg.inv_ex(x @ x.mT),
    "pinv": lambda x: torch.linalg.pinv(x),
    "det": lambda x: torch.linalg.det(x @ x.mT),
    "cond": lambda x: torch.linalg.cond(x),
}

#: Random numbers in the shape of the argument.
RANDOM: dict[str, Callable[[torch.Tensor], Any]] = {
    name: lambda x, name=name, more=more: getattr(torch.ops.aten, name).default(x, *more)
    for name, more in (("uniform", ()), ("exponential", ()), ("cauchy", ()), ("log_normal", ()), ("random", ()),
                       ("normal_functional", ()), ("geometric", (0.5,)), ("poisson", ()), ("rand_like", ()))
}

#: Training-mode batch normalisation, statistics included, by the dtype of the parameters.
BATCH_NORM: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "native": lambda x, p: torch.ops.aten.native_batch_norm.default(x, p, p, None, None, True, 0.1, 1e-5),
    "alone": lambda x, p: torch.ops.aten._native_batch_norm_legit.no_stats(x, p, p, True, 0.1, 1e-5),
    "functional": lambda x, p: torch.ops.aten._native_batch_norm_legit_functional.default(
        x, p, p, p, p, True, 0.1, 1e-5),
    "updating": lambda x, p: torch.ops.aten._batch_norm_with_update_functional.default(x, p, p, p, p, 0.1, 1e-5),
    "updating in place": lambda x, p: torch.ops.aten._batch_norm_with_update.default(x, p, p, p, p, 0.1, 1e-5),
    "in place": lambda x, p: torch.ops.aten._native_batch_norm_legit.default(x, p, p, p, p, True, 0.1, 1e-5),
}  # fmt: skip

FACTORIES: dict[str, Callable[[], Any]] = {
    "arange": lambda: torch.arange(5),
    "arange float": lambda: torch.arange(0, 1, 0.25),
    "arange step": lambda: torch.arange(7, 1, -2),
    "zeros": lambda: torch.zeros(2, 3),
    "ones": lambda: torch.ones(2, dtype=torch.bool),
    "full": lambda: torch.full((2,), 3),
    "full float": lambda: torch.full((2, 0), 1.5),
    "eye": lambda: torch.eye(3, 2),
    "linspace": lambda: torch.linspace(0, 1, 5),
    "logspace": lambda: torch.logspace(0, 1, 5),
    "rand": lambda: torch.rand(2, 3),
    "randn": lambda: torch.randn(3, dtype=torch.float64),
    "randint": lambda: torch.randint(0, 5, (4,)),
    "randperm": lambda: torch.randperm(4),
    "empty": lambda: torch.empty(2, 3, 4, 5, memory_format=torch.channels_last),
    "empty_strided": lambda: torch.empty_strided((2, 3), (1, 2)),
    "tensor": lambda: torch.tensor([[1, 2], [3, 4]]),
    "tensor float": lambda: torch.tensor(1.5),
    "tril_indices": lambda: torch.tril_indices(3, 3),
    "hann": lambda: torch.hann_window(4),
    "scalar": lambda: torch.scalar_tensor(3),
}
