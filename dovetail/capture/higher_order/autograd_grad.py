"""`torch.autograd.grad` inside the region: a node like any other, since the engine works on fakes too."""

from __future__ import annotations

import torch

from dovetail.capture.tables.known_callables import known
from dovetail.capture.tensors.gradient_hooks import refuse_unknown
from dovetail.capture.values.base import Args, Kwargs, Session, Value


@known(torch.autograd.grad)
def _grad(s: Session, args: Args, kwargs: Kwargs) -> Value:
    refuse_unknown(s)
    return s.torch_call(torch.autograd.grad, args, kwargs)
