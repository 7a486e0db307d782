"""Functions that tell Python something about what tensors hold. Where numbers stay in the graph, so does the answer.

    torch.equal(x, y)       ->    torch.eq(x, y).all().item()
    torch.allclose(x, y)    ->    torch.isclose(x, y).all().item()
"""

from __future__ import annotations

from typing import Any

import torch

from dovetail.capture.tables.known_callables import Handler, known
from dovetail.capture.tensors.tensor_attributes import METHODS
from dovetail.capture.values.base import FALSE, Args, Kwargs, Session, Value
from dovetail.capture.values.tensor import TensorValue


def _everywhere(compare: Any) -> Handler:
    def answer(s: Session, args: Args, kwargs: Kwargs) -> Value:
        if not s.options.capture_scalar_outputs or not all(isinstance(each, TensorValue) for each in args[:2]):
            return _refuse(s, args, kwargs)
        if compare is torch.eq and (different := _different(*args)) is not None:
            return FALSE if different else _refuse(s, args, kwargs)
        found = s.torch_method("all", [s.torch_call(compare, args, kwargs)], {})
        return s.torch_method("item", [found], {})

    return answer


def _different(left: Any, right: Any) -> bool | None:
    """Have they different shapes? None: they have the same, and a comparison tells. False: it is for eager to say."""
    fakes = left.fake, right.fake
    if any(fake._has_symbolic_sizes_strides for fake in fakes) or len({(f.dtype, f.device) for f in fakes}) > 1:
        return False
    return True if fakes[0].shape != fakes[1].shape else None


def _refuse(s: Session, args: Args, kwargs: Kwargs) -> Value:
    return s.unsupported("data-dependent-value", "the code asks for an answer that depends on the values of tensors")


def _nonzero(s: Session, args: Args, kwargs: Kwargs) -> Value:
    if not s.options.capture_scalar_outputs or kwargs or args[0].fake.numel() != 1:  # type: ignore[attr-defined]
        return _refuse(s, args, kwargs)
    return s.torch_method("item", [s.torch_call(torch.ne, [*args, FALSE], {})], {})


def _both_ways(name: str, handler: Handler) -> None:
    known(getattr(torch, name))(handler)
    METHODS[name] = lambda s, value, args, kwargs: handler(s, [value, *args], kwargs)


_both_ways("equal", _everywhere(torch.eq))
_both_ways("allclose", _everywhere(torch.isclose))
_both_ways("is_nonzero", _nonzero)
