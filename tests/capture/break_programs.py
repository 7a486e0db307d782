"""Programs that break: every kind of step in every kind of surroundings.

A program is the text of a function `f(x, o, log)` made from a template and a step. `x` is a tensor, `o` an object of a
native type that capture knows nothing about, `log` a list that shows what ran, how often and in which order.
"""

from __future__ import annotations

import array
import contextlib
import functools
import itertools
import linecache
import sys
import textwrap
from collections.abc import Callable, Iterator
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
    "assert": "assert x.sum() > -1e6, 'small'\nv = 5",
}

# Where the step comes, {} takes it. Each surrounding uses x and v afterwards, so that they must survive.
BLOCKS = {
    "plain": "{}\nlog.append(v)",
    "loop": "for k in range(3):\n    {}\n    log.append((k, v))\n    x = x + 1",
    "while": "k = 0\nwhile k < 3:\n    k += 1\n    {}\n    if k == 2:\n        continue\n    log.append((k, v))",
    "nested loops": "for a in 'ab':\n    for b in [1, 2]:\n        {}\n        if b == 2 and a == 'b':\n            break\n"
    "        log.append((a, b, v))\n    else:\n        log.append('else')",
    "tuple on the stack": "log.append((x.sum() * 0, len(log), [v := 0], 1))\n{}\nlog.append((x + 1, v))",
    "no_grad": "with torch.no_grad():\n    y = x + 1\n    {}\n    log.append((v, torch.is_grad_enabled()))\n"
    "log.append(torch.is_grad_enabled())",
    "grad modes": "with torch.no_grad():\n    with torch.enable_grad():\n        {}\n    log.append((v, torch.is_grad_enabled()))\n"
    "    with torch.set_grad_enabled(False):\n        {}\nlog.append(torch.is_grad_enabled())",
    "autocast": "with torch.autocast('cpu', dtype=torch.bfloat16):\n    y = torch.ones(2, 2) @ torch.ones(2, 2)\n    {}\n"
    "    log.append((v, y, torch.ones(2, 2) @ torch.ones(2, 2)))\nlog.append(torch.ones(2, 2) @ torch.ones(2, 2))",
    "manager": "with Manager(log) as m:\n    {}\n    log.append((v, m.name))\nlog.append(x + 1)",
    "two managers": "with Manager(log, 'a'), Manager(log, 'b') as m:\n    {}\n    log.append((v, m.name))\nlog.append('out')",
    "suppressing manager": "with Manager(log, 'a', KeyError):\n    {}\n    log.append(v)\n    raise KeyError('in')\nlog.append(x + 1)",
    "contextmanager": "with managed(log, 'g') as m:\n    {}\n    log.append((v, m))\nlog.append(x + 1)",
    "contextmanager that catches": "with managed(log, 'g', ValueError):\n    {}\n    log.append(v)\n    raise ValueError('in')\nlog.append(x + 1)",
    "break in contextmanager": "with breaking(x, o, log) as v:\n    log.append(v)\nlog.append(x + 1)",
    "exit stack": "with contextlib.ExitStack() as stack:\n    stack.enter_context(Manager(log, 's'))\n"
    "    stack.callback(log.append, 'callback')\n    {}\n    log.append(v)\nlog.append(x + 1)",
    "nullcontext": "with contextlib.nullcontext(5) as five:\n    {}\n    log.append((v, five))",
    "suppress": "with contextlib.suppress(KeyError):\n    {}\n    log.append(v)\n    raise KeyError\nlog.append('after')",
    "in __enter__": "with Entering(x, o, log) as v:\n    log.append(v)",
    "in __exit__": "with Exiting(x, o, log):\n    log.append('body')\nv = log[-1]",
    "in __exit__ after an error": "try:\n    with Exiting(x, o, log):\n        raise KeyError('body')\nexcept KeyError as e:\n    v = str(e)\nlog.append(v)",
    "try": "try:\n    {}\n    log.append(v)\nexcept ValueError:\n    log.append('no')\nelse:\n    log.append('else')\nfinally:\n    log.append('end')",
    "else": "try:\n    y = x + 1\nexcept ValueError:\n    pass\nelse:\n    {}\n    log.append(v)\nfinally:\n    log.append('end')",
    "except": "try:\n    raise ValueError('first')\nexcept ValueError as e:\n    {}\n    log.append((v, str(e), sys.exc_info()[0]))\nlog.append(sys.exc_info()[0])",
    "except without a name": "try:\n    raise ValueError('first')\nexcept ValueError:\n    {}\n    log.append(v)\nlog.append('out')",
    "raise again": "try:\n    try:\n        raise ValueError('first')\n    except ValueError:\n        {}\n        log.append(v)\n        raise\n"
    "except ValueError as e:\n    log.append(str(e))",
    "context": "try:\n    try:\n        raise ValueError('first')\n    except ValueError:\n        {}\n        raise KeyError('second')\n"
    "except KeyError as e:\n    log.append((v, repr(e.__context__), repr(e.__cause__)))",
    "cause": "try:\n    try:\n        raise ValueError('first')\n    except ValueError as e:\n        {}\n        raise KeyError('second') from e\n"
    "except KeyError as e:\n    log.append((v, repr(e.__context__), repr(e.__cause__)))",
    "nested except": "try:\n    raise ValueError('a')\nexcept ValueError:\n    try:\n        raise KeyError('b')\n    except KeyError as e:\n"
    "        {}\n        log.append((v, repr(e.__context__)))\n    log.append(repr(sys.exc_info()[1]))\nlog.append(sys.exc_info()[1])",
    "finally": "try:\n    y = x + 1\nfinally:\n    {}\n    log.append(v)",
    "finally after an error": "try:\n    try:\n        raise ValueError('first')\n    finally:\n        {}\n        log.append(v)\nexcept ValueError as e:\n    log.append(str(e))",
    "return in finally": "def g(x, o):\n    try:\n        raise ValueError('lost')\n    finally:\n        {}\n        return v\nv = g(x, o)\nlog.append(v)",
    "return through finally": "def g(x, o):\n    try:\n        {}\n        return v\n    finally:\n        log.append('finally')\nv = g(x, o)\nlog.append(v)",
    "called in except": "def g(x, o):\n    {}\n    log.append(repr(sys.exc_info()[1]))\n    raise\n"
    "try:\n    try:\n        raise ValueError('first')\n    except ValueError:\n        g(x, o)\nexcept ValueError as e:\n    v = str(e)\nlog.append(v)",
    "over a generator": "def g():\n    for k in range(2):\n        log.append('before')\n        yield k\n        log.append('after')\nfor k in g():\n    {}\n    log.append((k, v))",
    "over a generator with try": "def g():\n    try:\n        yield 1\n        yield 2\n    finally:\n        log.append('closed')\nfor k in g():\n    {}\n    log.append((k, v))",
    "over a generator expression": "for k in (j * 2 for j in [1, 2]):\n    {}\n    log.append((k, v))",
    "generator left": "def g():\n    yield 1\n    yield 2\n    yield 3\nit = g()\nfirst = next(it)\n{}\nlog.append((v, next(it), list(it)))",
    "generator sent to": "def g():\n    got = yield 1\n    while got:\n        got = yield got + 1\nit = g()\nnext(it)\n{}\nlog.append((v, it.send(5), it.send(7)))",
    "generator thrown at": "def g():\n    try:\n        yield 1\n    except KeyError:\n        yield 'caught'\nit = g()\nnext(it)\n{}\nlog.append((v, it.throw(KeyError('in'))))",
    "generator closed": "def g():\n    try:\n        yield 1\n    finally:\n        log.append('closed')\nit = g()\nnext(it)\n{}\nit.close()\nlog.append(v)",
    "generator not started": "def g():\n    log.append('start')\n    yield 1\nit = g()\n{}\nlog.append((v, list(it)))",
    "generator in a list": "def g():\n    yield 1\n    yield 2\nkept = [g()]\nnext(kept[0])\n{}\nlog.append((v, list(kept[0])))",
    "in a generator": "def g(x, o):\n    yield 1\n    {}\n    yield v\n    yield x + 1\nfor v in g(x, o):\n    log.append(v)",
    "in a generator for list": "def g(x, o):\n    yield 1\n    {}\n    yield v\nv = list(g(x, o))\nlog.append(v)",
    "in a generator for next": "def g(x, o):\n    {}\n    yield v\n    yield x\nit = g(x, o)\nv = next(it)\nlog.append((v, next(it), next(it, 'end')))",
    "in a generator for zip": "def g(x, o):\n    yield 1\n    {}\n    yield v\nfor v in zip([5, 6, 7], g(x, o), 'ab'):\n    log.append(v)",
    "in a generator for enumerate": "def g(x, o):\n    yield 1\n    {}\n    yield v\nfor v in enumerate(g(x, o)):\n    log.append(v)",
    "in yield from": "def h(x, o):\n    {}\n    got = yield v\n    return 9\ndef g(x, o):\n    back = yield from h(x, o)\n    yield back\nfor v in g(x, o):\n    log.append(v)",
    "in a generator with finally": "def g(x, o):\n    try:\n        yield 1\n        {}\n        yield v\n    finally:\n        log.append('closed')\nfor v in g(x, o):\n    log.append(v)",
    "zip": "for a, b in zip([1, 2], (3, 4)):\n    {}\n    log.append((a, b, v))",
    "strict zip": "for a, b in zip([1, 2], (3, 4), strict=True):\n    {}\n    log.append((a, b, v))",
    "enumerate": "for a, b in enumerate('ab', 3):\n    {}\n    log.append((a, b, v))",
    "map": "for a in map(lambda q: q + 1, [1, 2]):\n    {}\n    log.append((a, v))",
    "filter": "for a in filter(lambda q: q > 1, [1, 2, 3]):\n    {}\n    log.append((a, v))",
    "reversed": "for a in reversed([1, 2]):\n    {}\n    log.append((a, v))",
    "items": "for a, b in dict(p=1, q=2).items():\n    {}\n    log.append((a, b, v))",
    "set": "for a in {3}:\n    {}\n    log.append((a, v))",
    "chain": "for a in itertools.chain([1], (2,)):\n    {}\n    log.append((a, v))",
    "islice": "for a in itertools.islice(itertools.count(), 2):\n    {}\n    log.append((a, v))",
    "product": "for a in itertools.product([1, 2], 'a'):\n    {}\n    log.append((a, v))",
    "user iterator": "for a in Counting(2):\n    {}\n    log.append((a, v))",
    "sequence protocol": "for a in Sequence([4, 5]):\n    {}\n    log.append((a, v))",
    "iter with a sentinel": "left = [0, 2, 1]\nfor a in iter(left.pop, 0):\n    {}\n    log.append((a, v))",
    "rows": "for row in torch.stack([x, x + 1]):\n    {}\n    log.append((row, v))",
    "function": "def g(x, o):\n    {}\n    return v, x + 1\nv = g(x, o)\nlog.append(v)",
    "lambda": "def h(x, o):\n    {}\n    return v\ng = lambda a, *, b: h(a, b)\nv = g(x, b=o)\nlog.append(v)",
    "star call": "def g(*a, k):\n    x, o = a\n    {}\n    return v, k\nv = g(*(x, o), **dict(k=1))\nlog.append(v)",
    "recursion": "def g(x, o, n):\n    if n:\n        return g(x + 1, o, n - 1), n\n    {}\n    return v\nv = g(x, o, 4)\nlog.append(v)",
    "nonlocal": "n = 0\ndef g(x, o):\n    nonlocal n\n    n += 1\n    {}\n    n += 10\n    return v\nv = g(x, o)\nlog.append((v, n))\nn = 5\nlog.append(n)",
    "shared cells": "n = 0\ndef add():\n    nonlocal n\n    n += 1\ndef get():\n    return n\nadd()\n{}\nadd()\nlog.append((v, get(), n))",
    "del": "a, b = 1, 2\ndel a\n{}\nlog.append((v, b))\ntry:\n    a\nexcept UnboundLocalError:\n    log.append('unbound')",
    "method of a class": "class C:\n    def g(self, x, o):\n        {}\n        return v\nv = C().g(x, o)\nlog.append(v)",
    "__init__": "v = Made(x, o, log).v\nlog.append(v)",
    "__new__": "v = New(x, o, log).v\nlog.append(v)",
    "__call__": "v = Special(x, o)()\nlog.append(v)",
    "property": "v = Special(x, o).prop\nlog.append(v)",
    "setter": "s = Special(x, o)\ns.prop = 1\nv = s.kept\nlog.append(v)",
    "__getattr__": "v = Special(x, o).missing\nlog.append(v)",
    "__getattr__ of a method": "v = Special(x, o).missing_call()\nlog.append(v)",
    "__setattr__": "s = Setting(x, o)\ns.v = 1\nv = s.v\nlog.append(v)",
    "descriptor": "v = Special(x, o).described\nlog.append(v)",
    "__add__": "v = Special(x, o) + 1\nlog.append(v)",
    "__radd__": "v = 1 + Special(x, o)\nlog.append(v)",
    "__iadd__": "v = Special(x, o)\nv += 1\nlog.append(v)",
    "__neg__": "v = -Special(x, o)\nlog.append(v)",
    "__lt__": "v = Special(x, o) < 1\nlog.append(v)",
    "__eq__": "v = Special(x, o) == 1\nlog.append(v)",
    "__getitem__": "v = Special(x, o)[1]\nlog.append(v)",
    "__setitem__": "s = Special(x, o)\ns[1] = 2\nv = s.kept\nlog.append(v)",
    "__delitem__": "s = Special(x, o)\ndel s[1]\nv = s.kept\nlog.append(v)",
    "__contains__": "v = 1 in Special(x, o), 1 not in Special(x, o)\nlog.append(v)",
    "__len__": "v = len(Special(x, o))\nlog.append(v)",
    "__bool__": "v = 'yes' if Special(x, o) else 'no'\nlog.append((v, not Special(x, o)))",
    "__bool__ in and": "v = Special(x, o) and 3\nlog.append(v)",
    "__iter__": "v = 0\nfor v in Special(x, o):\n    log.append(v)",
    "__next__": "v = 0\nfor v in Stepping(x, o):\n    log.append(v)",
    "list of __next__": "v = list(Stepping(x, o))\nlog.append(v)",
    "__str__": "v = str(Special(x, o))\nlog.append((v, f'{{Special(x, o)}}'))",
    "super": "v = Derived(x, o).method()\nlog.append(v)",
    "super in a closure": "v = Derived(x, o).closed()\nlog.append(v)",
    "classmethod": "v = Special.build(x, o)\nlog.append(v)",
    "partial": "v = functools.partial(helper, x)(o)\nlog.append(v)",
    "decorator": "v = decorated(x, o)\nlog.append(v)",
    "list of map": "v = list(map(helper, [x], [o]))\nlog.append(v)",
    "for of map": "for v in map(helper, [x, x + 1], [o, o]):\n    log.append(v)",
    "filter function": "v = list(filter(lambda k: helper(x, o) or k, [1, 2]))\nlog.append(v)",
    "sorted key": "v = sorted([2, 1], key=lambda k: (helper(x, o), k)[1])\nlog.append(v)",
    "sort key": "v = [2, 1]\nv.sort(key=lambda k: (helper(x, o), k)[1])\nlog.append(v)",
    "max key": "v = max([2, 1], key=lambda k: (helper(x, o), k)[1])\nlog.append(v)",
    "reduce": "v = functools.reduce(lambda a, b: (helper(x, o), a + b)[1], [1, 2, 3])\nlog.append(v)",
    "sum of a generator": "v = sum((helper(x, o), k)[1] for k in [1, 2])\nlog.append(v)",
    "any of a generator": "v = any((helper(x, o), k)[1] > 1 for k in [1, 2, 3])\nlog.append(v)",
    "all of a generator": "v = all((helper(x, o), k)[1] > 1 for k in [1, 2, 3])\nlog.append(v)",
    "tuple of a generator": "v = tuple((helper(x, o), k) for k in [1, 2])\nlog.append(v)",
    "dict of a generator": "v = dict((k, helper(x, o)) for k in [1, 2])\nlog.append(v)",
    "join of a generator": "v = '-'.join(str((helper(x, o), k)) for k in [1, 2])\nlog.append(v)",
    "extend by a generator": "v = [0]\nv.extend(helper(x, o) for k in [1, 2])\nlog.append(v)",
    "star of a generator": "v = [*(helper(x, o) for k in [1, 2])]\nlog.append(v)",
    "unpacked generator": "a, b = (helper(x, o) for k in [1, 2])\nv = a, b\nlog.append(v)",
    "list comprehension": "v = [helper(x, o) for k in [1, 2]]\nlog.append(v)",
    "dict comprehension": "v = {{k: helper(x, o) for k in [1, 2]}}\nlog.append(v)",
    "set comprehension": "v = {{k + 0 * len(str(helper(x, o))) for k in [1, 2]}}\nlog.append(v)",
    "nested comprehension": "v = [[helper(x, o) for j in [1]] for k in [1, 2] if helper(x, o) != 'never']\nlog.append(v)",
    "module": "v = Layer(log)(x, o)\nlog.append(v)",
    "coroutine": "async def g(x, o):\n    {}\n    return v\nasync def h(x, o):\n    return await g(x, o)\n"
    "c = h(x, o)\ntry:\n    c.send(None)\nexcept StopIteration as stop:\n    v = stop.value\nlog.append(v)",
    "class body": "class C:\n    a = helper(x, o)\n    b = 2\nv = C.a, C.b\nlog.append(v)",
    "match": "match [1, {{'k': 2}}]:\n    case [1, {{'k': n}}] if n:\n        {}\n        log.append((n, v))",
    "walrus": "log.append((y := x + 1, helper(x, o), y * 2))\nv = 0",
    "chained comparison": "v = 0 < len(str(helper(x, o))) < 100\nlog.append(v)",
}  # fmt: skip

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
        body = "\n".join(_fitted(line, step) for line in block.split("\n")).replace("{{", "{").replace("}}", "}")
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
    """Every block with two steps that suit every block, and every step in a plain block, a loop and handlers."""
    for block in BLOCKS:
        for step in STEPS:
            yield Program(block, step)
