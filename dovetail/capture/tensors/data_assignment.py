"""`x.data = y`: a tensor gets other memory, and stays what it is to autograd.

PyTorch runs a graph in which that happens. Where graphs may break, one ends before the store instead, so that both
sides of it are compiled.
"""

from __future__ import annotations

import torch

from dovetail.capture.values.base import Session, Value
from dovetail.capture.values.tensor import PLAIN, TensorValue
from dovetail.ops.calls.autograd_calls import set_data


def store_data(s: Session, value: TensorValue, new: Value) -> bool:
    """False where that cannot be part of the graph: what capture knows of the tensor must stay true."""
    if value is new:
        return True  # what `module.to(...)` does where nothing has to move
    if s.ends.breaks or s.graph is not s.root or not isinstance(new, TensorValue) or not _alike(value, new):
        return False
    if s.taken.parts or s.tensors.chosen or any(array.tensor is value for array in s.objects.arrays.values()):
        return False  # they have the old memory
    node = s.graph.call_function(set_data, (value.node, new.node))
    node.meta.update(stack=s.stack(), mutates=True)
    s.tensors.moved.add(id(value))
    return True


def _alike(value: TensorValue, new: TensorValue) -> bool:
    fakes = [value.fake, new.fake]
    if not {value.cls, new.cls} <= PLAIN or any(f.layout is not torch.strided or f.is_inference() for f in fakes):
        return False
    metadata = [(f.shape, f.stride(), f.dtype, f.device, f.is_conj(), f.is_neg()) for f in fakes]
    return metadata[0] == metadata[1]
