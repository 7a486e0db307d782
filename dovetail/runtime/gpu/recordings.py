"""Recordings: what one is made of, where its inputs must lie, and what it hands out."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch.utils._pytree import tree_map_only

from dovetail.ir.records import dataclass
from dovetail.runtime.gpu.pools import Handed, Overwritten, Pool, Pooled, over, unowned

#: By address, whose results lie there: of recordings that there are, and of others as long as their results are in use.
#: What has been given back since is anybody's.
OWNED: WeakValueDictionary[int, Handed] = WeakValueDictionary()
_ADDRESS = torch.Tensor.data_ptr


@dataclass
class RecordedResult:
    """How one result is handed out: from the pool, or one of the caller's tensors."""

    pooled: Pooled | None = None
    given: int | None = None  # the place of the input that it is
    constant: Any = None
    copied: bool = False


@dataclass(eq=False)
class Recording:
    graphs: list[torch.cuda.CUDAGraph]  # one after the other
    places: dict[int, int]  # inputs that must be at this address
    targets: dict[int, torch.Tensor]  # inputs that are copied, and where to
    memory: torch.Tensor | None  # of numbers
    results: list[RecordedResult]
    pool: Pool
    unknown: dict[int, tuple[int, ...]]  # results of others that may lie in its way: see `Pool.given_back`
    tables: torch.Tensor  # what batched kernels read
    ends: list[int]  # how many graphs there are up to the end of each bucket of results
    checks: dict[int, list[Callable[[], None]]]  # what looks at values behind so many graphs
    taken: Overwritten | None = None  # what it writes over
    age: int = 0  # of the pool
    good: Any = None  # see `overlap.unmoved`: the last call in which all lay where they are expected

    def __post_init__(self) -> None:
        self.there: Callable[[Sequence[Any]], Sequence[Any]] = itemgetter(*self.places, slice(0))  # never one alone
        self.addresses = list(self.places.values())
        self.owned = {k for k, address in self.places.items() if address in OWNED}  # inputs that another one returned
        pooled = {k: result.pooled for k, result in enumerate(self.results) if result.pooled is not None}
        self.handed = Handed(pooled, self.graphs[0])
        OWNED.update({each.tensor.data_ptr(): self.handed for each in pooled.values()})

    def is_where_it_was(self, inputs: Sequence[Any]) -> bool:
        """Does every input lie where the recording expects it?"""
        return list(map(_ADDRESS, self.there(inputs)[:-1])) == self.addresses


class Unfinished:
    """A recording in progress: graphs over one pool of memory, which are replayed in this order."""

    def __init__(self, pool: Any) -> None:
        self.pool = pool
        self.made: list[torch.cuda.CUDAGraph] = []
        self.ends: list[int] = []  # how many there were at the end of each bucket of results
        self.checks: dict[int, list[Callable[[], None]]] = {}  # what looks at values behind so many

    def begin(self) -> None:
        self.made.append(torch.cuda.CUDAGraph())
        pool: Any = () if self.pool is None else (self.pool,)
        self.made[-1].capture_begin(*pool, capture_error_mode="thread_local")  # type: ignore[misc]

    def end(self) -> None:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The CUDA Graph is empty")  # between two checks
            self.made[-1].capture_end()

    def cut(self) -> None:
        self.end()
        self.pool = self.made[0].pool()
        self.begin()

    def check(self, function: Callable[..., None], args: tuple[Any, ...]) -> None:
        """Ends a graph, behind which each replay looks at the values."""
        there = tree_map_only(torch.Tensor, lambda t: over(unowned(t.untyped_storage()), t), args)
        self.checks.setdefault(len(self.made), []).append(partial(function, *there))
        self.cut()


def addresses_of(inputs: Sequence[Any]) -> dict[int, int]:
    return {k: i.data_ptr() for k, i in enumerate(inputs) if isinstance(i, torch.Tensor)}


def lying_still(recording: Recording, inputs: list) -> set[int]:
    """The inputs that lie where they did, or where a recording puts them."""
    there = addresses_of(inputs)
    return {k for k, address in recording.places.items() if there[k] == address or there[k] in OWNED}


def recorded_result(value: Any, given: list) -> RecordedResult:
    """How what a recording gives is handed out."""
    if not isinstance(value, torch.Tensor):
        return RecordedResult(constant=value)
    for k, tensor in enumerate(given):
        if tensor is value:
            return RecordedResult(given=k)
    storage = value.untyped_storage()
    if any(isinstance(t, torch.Tensor) and t.untyped_storage().data_ptr() == storage.data_ptr() for t in given):
        raise RuntimeError("a result is a view of an input")
    return RecordedResult(Pooled(value))


def handed_out(results: Sequence[RecordedResult], inputs: Sequence[Any]) -> list:
    inference = torch.is_inference_mode_enabled()
    found: list[Any] = []
    for result in results:
        pooled = result.pooled
        if pooled is None:
            found.append(result.constant if result.given is None else inputs[result.given])
        elif result.copied:
            found.append(pooled.tensor.clone())
        else:
            found.append(pooled.made() if inference else pooled.tensor.data)
    return found
