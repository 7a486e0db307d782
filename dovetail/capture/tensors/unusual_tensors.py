"""Tensors from outside that sizes, strides and a type do not describe: sparse, quantized, nested, oneDNN's own.

No graph takes one. The program may pass it on and ask what it is; what computes with it ends the graph, is done by
PyTorch between two graphs, and the rest is compiled.
"""

from __future__ import annotations

from typing import Any

import torch

from dovetail.capture.outside.wrap import owned, remember
from dovetail.capture.tensors.operations import TO_GRAPH
from dovetail.capture.values.base import MISSING, NotNative, Session, Value
from dovetail.capture.values.callables import KnownValue, MethodValue
from dovetail.capture.values.objects import ObjectValue
from dovetail.capture.values.tensor import PLAIN
from dovetail.errors import Unsupported
from dovetail.ir.guard import GuardKind
from dovetail.ir.source import Attr, Source
from dovetail.ops.fake.tensor import refuse_unusual

#: What tells such a tensor from others: no entry for one serves the other.
KIND = ("layout", "is_quantized", "is_nested")
#: What the program may ask of one. The entry relies on the answer.
METADATA = frozenset(
    (*KIND, *"dtype device ndim requires_grad is_sparse is_sparse_csr is_mkldnn is_cuda is_cpu is_meta".split())
)


class UnusualTensor(ObjectValue):
    """One of them; `refusal` says why it is in no graph."""

    __slots__ = ("refusal",)

    def __init__(self, real: torch.Tensor, source: Source, refusal: Unsupported) -> None:
        super().__init__(type(real), real, source)
        self.refusal = refusal

    def native(self) -> Any:
        raise NotNative(self)

    def refuse(self, s: Session) -> Any:
        """Never returns."""
        return s.unsupported(self.refusal.code, self.refusal.reason, self.refusal.remedy)

    def get_attr(self, s: Session, name: str) -> Value:
        if name in METADATA or name == "shape" and not self.real.is_nested:
            found = getattr(self.real, name)
            s.guard(Attr(self.source, name), GuardKind.EQUAL, found)  # type: ignore[arg-type]
            return s.from_native(found)
        method = getattr(torch.Tensor, name, MISSING)
        if self.cls in PLAIN and callable(method) and s.static(self.cls, name) is not MISSING:
            return MethodValue(KnownValue(method), self)
        return self.refuse(s)

    def set_instance_attr(self, s: Session, name: str, value: Value) -> None:
        self.refuse(s)

    def del_instance_attr(self, s: Session, name: str) -> bool:
        return self.refuse(s)


def unusual(real: torch.Tensor) -> Unsupported | None:
    """Why no graph takes the tensor, or None."""
    try:
        refuse_unusual(real)
    except Unsupported as refusal:
        return refusal
    return None


def wrap_unusual(s: Session, real: torch.Tensor, source: Source | None, refusal: Unsupported) -> Value:
    """The value of such a tensor."""
    place = owned(s, real, source)
    for name in KIND:
        s.guard(Attr(place, name), GuardKind.EQUAL, getattr(real, name))
    return remember(s, real, UnusualTensor(real, place, refusal))


def _refused(s: Session, value: UnusualTensor, numbers: bool) -> Any:
    return value.refuse(s)


TO_GRAPH[UnusualTensor] = _refused
