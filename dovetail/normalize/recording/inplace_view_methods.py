"""A view that is given another shape in place is replaced by a view of it.

    v = y.t(); v.unsqueeze_(0); v.mul_(2)      ->      v = y.t(); w = v.unsqueeze(0); w.mul_(2)

PyTorch's engine makes a view of a tensor subclass, which fakes are, by the function that made it first, whatever has
been done to its shape since: gradients would be those of the first shape.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree

from dovetail.ir.nodes import name_of
from dovetail.normalize.recording.recorder import AtenRecorder
from dovetail.ops.fake import FakeTensor
from dovetail.ops.fake.symbolic.retry import called, methodcaller

_OUT_OF_PLACE = {
    f"{name}_": name for name in ("as_strided", "squeeze", "swapaxes", "swapdims", "t", "transpose", "unsqueeze")
}


def turns(node: torch.fx.Node, args: tuple) -> bool:
    """Does the node give a view another shape, in such a way that PyTorch would not refuse it?"""
    if name_of(node) not in _OUT_OF_PLACE or not args or type(args[0]) is not FakeTensor or not args[0]._is_view():
        return False
    return torch._C._autograd._get_creation_meta(args[0]) == torch._C._autograd.CreationMeta.DEFAULT


def turned(
    recorder: AtenRecorder, node: torch.fx.Node, args: tuple, kwargs: dict[str, Any], env: dict[Any, Any]
) -> FakeTensor:
    """The view of the view, which takes its place in `env`."""
    old = recorder.handle(args[0])
    with torch.set_grad_enabled(True):  # whoever gives a view another shape does not make a view
        new = called(methodcaller, (_OUT_OF_PLACE[name_of(node)], *args), kwargs)
    torch._C._increment_version([new])
    recorder.handle(new).since = old.since
    for key, value in env.items():
        env[key] = pytree.tree_map(lambda v: new if v is args[0] else v, value)
    return new
