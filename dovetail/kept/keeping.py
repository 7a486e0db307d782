"""Warm starts: a compilation that an earlier process has left takes the place of all stages.

    keeping = Keeping.of(fn, args, kwargs, options, events, taken, given)
    for kept in keeping.candidates(own): ...            # what may fit the call, restored
    keeping.pack(captured, plan)                        # while machine code is made
    keeping.keep(captured)                              # after a compilation
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

import torch

from dovetail import guards
from dovetail.assembly import Built, CutGraph, Partial, Partials, Plan, Training
from dovetail.config import config
from dovetail.diagnostics.events import Events
from dovetail.ir.captured import Captured
from dovetail.ir.literals import error_in_words
from dovetail.ir.records import dataclass
from dovetail.ir.settings import AUTOCAST_DEVICES
from dovetail.kept import shelf
from dovetail.kept.entry import Kept, Mismatch, pack_entry, read, restore
from dovetail.kept.objects import Unkept
from dovetail.kept.packing import pack, unpack
from dovetail.loading import loaded
from dovetail.options import Options
from dovetail.runtime.store import Store, default_folder


@dataclass(frozen=True)
class Keeping:
    """Of one call. `key`: its shelf's. `given`: compilations out of a file, tried before those on disk."""

    store: Store
    key: str
    fn: Any
    args: tuple
    kwargs: Mapping[str, Any]
    options: Options
    events: Events
    taken: guards.Snapshot
    given: Mapping[str, bytes]
    packed: list[bytes | Exception] = field(default_factory=list, compare=False, repr=False)

    @classmethod
    def of(
        cls, fn: Any, args: tuple, kwargs: Mapping[str, Any], options: Options, events: Events,
        taken: guards.Snapshot, given: Mapping[str, bytes],
    ) -> Keeping | None:  # fmt: skip
        """None where nothing can be kept."""
        folder = default_folder()
        if folder is None and not given:
            return None
        try:
            key = shelf.key_of(fn, options, taken)
            return cls(Store(folder), key, fn, args, kwargs, options, events, taken, given)
        except Unkept as error:
            _told(events, NOT_KEPT.format(error.reason))
            return None

    def candidates(self, own: Mapping[str, Any]) -> Iterator[tuple[str, Kept]]:
        """What may fit the call, each with its key. `own`: see `entry.restore`."""
        for name, data in self._found():
            try:
                with self.events.stage("read"):
                    found = read(data)
                with self.events.stage("check"):
                    kept = restore(found, self.fn, self.args, self.kwargs, own, shelf.state(self.taken))
                yield name, kept
            except Mismatch as error:
                _told(self.events, f"an earlier compilation is not used: {error}")

    def _found(self) -> Iterator[tuple[str, bytes]]:
        yield from self.given.items()
        if config.warm_start:
            yield from shelf.on_shelf(self.store, self.key, self.fn, self.args, self.kwargs)

    def pack(self, captured: Captured, plan: Plan) -> None:
        """Make what `keep` will write, or find out why it cannot."""
        with self.events.stage("pack"):
            try:
                data = pack_entry(captured, plan, self.fn, self.args, self.kwargs, shelf.state(self.taken))
                self.packed.append(data)
            except Exception as error:
                self.packed.append(error)

    def keep(self, captured: Captured) -> dict[str, Any]:
        """Leave a compilation for other processes: fields of the entry."""
        with self.events.stage("keep"):
            try:
                return {"kept": self._keep(captured)}
            except Unkept as error:
                why = error.reason
            except Exception as error:
                if self.options.strict:
                    raise
                why = error_in_words(error)
        _told(self.events, NOT_KEPT.format(why))
        return {"unkept": why}

    def _keep(self, captured: Captured) -> str:
        data = self.packed.pop()
        if isinstance(data, Exception):
            raise data
        made_for = shelf.made_for(self.args, self.kwargs, captured)
        name = shelf.put(self.store, self.key, data, made_for, shelf.likeness(self.fn))
        self.events.on_partial = self._keep_partial(name)
        _trim(self.store)
        return name

    def keep_once(self) -> dict[str, Any]:
        """Leave a note that the call is one of a kind: fields of the entry."""
        shelf.put_once(self.store, self.key, shelf.outline(self.args, self.kwargs))
        return {"unkept": "it is made for one call"}

    def is_once(self) -> bool:
        """Has an earlier process left that note?"""
        return config.warm_start and shelf.once_on_shelf(self.store, self.key, self.args, self.kwargs)

    def _keep_partial(self, name: str) -> Callable[[int, int, Built, bool], None]:
        store, events = self.store, self.events

        def keep(piece: int, there: int, program: Built, takes_all: bool) -> None:
            try:
                store.put(partial_key(name, piece, there), pack((program, takes_all)))
            except Unkept as error:
                _told(events, NOT_KEPT.format(error.reason))

        return keep

    def partials(self, name: str, kept: Kept) -> Partials:
        """Make backward programs for some results, or take those that are kept."""
        plan, whole = kept.plan, kept.captured.graph
        self.events.on_partial = self._keep_partial(name)
        if not isinstance(plan, CutGraph):
            fakes = [given.fake for given in kept.captured.inputs]
            return [self._partial(name, 0, plan, whole, fakes)]
        cut = enumerate(plan.pieces)
        return [self._partial(name, k, each.plan, each.graph(whole), each.fakes) for k, each in cut]

    def _partial(
        self, name: str, piece: int, plan: Plan | None, graph: Any, fakes: Sequence[Any]
    ) -> Partial | None:
        if not isinstance(plan, Training):
            return None
        store, options, events, given, taken = self.store, self.options, self.events, self.given, self.taken
        remade: list[Partial] = []

        def made(there: int) -> tuple[Built, bool]:
            key = partial_key(name, piece, there)
            data = given.get(key) or store.get(key)
            if data is not None:
                program, takes_all = unpack(data)
                return program, takes_all
            if not remade:  # the stages are needed after all
                pipeline = loaded("dovetail.pipeline")
                with _as_captured(taken):
                    buckets = plan.backward.buckets
                    how = plan.turns, buckets, piece
                    remade.append(pipeline.partials(graph.module, fakes, options, events, *how))
            return remade[0](there)

        return made


@contextlib.contextmanager
def _as_captured(taken: guards.Snapshot) -> Iterator[None]:
    """The modes that a graph's operators depend on."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.set_grad_enabled(True))
        for device in AUTOCAST_DEVICES:
            enabled, dtype = taken.values[f"autocast_{device}"]
            stack.enter_context(torch.autocast(device, dtype or torch.get_autocast_dtype(device), enabled))
        yield


OFTEN = 50  # compilations between two looks at how much is on disk
_kept = itertools.count()


def _trim(store: Store) -> None:
    if next(_kept) % OFTEN == 0:
        store.trim(config.cache_mib << 20)


def partial_key(name: str, piece: int, there: int) -> str:
    return shelf.digest(["partial", name, piece, there])


NOT_KEPT = "the compilation is not kept for other processes: {}"


def _told(events: Events, text: str) -> None:
    events.artifact("perf_hints", lambda: text)
