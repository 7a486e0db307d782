"""Which operators of a functional graph do more than return results: random ones, checks, what is not PyTorch's own."""

from __future__ import annotations

import operator
from typing import Any

import torch.fx

from dovetail.ir.aten import Subprogram
from dovetail.ops.calls.schema import facts
from dovetail.ops.fake.symbolic.unbacked import finds_out

#: Operators called for what they check.
_CHECKS = frozenset(
    "_assert_async _functional_assert_async _assert_scalar _assert_tensor_metadata sym_constrain_range "
    "sym_constrain_range_for_size _print".split()
)

#: Operators that refuse some values of what they are given: indices, labels, matrices, probabilities.
_CHOOSY = frozenset(
    """nll_loss_forward nll_loss2d_forward multi_margin_loss multilabel_margin_loss_forward embedding
    _embedding_bag _embedding_bag_forward_only _linalg_check_errors _linalg_eigh _linalg_eigvals linalg_eig
    linalg_lstsq linalg_ldl_solve geqrf ormqr _ctc_loss multinomial bernoulli normal poisson binomial index index_put
    _unsafe_index _unsafe_index_put index_select index_add index_copy index_fill index_reduce gather scatter scatter_add
    scatter_reduce take put one_hot repeat_interleave max_unpool2d max_unpool3d""".split()
)

#: Operators of Dovetail's own that do nothing but compute.
_COMPUTING = frozenset(("dovetail::draw",))


def may_refuse(operator: Any) -> bool:
    """May the operator raise for what its arguments hold?"""
    if isinstance(operator, Subprogram):
        return True
    name = operator._schema.name.partition("::")[2]
    computes = operator.namespace == "aten" or operator._schema.name in _COMPUTING
    return name in _CHECKS or name in _CHOOSY or not computes


def has_effect(node: torch.fx.Node) -> bool:
    """Does the call do anything but return results?"""
    if node.target is operator.getitem:
        return False
    if finds_out(node):
        return True  # others mention the sizes without reading the result
    known = facts(node.target)
    namespace, _, name = node.target._schema.name.partition("::")  # type: ignore[union-attr]
    foreign = namespace not in ("aten", "prims") and node.target._schema.name not in _COMPUTING  # type: ignore[union-attr]
    return bool(known.written) or known.random or foreign or not known.returned or name in _CHECKS
