"""What operators gave before: layers of a model, and hundreds of parameters of one shape, ask the same thing.

Such a result follows from the metadata of the tensors, the numbers and the default dtype: they are the key. In place
the result is the first argument, unless something is refused: kernels look at how it overlaps with the others.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from dovetail.ir import stores
from dovetail.ir.devices import traits
from dovetail.ops.fake.rules.elementwise import IN_PLACE, is_elementwise

aten = torch.ops.aten
MOST = 4096  # keys for one operator
OWN = object()  # a result: the first argument
_PLAIN = frozenset((int, float, bool, complex, str, type(None), torch.dtype, torch.layout, torch.memory_format))
#: Others whose results are new tensors that follow from as much. Views may be lazily negated, which these keep.
_NEW = frozenset((aten._to_copy.default, aten.empty_like.default, aten.zeros_like.default, aten.ones_like.default))
#: Views, and what else layers consist of.
_PARTS = frozenset((
    aten.view.default, aten.t.default, aten.transpose.int, aten.permute.default, aten.unsqueeze.default,
    aten.squeeze.dim, aten.expand.default, aten.select.int, aten.slice.Tensor, aten.unbind.int, aten.split.Tensor,
    aten.split_with_sizes.default,
))  # fmt: skip
_LAYERS = frozenset((
    aten._unsafe_view.default, aten.mm.default, aten.addmm.default, aten.bmm.default, aten.mean.dim,
    aten.sum.dim_IntList, aten._softmax.default, aten.native_layer_norm.default, aten.embedding.default,
    aten._scaled_dot_product_flash_attention_for_cpu.default, aten._scaled_dot_product_flash_attention.default,
    aten._scaled_dot_product_efficient_attention.default,
))  # fmt: skip


class Table(dict[Any, Any]):
    """Results of one operator, each under what it depends on. `views`: may any of its arguments be one?

    `computes`: are the elements of its new tensors those of its arguments, computed one by one? `parts`: does it give
    parts of its first argument, which lie where that one does?
    """

    def __init__(self, in_place: bool, views: bool, computes: bool = False, parts: bool = False) -> None:
        self.in_place, self.views, self.computes, self.parts = in_place, views, computes, parts
        stores.emptied_by(self.clear)

    def takes(self, tensor: Any, args: tuple) -> bool:
        """Is its metadata all that counts?"""
        if self.views and not self.in_place:
            return self.computes or not (tensor.is_conj() or tensor.is_neg())
        if tensor.owner is tensor and not tensor._is_view():
            return True
        return self.views and tensor is not args[0] and tensor._base is not args[0] is not tensor.owner


@cache
def table_of(func: Any) -> Table | None:
    """Where the results of an operator are remembered, if they are."""
    if func in _NEW:
        return Table(False, views=False)
    if func in _PARTS or func in _LAYERS:
        return Table(False, views=True, parts=func in _PARTS)
    if func in IN_PLACE:
        return Table(True, views=True)
    return Table(False, views=True, computes=True) if is_elementwise(func) else None


def key_of(table: Table, args: tuple, kwargs: dict[str, Any], cls: type) -> Any:
    """What the result depends on; None where that is more. `cls` is the class of tensors that count as fake."""
    parts: list = [torch.get_default_dtype()]
    for value in args if not kwargs else (*args, *kwargs.keys(), *kwargs.values()):
        kind = type(value)
        if kind is cls:
            if value._has_symbolic_sizes_strides or not table.takes(value, args):
                return None
            parts += value.shape, value.stride(), value.dtype, value.device
            if table.parts:
                parts.append(value.storage_offset())
        elif kind is list and all(type(v) is int for v in value):
            parts.append(tuple(value))
        elif kind in _PLAIN or kind is torch.device and (traits(value).host or value.index is not None):
            parts += kind, value
        else:
            return None
    return tuple(parts)


def remember(table: Table, key: Any, args: tuple, result: Any, cls: Any) -> None:
    """Keep what a result looks like; a table that has grown too long begins anew."""
    if len(table) >= MOST:
        table.clear()
    if args and result is args[0]:
        table[key] = OWN
    elif type(result) is cls:
        table[key] = _described(result)
    elif type(result) in (list, tuple) and all(type(part) in (cls, int) for part in result):
        table[key] = type(result), [part if type(part) is int else _described(part) for part in result]


def _described(result: Any) -> tuple:
    return result.shape, result.stride(), result.dtype, result.device, result.storage_offset()


def again(table: Table, known: Any, args: tuple, cls: Any) -> Any:
    """The result of which `known` is kept."""
    if known is OWN:
        return args[0]
    kind, described = known if isinstance(known[0], type) else (None, [known])
    made = [cls(*each) if type(each) is tuple else each for each in described]
    if table.parts:
        for part in made:
            part._owner = args[0].owner
    return made[0] if kind is None else kind(made)
