"""Rows of operators that are only ever library calls, and what is called in the place of those that need care."""

from __future__ import annotations

import math
from typing import Any

import torch

from dovetail.ops.calls import openmp
from dovetail.ops.fake.errors import eager_errors as errors
from dovetail.ops.fake.errors import eager_trials as trials
from dovetail.ops.fake.rules import elementwise, fourier, images, normalization, products, upsampling, view_rules
from dovetail.ops.fake.rules.reductions import reduction
from dovetail.ops.fake.symbolic import unbacked
from dovetail.ops.lowering.registry import Rows

aten = torch.ops.aten


def lstm(x: Any, *args: Any) -> Any:
    """Keeps what a backward pass needs: the kernel asks for the grad mode to know whether it must. And oneDNN has no
    layers over nothing."""
    if not x.numel():
        h, c = args[4:6]
        return x.new_empty((*x.shape[:2], h.shape[-1])), h.clone(), c.clone(), x.new_empty(0, dtype=torch.uint8)
    with torch.enable_grad(), torch._C._AutoDispatchBelowAutograd():
        return aten.mkldnn_rnn_layer.default(x, *args)


def lstm_backward(x: Any, w1: Any, w2: Any, b1: Any, b2: Any, h: Any, c: Any, *args: Any) -> Any:
    """Of nothing, gradients are zeros."""
    given = x, w1, w2, b1, b2, h, c
    return aten.mkldnn_rnn_layer_backward.default(*given, *args) if x.numel() else tuple(map(torch.zeros_like, given))


def attention(query: Any, key: Any, value: Any, dropout: float = 0.0, causal: bool = False, **named: Any) -> Any:
    """PyTorch chooses this kernel only where there is something to compute; with symbolic sizes that shows late."""
    if query.numel() and key.numel():
        return aten._scaled_dot_product_flash_attention_for_cpu.default(query, key, value, dropout, causal, **named)
    found = query.new_zeros((*query.shape[:-1], value.shape[-1]))
    wide = torch.float64 if query.dtype is torch.float64 else torch.float32
    return found, query.new_full(query.shape[:-1], -math.inf, dtype=wide)


def attention_backward(
    gradient: Any, query: Any, key: Any, value: Any, out: Any, logsumexp: Any, dropout: float, causal: bool,
    **named: Any,
) -> Any:
    """Of nothing, gradients are zeros."""
    operator = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
    if query.numel() and key.numel():
        return operator(gradient, query, key, value, out, logsumexp, dropout, causal, **named)
    return tuple(map(torch.zeros_like, (query, key, value)))


def linear(x: Any, weight: Any, bias: Any, *more: Any) -> Any:
    """oneDNN has no products of nothing, and leaves parts of others out where fewer threads come than it has shared
    them out to (3.12, `float32`); the BLAS looks how many there are."""
    if x.numel() and weight.numel() and openmp.gives(torch.get_num_threads()):
        return torch.ops.mkldnn._linear_pointwise.default(x, weight, bias, *more)
    return torch.nn.functional.linear(x, weight, bias)


def pairs(x: Any) -> Any:
    """The graph's value of a tensor that was written to is computed; what eager would conjugate twice, it conjugates
    once, and leaves for later."""
    return aten.view_as_real.default(x.resolve_conj())


ROWS = Rows()
library = ROWS.library

# ---------------------------------------------------------------- random numbers

for _function in (torch.rand, torch.randn, torch.randint, torch.randperm):
    # A call through the dispatcher counts how these fill their results; PyTorch's functions do not.
    library(f"aten::{_function.__name__}", callee=_function)
library("aten::rand_like", "aten::randn_like", symbolic_shape=view_rules.like)
library("aten::uniform", shape=elementwise.uniform)
library("aten::poisson", shape=elementwise.poisson, may_raise=True)
library("aten::normal", may_raise=True)
library("aten::normal.Tensor_Tensor", shape=elementwise.normal, may_raise=True)
library("aten::multinomial", "aten::bernoulli", "aten::binomial", may_raise=True)

# ---------------------------------------------------------------- products and matrices

library("aten::linear", fresh=True)
library("mkldnn::_linear_pointwise", callee=linear, fresh=True)
library("mkldnn::_linear_pointwise.binary")  # other arguments
library("aten::dot", "aten::vdot", trial=trials.MIXED)
library("aten::baddbmm", "aten::addmv", fresh=True, trial=trials.PRODUCT)
library("aten::addbmm", trial=trials.PRODUCT)
library("aten::_linalg_svd", shape=products.svd)
library("aten::linalg_eig", shape=products.eig, may_raise=True)
library("aten::_linalg_check_errors", "aten::_linalg_eigh", "aten::_linalg_eigvals", "aten::linalg_lstsq",
        "aten::linalg_ldl_solve", "aten::geqrf", "aten::ormqr", may_raise=True)
library("aten::_fft_c2c", shape=fourier.complex_to_complex)
library("aten::_fft_r2c", shape=fourier.real_to_complex)
library("aten::_fft_c2r", shape=fourier.complex_to_real)

# ---------------------------------------------------------------- layers

library("aten::cudnn_convolution_relu", "aten::cudnn_convolution_add_relu", fresh=True)
library("aten::max_pool2d_with_indices", fresh=True)
library("aten::max_unpool2d", shape=images.max_unpool2d, may_raise=True)
library("aten::max_unpool3d", may_raise=True)
# The last result takes as many bytes as cuDNN wants.
library("aten::_batch_norm_with_update", shape=images.batch_norm_updating, opaque=frozenset((3,)))
library("aten::_batch_norm_with_update_functional", shape=images.batch_norm_update, opaque=frozenset((3,)))
library("aten::mkldnn_rnn_layer", callee=lstm, opaque=frozenset((3,)))
library("aten::mkldnn_rnn_layer_backward", callee=lstm_backward)
library("aten::_embedding_bag", "aten::_embedding_bag_forward_only", opaque=frozenset((1, 2, 3)), may_raise=True)
library("aten::_scaled_dot_product_flash_attention_for_cpu", shape=normalization.attention_on_cpu, callee=attention)
library("aten::_scaled_dot_product_flash_attention_for_cpu_backward", callee=attention_backward)
# Seed and offset lie on the CPU, and on the GPU while a CUDA graph is recorded.
library("aten::_scaled_dot_product_efficient_attention", "aten::_efficient_attention_forward",
        opaque=frozenset((2, 3)))
library("aten::_efficient_attention_backward", shape=normalization.attention_backward)
library("aten::glu_backward", shape=elementwise.in_rows(1))
library("aten::binary_cross_entropy", shape=view_rules.cross_entropy, symbolic_shape=view_rules.cross_entropy)
library("aten::binary_cross_entropy_backward", shape=view_rules.cross_entropy_backward,
        symbolic_shape=view_rules.cross_entropy_backward)
library("aten::multilabel_margin_loss_forward", shape=elementwise.multilabel_margin_loss, may_raise=True)
library("aten::multi_margin_loss", "aten::_ctc_loss", may_raise=True)

# ---------------------------------------------------------------- images

library("aten::grid_sampler_2d", "aten::grid_sampler_3d", shape=images.grid_sample)
library("aten::grid_sampler_2d_backward", "aten::grid_sampler_3d_backward", shape=images.grid_sample_backward)
library("aten::replication_pad2d_backward", "aten::reflection_pad2d_backward", shape=images.like_image)
library("aten::replication_pad2d", shape=images.replication_pad2d)
library("aten::reflection_pad2d", shape=images.reflection_pad2d)
library("aten::pixel_shuffle", shape=images.pixel_shuffle)
library("aten::pixel_unshuffle", shape=images.pixel_unshuffle)
library("aten::channel_shuffle", shape=images.channel_shuffle)
library("aten::upsample_linear1d", "aten::upsample_bilinear2d", "aten::upsample_trilinear3d",
        symbolic_shape=upsampling.interpolated, trial=trials.EMPTY)
library("aten::upsample_linear1d_backward", "aten::upsample_bilinear2d_backward", "aten::upsample_trilinear3d_backward",
        symbolic_shape=upsampling.interpolated_backward)
library("aten::upsample_bicubic2d", "aten::_upsample_bilinear2d_aa", "aten::_upsample_bicubic2d_aa", trial=trials.EMPTY)

# ---------------------------------------------------------------- elements

library("aten::view_as_real", callee=pairs)
library("aten::angle", shape=elementwise.angle)
library("aten::mvlgamma", shape=elementwise.mvlgamma)
library("aten::isin", shape=elementwise.isin)
library("aten::nansum", "aten::median.dim", shape=reduction)
library("aten::sub_.Tensor", "aten::div_.Tensor", "aten::addcmul_", "aten::addcdiv_", "aten::lerp_", trial=trials.MIXED)
library("aten::masked_fill_", trial=trials.MASKED_FILL)

# ---------------------------------------------------------------- places

library("aten::index_put_", "aten::_index_put_impl_", refuses=errors.put, trial=trials.PUT)
library("aten::index_add_", refuses=errors.index_add)
library("aten::index_copy", refuses=errors.index_copy, may_raise=True, writes_at_indices=True)
library("aten::index_copy_", refuses=errors.index_copy)
library("aten::index_fill", refuses=errors.index_fill, may_raise=True, writes_at_indices=True)
library("aten::index_fill_", refuses=errors.index_fill)
library("aten::index_reduce", "aten::scatter", "aten::scatter_reduce", "aten::put", may_raise=True,
        writes_at_indices=True)
library("aten::masked_scatter", writes_at_indices=True)
library("aten::take", "aten::one_hot", "aten::repeat_interleave", may_raise=True)
library("aten::topk", refuses=errors.topk)
library("aten::as_strided_scatter", symbolic_shape=view_rules.scatter(view_rules.as_strided), counts_from_storage=True,
        keeps_offset=True)

library("aten::_fused_moving_avg_obs_fq_helper", "aten::_fused_moving_avg_obs_fq_helper_functional",
        refuses=errors.observed)
library("aten::quantize_per_tensor", "aten::quantize_per_tensor_dynamic", "aten::quantize_per_channel",
        "aten::_make_per_tensor_quantized_tensor", "aten::_make_per_channel_quantized_tensor",
        "aten::_empty_affine_quantized", "aten::_empty_per_channel_affine_quantized", refuses=errors.quantized)

# ---------------------------------------------------------------- what the program finds out

library("aten::nonzero", discovers=unbacked.nonzero)
library("aten::nonzero_static", shape=elementwise.nonzero_static)
library("aten::masked_select", discovers=unbacked.masked_select)
library("aten::_unique", discovers=unbacked.unique_pair)
library("aten::_unique2", discovers=unbacked.unique)
library("aten::unique_dim", discovers=unbacked.unique_rows)
library("aten::unique_consecutive", discovers=unbacked.unique_consecutive)
library("aten::unique_dim_consecutive", discovers=unbacked.unique_rows_consecutive)
library("aten::repeat_interleave.Tensor", discovers=unbacked.repeat_interleave, may_raise=True)
library("aten::bincount", discovers=unbacked.bincount)
library("aten::_local_scalar_dense", discovers=unbacked.item)

# ---------------------------------------------------------------- checks

library("aten::_assert_async", "aten::_functional_assert_async", "aten::_assert_scalar",
        "aten::_assert_tensor_metadata", "aten::sym_constrain_range", "aten::sym_constrain_range_for_size",
        "aten::_print", checks=True)
