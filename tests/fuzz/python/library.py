"""What every random program has at module level: `SOURCE` is text, made anew for each side that runs it.

`VARIANTS` are pieces of which each program has one, so that classes differ between programs.
"""

from __future__ import annotations

import random

HEAD = '''
import contextlib, copy, dataclasses, functools, io, itertools, json, logging, math, operator, warnings, zlib
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from itertools import filterfalse
import torch
import dovetail

logger = logging.getLogger("fuzzed")
G_COUNT = 0
G_LIST = [1]
G_DICT = {"a": 1}
G_TENSOR = torch.ones(4)
G_SEEN = []

class Boom(Exception):
    pass

class Bang(Boom, ValueError):
    def __init__(self, code=7, *more):
        super().__init__(code, *more)
        self.code = code

    def __str__(self):
        return f"bang {self.code}"

class Pair(namedtuple("Pair", "x n tag", defaults=("none",))):
    __slots__ = ()

    @property
    def double(self):
        return self.x * 2

@dataclasses.dataclass
class Record:
    a: torch.Tensor
    n: int = 2
    tags: list = dataclasses.field(default_factory=list)

    __eq__ = lambda self, other: isinstance(other, Record) and self.n == other.n and self.tags == other.tags

class Marked(Record):
    def __init__(self, a, n=1):
        super().__init__(a, n, ["marked"])

class Steps:
    def __init__(self, stop):
        self.at, self.stop = 0, stop

    def __iter__(self):
        return self

    def __next__(self):
        if self.at >= self.stop:
            raise StopIteration
        self.at += 1
        return self.at

class Ctx:
    def __init__(self, log, n, swallow=False):
        self.log, self.n, self.swallow = log, n, swallow

    def __enter__(self):
        self.log.append(self.n)
        return self.n

    def __exit__(self, kind, error, trace):
        self.log.append(-1 if kind is None else -2)
        return self.swallow and kind is not None and issubclass(kind, Exception)

@contextmanager
def managed(log, swallow=False):
    log.append(10)
    try:
        yield len(log)
    except Boom:
        log.append(11)
        if not swallow:
            raise
    finally:
        log.append(12)

@contextmanager
def redirected(log):
    with torch.no_grad():
        yield log
    log.append(5)

def numbers(n):
    total = 0
    for k in range(n):
        sent = yield k + total
        if sent is not None:
            total += sent
    return total

def chained(n):
    got = yield from numbers(n)
    yield got
    yield from (v for v in [1, 2])

def drain(generator):
    total = 0
    try:
        total += next(generator)
        while True:
            total += generator.send(2)
    except StopIteration as stop:
        return total * 10 + (stop.value or 0)

def drain_all(n):
    generator = numbers(n)
    out = [next(generator, None)]
    out.extend(generator)
    generator.close()
    return [v for v in out if v is not None]

def zip_first(a, b):
    for x, _ in zip(a, b):
        yield x

def use(iterator):
    for k, _ in enumerate(iterator):
        if k == 1:
            break
    else:
        G_LIST.append(-7)

def scale(t, by=2.0):
    return t * by

def logged(fn):
    @functools.wraps(fn)
    def inner(*args, **kwargs):
        G_SEEN.append(fn.__name__)
        return fn(*args, **kwargs)
    return inner

@logged
def twice(t):
    """Doubles."""
    return t + t

def spread(*tensors, base, **counts):
    out = base
    for t in tensors[:3]:
        out = out + t
    return out + sum(counts.values())

def power(t, n):
    return t if n <= 0 else power(t, min(n, 4) - 1) * 0.5 + 1

def fact(n):
    return 1 if n < 2 else n * fact(n - 1)

def maker(t):
    calls = 0

    def inner(by):
        nonlocal calls, t
        calls += 1
        t = t * by
        return t + calls
    return inner

def bump(by=1):
    global G_COUNT
    G_COUNT = (G_COUNT + by) % 100
    return G_COUNT

def record(value):
    G_SEEN.append(value)

def remember(t):
    G_DICT["t"] = t

def counted(values):
    global G_COUNT
    for v in values:
        if v < 0:
            continue
        if v > 6:
            break
        G_COUNT += v
    else:
        G_COUNT += 1
    G_COUNT %= 100
    return G_COUNT

def first(values, *rest):
    try:
        return values[0]
    except IndexError:
        return -5
    finally:
        G_SEEN.append(len(rest))

def attempt(t, n):
    try:
        if n > 2:
            raise Boom(n)
        if n < 0:
            raise Bang(n)
        return t + n
    except Bang as bang:
        return t - bang.code
    except Boom as boom:
        G_SEEN.append(boom.args[0])
        t = t * 2
    else:
        t = t * 3
    finally:
        G_SEEN.append("tried")
    return t

def walk(node):
    for _ in range(4):
        if node is None:
            return
        node.n += 1
        node = node.child

def fill(tensors, t):
    for k, _ in enumerate(tensors):
        tensors[k] = tensors[k] + t

def shuffle(table):
    for k in sorted(table, reverse=True):
        table[k] = table.pop(k)

def note(values, n, *, seen=G_SEEN, cache={}):
    cache[n] = cache.get(n, 0) + 1
    values.append(cache[n])
    seen.append(n)

def describe(value):
    match value:
        case 0:
            return "zero"
        case int(n) if n > 2:
            return ("many", n)
        case int():
            return ["some"]
        case _:
            return None

def cls_total():
    return Node.made + Leaf.made

@functools.lru_cache(maxsize=None)
def cached(n):
    return n * n

def echo(value):
    return json.loads(json.dumps(value))

@dovetail.disable
def native(t):
    return t * 2 + 1

@dovetail.disable
def disabled_len(values):
    return len(values)

@dovetail.disable
def disabled_effect(values):
    values.append(99)

def opaque(t):
    zlib.crc32(b"x")
    return t

def graph_break():
    zlib.adler32(b"y")

@contextmanager
def guarded(node):
    before = node.n
    node.n = -1
    try:
        yield node
    finally:
        node.n = before
'''

NODE = '''
class Node:
    made = 0
    LIMIT = 3

    def __init__(self, w, n, items=None, child=None):
        self.w, self.n = w, n
        self.items = [] if items is None else items
        self.child = child
        {init}

    def __call__(self, t):
        return self.w + t * self.n

    def __add__(self, other):
        if not isinstance(other, Node):
            return NotImplemented
        return type(self)(self.w + other.w, self.n + other.n)

    def __radd__(self, other):
        return Node(self.w + other, self.n)

    def __mul__(self, by):
        return Node(self.w * by, self.n, self.items)

    def __neg__(self):
        return self.__class__(-self.w, -self.n)

    def __eq__(self, other):
        return isinstance(other, Node) and self.n == other.n

    __hash__ = object.__hash__

    def __lt__(self, other):
        return self.n < other.n

    def __gt__(self, other):
        return self.n > other.n

    def __getitem__(self, k):
        if not 0 <= k < len(self.items):
            raise IndexError(k)
        return self.items[k]

    def __setitem__(self, k, v):
        self.items[k % 3 :] = [v]

    def __contains__(self, v):
        return v in self.items

    def __repr__(self):
        return f"{{type(self).__name__}}({{self.n}}, {{self.items}})"

    {extra}

    @property
    def size(self):
        return len(self.items) + self.n

    @size.setter
    def size(self, value):
        if value > 8:
            raise ValueError(f"size {{value}}")
        self.n = value - len(self.items)

    @functools.cached_property
    def scaled(self):
        return self.w * self.n

    @property
    def label(self):
        return f"{{self.kind(0)}}:{{self.n}}"

    @classmethod
    def make(cls, w):
        cls.made += 1
        return cls(w, cls.LIMIT)

    @staticmethod
    def empty():
        return Node(torch.zeros(4), 0)

    def kind(self, n):
        return n + 1

    def grow(self, n):
        self.items.append(n)
        self.n = max(self.n, n)
        return self

    def grown(self, n):
        return self.grow(n).grow(n + 1)

    def total(self, t):
        node, depth = self, 0
        while node is not None and depth < 3:
            t = t + node.w
            node, depth = node.child, depth + 1
        return t

    def child_or(self, t):
        return t if self.child is None else self.child.w

    def describe(self, text):
        return f"{{text}}/{{self!r}}"

class Leaf(Node):
    LIMIT = 5

    def __init__(self, w, n, *args, **kwargs):
        super().__init__(w, n, *args, **kwargs)
        {leaf_init}

    def kind(self, n):
        return super().kind(n) * 2

    def grow(self, n):
        if n > 6:
            raise Bang(n)
        return super().grow(n)

    def __add__(self, other):
        result = super().__add__(other)
        if result is not NotImplemented:
            result.items.append(1)
        return result

    {leaf_extra}

class Odd(Leaf, Steps):
    @property
    def size(self):
        return -1

    def kind(self, n):
        return [super().kind(n)][0] + len(self.__class__.__mro__)

G_NODE = Node(torch.ones(4), 1)
'''

INIT = ("pass", "Node.made += 1", "G_SEEN.append(n)", "self.w = w * 1", "self.kept = [self.n, self.items]")
LEAF_INIT = ("pass", "self.n = n + 1", "self.items.append(n)", "self.extra = self.kind(n)", "del self.child; self.child = None")
# ruff: noqa: E501
EXTRA = (
    "def __len__(self):\n        return len(self.items)",
    "def __bool__(self):\n        return self.n > 0",
    "def __iter__(self):\n        yield from self.items\n        yield self.n",
    "def __iadd__(self, other):\n        self.n += other.n\n        return self",
    "def __getattr__(self, name):\n        if name.startswith('_'):\n            raise AttributeError(name)\n        return len(name)",
    "def __setattr__(self, name, value):\n        object.__setattr__(self, name, value)\n        if name == 'n':\n            "
    "object.__setattr__(self, 'writes', self.__dict__.get('writes', 0) + 1)",
    "def __delattr__(self, name):\n        G_SEEN.append(name)\n        super().__delattr__(name)",
    "missing = property(lambda self: self.n * 2)",
    "def __getattribute__(self, name):\n        return object.__getattribute__(self, name)",
    "class Inner:\n        depth = 2\n    missing = 4",
)  # fmt: skip


def library(rng: random.Random) -> str:
    """The module-level text of one program."""
    node = NODE.format(
        init=rng.choice(INIT), leaf_init=rng.choice(LEAF_INIT),
        extra="\n\n    ".join(rng.sample(EXTRA, rng.randint(0, 3))),
        leaf_extra="\n\n    ".join(rng.sample(EXTRA, rng.randint(0, 1))),
    )  # fmt: skip
    return HEAD + node
