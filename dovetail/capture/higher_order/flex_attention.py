"""`torch.nn.attention.flex_attention` as a node with a graph for score_mod and one for mask_mod.

PyTorch's function is traced down to its operator; the handler here is that operator's:

    flex_attention(q, k, v, f, (..., g), ...)   ->   flex_attention(f_0, g_0, q, k, v, scale, f's tensors, g's tensors)
"""

from __future__ import annotations

from typing import Any

import torch

from dovetail.capture.higher_order import pytrees
from dovetail.capture.higher_order.bodies import Body
from dovetail.capture.higher_order.subgraph import Region
from dovetail.capture.tables.known_callables import known
from dovetail.capture.tensors.operations import run_native
from dovetail.capture.values.base import Args, Kwargs, Session, Value
from dovetail.capture.values.containers import TupleValue
from dovetail.capture.values.objects import ObjectValue
from dovetail.ops.calls.flex_attention import TakesByTensor, flex_attention
from dovetail.ops.fake import FakeTensor

OPERATORS = torch.ops.higher_order


@known(OPERATORS.flex_attention)
def _flex_attention(s: Session, args: Args, kwargs: Kwargs) -> Value:
    names = ("query", "key", "value", "score_mod", "block_mask", "scale", "kernel_options")
    given = dict(zip(names, args, strict=False)) | kwargs
    tensors: list[Any] = [given[n] for n in names[:3]]
    query = tensors[0].fake
    working = torch.float64 if query.dtype == torch.float64 else torch.float32
    tracked = torch.is_grad_enabled() and any(t.fake.requires_grad for t in tensors)
    score: torch.Tensor = FakeTensor((), (), working, query.device)
    score = score.requires_grad_().view_as(score) if tracked else score
    places = [FakeTensor((), (), torch.int64, query.device) for _ in range(4)]
    score_mod = _body(s, "score_mod", given["score_mod"], [score, *places])
    mask_mod = _body(s, "mask_mod", s.unpack(given["block_mask"])[-1], places)
    return _node(s, score_mod, mask_mod, [*tensors, given["scale"]])


def _body(s: Session, name: str, function: Value, fakes: list) -> Body:
    """The function of one element, in which a place may be used as an index."""

    def call(region: Region) -> Value:
        s.overrides.modes.append(ObjectValue(TakesByTensor))
        try:
            return function.call(s, [region.placeholder(fake) for fake in fakes], {})
        finally:
            s.overrides.modes.pop()

    made = Body(s, name, f"the {name} of flex_attention", call)
    if len(made.leaves) != 1 or not isinstance(made.leaves[0], torch.Tensor):
        s.unsupported("attention-function", f"the {name} of flex_attention does not give a tensor")
    made.finish(s)
    if made.region.impure and name == "mask_mod":
        s.unsupported("side-effect-in-subgraph", "the mask_mod of flex_attention writes to a tensor")
    return made


def _node(s: Session, score_mod: Body, mask_mod: Body, given: list) -> Value:
    """The function itself gives the results' metadata; it runs on fakes."""
    graphs = [s.subgraphs[str(body.graph.target)] for body in (score_mod, mask_mod)]
    lifted = [body.lifted for body in (score_mod, mask_mod)]
    pairs = [pytrees.pair(s, value) for value in given]
    fakes = [*graphs, *(p[1] for p in pairs), *([n.meta["fake"] for n in nodes] for nodes in lifted)]
    native = run_native(s, flex_attention, fakes, {})
    arguments = (score_mod.graph, mask_mod.graph, *(p[0] for p in pairs), *lifted)
    node = s.graph.create_node("call_function", flex_attention, arguments)
    node.meta.update(stack=s.stack(), mutates=score_mod.region.impure or mask_mod.region.impure)
    results: Any = pytrees.result(s, node, native)
    return TupleValue(results.all(s))
