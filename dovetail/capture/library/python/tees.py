"""`itertools.tee`: iterators that share what one of them has taken from the iterator behind them."""

from __future__ import annotations

import copy
import itertools
from typing import Any

from dovetail.capture.tables.known_callables import known
from dovetail.capture.values.base import Args, Const, Kwargs, Session, Value
from dovetail.capture.values.containers import TupleValue
from dovetail.capture.values.iterators import IteratorValue, Parts

TEE: type = type(itertools.tee(())[0])


class Trunk(IteratorValue):
    """What has been taken so far, and the iterator behind it."""

    __slots__ = ("behind", "taken")
    cls = TEE

    def __init__(self, behind: Value) -> None:
        super().__init__()
        self.behind = behind
        self.taken: list[Value] = []

    def at(self, s: Session, index: int) -> Value | None:
        if index == len(self.taken):
            value = s.step(self.behind)
            if value is None:
                return None
            self.taken.append(value)
        return self.taken[index]

    def parts(self, s: Session) -> Parts:
        return _trunk, [self.behind, *self.taken]


class Branch(IteratorValue):
    """One of the iterators that `tee` gave."""

    __slots__ = ("index", "trunk")
    cls = TEE

    def __init__(self, trunk: Trunk, index: int = 0) -> None:
        super().__init__()
        self.trunk, self.index = trunk, index

    def step(self, s: Session) -> Value | None:
        found = self.trunk.at(s, self.index)
        self.index += found is not None
        return found

    def parts(self, s: Session) -> Parts:
        return _branch, [self.trunk, Const(self.index)]


def _trunk(behind: Any, *taken: Any) -> Any:
    return itertools.tee(itertools.chain(taken, behind), 1)[0]


def _branch(trunk: Any, index: int) -> Any:
    made = copy.copy(trunk)
    for _ in itertools.islice(made, index):
        pass
    return made


@known(itertools.tee)
def _tee(s: Session, args: Args, kwargs: Kwargs) -> Value:
    given = dict(zip(("iterable", "n"), args)) | kwargs
    count = given["n"].native() if "n" in given else 2
    if count < 0:
        s.throw(ValueError, "n must be >= 0")
    behind = s.iterate(given["iterable"])
    if behind.cls is TEE and not isinstance(behind, Branch):
        s.unsupported("outside-iterator", "an iterator from itertools.tee outside is divided", "Divide it once.")
    if isinstance(behind, Branch):
        others = [Branch(behind.trunk, behind.index) for _ in range(count - 1)]
        return TupleValue([behind, *others][:count])
    trunk = Trunk(behind)
    return TupleValue([Branch(trunk) for _ in range(count)])
