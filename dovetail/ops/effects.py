"""Which operators of a functional graph do more than return results: random ones, checks, what is not PyTorch's own."""

from __future__ import annotations

import operator

import torch.fx

from dovetail.ops.schema import facts

#: Operators called for what they check.
_CHECKS = frozenset(
    "_assert_async _functional_assert_async _assert_scalar _assert_tensor_metadata sym_constrain_range "
    "sym_constrain_range_for_size _print".split()
)


def has_effect(node: torch.fx.Node) -> bool:
    """Does the call do anything but return results?"""
    if node.target is operator.getitem:
        return False
    known = facts(node.target)
    namespace, _, name = node.target._schema.name.partition("::")  # type: ignore[union-attr]
    foreign = namespace not in ("aten", "prims")
    return bool(known.written) or known.random or foreign or not known.returned or name in _CHECKS
