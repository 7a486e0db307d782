"""Higher-order operators that tell compilers something, and compute what their function does: it is traced in place.

    hints_wrapper(f, (x,), {}, hints=h)    ->    f(x)
    foreach_map(torch.add, [x, y], 2)      ->    [torch.add(x, 2), torch.add(y, 2)]
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat
from typing import Any

import torch
import torch._higher_order_ops as operators
from torch._higher_order_ops.foreach_map import foreach_map
from torch._higher_order_ops.hints_wrap import hints_wrapper
from torch._higher_order_ops.strict_mode import strict_mode

from dovetail.capture.tables.known_callables import INLINE, known, standin
from dovetail.capture.values.base import Args, Kwargs, Session, Value
from dovetail.capture.values.callables import KnownValue

#: Operators whose `__call__` checks what it is given, and hands it on.
CHECKED = (hints_wrapper, operators.print)


@known(torch._ops.HigherOrderOperator.__call__)
def _operator(s: Session, args: Args, kwargs: Kwargs) -> Value:
    operator, *given = args
    real = operator.real if isinstance(operator, KnownValue) else None
    if real not in CHECKED:
        return INLINE
    return s.call(s.wrap(real.py_kernels[torch._C.DispatchKey.CompositeExplicitAutograd], None), *given, **kwargs)


@standin(strict_mode)
def _strict(callable: Callable[..., Any], operands: Any) -> Any:
    return callable(*operands)


@standin(foreach_map)
def _each(op: Callable[..., Any], *operands: Any, **kwargs: Any) -> Any:
    if not any(isinstance(each, (list, tuple)) for each in operands):
        return op(*operands)
    columns = [each if isinstance(each, (list, tuple)) else repeat(each) for each in operands]
    return [op(*row) for row in zip(*columns)]
