"""What capture promises, one program for each noun: as one graph, or with graph breaks that stay local."""

from __future__ import annotations

import collections
import contextlib
import copy
import dataclasses
import enum
import functools
import inspect
import io
import itertools
import logging
import math
import operator
import random
import time
import typing
import warnings

import numpy
import pytest
import torch
import torch.distributions as D
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import dovetail
from tests.capture.harness import compare


class Meta(type):
    def __call__(cls, *args):
        made = super().__call__(*args)
        made.marked = True
        return made


class Vector(metaclass=Meta):
    def __init__(self, v): self.v = v
    def __add__(self, other): return Vector(self.v + getattr(other, "v", other))
    __radd__ = __add__
    def __matmul__(self, other): return (self.v * other.v).sum()
    def __neg__(self): return Vector(-self.v)
    def __eq__(self, other): return self.v is other.v
    def __getattr__(self, name): return len(name) if name.startswith("n_") else object.__getattribute__(self, name)
    def __iter__(self): return iter((self.v, 1))
    def __len__(self): return 2


class Wider(Vector):
    def __init__(self, v): super().__init__(v); self.twice = v * 2

    @property
    def half(self): return self.v / 2

    @half.setter
    def half(self, v): self.v = v * 2


class Positive:
    def __set_name__(self, owner, name): self.name = "_" + name
    def __get__(self, instance, owner): return self if instance is None else getattr(instance, self.name) + 1
    def __set__(self, instance, value): setattr(instance, self.name, value)


class Described:
    size = Positive()


@dataclasses.dataclass
class Point:
    x: typing.Any
    y: int = 2
    tags: list = dataclasses.field(default_factory=list)


Pair = collections.namedtuple("Pair", "left right")


class Color(enum.Enum):
    RED = 1
    BLUE = "b"


@functools.lru_cache
def cached(n): return n * 2


def decorated(fn):
    @functools.wraps(fn)
    def inner(*args): return fn(*args) + 1
    return inner


@contextlib.contextmanager
def noting(log):
    log.append("in")
    try:
        yield log
    finally:
        log.append("out")


class Countdown:
    def __init__(self, n): self.n = n
    def __iter__(self): return self

    def __next__(self):
        if self.n == 0: raise StopIteration
        self.n -= 1
        return self.n


async def answered(x): return x + 1


def awaited(x):
    async def outer(): return await answered(x) + await answered(x)
    try: outer().send(None)
    except StopIteration as stop: return stop.value


def caught(x):
    try:
        try: raise KeyError("k")
        except KeyError as error: raise ValueError("v") from error
    except (ValueError, TypeError) as error: return x, str(error), str(error.__cause__)
    finally: x = x + 1


def matched(v):
    match v:
        case Point(x=x, y=2): return x
        case {"k": k, **rest}: return k, rest
        case [first, *_, last] if first is not last: return first, last
        case Color.RED | None: return "red"
        case _: return "other"


def generated(x):
    def gen():
        got = yield x
        yield from [got, x * 2]
        return 3
    g = gen()
    return next(g), g.send(5), list(g)


def counted(f, x, n=0): return f(x) if n == 0 else counted(f, x, n - 1) + 1


class Scaled(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, args, kwargs or {})


class Doubling(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k): ctx.k = k; return x * k
    @staticmethod
    def backward(ctx, g): return g * ctx.k * 10, None


hooked, hooks = nn.Linear(3, 2), []
hooked.register_forward_pre_hook(lambda module, given: (given[0] + 1,))
hooked.register_forward_hook(lambda module, given, out: hooks.append(len(given)) or out * 2)
recurrent = [kind(3, 2) for kind in (nn.LSTM, nn.GRU, nn.RNN)]


def outer_names(x):
    n, log = 0, []

    def step():
        nonlocal n
        n += 1
        log.append(n)
    step(); step()
    return x + n, log


def seeded(x): random.seed(3); numpy.random.seed(3); return x, random.random(), random.sample(range(9), 2)
def noted(x):
    log = []
    with noting(log) as l, contextlib.suppress(KeyError), contextlib.ExitStack() as stack:
        stack.callback(l.append, "callback"); {}["k"]
    return x, log


#: One graph each; no test of values beyond eager's.
WHOLE = {
    "torch.cond": "torch.cond(x.sum() > 0, lambda v: v.sin(), lambda v: v.cos(), (x,))",
    "while_loop": "while_loop(lambda k, v: k < 3, lambda k, v: (k + 1, v * 2), (torch.tensor(0), x))",
    "scan": "scan(lambda c, v: (c + v, c * v), torch.zeros(()), x)",
    "map": "tmap(lambda v: v.sin() + 1, x)",
    "where for an if": "torch.where(x > 0, x, -x)",
    "classes created": "(lambda C: C(x).v + C.k)(type('C', (), {'k': 2, '__init__': lambda s, v: setattr(s, 'v', v)}))",
    "classes mutated": "[setattr(w := Wider(x), 'new', 3), w.new, w.twice, vars(w).keys() >= {'v'}]",
    "properties": "[w := Wider(x), setattr(w, 'half', x), w.half, w.v][2:]",
    "descriptors": "[d := Described(), setattr(d, 'size', x), d.size, vars(d)][2:]",
    "__getattr__": "Vector(x).n_abc, Wider(x).n_", "metaclasses": "Vector(x).marked, type(Vector(x)).__class__ is Meta",
    "super()": "Wider(x).v, Wider.__mro__[1] is Vector, super(Wider, Wider(x)).__len__()",
    "dataclasses": "dataclasses.replace(Point(x), y=3).y, Point(x).tags, [f.name for f in dataclasses.fields(Point)]",
    "namedtuples": "Pair(x, 1)._replace(right=2), Pair(*[x, 3])._asdict(), Pair(x, 1).left + 1",
    "enums": "Color('b').name, Color['RED'].value, Color.RED is Color(1), [c.name for c in Color], x",
    "partial": "functools.partial(torch.add, x, alpha=2)(x)", "lru_cache": "x * cached(3), cached(3)",
    "reduce": "functools.reduce(torch.add, [x, x, x])", "wraps": "decorated(torch.sin)(x), decorated(cached)(2)",
    "itertools": "[a + b for a, b in itertools.product([x], [1, 2])], list(itertools.accumulate([1, 2, 3])), "
                 "[*itertools.chain([x], [1])], [*itertools.islice(itertools.count(), 2)], [*itertools.pairwise('ab')]",
    "OrderedDict": "[d := collections.OrderedDict(a=x, b=1), d.move_to_end('a'), list(d)][2]",
    "defaultdict": "[d := collections.defaultdict(list), d['a'].append(x), dict(d)][2]",
    "deque": "[d := collections.deque([x], 2), d.append(1), d.append(2), d.rotate(), list(d)][4]",
    "Counter": "collections.Counter('abca').most_common(1), x",
    "ChainMap": "collections.ChainMap({'a': x}, {'b': 1})['b'], x",
    "operator": "operator.itemgetter(0)([x]), operator.attrgetter('shape')(x), operator.methodcaller('sin')(x)",
    "math": "x * math.sqrt(4) + math.pi, math.prod([2, 3]), math.isclose(1, 1.0)",
    "sets": "x, sorted({1, 2} | {3}), {1, 2} & {2}, {1} < {1, 2}, frozenset('ab') ^ {'a'}",
    "dict views": "[d := {'a': x, 'b': 1}, sorted(d.keys() & {'a'}), len(d.items()), list(d.values())[1]][1:]",
    "slicing": "x[::2], x[None, -2:], [x, 1, 2][::-1], 'abc'[1:], (1, 2, 3)[slice(0, 2)]",
    "string methods": "f'{x.shape[0]:>3}', 'a-b'.split('-'), 'ab'.upper().center(6, '*'), '%s' % 3, 'a{}'.format(1), x",
    "sorting with keys": "sorted([3, -1, 2], key=abs, reverse=True), sorted(['b', 'A'], key=str.lower), x",
    "star-unpacking": "[*[x], *(1, 2)], {**{'a': x}, 'b': 1}, (lambda *a, **k: (a, k))(*[x], **{'z': 1})",
    "walrus": "[y := x * 2, y + 1]", "match": "[matched(v) for v in (Point(x), {'k': x, 'z': 1}, [x, 2, 3], None, 5)]",
    "generators": "generated(x), sum(v for v in [x, x])", "coroutines": "awaited(x)", "exceptions": "caught(x)",
    "contextlib": "noted(x)", "typing": "typing.cast(int, 3) * x, typing.get_type_hints(Point)['y']",
    "inspect.signature": "list(inspect.signature(counted).parameters), x",
    "copy": "copy.copy([x])[0] is x, copy.deepcopy({'a': [1, x]})['a'][0]",
    "user-defined iterators": "[x * k for k in Countdown(3)]",
    "overloaded operators": "(1 + Vector(x)).v, Vector(x) @ Vector(x), (-Vector(x)).v, [*Vector(x)], bool(Vector(x))",
    "__torch_function__ subclasses": "(x.as_subclass(Scaled) * 2).sum().as_subclass(torch.Tensor)",
    "hooks": "hooks.clear() or hooked(x), hooks[:]", "LSTM, GRU, RNN": "[m(x[None, None])[0] for m in recurrent]",
    "functional": "F.softmax(x, 0), F.layer_norm(x, (3,)), F.one_hot(torch.tensor([1]), 3), F.pad(x, (1, 1))",
    "distributions": "D.Normal(x, 1.0).log_prob(x), D.Categorical(logits=x).entropy()",
    "autograd.Function": "Doubling.apply(w, 3) * x",
    "checkpoint": "checkpoint(torch.sin, x, use_reentrant=False)",
    "functional_call": "torch.func.functional_call(net, {'weight': x[None]}, (x,)).shape",
    "transforms": "torch.func.vmap(torch.func.grad(lambda v: v.sin()))(x), torch.func.jacrev(torch.exp)(x)",
    "nonlocals": "outer_names(x)", "printing": "[print('k', 3, sep='-'), print(f'{x.shape}'), x + 1][2]",
    "logging": "[LOG.info('%s of %d', 'x', 3), LOG.warning('w'), x + 1][2]",
    "warnings": "[warnings.warn('careful', stacklevel=1), x + 1][1]",
    "recursion": "counted(torch.sin, x, 12)", "exceptions that pass": "[x for k in [1] if not isinstance(k, str)]",
}  # fmt: skip

#: Graph breaks, each of them local.
PARTS = {
    "if": "x + 1 if x.sum() > 0 else x - 1", "numbers": "bool(x.sum() > 0), int(x.sum()), float(x[0]), x + 1",
    "item": "x * x.sum().item()", "tolist": "x.tolist(), x + 1", "masks": "x[x > 0] * 2, x.masked_select(x < 0)",
    "nonzero": "x.nonzero() + 1, torch.where(x > 0)[0]", "unique": "torch.unique(x) + 1, x.unique(return_counts=True)",
    "with": "with torch.no_grad(), noting(out) as l: y = end(x * 2); l.append(y)",
    "autocast": "with torch.autocast('cpu', torch.bfloat16): out.append(end(x[None] @ x[:, None]).dtype)",
    "try": "try: end(x); raise KeyError(1)\n    except KeyError: x = end(x + 1)\n    finally: out.append(end(x))",
    "comprehension": "out.append([end(x + k) for k in range(3)])",
    "generator": "out.extend(end(x * k) for k in range(3))",
    "nested functions": "n = 0\n    def f():\n        nonlocal n; n += 1; end(x); n += 1\n    f(); f(); out.append(n)",
    "while": "while x.sum() < 50: x = x * 2",
    "assert": "assert x.sum() > -1e9, 'no'",
    "assert that fails": "try:\n        assert x.sum() > 1e9, 'no'\n    except AssertionError as e: out.append(str(e))",
    "random": "seeded(x)", "time": "t = time.time(); out.append(time.time() >= t)",
    "print of a tensor": "print(x.sum())",
}  # fmt: skip

LOG = logging.getLogger("tests.promises")
net = nn.Linear(3, 1)


def end(x):
    dovetail.graph_break()
    return x


def space():
    from torch._higher_order_ops import map as tmap
    from torch._higher_order_ops import scan, while_loop

    w = torch.ones(3, requires_grad=True)
    modules = {module.__name__: module for module in (copy, inspect, itertools, math, operator, time)}
    functions = {"while_loop": while_loop, "scan": scan, "tmap": tmap, "checkpoint": checkpoint}
    return {**globals(), **modules, **functions, "D": D, "F": F, "w": w}


def seen(call, x):
    """Results, and what a user sees meanwhile."""
    text, records = io.StringIO(), []
    handler = logging.Handler()
    handler.emit = lambda record: records.append(record.getMessage())
    LOG.addHandler(handler)
    torch.manual_seed(0)
    try:
        with contextlib.redirect_stdout(text), warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            result = call(x)
    finally:
        LOG.removeHandler(handler)
    return result, text.getvalue(), records, [str(w.message) for w in told if "careful" in str(w.message)]


@pytest.mark.parametrize("name", WHOLE)
def test_one_graph(name):
    made = space()
    exec(f"def f(x):\n    return {WHOLE[name]}", made)
    compiled = dovetail.compile(made["f"], backend="eager", fullgraph=True)
    for x in (torch.tensor([1.0, 2.0, 3.0]), torch.tensor([-1.0, 0.5, 0.0])):
        compare(seen(compiled, x), seen(made["f"], x))


@pytest.mark.parametrize("name", PARTS)
def test_with_breaks(name):
    made, body = space(), PARTS[name]
    whole = body.startswith(("with", "try", "while", "assert", "out", "n =", "t =", "print"))
    body = body if whole else f"out.append(({body}))"
    exec(f"def f(x):\n    out = []\n    {body}\n    return out, x.sin()", made)
    compiled = dovetail.compile(made["f"], backend="eager")
    for x in (torch.tensor([1.0, 2.0, 3.0]), torch.tensor([4.0, -0.5, 0.0])):
        compare(seen(compiled, x), seen(made["f"], x))
    parts = compiled._dovetail_dispatcher, *compiled._dovetail_dispatcher.compiler.rests.values()
    assert all(part.entries and not part.eager for part in parts[:1])
    assert not any(b.refusals for part in parts for entry in part.entries for b in entry.captured.breaks)


@pytest.mark.parametrize("depth", (1, 5, 20))
def test_a_break_costs_one_graph_at_any_depth(depth):
    compiled = dovetail.compile(lambda x: counted(end, x.sin(), depth) * 2, backend="eager")
    compare(compiled(torch.ones(2)), compiled.__wrapped__(torch.ones(2)))
    parts = compiled._dovetail_dispatcher, *compiled._dovetail_dispatcher.compiler.rests.values()
    graphs = [entry for part in parts for entry in part.entries if entry.captured.metrics["ops"]]
    assert len(graphs) == 2


def test_a_tensor_of_another_class_recompiles():
    graphs = []
    compiled = dovetail.compile(lambda x: x + 1, backend=lambda graph, given: graphs.append(graph) or graph.forward)
    for x in (torch.ones(2), torch.ones(2).as_subclass(Scaled), nn.Parameter(torch.ones(2), False), torch.zeros(2)):
        assert type(compiled(x)) is type(x + 1)
    assert len(graphs) == 3
