"""Draws of the host's generator that are made again: operators that draw, with the state to draw from before their
arguments.

They leave the generator as they find it. `normalize/passes/redraws.py` puts them into graphs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dovetail.ir.devices import HOST
from dovetail.ops.fake.result_spec import Spec
from dovetail.ops.lowering.registry import Rows
from dovetail.ops.own.library import library

aten = torch.ops.aten
_DRAWING = (
    aten.native_dropout.default, aten.bernoulli.default, aten.bernoulli.p, aten.rand.default, aten.rand_like.default,
    aten.randn.default, aten.randn_like.default, aten.uniform.default, aten.normal_functional.default,
    aten.normal.float_float, aten.normal.Tensor_float, aten.normal.float_Tensor, aten.normal.Tensor_Tensor,
    aten.exponential.default, aten.poisson.default, aten.multinomial.default, aten.randint.default, aten.randint.low,
    aten.randint_like.default, aten.randint_like.low_dtype, aten.randperm.default,
)  # fmt: skip
_BYTES = torch.default_generator.get_state().numel()

ROWS = Rows()
LIBRARY = library(__name__)


def _state() -> torch.Tensor:
    return torch.default_generator.get_state()


def _again(drawing: Any) -> Callable[..., Any]:
    def draw(state: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        now = torch.default_generator.get_state()
        torch.default_generator.set_state(state)
        try:
            return drawing(*args, **kwargs)
        finally:
            torch.default_generator.set_state(now)

    return draw


def _defined(drawing: Any) -> Any:
    """The operator that takes a state."""
    name, _, arguments = str(drawing._schema).removeprefix("aten::").partition("(")
    name = f"{name.replace('.', '_')}_again"
    LIBRARY.define(f"{name}(Tensor state, {arguments}")
    LIBRARY.impl(name, _again(drawing), "CompositeExplicitAutograd")
    LIBRARY.impl(name, lambda state, *args, **kwargs: drawing(*args, **kwargs), "Meta")
    return getattr(torch.ops.dovetail, name).default


LIBRARY.define("generator_state() -> Tensor", tags=(torch.Tag.nondeterministic_seeded,))
LIBRARY.impl("generator_state", _state, "CompositeExplicitAutograd")
generator_state: Any = torch.ops.dovetail.generator_state.default
ROWS.library(
    "dovetail::generator_state", callee=_state, fresh=True,
    shape=lambda: Spec((_BYTES,), (1,), torch.uint8, HOST),
)  # fmt: skip

#: By the operator that draws: the one that draws from a state.
AGAIN: dict[Any, Any] = {drawing: _defined(drawing) for drawing in _DRAWING}
FIRST: dict[Any, Any] = {again: drawing for drawing, again in AGAIN.items()}
