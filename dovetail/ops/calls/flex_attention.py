"""`torch.nn.attention.flex_attention`: attention whose scores two functions of the program's change and hide.

    out[b, h, i] = sum over j of softmax(score_mod(scale * q[b, h, i] . k[b, h', j], b, h, i, j)) * v[b, h', j]

over those j that mask_mod(b, h, i, j) shows; rows that see nothing give 0. Query heads h share key heads h' in groups.
The functions are graphs on tensors without dimensions; `torch.vmap` maps them over all four places.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch.overrides import TorchFunctionMode

from dovetail.ops.calls.attention_blocks import blocks

Tensors = Sequence[torch.Tensor]


class TakesByTensor(TorchFunctionMode):
    """Inside, a tensor without dimensions takes elements as one with dimensions does, and is not read.

    Its place is then a number that vmap can map over: `slopes[head]`.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.__getitem__:
            places = pytree.tree_leaves(args[1])
            if all(isinstance(place, (torch.Tensor, int)) for place in places):
                device = args[0].device
                found = [p if isinstance(p, torch.Tensor) else torch.tensor(p, device=device) for p in places]
                return torch.ops.aten.index.Tensor(args[0], found)
        return func(*args, **(kwargs or {}))


def flex_attention(
    score_mod: Any, mask_mod: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float,
    score_lifted: Tensors, mask_lifted: Tensors,
) -> list:  # fmt: skip
    """Results as `torch.ops.higher_order.flex_attention` gives them: logarithms are to base 2.

    Blocks of rows are computed one after the other, each with the keys that it may see. Autocast narrows what is given,
    and nothing inside.
    """
    device = query.device.type
    if torch.is_autocast_enabled(device):
        query, key, value = narrowed(query, key, value)
        with torch.autocast(device, enabled=False):
            return flex_attention(score_mod, mask_mod, query, key, value, scale, score_lifted, mask_lifted)
    sizes = (*query.shape[:3], key.shape[2])
    places = [torch.arange(n, device=query.device) for n in sizes]
    parts = []
    for start, stop, first, last in blocks(mask_mod, sizes):
        here = [*places[:2], places[2][start:stop], places[3][first:last]]

        def changed(scores: torch.Tensor, here: list[torch.Tensor] = here) -> torch.Tensor:
            return everywhere(score_mod, score_lifted, 1)(scores, *here)

        shown = everywhere(mask_mod, mask_lifted, 0)(*here)
        seen = key[:, :, first:last], value[:, :, first:last]
        parts.append(attention(query[:, :, start:stop], *seen, scale, changed, shown))
    out, logarithm, largest = (each[0] if len(parts) == 1 else torch.cat(each, 2) for each in zip(*parts, strict=True))
    return [laid_out(out, query), logarithm / math.log(2), largest.detach() / math.log(2)]


def narrowed(*given: torch.Tensor) -> list[torch.Tensor]:
    """As autocast has what is multiplied."""
    device = given[0].device.type
    if not torch.is_autocast_enabled(device):
        return list(given)
    narrow = torch.get_autocast_dtype(device)
    return [t if t.dtype == torch.float64 else t.to(narrow) for t in given]


def everywhere(graph: Any, lifted: Tensors, elements: int) -> Callable[..., torch.Tensor]:
    """The graph as a function of 4 dimensions: of `elements` tensors that have them all, then of one vector each."""

    def function(*args: torch.Tensor) -> torch.Tensor:
        return graph.forward(*args, *lifted)[0]

    for mapped in reversed(range(4)):
        places = [0 if k == mapped else None for k in range(4)]
        function = torch.vmap(function, in_dims=(*[0] * elements, *places))
    return function


def attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float,
    changed: Callable[[torch.Tensor], torch.Tensor], shown: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """The rows, the logarithm of each one's sum and its largest score.

    Scores are as eager has them, in float32 at least. Exponentials are multiplied before they are divided by their sum,
    in narrower types only where no gradient comes back: that of a product is of its type, and much of it cancels.
    """
    working = torch.float64 if query.dtype == torch.float64 else torch.float32
    scores = grouped(query.to(working), key.to(working).transpose(-2, -1)) * scale
    scores = torch.where(shown, changed(scores).to(working), -math.inf)
    largest = scores.amax(-1)
    start = largest.detach()
    start = torch.where(start == -math.inf, 0.0, start)
    weights = (scores - start.unsqueeze(-1)).exp()
    total = weights.sum(-1)
    empty = total == 0
    total = torch.where(empty, 1.0, total)
    product = working if weights.requires_grad else query.dtype
    rows = grouped(weights.to(product), value.to(product)).to(working) / total.unsqueeze(-1)
    return rows.to(query.dtype), torch.where(empty, -math.inf, start + total.log()), largest


def grouped(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """`left @ right`, each head of `right` for as many of `left`: their rows are multiplied together."""
    batch, heads, rows, _ = left.shape
    if heads == right.shape[1]:
        return left @ right
    folded = left.reshape(batch, right.shape[1], -1, left.shape[3])
    return (folded @ right).reshape(batch, heads, rows, right.shape[3])


def laid_out(out: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
    """The dimensions in memory in the order of the query's, the last one without gaps."""
    return out.new_empty_strided(out.shape, strides_like(out.shape, query)).copy_(out)


def strides_like(sizes: Sequence[int], query: torch.Tensor) -> tuple[int, ...]:
    """Of a tensor of these sizes that lies as `laid_out` says."""
    order = sorted(range(3), key=lambda d: (query.stride()[d], -d))
    strides, step = [1] * 4, sizes[3]
    for d in order:
        strides[d] = step
        step = step * sizes[d]
    return tuple(strides)
