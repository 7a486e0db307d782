"""`torch.utils.checkpoint.checkpoint` inside the region: a node that checkpoints a graph.

Where no gradient will be asked for, checkpointing changes nothing, and the function is traced like other code.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.utils.checkpoint

from dovetail.capture.higher_order.func_transforms import Traced, record
from dovetail.capture.process.settings import refuse_hooks
from dovetail.capture.process.unguarded_facts import alone
from dovetail.capture.tables.known_callables import known, standin
from dovetail.capture.values.base import MISSING, Args, Const, Kwargs, Session, Value
from dovetail.capture.values.objects import ObjectValue
from dovetail.ops.calls import higher_order
from dovetail.ops.calls.higher_order import OPERATOR_OF, Checkpoint, closed

SETTINGS = ("use_reentrant", "context_fn", "determinism_check", "debug", "early_stop", "preserve_rng_state")

WARNING = (
    "torch.utils.checkpoint: the use_reentrant parameter should be passed explicitly. In version 2.9 we will raise an "
    "exception if use_reentrant is not passed."
)


def _native(value: Value) -> Any:
    """The object itself; a partial made inside the region is made anew."""
    if value.cls is functools.partial and isinstance(value, ObjectValue) and value.real is MISSING:
        function, args, keywords = (value.attrs[n].native() for n in ("func", "args", "keywords"))
        return functools.partial(function, *args, **keywords)
    return value.native()


@known(torch.utils.checkpoint.checkpoint)
def _checkpoint(s: Session, args: Args, kwargs: Kwargs) -> Value:
    refuse_hooks(s)
    function, *given = args
    settings = {n: _native(kwargs[n]) for n in SETTINGS if n in kwargs}
    named = {n: v for n, v in kwargs.items() if n not in SETTINGS}
    if not torch.is_grad_enabled() and "context_fn" not in settings:
        if settings.get("use_reentrant") is None:
            s.call(s.wrap(warnings.warn, None), Const(WARNING))
        return function.call(s, given, named)
    if "context_fn" in settings:
        alone(s, "what is kept for a backward pass is for the program's own function to say")
    traced = Traced(s, function, "checkpointed", "a checkpointed function")

    def run(*fakes: Any, **more: Any) -> Any:
        return higher_order.checkpoint_function(traced, *fakes, **{**settings, "preserve_rng_state": False}, **more)

    return record(s, higher_order.Checkpoint(settings), run, traced, {}, given, named)


# ---------------------------------------------------------------- blocks of exported programs

# What their graphs call where the program had a block, a branch or a loop, traced as what that was.
#
#     wrap_with_set_grad_enabled(False, body, x)    ->    with torch.set_grad_enabled(False): body(x)


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
