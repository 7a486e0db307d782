"""Programs of which something is changed that another process could overlook: each must then give what it gives where
nothing is kept.

All programs run in one process, one after the other; their counterparts in which something is changed in another.
"""

from __future__ import annotations

import pytest

from . import processes
from .processes import Outcome

CALL = "show(dovetail.compile(f)(torch.arange(1.0, 4.0)))\n"
#: A program's text and what is put in the place of what; texts for a change are all changed at once.
PROGRAMS: dict[str, tuple[str, dict[str, str]]] = {
    "objects that native code reads": ("""
import operator, decimal, re
get, read, call = operator.itemgetter("a"), operator.attrgetter("real"), operator.methodcaller("sin")
price, words = decimal.Decimal("1.5"), re.compile("ab")
table = {"a": 2.0, "b": 5.0}
def f(x):
    return call(x) * get(table) + read(3 + 2j) + float(price) * bool(words.match("abc"))
""", {'itemgetter("a")': 'itemgetter("b")', "real": "imag", '"sin"': '"cos"', "1.5": "2.5", '"ab"': '"b"'}),
    "classes registered as others": ("""
import abc
class Base(abc.ABC): pass
class Own: pass
own = Own()
def f(x):
    return x * (2 if isinstance(own, Base) else 3)
""", {"own = Own()": "own = Base.register(Own)()"}),
    "classes that claim others": ("""
import abc
class Base(abc.ABC):
    @classmethod
    def __subclasshook__(cls, other): return True
class Own: pass
def f(x):
    return x * (2 if issubclass(Own, Base) else 3)
""", {"return True": "return False"}),
    "defaults": ("""
def inner(x, k=[1], w=torch.ones(3)): return x * k[0] + w
class Own:
    def method(self, x, *, table={"a": 2}): return x * table["a"]
own = Own()
def f(x, a=[1, 2], *, b=torch.ones(3)):
    return inner(x) * sum(a) + b + own.method(x)
""", {"k=[1]": "k=[3]", "w=torch.ones": "w=torch.zeros", '{"a": 2}': '{"a": 7}', "[1, 2]": "[1, 3]",
      "b=torch.ones": "b=torch.zeros"}),
    "what the library's modules hold": ("""
import math, sys
import torch.nn.functional as F
math.pi, sys.own, F.own, torch.nn.Linear.own = 2.0, 3.0, 4.0, 5.0
def f(x):
    return x * math.pi + sys.own * F.own + torch.nn.Linear.own
""", {"2.0, 3.0, 4.0, 5.0": "7.0, 8.0, 9.0, 3.0"}),
    "limits": ("""
import sys
sys.setrecursionlimit(3000)
def f(x):
    return x * sys.getrecursionlimit()
""", {"3000": "4000"}),
    "names and texts of definitions": ("""
import inspect, typing
def inner(x, k: int = 1): "words"
class Own: pass
inner.__name__ = "inner"; Own.__name__ = "Own"
exec(compile("def other(): pass", "abc", "exec"), globals())
def f(x):
    hints = typing.get_type_hints(inner)["k"] is int
    return x * len(inner.__name__) + len(inner.__doc__) + len(Own.__name__) + hints + len(other.__code__.co_filename)
""", {"k: int": "k: str", "words": "some words", 'inner.__name__ = "inner"': 'inner.__name__ = "another"',
      '= "Own"': '= "Another"', '"abc"': '"abcdef"'}),
    "mappings behind others": ("""
import types
table = types.MappingProxyType({"a": 1})
def f(x):
    return x * table["a"]
""", {'"a": 1': '"a": 2'}),
    "functions chosen by type": ("""
import functools
@functools.singledispatch
def chosen(k): return 2
@chosen.register
def _(k: int): return 3
def f(x):
    return x * chosen(1)
""", {"k: int": "k: str"}),
    "a module with a forward of its own": ("""
layer = torch.nn.Identity()
def f(x):
    return layer(x) * 2
""", {"Identity()": "Identity(); layer.forward = lambda x: x * 5"}),
    "modules that can be imported": ("""
import importlib.util, os, sys
os.makedirs(os.environ["WORK"], exist_ok=True); sys.path.insert(0, os.environ["WORK"]); sys.dont_write_bytecode = True
open(os.environ["WORK"] + "/there.py", "w").write("k = 2")
def f(x):
    try:
        import there_or_not
        return x * there_or_not.k
    except ImportError:
        return x * (5 if importlib.util.find_spec("not_there") is None else 6)
""", {'"/there.py"': '"/there_or_not.py"'}),
    "modules that are found": ("""
import importlib.util, os, sys
os.makedirs(os.environ["WORK"], exist_ok=True); sys.path.insert(0, os.environ["WORK"])
open(os.environ["WORK"] + "/found0.py", "w")
def f(x):
    return x * (5 if importlib.util.find_spec("found1") is None else 6)
""", {"found0": "found1"}),
    "versions of packages": ("""
import importlib.metadata, os, sys
place = os.environ["WORK"] + "/own-1.dist-info"
os.makedirs(place, exist_ok=True); sys.path.insert(0, os.environ["WORK"])
open(place + "/METADATA", "w").write("Name: own\\nVersion: 1\\n")
def f(x):
    return x * int(importlib.metadata.version("own"))
""", {"Version: 1": "Version: 3"}),
    "what closures hold": ("""
class A:
    def go(self, x): return x * 2
class B:
    def go(self, x): return x * 3
def one(x): return x + 1
def two(x): return x + 2
def made(cls, fn):
    def inner(x): return fn(cls().go(x))
    return inner
inner = made(A, one)
def f(x):
    return inner(x)
""", {"made(A, one)": "made(B, two)"}),
    "bases that are no longer found by their names": ("""
class A:
    def go(self, x): return x * 2
class B(A): pass
A = type("A", (), {"go": lambda self, x: x * 2})
b = B()
def f(x):
    return b.go(x)
""", {"return x * 2": "return x * 5"}),
    "special methods": ("""
class A: pass
class B: pass
a, b = A(), B()
def f(x):
    return x * (2 if a else 3) + (a == b)
""", {"class A: pass": "class A: __bool__ = lambda self: False",
      "class B: pass": "class B: __eq__ = lambda self, o: True"}),
    "attributes that are not there": ("""
import sys, types
class M(torch.nn.Module):
    def forward(self, x):
        return x * getattr(self, "k", 3) + hasattr(self, "part")
m = M()
lib = sys.modules["own_library"] = types.ModuleType("own_library")
def f(x):
    try:
        from own_library import k
    except ImportError:
        k = 3
    return m(x) * k + hasattr(lib, "other")
""", {"m = M()": "m = M(); m.k = 7; m.part = torch.nn.Identity()",
      'ModuleType("own_library")': 'ModuleType("own_library"); lib.other = 1; lib.k = 8'}),
    "substitutes": ("""
import math
def one(x, /): return 2.0
def two(x, /): return 3.0
dovetail.substitute_in_graph(math.ulp)(one)
def f(x):
    return x * math.ulp(1.0)
""", {"(one)": "(two)"}),
    "members of enumerations": ("""
import enum
class E(enum.Enum):
    A = 1
    B = 2
    def __init__(self, v): self.double = v * 2
e = E.A
def f(x):
    return x * e.double + sum(each.value for each in E) + len(E(2).name)
""", {"v * 2": "v * 3", "A = 1": "A = 1; LAST = 9", "B = 2": "BB = 2"}),
    "caches": ("""
import functools
def one(n): return n * 2
def two(n): return n * 3
cached = functools.lru_cache(one)
def f(x):
    return x * cached(3)
""", {"lru_cache(one)": "lru_cache(two)"}),
    "types with arguments": ("""
import typing
A, B = typing.Optional[int], list[int]
def f(x):
    return x * (int in typing.get_args(A)) + (B.__args__[0] is int)
""", {"Optional[int]": "Optional[str]", "list[int]": "list[str]"}),
    "numbers and texts of the program's own classes": ("""
class I(int): pass
class S(str): pass
import collections
N = collections.namedtuple("N", "a b")
i, s, n = I(3), S("abc"), N(3, 4)
def f(x):
    return x * int(i) + len(s) * n.a
""", {"I(3)": "I(4)", '"abc"': '"abcd"', "N(3, 4)": "N(5, 4)"}),
    "parameters that are one": ("""
class M(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
    def forward(self, x):
        with torch.no_grad(): self.a.weight.mul_(2)
        return self.b(self.a(x))
torch.manual_seed(0)
f = M()
""", {"f = M()": "f = M(); f.b.weight = f.a.weight"}),
    "what follows a graph break": ("""
def inner(x, k=2): return x * k
scale = 3
def f(x):
    y = x + 1
    dovetail.graph_break()
    for z in (y, x):
        y = y + inner(z) * scale
        dovetail.graph_break()
    return y
""", {"k=2": "k=4", "scale = 3": "scale = 5"}),
    "functions with gradients of their own": ("""
class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin() * 2
    @staticmethod
    def backward(ctx, g):
        return g * 3 * ctx.saved_tensors[0]
compiled = dovetail.compile(lambda x: Own.apply(x).sum())
def f(x):
    return x
x = torch.ones(3, requires_grad=True)
out = compiled(x)
out.backward()
show(out, x.grad)
""", {"x.sin() * 2": "x.sin() * 4", "g * 3": "g * 5"}),
    "branches and loops on tensors": ("""
from torch._higher_order_ops.while_loop import while_loop
k = 2
def more(v): return v * k
def f(x):
    x = torch.cond(x.sum() > 3, lambda v: more(v), lambda v: v * 0, (x,))
    return while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, v + 1), (torch.tensor(0), x))[1]
""", {"k = 2": "k = 3", "x.sum() > 3": "x.sum() > 4", "i < 3": "i < 2", "v + 1)": "v + 2)"}),
    "what operators of the program's own are declared as": ("""
@torch.library.custom_op("own_stale::scaled", mutates_args=())
def scaled(x: torch.Tensor, k: float = 2.0) -> torch.Tensor: return x * k
scaled.register_fake(lambda x, k=0.0: torch.empty_like(x))
def f(x):
    return scaled(x) + 1
""", {"k: float = 2.0": "k: float = 3.0"}),
    "what their results look like": ("""
@torch.library.custom_op("own_stale::repeated", mutates_args=())
def repeated(x: torch.Tensor) -> torch.Tensor: return x.repeat(N)
repeated.register_fake(lambda x: x.new_empty(x.shape[0] * N))
N = 2
def f(x):
    y = repeated(x)
    return y.sum() * y.shape[0]
""", {"N = 2": "N = 3"}),
    "what they compute": ("""
@torch.library.custom_op("own_stale::computed", mutates_args=())
def computed(x: torch.Tensor) -> torch.Tensor: return x * 2
computed.register_fake(lambda x: torch.empty_like(x))
def f(x):
    return computed(x) + 1
""", {"x * 2": "x * 5"}),
    "memory that is shared": ("""
a, b = torch.ones(3), torch.ones(3)
def f(x):
    a.add_(x)
    return a * b
""", {"= torch.ones(3), torch.ones(3)": "= torch.ones(3), None; b = a[:]"}),
}  # fmt: skip
SEEN_WHEN_IT_RUNS = ("memory that is shared", "what they compute")
#: What other processes cannot be asked.
ALONE = {
    "constants": """
import os
@dovetail.assume_constant_result
def given(n): return n * int(os.environ["GIVEN"])
def f(x):
    return x * given(3)
""",
    "operators of the program's own that are made of others": """
library = torch.library.Library("own_alone", "FRAGMENT")
library.define("twice(Tensor x) -> Tensor")
library.impl("twice", lambda x: x * 2, "CompositeImplicitAutograd")
def f(x):
    return torch.ops.own_alone.twice(x) + 1
""",
    "gradients of operators of the program's own": """
@torch.library.custom_op("own_alone::halved", mutates_args=())
def halved(x: torch.Tensor) -> torch.Tensor: return x / 2
halved.register_fake(lambda x: torch.empty_like(x))
halved.register_autograd(lambda ctx, g: g / 2)
w = torch.ones(3, requires_grad=True)
def f(x):
    return halved(x * w)
""",
    "orders of sets": """
def f(x):
    return x * (2 if [*{"ab", "cd", "ef"}][0] == "ab" else 3)
""",
    "code that runs while compiling": """
def f(x):
    dovetail.comptime(lambda context: context.print("compiling"))
    return x * 2
""",
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory, once):
    place = tmp_path_factory.mktemp("stale")
    texts = [program + CALL for program, _ in PROGRAMS.values()]
    changed = []
    for text, (_, changes) in zip(texts, PROGRAMS.values(), strict=True):
        for old, new in changes.items():
            assert old in text, old
            text = text.replace(old, new, 1)
        changed.append(text)

    def runs():
        found = [processes.run_all(texts, place / "cache", WORK=str(place / "a")) for _ in range(2)]
        there = {"WORK": str(place / "b")}
        return found + [processes.run_all(changed, place / "cache", warm, **there) for warm in (True, False)]

    return dict(zip(PROGRAMS, zip(*once("stale", runs), strict=True), strict=True))


@pytest.mark.parametrize("name", PROGRAMS)
def test_never_a_stale_hit(name, outcomes):
    first, again, changed, alone = map(Outcome, outcomes[name])
    assert again.shown == first.shown and not again.compiled and again.restored == len(first.stages)
    assert changed.shown == alone.shown
    assert changed.shown != first.shown, "the change should show"
    assert changed.compiled or name in SEEN_WHEN_IT_RUNS


def test_what_others_cannot_be_asked_is_not_kept(tmp_path):
    texts = [text + CALL for text in ALONE.values()]
    for _ in range(2):
        found = processes.run_all(texts, tmp_path, PYTHONHASHSEED="random", GIVEN="2")
        assert [Outcome(each).compiled for each in found] == [1] * len(ALONE)
