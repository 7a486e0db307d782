"""Functions of nested tensors that ask how long their parts are, as operators on what those are made of.

    t.unbind()    ->    torch.split(t.values(), t.offsets().diff().tolist())
"""

from __future__ import annotations

from typing import Any

import torch

from dovetail.capture.tables.known_callables import known
from dovetail.capture.tensors.operations import METHODS, recorded_method
from dovetail.capture.values.base import Args, Const, Kwargs, Session, Value
from dovetail.capture.values.tensor import TensorValue


def _parts(s: Session, args: Args, kwargs: Kwargs) -> Value | None:
    """None where it is for PyTorch to say what comes of it."""
    tensor, *dims = [*args, *kwargs.values()]
    fake: Any = tensor.fake if isinstance(tensor, TensorValue) else None
    if fake is None or fake.layout is not torch.jagged:
        return None
    if fake._lengths is not None or any(not isinstance(dim, Const) or dim.value != 0 for dim in dims):
        return None
    values, offsets = (s.torch_method(name, [tensor], {}) for name in ("values", "offsets"))
    lengths = s.torch_method("tolist", [s.torch_method("diff", [offsets], {})], {})
    return s.torch_call(torch.split, [values, lengths, Const(fake._ragged_idx - 1)], {})


@known(torch.unbind)
def _unbind(s: Session, args: Args, kwargs: Kwargs) -> Value:
    found = _parts(s, args, kwargs)
    return s.torch_call(torch.unbind, args, kwargs) if found is None else found


def _unbind_method(s: Session, tensor: TensorValue, args: Args, kwargs: Kwargs) -> Value:
    given = [tensor, *args]
    found = _parts(s, given, kwargs)
    return recorded_method(s, "unbind", given, kwargs) if found is None else found


METHODS["unbind"] = _unbind_method
