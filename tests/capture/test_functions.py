"""One-line functions, captured and compared with eager. Each case is called with two 4x4 tensors."""

# ruff: noqa: E501, E704, E721, F821, PLE0643, RUF059  one case is one line
from __future__ import annotations

import collections
import contextlib
import dataclasses
import enum
import functools
import itertools
import math
import operator
import typing

import pytest
import torch
import torch.nn.functional as F

from tests.capture.harness import check

CASES = {}
SCALE = 3
TABLE = {"a": 1, "b": 2.5}
NAMES = ["x", "y"]


def case(function):
    """Register a function; two functions of one name would hide each other."""
    assert function.__name__ not in CASES, function.__name__
    CASES[function.__name__] = function
    return function


# fmt: off
class Color(enum.Enum):
    RED = 1
    BLUE = 2

Point = collections.namedtuple("Point", "x y")

class Pair(typing.NamedTuple):
    first: torch.Tensor
    second: int = 3

@dataclasses.dataclass
class Result:
    value: torch.Tensor
    name: str = "r"
    extra: list = dataclasses.field(default_factory=list)

    def __post_init__(self):
        self.doubled = self.value * 2

@dataclasses.dataclass(frozen=True)
class Frozen:
    n: int
    def scaled(self, t): return t * self.n

class Box:
    shared = 7
    def __init__(self, t): self.t = t
    @property
    def twice(self): return self.t * 2
    @classmethod
    def make(cls, t): return cls(t + 1)
    @staticmethod
    def help(t): return t - 1
    def __call__(self, y): return self.t + y
    def __getitem__(self, k): return self.t[k]
    def __len__(self): return 5
    def __contains__(self, k): return k == 2
    def __iter__(self): return iter([self.t, self.t + 1])
    def __add__(self, other): return Box(self.t + getattr(other, "t", other))
    def __radd__(self, other): return Box(other - self.t)
    def __eq__(self, other): return isinstance(other, Box)
    def __hash__(self): return 11
    def __enter__(self): self.t = self.t + 10; return self
    def __exit__(self, *error): self.t = self.t * 3
    def __bool__(self): return False
    def __getattr__(self, name):
        if name.startswith("magic"): return len(name)
        raise AttributeError(name)

class Child(Box):
    def __init__(self, t, n=2):
        super().__init__(t)
        self.n = n
    @property
    def twice(self): return super().twice + self.n
    def __call__(self, y): return super().__call__(y) * 2

def outer(a, *args, k=1, **kwargs): return a * k + sum(args) + sum(kwargs.values())
def gen(n):
    for i in range(n): yield i
    return n
def delegating(n):
    got = yield from gen(n)
    yield got * 100
def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
def decorate(f):
    @functools.wraps(f)
    def wrapper(*args, **kwargs): return f(*args, **kwargs) + 1
    return wrapper
@decorate
def decorated(x): return x * 5
@torch.no_grad()
def ungraded(x): return x * 2
@contextlib.contextmanager
def managed(n):
    yield n + 1
@functools.lru_cache
def cached(n): return n + 1

# ------------------------------------------------------------ arithmetic and control flow
@case
def add(x, y): return x + y
@case
def radd(x, y): return 1 + x - 2 * y
@case
def power(x, y): return x ** 2 + 2 ** y
@case
def negate(x, y): return -x, +y, abs(x)
@case
def matmul(x, y): return x @ y
@case
def compare_chain(x, y): return (x < y) & (x > 0) | (y == 0)
@case
def augmented(x, y):
    z = x * 1
    z += y; z *= 2; z -= 1; z /= 3
    return z
@case
def in_place_input(x, y):
    x += y
    return x
@case
def in_place_method(x, y): return x.add_(y).mul_(2)
@case
def setitem(x, y):
    x[0] = y[1]; x[1:3, 0] = 5
    return x * 2
@case
def setitem_of_all_or_nothing(x, y):
    x = x * 1; x[x.sum() > 0] = 5; x[x.sum() < 0] = 0.5; m = x.max(); m[m > 1] = 7.5
    return x * 2, m
@case
def loop(x, y):
    for i in range(4): x = x + i * y
    return x
@case
def while_loop(x, y):
    n = 0
    while n < 3: x = x * 2; n += 1
    else: x = x + 1
    return x
@case
def loop_break(x, y):
    for i in range(10):
        if i == 2: continue
        if i > 4: break
        x = x + i
    else: x = x * 100
    return x
@case
def conditional(x, y): return x if x.shape[0] == 4 else y
@case
def boolean_operators(x, y): return x * (0 or 3) + (1 and 2) + (not 0)
@case
def none_checks(x, y, z=None): return x + (1 if z is None else 2) + (0 if z is not None else 5)
@case
def chained_comparison(x, y): return x + 1 if 1 < x.dim() <= 2 else y
@case
def walrus(x, y): return x + n if (n := x.size(0)) > 2 else y
@case
def ternary_nested(x, y): return x if False else y if False else x + y
@case
def constants(x, y): return 1, 2.5, "s", None, True, ..., b"b", 1j, (1, (2,)), frozenset({1})
@case
def float_specials(x, y): return x * float("inf"), float("-inf"), math.pi
@case
def integer_arithmetic(x, y): return x + 7 // 2 + 7 % 4 + (1 << 3) + (6 & 3) + (6 | 3) + (6 ^ 3) + ~1 + 2 ** 3
@case
def math_functions(x, y): return x * math.sqrt(4) + math.floor(2.7) + math.prod([1, 2, 3]) + math.gcd(12, 18)
@case
def round_divmod(x, y): return x * round(2.567, 1), divmod(7, 2), pow(2, 3, 5), round(7.5)
@case
def shapes(x, y):
    b, c = x.shape
    return x.view(b * c), x.reshape(-1), x.size(), x.shape[-1], x.numel(), x.dim(), x.ndim, len(x)
@case
def metadata(x, y): return x.dtype, x.device, x.is_contiguous(), x.stride(), x.requires_grad, x.layout, x.element_size(), x.type()
@case
def dtype_conversion(x, y): return x.to(torch.float64), x.half().dtype, x.int().to(y.dtype), x.type_as(y), x.long()
@case
def device_use(x, y): return torch.zeros(3, device=x.device) + torch.ones(3, dtype=y.dtype), torch.device("cpu").type
@case
def indexing(x, y): return x[0], x[:, 1], x[..., -1], x[None], x[1:3, ::2], x[x.shape[0] - 1][1]
@case
def tensor_index(x, y): return x[torch.tensor([0, 2])], x[:, torch.arange(2)]
@case
def masks(x, y): return torch.where(x > 0, x, y), x.masked_fill(x < 0, 0.0)
@case
def unpack_tensor(x, y):
    a, b, c, d = x
    return a + b + c + d
@case
def iterate_tensor(x, y): return [r.sum() for r in x]
@case
def split_chunk(x, y):
    a, b = x.chunk(2, dim=-1)
    c, d = torch.split(y, [1, 3])
    return a, b, c, d, x.unbind(0)[1]
@case
def multi_output(x, y):
    v, i = x.max(dim=1)
    m = torch.max(y, dim=0)
    return v, i, m.values, m.indices, m[0]
@case
def return_named(x, y): return x.max(dim=1)
@case
def factories(x, y): return torch.zeros_like(x) + torch.full((4, 4), 2.0) + torch.eye(4) + torch.arange(4) + torch.linspace(0, 1, 4)
@case
def new_factories(x, y): return x.new_zeros(2, 3), x.new_full((2,), 7), x.new_tensor([1.0, 2.0])
@case
def tensor_literal(x, y): return x + torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.tensor(3)
@case
def cat_stack(x, y): return torch.cat([x, y], dim=1), torch.stack((x, y)), torch.cat([t for t in (x, y)])
@case
def functional(x, y): return F.relu(x), F.softmax(y, dim=-1), F.gelu(x), F.layer_norm(x, (4,)), F.silu(x, inplace=False)
@case
def functional_pools(x, y): return F.max_pool2d(x[None, None], 2), F.adaptive_avg_pool2d(x[None, None], 1), F.interpolate(x[None, None], scale_factor=2)
@case
def functional_linear(x, y): return F.linear(x, y), F.dropout(x, 0.5, training=False), F.normalize(x, dim=-1), F.pad(x, (1, 1)), F.one_hot(torch.arange(3), 5)
@case
def einsum(x, y): return torch.einsum("ij,jk->ik", x, y)
@case
def attention(x, y): return F.scaled_dot_product_attention(x[None, None], y[None, None], x[None, None])
@case
def transposes(x, y): return x.T, x.mT, x.transpose(0, 1), x.permute(1, 0).contiguous(), x.t()
@case
def detach_clone(x, y): return x.detach() + y.clone(), x.data * 2
@case
def linalg(x, y): return torch.linalg.norm(x), torch.special.expit(x), torch.fft.rfft(x)
@case
def aten_op(x, y): return torch.ops.aten.add.Tensor(x, y), torch.ops.aten.mul(x, y)
@case
def unbound_method(x, y): return torch.Tensor.add(x, y), torch.Tensor.relu(x)
@case
def out_argument(x, y):
    z = torch.empty(4, 4)
    torch.add(x, y, out=z)
    return z
# ------------------------------------------------------------ sequences
@case
def lists(x, y):
    a = [x, y]; a.append(x + y); a.extend([1, 2]); a.insert(0, "z"); a += [3]; a.reverse()
    return a, a.pop(), len(a), a[1:3], a[-1], a.index(2), 2 in a, [1, 2, 1].count(1)
@case
def list_operations(x, y): return [1, 2] + [3], [0] * 3, 2 * [x], [1, 2] == [1, 2], [1, 2] < [1, 3], [[1], [2]][1][0]
@case
def list_deletion(x, y):
    a = [1, 2, 3, 4, 5]
    del a[0]; del a[1:3]; a.remove(5); a[0] = x; a[1:] = [7, 8]; b = a.copy(); b.clear()
    return a, b
@case
def sort_list(x, y):
    a = [3, 1, 2]; a.sort(reverse=True); b = sorted(["bb", "a", "ccc"], key=len); a.sort(key=lambda v: v % 3)
    return a, b, sorted((2, 1)), sorted({"q": 1, "c": 2})
@case
def tuples(x, y): return (x, y)[1], (1, 2) + (3,), (1,) * 3, (1, 2) < (2,), (x, y).index(x) if False else 0, ((1, 2) == (1, 2))
@case
def star_unpack(x, y):
    a, *b, c = [1, 2, 3, 4]
    (d, e), f = (5, 6), 7
    return x + a + c + d + e + f, b, [*b, *b], (*b, 9), {**TABLE, "c": 1}, {*b}
@case
def nested_structures(x, y): return {"a": [x, {"b": (y, None)}], "c": (x + 1,)}
@case
def same_object_twice(x, y):
    z = x + y
    a = [z]
    return z, z, a, a
@case
def passthrough(x, y): return x, (y, x)
@case
def comprehensions(x, y): return [i * x for i in range(3) if i], {k: v + 1 for k, v in TABLE.items()}, {i % 2 for i in range(5)}, sum(i for i in range(4))
@case
def nested_comprehension(x, y): return [[i + j for j in range(2)] for i in range(2)], [a for b in [[1], [2, 3]] for a in b]
@case
def closure_in_comprehension(x, y): return [f() for f in [lambda i=i: i + 1 for i in range(3)]]
@case
def ranges(x, y): return list(range(5)), range(3)[1], len(range(0, 10, 3)), list(range(4, 0, -2)), 3 in range(5), range(5)[1:3]
@case
def enumerate_zip(x, y): return [(i, a, b) for i, (a, b) in enumerate(zip([1, 2], "ab"), start=1)], list(zip()), dict(zip("ab", (x, y)))
@case
def reversed_values(x, y): return list(reversed([1, 2, 3])), [i for i in reversed(range(3))], "abc"[::-1], list(reversed(dict(a=1, b=2)))
@case
def map_filter(x, y): return list(map(lambda v: v + 1, [1, 2])), list(filter(None, [0, 1, 2])), list(map(operator.add, [1, 2], [3, 4])), sum(map(int, "123"))
@case
def min_max(x, y): return min(1, 2), max([3, 4]), max("abc", key=lambda c: -ord(c)), min([], default=5), sum([1, 2], 10), any([0, 1]), all([])
@case
def iterators(x, y):
    it = iter([1, 2, 3])
    first = next(it)
    return first, list(it), next(it, "end")
@case
def sum_tensors(x, y): return sum([x, y, x]), sum((x * i for i in range(3)), y)
@case
def slices(x, y):
    s = slice(1, 3)
    return x[s], [1, 2, 3, 4][s], s.start, "hello"[1:-1], (1, 2, 3)[::2]
# ------------------------------------------------------------ mappings and sets
@case
def dicts(x, y):
    d = {"a": x}; d["b"] = y; d.update(c=1); d.setdefault("d", []).append(2); e = d.pop("c"); d |= {"z": 0}
    return d, e, list(d), list(d.values())[0], d.get("q"), d.get("a") is x, "a" in d, len(d), d.items() is None
@case
def dict_iteration(x, y): return [k for k in TABLE], [(k, v) for k, v in TABLE.items()], dict(sorted(TABLE.items(), reverse=True)), dict([("a", 1)]), dict(a=x)
@case
def dict_keys(x, y): return {1: "a", (1, 2): "b", None: "c", Color.RED: "d", int: 3}[(1, 2)], {True: 1}[1], dict.fromkeys("ab", 0), {**{"a": 1}}
@case
def dict_delete(x, y):
    d = dict(TABLE)
    del d["a"]; k = d.popitem(); d.clear()
    return d, k
@case
def ordered(x, y):
    d = collections.OrderedDict(a=1, b=2); d.move_to_end("a"); d["c"] = x
    return d, list(d)
@case
def default_dict(x, y):
    d = collections.defaultdict(list); d["a"].append(x); n = collections.defaultdict(int); n["k"] += 2
    return d["a"], dict(n), "zz" in d
@case
def deques(x, y):
    d = collections.deque([1, 2, 3], maxlen=3); d.append(4); d.appendleft(0); d.rotate(1)
    return list(d), d.popleft(), d[-1], len(d)
@case
def counters(x, y): return dict(collections.Counter("abca")), collections.Counter([1, 1, 2])[1]
@case
def sets(x, y):
    s = {1, 2}; s.add(3); s |= {4}; s.discard(1); s.update([7])
    return s, s & {2, 9}, s - {2}, s ^ {2, 100}, 3 in s, len(s), {1} <= s, frozenset([1]) | {2}, s.isdisjoint({55})
@case
def key_views(x, y): return TABLE.keys() == {"a", "b"}, TABLE.keys() & {"a"}, list(TABLE.keys()), "a" in TABLE.keys(), len(TABLE.items())
# ------------------------------------------------------------ strings
@case
def strings(x, y): return "a" + "b" * 2, "a,b".split(","), "-".join(["x", "y"]), "Abc".lower().startswith("ab"), "abc".find("c"), "x" in "xyz", "%s-%d" % ("a", 1), "{:>4}|{x}".format(1, x=2)
@case
def f_strings(x, y): return f"{1}-{2.5:.3f}-{'s'!r}-{x.shape}-{x.dtype}-{SCALE=}-{3:>{5}}"
@case
def string_methods(x, y): return "a.b.c".rsplit(".", 1), "abc".replace("b", "x").upper().strip("A"), "1".isdigit(), ord("a"), chr(98), str(12), repr("q"), int("42"), float("1.5"), "abc".encode()
# ------------------------------------------------------------ functions
@case
def calls(x, y): return outer(x, 1, 2, k=3, z=4), outer(*[x, 1], **{"k": 2}), outer(x)
@case
def lambdas(x, y): return (lambda a, b=2, *, c=3: a * b + c)(x, c=1)
@case
def closures(x, y):
    n = 2
    def inner(z):
        nonlocal n
        n += 1
        return z * n + x
    return inner(y), inner(y), n
@case
def nested_functions(x, y):
    def a(v):
        def b(w): return w + v
        return b(v) * 2
    return a(x)
@case
def returned_closure(x, y):
    def scale(k): return lambda t: t * k
    return scale(3)(x)
@case
def recursion(x, y): return x * fib(7)
@case
def mutable_default(x, y):
    def f(v, acc=[]): acc.append(v); return len(acc)
    return f(1), f(2)
@case
def decorators(x, y): return decorated(x), ungraded(y), cached(3)
@case
def partials(x, y):
    f = functools.partial(outer, x, k=2)
    return f(1), functools.partial(f, 5)(), f.func is outer, functools.partial(f, 5, k=3).func is outer, f.keywords["k"]
@case
def reduce_function(x, y): return functools.reduce(lambda a, b: a + b, [x, y, x]), functools.reduce(operator.mul, [1, 2, 3], 4)
@case
def operators(x, y): return operator.add(x, y), operator.itemgetter(1)([1, 2]), operator.attrgetter("real")(3), operator.neg(x), operator.getitem([5, 6], 1), operator.mul(2, 3), operator.contains([1], 1)
@case
def itertools_basics(x, y): return list(itertools.chain([1], (2,))), list(itertools.product([1, 2], "ab")), list(itertools.islice(itertools.count(5), 3)), list(itertools.accumulate([1, 2, 3])), list(itertools.repeat(1, 2)), list(itertools.zip_longest([1, 2], [3])), list(itertools.combinations([1, 2, 3], 2)), list(itertools.chain.from_iterable([[1], [2]])), list(itertools.pairwise([1, 2, 3])), list(itertools.starmap(pow, [(2, 3)]))
@case
def generators(x, y): return list(gen(3)), [*delegating(2)], sum(g * x for g in gen(3)), tuple(i for i in gen(2))
@case
def generator_send(x, y):
    def echo():
        got = yield 1
        while got is not None: got = yield got * 2
    g = echo()
    return next(g), g.send(5), g.send(x), next(g, "done")
@case
def generator_close(x, y):
    log = []
    def g():
        try:
            yield 1
        finally:
            log.append("closed")
    it = g(); next(it); it.close()
    return log
@case
def builtin_types(x, y): return type(x) is torch.Tensor, type(1), isinstance(x, torch.Tensor), isinstance(1, (int, str)), issubclass(bool, int), callable(outer), isinstance([], list | tuple), isinstance(x, (list, tuple)), type([]) == list
@case
def getattr_calls(x, y): return x.shape, getattr(x, "nothing", 3), hasattr(x, "relu"), hasattr(x, "qqq"), torch.sin(x), x.add(y)
@case
def globals_read(x, y): return x * SCALE + TABLE["b"] + len(NAMES), NAMES[0]
@case
def identity(x, y): return x is x, x is y, [] == [], None is None, torch.float32 is x.dtype, x is not y
@case
def assertions(x, y):
    assert x.shape == (4, 4), "bad"
    assert isinstance(y, torch.Tensor)
    return x
@case
def imports(x, y):
    import math as m

    import torch.nn.functional
    from torch.nn import functional as fn
    return fn.relu(x) * m.pi, torch.nn.functional.relu(y)
# ------------------------------------------------------------ classes
@case
def user_class(x, y):
    b = Box(x)
    return b(y), b.twice, b[0], len(b), 2 in b, b.shared, Box.help(x), Box.make(y).t, b.magic, list(b)
@case
def user_operators(x, y): return (Box(x) + Box(y)).t, (Box(x) + 1).t, (3 + Box(x)).t, Box(x) == Box(y), Box(x) != 3, bool(Box(x)), {Box(x): 1}[Box(y)]
@case
def subclass(x, y):
    c = Child(x, n=5)
    return c.twice, c(y), isinstance(c, Box), type(c).__name__, c.__class__ is Child, c.__dict__["n"], vars(c)["n"]
@case
def returned_object(x, y):
    r = Result(x, extra=[1])
    return r.value, r.doubled, r.extra, r.name, Frozen(3).scaled(y), dataclasses.replace(Frozen(1), n=2).n
@case
def dataclass_fields(x, y): return [f.name for f in dataclasses.fields(Result)], dataclasses.is_dataclass(Result)
@case
def object_attributes(x, y):
    b = Box(x)
    b.new = 5; setattr(b, "other", y); del b.new
    return hasattr(b, "new"), b.other, getattr(b, "gone", None) if False else 1
@case
def named_tuples(x, y):
    p = Point(x, y=1)
    a, b = p
    return p, p.x, p[1], p._replace(y=2).y, p._asdict()["y"], Pair(x), Pair(first=y, second=9).second, p._fields, isinstance(p, tuple)
@case
def enums(x, y): return Color.RED, Color["BLUE"].value, Color(1).name, Color.RED == Color.RED, Color.RED is Color.BLUE, [c.value for c in Color], Color.RED in (Color.RED,)
@case
def with_statement(x, y):
    with Box(x) as b:
        inside = b.t
    return inside, b.t
@case
def context_managers(x, y):
    with managed(1) as n, contextlib.nullcontext(5) as m:
        x = x + n + m
    with contextlib.suppress(KeyError):
        {}["a"]
    return x
@case
def grad_contexts(x, y):
    with torch.no_grad():
        a = x * 2; inside = torch.is_grad_enabled()
    with torch.enable_grad(): b = y + 1
    with torch.set_grad_enabled(False): c = x + y
    return a, b.detach(), c, inside, torch.is_grad_enabled()
@case
def autocast(x, y):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        z = x @ y
    return z, z.dtype
# ------------------------------------------------------------ exceptions
@case
def caught(x, y):
    try:
        {}["missing"]
    except KeyError as e:
        return x + 1, str(e), e.args
@case
def caught_by_base(x, y):
    try: raise ValueError("bad", 3)
    except (TypeError, Exception) as e: return type(e).__name__, e.args, x
@case
def finally_runs(x, y):
    log = []
    try:
        try: log.append(1); raise RuntimeError
        finally: log.append(2)
    except RuntimeError: log.append(3)
    else: log.append(4)
    finally: log.append(5)
    return log
@case
def raised_in_call(x, y):
    def f(v):
        if v > 1: raise LookupError("no")
        return v
    try: return f(1) + f(2)
    except LookupError: return x
@case
def reraised(x, y):
    try:
        try: int("z")
        except ValueError: raise
    except ValueError as e: return x * 2, "invalid" in str(e)
@case
def raised_from(x, y):
    try:
        try: [][1]
        except IndexError as e: raise RuntimeError("outer") from e
    except RuntimeError as e: return isinstance(e.__cause__, IndexError)
@case
def return_in_finally(x, y):
    def f():
        for i in range(3):
            try: continue
            finally: pass
        try: return 1
        finally: log.append(9)
    log = []
    return f(), log
@case
def tensor_errors(x, y):
    try: return x @ torch.zeros(7, 7)
    except RuntimeError: return x
@case
def attribute_errors(x, y):
    try: return x.nope
    except AttributeError: return y
@case
def custom_exception(x, y):
    class_ = type(None)
    try: raise KeyError(class_)
    except KeyError: return x
# ------------------------------------------------------------ match
@case
def match_values(x, y):
    out = []
    for v in (1, "s", (1, 2), {"k": 3, "z": 0}, Point(1, 2), [], Color.RED, 2.5):
        match v:
            case 1: out.append("one")
            case str() as s: out.append(s)
            case Point(x=a, y=b): out.append(a + b)
            case (a, b): out.append(a * 10 + b)
            case {"k": n, **rest}: out.append((n, rest))
            case []: out.append("empty")
            case Color.RED | Color.BLUE: out.append("color")
            case float(f) if f > 2: out.append(f)
    return out
# ------------------------------------------------------------ torch in Python
@case
def compiler_queries(x, y): return torch.jit.is_scripting(), torch.is_tensor(x), torch.is_floating_point(x), torch.is_grad_enabled()
@case
def dtype_queries(x, y): return x.dtype.is_floating_point, torch.finfo(x.dtype).min, torch.iinfo(torch.int32).max, torch.float16.itemsize, torch.promote_types(torch.int8, torch.float32), torch.get_default_dtype()
@case
def size_methods(x, y): return x.shape.numel(), x.shape + (3,), x.shape[:-1] + (2, 2), torch.Size([1, 2]), (*x.shape[:-1], -1), x.shape == torch.Size([4, 4]), list(x.shape), x.size()[0]
@case
def typing_no_ops(x, y):
    z: torch.Tensor = typing.cast(torch.Tensor, x)
    return z
@case
def meshgrid(x, y): return torch.meshgrid(torch.arange(2), torch.arange(3), indexing="ij"), torch.broadcast_tensors(x, y[0])
@case
def copies(x, y):
    import copy
    d = {"a": [1, x]}
    e = copy.copy(d); f = copy.deepcopy(d)
    e["a"].append(2)
    return d, e, f
@case
def rotary(x, y):
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    return torch.cat((-b, a), dim=-1) * y.cos() + x * y.sin()
@case
def causal_mask(x, y):
    n = x.shape[0]
    mask = torch.full((n, n), torch.finfo(x.dtype).min).triu(1)
    return (x @ y.T / math.sqrt(n) + mask).softmax(-1) @ y
@case
def bool_of_shape(x, y): return bool(x.shape), bool([]), bool(""), bool({}), not x.shape[0]
@case
def delete_local(x, y):
    z = x + 1
    del z
    try: return z
    except UnboundLocalError: return y
@case
def global_store(x, y):
    global SCALE
    old = SCALE
    SCALE = 4; new = SCALE; SCALE = old
    return x * new
# fmt: on


@pytest.mark.parametrize("name", sorted(CASES))
def test_case(name):
    torch.manual_seed(0)
    with torch.no_grad():
        check(CASES[name], torch.randn(4, 4), torch.randn(4, 4))

