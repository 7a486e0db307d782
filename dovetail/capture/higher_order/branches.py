"""`torch.cond` as a node with a graph for each branch.

PyTorch's function is traced down to the operator that it calls with flat operands; the handler here is that operator's:

    torch.cond(p, f, g, (x,))   ->   cond(p, f_0, g_0, f's tensors, g's tensors)
"""

from __future__ import annotations

from typing import Any

import torch

from dovetail.capture.higher_order.bodies import Body, differ, node
from dovetail.capture.tables.known_callables import known
from dovetail.capture.values.base import Args, Const, Kwargs, Session, Value
from dovetail.capture.values.tensor import TensorValue
from dovetail.ops.calls import higher_order


@known(torch.ops.higher_order.cond)
def _cond(s: Session, args: Args, kwargs: Kwargs) -> Value:
    pred, true, false, operands = [*args, *kwargs.values()]
    if isinstance(pred, Const):
        return (true if pred.native() else false).call(s, s.unpack(operands), {})
    if not isinstance(pred, TensorValue) or pred.fake.numel() != 1:
        return s.throw(RuntimeError, f"Expected pred to be bool or single-element tensor, but got {pred.describe()}.")
    given = s.unpack(operands)
    yes = Body(s, "true_branch", "a branch of torch.cond", lambda region: true.call(s, list(given), {}))
    no = Body(s, "false_branch", "a branch of torch.cond", lambda region: false.call(s, list(given), {}))
    if yes.spec != no.spec:
        s.unsupported("cond-branches-differ", "the branches of torch.cond return different structures")
    differ(s, "cond-branches-differ", "the true branch of torch.cond", yes.leaves, "the false one", no.leaves)
    other = [k for k, (a, b) in enumerate(zip(yes.leaves, no.leaves)) if _strides(a) != _strides(b)]
    for body in (yes, no):
        body.lay_out(s, other)
        body.finish(s)
    chosen = [b if isinstance(b, torch.Tensor) and b.requires_grad else a for a, b in zip(yes.leaves, no.leaves)]
    parts = (pred.node, yes.graph, no.graph, yes.lifted, no.lifted)
    return node(s, higher_order.cond, parts, chosen, yes.spec, yes, no)


def _strides(leaf: Any) -> Any:
    return leaf.stride() if isinstance(leaf, torch.Tensor) else None
