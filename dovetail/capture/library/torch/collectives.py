"""`torch.distributed`'s collectives, part of the graph; those with `async_op=True`, too.

Those that are handed a tensor with a history, one that is not dense, or an operation of an unusual kind, are left to
PyTorch's code, which ends the graph.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import distributed

from dovetail.capture.polyfills import collectives
from dovetail.capture.tables.known_callables import INLINE, KNOWN, Handler
from dovetail.capture.values.base import NONE, Args, Const, Kwargs, NotNative, Session, Value
from dovetail.capture.values.tensor import PLAIN, TensorValue
from dovetail.ir.guard import GuardKind

_OPERATIONS = "SUM AVG PRODUCT MIN MAX BAND BOR BXOR".split()

_WRITTEN = ("tensor", "output_tensor", "output")  # the parameter that a collective writes to


class _Call:
    """The arguments of one call, by their names."""

    def __init__(self, s: Session, given: Mapping[str, Value]) -> None:
        self.s, self.given = s, given

    def tensors(self, *names: str) -> list[Any] | None:
        """The tensors of these names, None if one of them is unusual. They are of one type."""
        found: list[Any] = [self.given[name] for name in names]
        if not all(isinstance(t, TensorValue) and t.cls in PLAIN and _is_dense(t.fake) for t in found):
            return None
        return found if len({t.fake.dtype for t in found}) == 1 else None

    def group(self) -> Any:
        """The group that this process is in, which is guarded; None if it is in none."""
        group = self.given.get("group", NONE)
        if group is NONE:
            group = self.s.call(self.s.wrap(distributed.distributed_c10d._get_default_group, None))
        real = group.native()
        if not isinstance(real, distributed.ProcessGroup):
            return None
        if group.source is not None:
            self.s.guard(group.source, GuardKind.ID, real)
        return real

    def operation(self) -> str | None:
        if "op" not in self.given:
            return "sum"
        wanted = self.given["op"].native()
        found = (name for name in _OPERATIONS if wanted == getattr(distributed.ReduceOp, name))
        return next(found, "").lower() or None

    def source(self, group: Any) -> int:
        """The rank in the group that a broadcast comes from."""
        if "group_src" in self.given:
            return int(self.given["group_src"].native())
        return distributed.get_group_rank(group, self.given["src"].native())

    def work(self) -> Value:
        """What a collective gives that does not wait."""
        written = next(self.given[name] for name in _WRITTEN if name in self.given)
        return self.s.call(self.s.wrap(collectives.FinishedWork, None), written)

    def replaced(self, function: Any, tensors: list[Any], *rest: Any) -> Value:
        return self.s.call(self.s.wrap(function, None), *tensors, *map(Const, rest))


def _is_dense(fake: Any) -> bool:
    if fake.layout is not torch.strided or fake.is_complex() or fake.requires_grad and torch.is_grad_enabled():
        return False
    return bool(fake.is_contiguous())


def _all_reduce(call: _Call, group: Any) -> Value:
    tensors, operation = call.tensors("tensor"), call.operation()
    if tensors is None or operation is None:
        return INLINE
    return call.replaced(collectives.all_reduce, tensors, operation, group.group_name)


def _broadcast(call: _Call, group: Any) -> Value:
    tensors = call.tensors("tensor")
    if tensors is None:
        return INLINE
    return call.replaced(collectives.broadcast, tensors, call.source(group), group.group_name)


def _all_gather(call: _Call, group: Any) -> Value:
    tensors, size = call.tensors("output_tensor", "input_tensor"), group.size()
    if tensors is None or tensors[0].fake.numel() != tensors[1].fake.numel() * size or not tensors[1].fake.dim():
        return INLINE
    return call.replaced(collectives.all_gather_into_tensor, tensors, size, group.group_name)


def _reduce_scatter(call: _Call, group: Any) -> Value:
    tensors, size, operation = call.tensors("output", "input"), group.size(), call.operation()
    if tensors is None or operation is None or not tensors[0].fake.dim():
        return INLINE
    if tensors[1].fake.numel() != tensors[0].fake.numel() * size:
        return INLINE
    return call.replaced(collectives.reduce_scatter_tensor, tensors, operation, size, group.group_name)


def _known(function: Any, in_graph: Any) -> Handler:
    signature = inspect.signature(function)

    def handler(s: Session, args: Args, kwargs: Kwargs) -> Value:
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError:
            return INLINE
        given = {name: value for name, value in given.items() if value is not NONE}
        call = _Call(s, given)
        try:
            later, group = "async_op" in given and given["async_op"].native(), call.group()
            found = INLINE if group is None else in_graph(call, group)
            return call.work() if later and found is not INLINE else found
        except (NotNative, KeyError, ValueError):
            return INLINE

    return handler


#: By the names that versions of PyTorch have for them: where there are two, the later one calls the first, and warns.
_IN_GRAPH = (
    (("all_reduce",), _all_reduce),
    (("broadcast",), _broadcast),
    (("all_gather_single", "all_gather_into_tensor"), _all_gather),
    (("reduce_scatter_single", "reduce_scatter_tensor"), _reduce_scatter),
)

if distributed.is_available():
    for _names, _in_graph in _IN_GRAPH:
        _function = next(getattr(distributed, name) for name in _names if hasattr(distributed, name))
        KNOWN[_function] = _known(_function, _in_graph)
