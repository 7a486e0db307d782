"""Random programs of which something is changed between two processes that share a folder of compilations.

`python -m tests.fuzz.stale --count 200 --seed 0`; `--one SEED` prints a program, what is changed and what differs.

A first process compiles every program, a second one its changed counterpart, which must give what eager gives there; a
third one must give for the first program what the first process gave. Everything that can be changed is a choice with a
name: another operator or number, another value in a container, a closure or a default, another base, decorator or
attribute, something more in a class or in a module that is imported.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.kept import processes

NUMBERS = ("2", "3", "4", "5", "7")
EAGER = """import types
dovetail = types.SimpleNamespace(compile=lambda f: f, graph_break=lambda: None)
"""
CALLS = """
compiled = dovetail.compile(f)
show(compiled(torch.ones(3)), compiled(torch.arange(3.0)), compiled(torch.arange({size}.0)))
"""


class Choices:
    """Each is drawn by its name, so that one of them can be another while all others stay."""

    def __init__(self, seed: int, changed: dict[str, str] | None = None) -> None:
        self.seed, self.changed, self.drawn = seed, changed or {}, dict[str, tuple[str, tuple[str, ...]]]()

    def __call__(self, name: str, options: Sequence[str]) -> str:
        found = self.changed.get(name) or random.Random(f"{self.seed} {name}").choice(options)
        self.drawn[name] = found, tuple(options)
        return found

    def number(self, name: str) -> str:
        return self(name, NUMBERS)

    def operator(self, name: str) -> str:
        return self(name, ("+", "*", "-"))


Piece = Callable[[str, Choices], tuple[str, str]]


# ---------------------------------------------------------------- pieces: definitions, and a value computed of x


def constant(n: str, c: Choices) -> tuple[str, str]:
    return f"K{n} = {c.number(f'{n} constant')}", f"x {c.operator(f'{n} operator')} K{n}"


def helper(n: str, c: Choices) -> tuple[str, str]:
    text = f"""
def inner{n}(x, k={c.number(f"{n} default")}, *rest, table=[{c.number(f"{n} keyword")}], **named):
    return x {c.operator(f"{n} operator")} k + table[0] + len(rest)
def helper{n}(x): return inner{n}(x{c(f"{n} given", ("", ", 3", ", 3, 4", ", table=[9]"))})
"""
    return text, f"helper{n}(x)"


def closure(n: str, c: Choices) -> tuple[str, str]:
    text = f"""
def one{n}(x): return x + {c.number(f"{n} one")}
def two{n}(x): return x * {c.number(f"{n} two")}
class A{n}:
    k = {c.number(f"{n} attribute")}
class B{n}(A{n}): pass
def made{n}(number, numbers, function, cls):
    def inner(x): return function(x) * number + sum(numbers) + cls.k
    return inner
closed{n} = made{n}({c.number(f"{n} number")}, [{c.number(f"{n} list")}], {c(f"{n} function", (f"one{n}", f"two{n}"))},
                    {c(f"{n} class", (f"A{n}", f"B{n}", 'type("C", (), {"k": 11})'))})
"""
    return text, f"closed{n}(x)"


def decorator(n: str, c: Choices) -> tuple[str, str]:
    decorated = c(f"{n} decorator", (f"@plus{n}({c.number(f'{n} argument')})", f"@times{n}", f"@plain{n}"))
    text = f"""
import functools
def plain{n}(fn): return fn
def plus{n}(k):
    def decorate(fn):
        @functools.wraps(fn)
        def wrapper(*args): return fn(*args) + k
        return wrapper
    return decorate
def times{n}(fn):
    return lambda *args: fn(*args) * {c.number(f"{n} factor")}
{decorated}
def decorated{n}(x): return x {c.operator(f"{n} operator")} 2
"""
    return text, f"decorated{n}(x)"


EXTRAS = (
    "pass", "k = 9", "def __bool__(self): return False", "def __len__(self): return 0", "def value(self): return 8",
    "def __getattr__(self, name): return 6", "def __eq__(self, other): return True", "extra = 1", "own = 4",
    "__call__ = lambda self, x: x * 3",
)  # fmt: skip


def objects(n: str, c: Choices) -> tuple[str, str]:
    text = f"""
class Base{n}:
    k = {c.number(f"{n} class attribute")}
    def value(self): return self.k {c.operator(f"{n} operator")} 2
    @property
    def doubled(self): return self.own * {c.number(f"{n} property")}
    @classmethod
    def made(cls): return cls.k
    @staticmethod
    def fixed(): return {c.number(f"{n} static")}
    def __call__(self, x): return x + self.value()
class Other{n}(Base{n}):
    def value(self): return super().value() + {c.number(f"{n} other")}
class Own{n}({c(f"{n} base", (f"Base{n}", f"Other{n}"))}):
    {c(f"{n} extra", EXTRAS)}
own{n}, same{n} = Own{n}(), Own{n}()
own{n}.own = {c.number(f"{n} attribute")}
{c(f"{n} set", ("pass", f"own{n}.k = 5", f"own{n}.value = lambda: 6", f"own{n}.extra = 3", f"Own{n}.k = 8"))}
"""
    value = f"own{n}(x) * own{n}.doubled + own{n}.made() - own{n}.fixed() + (3 if own{n} else 4)"
    return text, f"{value} + hasattr(own{n}, 'extra') + (own{n} == same{n}) + isinstance(own{n}, Other{n})"


def containers(n: str, c: Choices) -> tuple[str, str]:
    numbers = {name: c.number(f"{n} {name}") for name in ("list", "entry", "nested", "tuple", "deque")}
    text = f"""
import collections, types
list{n}, table{n} = [1, {numbers["list"]}], {{"a": {numbers["entry"]}, "b": {{"c": [{numbers["nested"]}]}}}}
row{n}, line{n} = (1, {numbers["tuple"]}), collections.deque([{numbers["deque"]}], maxlen={c(f"{n} most", ("2", "3"))})
names{n} = {{{c(f"{n} set", ('"a"', '"a", "b"', '"b"'))}}}
proxy{n} = types.MappingProxyType(table{n})
default{n} = collections.defaultdict(lambda: {c.number(f"{n} missing")}, a=1)
{c(f"{n} change", ("pass", f"list{n}.append(6)", f"table{n}['d'] = 1", f"line{n}.append(8)", f"del list{n}[0]",
                   f"table{n}['b']['c'].append(5)", f"names{n}.add('z')", f"default{n}['q'] = 12"))}
"""
    value = f"x * sum(list{n}) + table{n}['a'] + sum(table{n}['b']['c']) + row{n}[1] + line{n}[0] + len(line{n})"
    return text, f"{value} + ('a' in names{n}) + len(names{n}) + proxy{n}['a'] + line{n}.maxlen + len(table{n})"


def imported(n: str, c: Choices) -> tuple[str, str]:
    library = f"""
K = {c.number(f"{n} constant")}
numbers = [{c.number(f"{n} list")}]
def inner(x): return x {c.operator(f"{n} inner")} K
def helper(x, k={c.number(f"{n} default")}): return inner(x) + k
class Own:
    k = {c.number(f"{n} attribute")}
{c(f"{n} more", ("", "extra = 1", "def __getattr__(name): return 3"))}
"""
    how = c(f"{n} how", (f"from library{n} import K as K{n}", f"K{n} = 10"))
    text = f"""
import sys, types
library{n} = sys.modules["library{n}"] = types.ModuleType("library{n}")
exec({library!r}, library{n}.__dict__)
from library{n} import helper as helper{n}, Own as Own{n}, numbers as numbers{n}
{how}
"""
    return text, f"helper{n}(x) * K{n} + Own{n}.k + numbers{n}[0] + hasattr(library{n}, 'extra')"


PARTS = ("ReLU()", "Identity()", "Hardtanh(-1, 4)", "Hardtanh(-2, 3)")


def modules(n: str, c: Choices) -> tuple[str, str]:
    text = f"""
class M{n}(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.k = {c.number(f"{n} attribute")}
        self.part = torch.nn.{c(f"{n} part", PARTS)}
        self.register_buffer("count", torch.full((1,), {c.number(f"{n} buffer")}.0))
        weight = torch.full((1,), {c.number(f"{n} weight")}.0)
        self.weight = torch.nn.Parameter(weight{c(f"{n} frozen", ("", ", False"))})
        self.rest = torch.nn.ModuleList([torch.nn.ReLU() for _ in range({c(f"{n} parts", ("1", "2"))})])
    def forward(self, x):
        for part in self.rest: x = part(x) {c.operator(f"{n} operator")} 1
        y = self.part(x) * self.k + self.count + self.weight.detach()
        return y + (5 if self.training else 6) + getattr(self, "more", 2)
m{n} = M{n}()
{c(f"{n} change", ("pass", f"m{n}.eval()", f"m{n}.more = 7", f"m{n}.part.forward = lambda x: x + 9",
                   f"m{n}.part.register_forward_hook(lambda m, i, o: o * 2)", f"m{n}.forward = lambda x: x * 4",
                   f"m{n}.part = torch.nn.ELU()", f"m{n}.count = m{n}.count.double()", f"m{n}.part.inplace = False",
                   f"m{n}.rest[0] = m{n}.part"))}
"""
    return text, f"m{n}(x)"


def library(n: str, c: Choices) -> tuple[str, str]:
    text = f"""
import dataclasses, enum, functools, operator, os
class E{n}(enum.Enum):
    A = {c.number(f"{n} member")}
    B = {c(f"{n} second", ("20", "21"))}
    def __init__(self, value): self.more = value + {c.number(f"{n} of members")}
@dataclasses.dataclass(frozen=True)
class D{n}:
    a: int = {c.number(f"{n} field")}
    b: int = {c.number(f"{n} second field")}
def added{n}(a, b, x): return x * a + b
def slow{n}(k): return k * {c.number(f"{n} cached")}
chosen{n}, data{n} = E{n}.{c(f"{n} chosen", ("A", "B"))}, D{n}()
part{n} = functools.partial(added{n}, {c.number(f"{n} partial")}, b={c.number(f"{n} keyword")})
cached{n} = functools.lru_cache(slow{n})
get{n} = operator.itemgetter({c(f"{n} item", ("0", "1"))})
os.environ["OWN{n}"] = "{c.number(f"{n} environment")}"
kind{n} = functools.singledispatch(lambda k: 1)
kind{n}.register({c(f"{n} kind", ("int", "str"))})(lambda k: {c.number(f"{n} for the kind")})
"""
    value = f"part{n}(x=x) + chosen{n}.value * chosen{n}.more + data{n}.a * dataclasses.replace(data{n}, b=1).b"
    return text, f"{value} + cached{n}(2) + get{n}((3, 4)) + int(os.environ['OWN{n}']) + kind{n}(5) + len(E{n})"


def special(n: str, c: Choices) -> tuple[str, str]:
    text = f"""
import abc
class Descriptor{n}:
    def __init__(self, k): self.k = k
    def __get__(self, obj, cls): return obj.raw * self.k
class Slotted{n}:
    __slots__ = ("raw",)
    shown = Descriptor{n}({c.number(f"{n} descriptor")})
class Meta{n}(type):
    def __call__(cls, *args):
        made = super().__call__(*args)
        made.late = {c.number(f"{n} metaclass")}
        return made
class Late{n}(metaclass=Meta{n}): pass
class Abstract{n}(abc.ABC): pass
{c(f"{n} registered", ("pass", f"Abstract{n}.register(Late{n})"))}
slotted{n}, late{n} = Slotted{n}(), Late{n}()
slotted{n}.raw = {c.number(f"{n} slot")}
def checked{n}(k):
    if k > {c(f"{n} bound", ("3", "30"))}: raise ValueError(k)
    return k
def tried{n}():
    try: return checked{n}(late{n}.late + slotted{n}.shown)
    except {c(f"{n} caught", ("ValueError", "Exception"))} as error: return {c.number(f"{n} handler")}
def walked{n}(k):
    for i in range({c(f"{n} count", ("1", "2", "3"))}): yield i * k
state{n} = {{"n": {c.number(f"{n} state")}}}
def counted{n}():
    state{n}["n"] += 1
    return state{n}["n"]
"""
    return text, f"x * tried{n}() + sum(walked{n}(2)) + isinstance(late{n}, Abstract{n}) + counted{n}()"


PIECES: tuple[Piece, ...] = (
    constant, helper, closure, decorator, objects, containers, imported, modules, library, special,
)  # fmt: skip


def program(c: Choices) -> str:
    definitions, lines = [], []
    for k in range(random.Random(c.seed).randint(1, 3)):
        piece = random.Random(f"{c.seed} {k}").choice(PIECES)
        text, value = piece(str(k), c)
        definitions.append(text)
        lines += [f"    x = {value}", f"    {c(f'{k} between', ('pass', 'pass', 'dovetail.graph_break()'))}"]
    body = "\n".join(lines)
    calls = CALLS.format(size=c("size", ("3", "4", "5")))
    return "\n".join(definitions) + f"\ndef f(x):\n{body}\n    return x {c.operator('last')} 1\n" + calls


def changed(seed: int) -> tuple[str, str, str]:
    """A program, the same with another choice (some with two), and which."""
    first = Choices(seed)
    before = program(first)
    draw = random.Random(f"{seed} change")
    names = draw.sample(sorted(first.drawn), min(draw.choice((1, 1, 2)), len(first.drawn)))
    others = {}
    for name in names:
        found, options = first.drawn[name]
        others[name] = draw.choice([option for option in options if option != found])
    return before, program(Choices(seed, others)), str(others)


def check(seeds: Sequence[int]) -> tuple[list[str], int]:
    """What differs, and how many compilations of unchanged programs were taken."""
    drawn = [changed(seed) for seed in seeds]
    before, after = [d[0] for d in drawn], [d[1] for d in drawn]
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder)
        first = processes.run_all(before, cache)
        second = processes.run_all([*after, *(EAGER + text for text in after)], cache)
        third = processes.run_all(before, cache)
    found, taken = [], 0
    for k, seed in enumerate(seeds):
        wrong = _differences(first[k], second[k], second[len(seeds) + k], third[k])
        found += [f"seed {seed}, changed {drawn[k][2]}: {wrong}"] if wrong else []
        taken += sum("capture" not in stages for stages in third[k].get("stages", ()))
    return found, taken


def _differences(first: Any, second: Any, eager: Any, third: Any) -> str:
    shown = [each.get("shown", each.get("error", "").strip().split("\n")[-1]) for each in (first, second, eager, third)]
    if shown[1] != shown[2]:
        return f"{shown[1]} instead of {shown[2]}; unchanged {shown[0]}"
    return f"unchanged {shown[3]} instead of {shown[0]}" if shown[3] != shown[0] else ""


TOGETHER = 40  # programs in one process


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--one", type=int)
    options = parser.parse_args()
    wrong, taken = 0, 0
    seeds = [options.one] if options.one is not None else range(options.seed, options.seed + options.count)
    if options.one is not None:
        print(*changed(options.one), sep="\n# ------------------------ changed\n")
    for k in range(0, len(seeds), TOGETHER):
        found, count = check(seeds[k : k + TOGETHER])
        print(*found, sep="\n", end="\n" if found else "", flush=True)
        wrong, taken = wrong + len(found), taken + count
    print(f"{len(seeds)} programs, {taken} compilations taken where nothing was changed, {wrong} wrong")
    return min(wrong, 1)


if __name__ == "__main__":
    raise SystemExit(main())
