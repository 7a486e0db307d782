"""Rows of operators that are only ever library calls."""

from __future__ import annotations

import torch

from dovetail.ops.calls import library_calls
from dovetail.ops.lowering.registry import Rows

ROWS = Rows()

# ---------------------------------------------------------------- what is called in their place

for _function in (torch.rand, torch.randn, torch.randint, torch.randperm):
    # A call through the dispatcher counts how these fill their results; PyTorch's functions do not.
    ROWS.library(f"aten::{_function.__name__}", callee=_function)
ROWS.library("aten::_scaled_dot_product_flash_attention_for_cpu", callee=library_calls.attention)
ROWS.library("aten::_scaled_dot_product_flash_attention_for_cpu_backward", callee=library_calls.attention_backward)
ROWS.library("mkldnn::_linear_pointwise", callee=library_calls.linear, fresh=True)
ROWS.library("mkldnn::_linear_pointwise.binary")  # other arguments
ROWS.library("aten::mkldnn_rnn_layer", callee=library_calls.lstm, opaque=frozenset((3,)))
ROWS.library("aten::mkldnn_rnn_layer_backward", callee=library_calls.lstm_backward)

# ---------------------------------------------------------------- memory

ROWS.library(
    "aten::baddbmm", "aten::addmv", "aten::linear", "aten::convolution", "aten::convolution_backward",
    "aten::cudnn_convolution_relu", "aten::cudnn_convolution_add_relu", "aten::max_pool2d_with_indices",
    "aten::max_pool2d_with_indices_backward", "aten::avg_pool2d", "aten::avg_pool2d_backward", fresh=True,
)  # fmt: skip
ROWS.library(
    "aten::_embedding_bag", "aten::_embedding_bag_forward_only", opaque=frozenset((1, 2, 3)), may_raise=True,
)  # fmt: skip
# Seed and offset lie on the CPU, and on the GPU while a CUDA graph is recorded.
ROWS.library(
    "aten::_scaled_dot_product_efficient_attention", "aten::_efficient_attention_forward", opaque=frozenset((2, 3)),
)  # fmt: skip
# As many bytes as cuDNN wants.
ROWS.library("aten::_batch_norm_with_update", "aten::_batch_norm_with_update_functional", opaque=frozenset((3,)))
ROWS.library("aten::as_strided_scatter", counts_from_storage=True, keeps_offset=True)

# ---------------------------------------------------------------- values that are refused

ROWS.library(
    "aten::_assert_async", "aten::_functional_assert_async", "aten::_assert_scalar", "aten::_assert_tensor_metadata",
    "aten::sym_constrain_range", "aten::sym_constrain_range_for_size", "aten::_print", checks=True,
)  # fmt: skip
ROWS.library(
    "aten::multi_margin_loss", "aten::multilabel_margin_loss_forward", "aten::_linalg_check_errors",
    "aten::_linalg_eigh", "aten::_linalg_eigvals", "aten::linalg_eig", "aten::linalg_lstsq", "aten::linalg_ldl_solve",
    "aten::geqrf", "aten::ormqr", "aten::_ctc_loss", "aten::multinomial", "aten::bernoulli", "aten::normal",
    "aten::poisson", "aten::binomial", "aten::take", "aten::one_hot", "aten::repeat_interleave", "aten::max_unpool2d",
    "aten::max_unpool3d", may_raise=True,
)  # fmt: skip
ROWS.library(
    "aten::index_copy", "aten::index_fill", "aten::index_reduce", "aten::scatter", "aten::scatter_reduce", "aten::put",
    may_raise=True, writes_at_indices=True,
)  # fmt: skip
ROWS.library("aten::masked_scatter", writes_at_indices=True)
