"""Copies that are views where sizes are others.

`contiguous` and `reshape` copy a tensor unless its strides allow a view, and dimensions of one element allow any. Where
sizes vary, the graph has the copy that most sizes take. Who writes to it, or to what it is of, or gets both, can tell:
from then on the graph is for sizes that take a copy.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import torch

from dovetail.ir.records import dataclass
from dovetail.ir.reshape import chunks
from dovetail.normalize.recording.aliases import Base
from dovetail.ops.fake.symbolic.number import needed
from dovetail.ops.fake.symbolic.size_questions import different, hint
from dovetail.ops.fake.symbolic.symint import dim_of

aten = torch.ops.aten
COPYING = (aten.clone.default, aten._unsafe_view.default)
#: The dimensions from the outermost to the innermost.
_ORDERS = {torch.channels_last: (0, 2, 3, 1), torch.channels_last_3d: (0, 2, 3, 4, 1)}
#: These are all different where there is a copy.
Claim = tuple[tuple[Any, Any], ...]


@dataclass(frozen=True, slots=True)
class ConditionalCopy:
    """Of `tensor` in the memory of `source`; `shape` is what it is reshaped to, if it is."""

    source: Base
    tensor: torch.Tensor
    order: tuple[int, ...]
    shape: tuple | None = None

    def rely(self) -> bool:
        """Does eager copy in this call? From then on in every one."""
        holding = [claim for claim in self.claims() if all(hint(a) != hint(b) for a, b in claim)]
        if not holding:
            return False
        for a, b in min(holding, key=lambda claim: sum(not different(a, b) for a, b in claim)):
            bool(a != b)  # asked of what varies, it is relied on
        return True

    def claims(self) -> Iterator[Claim]:
        """Each says why there is no view: a dimension does not step over all elements further in."""
        sizes, steps = self.tensor.shape, self.tensor.stride()
        if self.shape is None:
            for k, outer in enumerate(self.order):
                yield (sizes[outer], 1), (steps[outer], _product(sizes[d] for d in self.order[k + 1 :]))
            return
        for run, made in chunks(*(tuple(map(dim_of, s)) for s in (self.tensor.shape, self.shape))):
            parts = [_product(self.shape[d] for d in made[:k]) for k in range(1, len(made))]
            for k, last in itertools.combinations(range(len(run)), 2):
                outer, inner = run[k], run[last]
                whole = _product(sizes[d] for d in run[k + 1 : last + 1])
                ends = [_product(sizes[d] for d in run[: j + 1]) for j in range(k, last)]  # where no new one ends
                together = tuple(itertools.product(ends, parts))
                yield *together, (sizes[outer], 1), (sizes[inner], 1), (steps[outer], steps[inner] * whole)


def _product(sizes: Iterable[Any]) -> Any:
    return functools.reduce(operator.mul, sizes, 1)


class Copies:
    """Those that the graph has made so far."""

    def __init__(self) -> None:
        self.unsure = False  # some are none in this call
        self.made: dict[Base, ConditionalCopy] = {}
        self.of: dict[Base, list[Base]] = {}

    def note(self, func: Any, args: Any, kwargs: Any, source: Base, made: Base) -> None:
        if func is aten.clone.default and args[0]._has_symbolic_sizes_strides:
            format = kwargs.get("memory_format", torch.preserve_format)
            if format is not torch.preserve_format and args[0].dim():
                order = _ORDERS.get(format, tuple(range(args[0].dim())))
                self.made[made] = ConditionalCopy(source, args[0], order)
                self.of.setdefault(source, []).append(made)
        elif func is aten._unsafe_view.default and source in self.made:
            copy = self.made[made] = replace(self.made[source], shape=tuple(args[1]))
            self.of[copy.source].append(made)

    def written(self, base: Base) -> None:
        for made in (base, *self.of.pop(base, ())):
            if made in self.made:
                self.unsure |= not self.made.pop(made).rely()

    def returned(self, bases: Iterable[Base]) -> None:
        """The caller gets tensors with this memory. Raises NumberNeeded where sizes have copied what eager does not."""
        seen = set(bases)
        for made in seen & self.made.keys():
            source = self.made[made].source
            if source in seen or source.position is not None:
                self.unsure |= not self.made.pop(made).rely()
        if self.unsure:
            raise needed()
