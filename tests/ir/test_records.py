"""Dataclasses whose methods are written at their first use are what the standard library would have made at once."""

import copy
import dataclasses
import sys
import threading
from dataclasses import field
from typing import Any, ClassVar

import pytest

from dovetail.ir.records import dataclass as lazy

BOTH = pytest.mark.parametrize("dataclass", [dataclasses.dataclass, lazy])
OPTIONS = pytest.mark.parametrize(
    "options",
    [
        {},
        {"frozen": True},
        {"slots": True},
        {"frozen": True, "slots": True},
        {"eq": False},
        {"frozen": True, "eq": False},
    ],
    ids=str,
)


def classes(dataclass: Any, options: dict[str, bool]) -> tuple[type, type]:
    @dataclass(**options)
    class Point:
        x: int
        y: int = 2
        of: ClassVar[int] = 3
        names: list[str] = field(default_factory=list)
        hidden: int = field(default=0, compare=False, repr=False)
        made: int = field(default=5, init=False)
        last: int = field(default=6, kw_only=True)

    @dataclass(**options)
    class Named(Point):
        name: str = "n"

        def __post_init__(self) -> None:
            assert self.made == 5

    return Point, Named


def facts(cls: type, *first: Any) -> list[Any]:
    """What shows of a class whose first use is `first`."""
    try:
        one, other = cls(*first), cls(*first)
    except TypeError as error:
        return [str(error).replace("classes.<locals>.", "")]
    found = [repr(one), one == other, one == 3, one.__match_args__, [f.name for f in dataclasses.fields(one)]]
    found += [vars(cls).get("__slots__"), repr(dataclasses.replace(one, y=7)), copy.copy(one) == one, cls.of]
    try:
        found.append(hash(one) == hash(other))
    except TypeError as error:
        found.append(str(error))
    try:
        one.x = 9
        found.append(one.x)
    except dataclasses.FrozenInstanceError as error:
        found.append(str(error))
    return found


@OPTIONS
@pytest.mark.parametrize("first", [(1,), (1, 4), (1, 4, ["a"]), (), (1, 2, [], 3, 4, 5, 6)], ids=str)
@pytest.mark.parametrize("derived", [False, True])
def test_as_the_standard_library_makes_them(options, first, derived):
    expected = facts(classes(dataclasses.dataclass, options)[derived], *first)
    assert facts(classes(lazy, options)[derived], *first) == expected


@BOTH
def test_methods_of_the_class_body_stay(dataclass):
    @dataclass(frozen=True)
    class Own:
        x: int

        def __repr__(self) -> str:
            return "mine"

        def __hash__(self) -> int:
            return 7

        def __eq__(self, other: object) -> bool:
            return False

    assert (repr(Own(1)), hash(Own(1)), Own(1) == Own(1)) == ("mine", 7, False)


def test_an_object_that_is_read_from_a_file_may_be_the_first_use():
    @lazy(frozen=True, slots=True)
    class Read:
        x: int

    read = Read.__new__(Read)
    read.__setstate__([3])
    assert read == Read(3) and hash(read) == hash(Read(3)) and repr(read).endswith("Read(x=3)")


def test_questions_may_be_the_first_use():
    for ask in (dataclasses.fields, dataclasses.is_dataclass, lambda cls: cls.__match_args__):
        assert ask(classes(lazy, {})[1]) and ask(classes(lazy, {"slots": True})[1])


def test_threads_that_use_a_class_first_at_once():
    for _ in range(50):
        cls = classes(lazy, {"frozen": True, "slots": True})[1]
        found, start = [], threading.Barrier(4)

        def use(cls=cls, found=found, start=start):
            start.wait()
            found.append(repr(cls(1, 2, (), 3)))

        threads = [threading.Thread(target=use) for _ in range(4)]
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            sys.setswitchinterval(interval)
        assert len(found) == 4 and len(set(found)) == 1
