"""What an operator's schema says about memory, read once."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from dovetail.ir.records import dataclass


@dataclass(frozen=True, slots=True)
class Facts:
    """`written` are the names of arguments that the operator writes to.

    `returned[k]` names the written argument that result k is; None for a new result. `view`: results
    share the first argument's memory.
    """

    view: bool
    written: tuple[str, ...]
    returned: tuple[str | None, ...]
    random: bool
    names: tuple[str, ...]
    changes_metadata: bool


#: Operators that may or may not return a view of their argument: what they returned decides.
IDENTITY = frozenset(
    """aten::detach aten::alias aten::lift_fresh aten::lift aten::_lazy_clone_alias
    _c10d_functional::wait_tensor _c10d_functional::_wrap_tensor_autograd""".split()
)


def facts(operator: Any) -> Facts:
    """What the operator's schema says; read once for each overload."""
    return _known(operator) if isinstance(operator, torch._ops.OpOverload) else _read(operator)


def _read(operator: Any) -> Facts:
    schema = operator._schema
    names = tuple(a.name for a in schema.arguments)
    written = {a.name: a.alias_info.before_set for a in schema.arguments if a.alias_info and a.alias_info.is_write}
    returned: list[str | None] = []
    view = False
    for result in schema.returns:
        info = result.alias_info
        owner = None
        if info is not None and info.is_write:
            owner = next((name for name, labels in written.items() if labels == info.before_set), None)
        elif info is not None:
            view = True
        returned.append(owner)
    tags = operator.tags
    return Facts(
        view, tuple(written), tuple(returned), torch.Tag.nondeterministic_seeded in tags, names,
        torch.Tag.inplace_view in tags,
    )  # fmt: skip


_known = cache(_read)


def bound(operator: Any, args: tuple, kwargs: dict[str, Any]) -> dict[str, Any]:
    """The given arguments by name; defaults are left out."""
    return {**dict(zip(facts(operator).names, args, strict=False)), **kwargs}
