"""Programs that break: every kind of step in every kind of surroundings.

A program is the text of a function `f(x, o, log)` made from a template and a step. `x` is a tensor, `o` an object of a
native type that capture knows nothing about, `log` a list that shows what ran, how often and in which order.
"""

from __future__ import annotations

import array
import linecache
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

STEPS = {
    "call": "v = x.sum().item()",
    "method": "v = o.count(1.0)",
    "keywords": "v = int('7', **{'base': int(x.sum().item() * 0) + 8})",
    "branch": "v = 1\nif x.sum() > 0:\n    v = 2",
    "and": "v = x.sum() > 0 and 3",
    "load attribute": "v = o.itemsize",
    "binary": "v = (o + o)[1]",
    "subscript": "v = o[1]",
    "store subscript": "o[1] = o[1] + 1.0\nv = list(o)",
    "delete subscript": "v = len(o)\ndel o[0]\no.append(4.0)",
    "contains": "v = 2.0 in o",
    "compare": "v = o == o[:]",
    "not": "v = not o",
    "unpack": "v, _, *_ = o",
    "format": "v = f'{x.sum().item():.1f} {x.sum()!s:>4}'",
    "iterate": "for v in o:\n    x = x + v",
    "raises": "try:\n    v = o[99]\nexcept IndexError as error:\n    v = str(error)",
    "assert": "assert x.sum() > -1e6, 'small' if len(x) else 'empty'\nv = 5",
}

# Name: text. A line `{}` is where the step comes. Each block uses x and v afterwards, so that they must survive.
BLOCKS = {
    name: text.strip()
    for name, _, text in (
        part.partition("\n") for part in Path(__file__).with_name("break_blocks.txt").read_text().split("=== ")[1:]
    )
}

HELPERS = '''
import contextlib, functools, itertools, sys
import torch


class Manager:
    def __init__(self, log, name="m", catches=()):
        self.log, self.name, self.catches = log, name, catches

    def __enter__(self):
        self.log.append(("enter", self.name))
        return self

    def __exit__(self, kind, error, trace):
        self.log.append(("exit", self.name, kind))
        return kind is not None and issubclass(kind, self.catches)


@contextlib.contextmanager
def managed(log, name, catches=()):
    log.append(("enter", name))
    try:
        yield name
    except catches as error:
        log.append(repr(error))
    finally:
        log.append(("exit", name))


def helper(x, o):
    {step}
    return v


@contextlib.contextmanager
def breaking(x, o, log):
    {step}
    try:
        yield v
    finally:
        {step3}
        log.append(v)


class Entering(Manager):
    def __init__(self, x, o, log):
        super().__init__(log)
        self.x, self.o = x, o

    def __enter__(self):
        return helper(self.x, self.o)


class Exiting(Entering):
    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.log.append((helper(self.x, self.o), error[0]))


class Counting:
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return self

    def __next__(self):
        if not self.n:
            raise StopIteration
        self.n -= 1
        return self.n


class Sequence:
    def __init__(self, items):
        self.items = items

    def __getitem__(self, k):
        return self.items[k]


class Made:
    def __init__(self, x, o, log):
        log.append("in")
        x, o = x, o
        {step2}
        self.v = v


class New:
    def __new__(cls, x, o, log):
        self = super().__new__(cls)
        {step2}
        self.v = v
        return self

    def __init__(self, x, o, log):
        log.append("init")


class Described:
    def __get__(self, instance, owner):
        return helper(instance.x, instance.o)


class Special:
    described = Described()

    def __init__(self, x, o):
        self.x, self.o = x, o

    def run(self, *rest):
        return helper(self.x, self.o), rest

    def keep(self, *rest):
        self.kept = self.run(*rest)

    @classmethod
    def build(cls, x, o):
        return cls(x, o).run(1)

    @property
    def prop(self):
        x, o = self.x, self.o
        {step2}
        return v

    @prop.setter
    def prop(self, new):
        self.keep(new)

    def __getattr__(self, name):
        if name == "missing":
            return self.run(name)
        if name == "missing_call":
            self.run(name)
            return self.run
        raise AttributeError(name)

    def __str__(self):
        return str(self.run())

    def truth(self):
        return bool(self.run())

    __call__ = __add__ = __radd__ = __iadd__ = __neg__ = __lt__ = __eq__ = __getitem__ = run
    __setitem__ = __delitem__ = keep
    __bool__ = truth

    def __contains__(self, item):
        return self.run(item)

    def __len__(self):
        return len(self.run())

    def __iter__(self):
        self.run()
        return iter([1, 2])


class Setting:
    def __init__(self, x, o):
        self.__dict__["x"], self.__dict__["o"] = x, o

    def __setattr__(self, name, value):
        object.__setattr__(self, name, (value, helper(self.x, self.o)))


class Stepping:
    def __init__(self, x, o):
        self.x, self.o, self.n = x, o, 0

    def __iter__(self):
        return self

    def __next__(self):
        self.n += 1
        if self.n > 2:
            raise StopIteration
        x, o = self.x, self.o
        {step2}
        return v


class Base(Special):
    def method(self):
        x, o = self.x, self.o
        {step2}
        return v


class Derived(Base):
    def method(self):
        x, o = self.x, self.o
        {step2}
        return v, super().method()

    def closed(self):
        me = lambda: self.x
        x, o = self.x, self.o
        {step2}
        return v, super().method(), me()


def wrapping(function):
    @functools.wraps(function)
    def inner(*args, **kwargs):
        return function(*args, **kwargs), 1

    return inner


@wrapping
def decorated(x, o):
    {step}
    return v


class Layer(torch.nn.Module):
    def __init__(self, log):
        super().__init__()
        self.log = log

    def forward(self, x, o):
        {step2}
        return v
'''


class Program:
    """One block with one step: `make()` gives the function."""

    def __init__(self, block: str, step: str) -> None:
        self.block, self.step = block, step
        self.name = f"{block}: {step}"

    def text(self) -> str:
        step, block = STEPS[self.step], BLOCKS[self.block]
        body = "\n".join(_fitted(line, step) for line in block.split("\n"))
        depths = {"{step}": 4, "{step2}": 8, "{step3}": 8}
        helpers = HELPERS
        for mark, depth in depths.items():
            helpers = helpers.replace(mark, textwrap.indent(step, " " * depth).lstrip())
        return f"{helpers}\n\ndef f(x, o, log):\n{textwrap.indent(body, '    ')}\n    return x, v\n"

    def make(self) -> Callable[..., Any]:
        text = self.text()
        name = f"<break program {self.name}>"
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        space: dict[str, Any] = {"__name__": "break_programs_made"}
        exec(compile(text, name, "exec"), space)
        return space["f"]


def _fitted(line: str, step: str) -> str:
    stripped = line.strip()
    return textwrap.indent(step, line[: len(line) - len(stripped)]) if stripped == "{}" else line


def arguments(sign: int) -> tuple[Any, ...]:
    return sign * (torch.arange(3.0) + 0.5), array.array("d", [1.0, 2.0, 3.0]), []


def programs() -> Iterator[Program]:
    """Every step in every block."""
    for block in BLOCKS:
        for step in STEPS:
            yield Program(block, step)
