"""What graphs of exported programs call where the program had a block, a branch or a loop, traced as what that was.

    wrap_with_set_grad_enabled(False, body, x)    ->    with torch.set_grad_enabled(False): body(x)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.utils.checkpoint

from dovetail.capture.tables.known_callables import standin
from dovetail.ops.calls.higher_order import OPERATOR_OF, Checkpoint, closed

OPERATORS = torch.ops.higher_order

for ours, operator in OPERATOR_OF.items():
    standin(ours)(operator)


@standin(Checkpoint.__call__)
def checkpoint(self: Any, graph: Any, given: Any, settings: Any, args: Any, kwargs: Any, lifted: Any) -> Any:
    return torch.utils.checkpoint.checkpoint(closed(graph, given, lifted), *args, **self.settings, **kwargs)


@standin(OPERATORS.wrap_with_set_grad_enabled)
def with_grad_mode(enabled: bool, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    with torch.set_grad_enabled(enabled):
        return function(*args, **kwargs)


@standin(OPERATORS.wrap_with_autocast)
def with_autocast(
    device: str, dtype: Any, enabled: bool, cache: bool | None, function: Callable[..., Any], *args: Any, **kwargs: Any
) -> Any:
    with torch.autocast(device, dtype, enabled, cache):
        return function(*args, **kwargs)
