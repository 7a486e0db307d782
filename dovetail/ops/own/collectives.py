"""A collective in two halves: one begins it, the other waits for its results.

    all_reduce(x, "sum", group)    ->    begun = begin_all_reduce(x, "sum", group)
                                         ...                                            reads neither, nor writes to x
                                         [result] = wait([begun], [x])

What a collective reads may not be written to while it is under way, and is kept for as long: so the second half is
given it, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dovetail.ops.calls import collectives
from dovetail.ops.lowering.registry import Rows
from dovetail.ops.own.library import library

Tensors = Sequence[torch.Tensor]


def waited_for(begun: Tensors, read: Tensors) -> list[torch.Tensor]:
    return collectives.wait(begun)


ROWS = Rows()
LIBRARY = library(__name__)
LIBRARY.define("wait(Tensor[] begun, Tensor[] read) -> Tensor[]")
LIBRARY.impl("wait", waited_for, "CompositeExplicitAutograd")
ROWS.library("dovetail::wait", callee=waited_for, fresh=True)
wait: Any = torch.ops.dovetail.wait.default

#: A collective -> the operator that begins it. Nobody reads the memory of what that gives before it is waited for.
BEGINS: dict[Any, Any] = {}
for _name in collectives.NAMES:
    _whole, _begin = getattr(torch.ops._c10d_functional, _name).default, collectives.Begun(_name)
    LIBRARY.define(str(_whole._schema).replace("_c10d_functional::", "begin_"))
    LIBRARY.impl(f"begin_{_name}", _begin, "CompositeExplicitAutograd")
    BEGINS[_whole] = getattr(torch.ops.dovetail, f"begin_{_name}").default
    ROWS.library(f"dovetail::begin_{_name}", callee=_begin, fresh=True, opaque=frozenset(range(64)))
