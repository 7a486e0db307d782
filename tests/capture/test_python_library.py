"""The standard library in traced code; each case is one graph."""

# ruff: noqa  one case is one line
from __future__ import annotations

import bisect
import collections
import contextlib
import copy
import datetime
import decimal
import fractions
import functools
import heapq
import inspect
import itertools
import json
import logging
import math
import operator
import pathlib
import re
import statistics
import string
import struct
import sys
import textwrap
import threading
import types
import typing
import warnings
import weakref

import pytest
import torch

from tests.capture.python_cases import Cases

case = Cases()
LOGGER = logging.getLogger("dovetail.tests.quiet")
LOGGER.propagate = False
LOCAL = threading.local()
LOCAL.value = 5
PATTERN = re.compile(r"(\w+)-(\d+)")
DEFAULTS = {"eps": 1e-5, "dims": [1, 2]}


# fmt: off
def plain(a, b=2, *args, c, d=4, **kw): return a
def annotated(a: int, b: str = "x") -> float: return 1.0
@functools.singledispatch
def dispatched(v): return "object"
@dispatched.register
def _(v: int): return "int"
@dispatched.register(list)
def _(v): return "list"
@dispatched.register
def _(v: torch.Tensor): return v + 1
@functools.cache
def cached_square(n): return n * n
@functools.lru_cache(maxsize=2)
def cached_tensor_shape(shape): return math.prod(shape)
def logged(f):
    @functools.wraps(f)
    def inner(*a, **k): return f(*a, **k)
    return inner
@logged
def wrapped(x): "doc"; return x + 1
@contextlib.contextmanager
def tagged(log, name):
    log.append("enter " + name)
    try: yield name
    except KeyError: log.append("swallowed")
    finally: log.append("exit " + name)
class Closeable:
    def __init__(self): self.open = True
    def close(self): self.open = False
class Node:
    def __init__(self, v, child=None): self.v = v; self.child = child
NODE = Node(5)
REFERENCE = weakref.ref(NODE)
def summed(n): return n if n == 0 else n + summed(n - 1)

# ------------------------------------------------------------ functools
@case
def partials(x, y): f = functools.partial(operator.add, x); g = functools.partial(plain, b=5, c=1); return f(y), g(7), g.func is plain, g.args, g.keywords, functools.partial(f, y)(), functools.partial(int, base=2)("101")
@case
def partial_methods(x, y):
    class A:
        def f(self, a, b): return (a, b)
        g = functools.partialmethod(f, 1)
    return A().g(2)
@case
def partial_as_callback(x, y): return list(map(functools.partial(pow, 2), range(4))), sorted([3, 1], key=functools.partial(operator.mul, -1)), functools.partial(torch.add, alpha=2)(x, y)
@case
def reduces(x, y): return functools.reduce(operator.mul, [1, 2, 3]), functools.reduce(torch.add, [x, y, x]), functools.reduce(lambda a, b: a + b, [[1], [2]], []), functools.reduce(lambda a, f: f(a), [abs, str], -3)
@case
def caches(x, y): return cached_square(4), cached_square(4), cached_tensor_shape(x.shape), cached_tensor_shape((2, 3))
@case
def cache_inside(x, y):
    @functools.lru_cache(None)
    def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
    return x * fib(10)
@case
def wraps_names(x, y): return wrapped(x), wrapped.__name__, wrapped.__doc__, wrapped.__wrapped__ is not wrapped
@case
def wraps_inside(x, y):
    def deco(f):
        @functools.wraps(f)
        def inner(*a): return f(*a) * 2
        inner.tag = 1
        return inner
    @deco
    def g(t):
        "about g"
        return t + 1
    return g(x), g.__name__, g.__doc__, g.tag, g.__wrapped__(x)
@case
def single_dispatch(x, y): return dispatched(1), dispatched([1]), dispatched("s"), dispatched(x), dispatched(True)
@case
def compare_keys(x, y): return sorted([3, 1, 2], key=functools.cmp_to_key(lambda a, b: b - a)), sorted(["b", "a"], key=functools.cmp_to_key(lambda a, b: (a > b) - (a < b)))

# ------------------------------------------------------------ itertools
@case
def itertools_one(x, y): i = itertools; return list(i.chain([1], "a")), list(i.chain.from_iterable([[1], [2]])), list(i.islice(range(9), 2, 8, 3)), list(i.islice(i.count(5, 2), 3)), list(i.repeat(x, 2)), list(i.islice(i.cycle("ab"), 5)), list(i.accumulate([1, 2, 3])), list(i.accumulate([1, 2], operator.mul, initial=10)), list(i.product("ab", repeat=2)), list(i.product([1, 2], [3]))
@case
def itertools_two(x, y): i = itertools; return list(i.permutations([1, 2, 3], 2)), list(i.permutations("ab")), list(i.combinations("abc", 2)), list(i.combinations_with_replacement("ab", 2)), list(i.starmap(pow, [(2, 3), (3, 2)])), list(i.takewhile(lambda v: v < 3, [1, 2, 5, 1])), list(i.dropwhile(lambda v: v < 3, [1, 5, 1])), list(i.filterfalse(lambda v: v % 2, range(5))), list(i.zip_longest([1, 2], "a", fillvalue="-")), list(i.pairwise([1, 2, 3])), list(i.compress("abc", [1, 0, 1]))
@case
def itertools_groups(x, y): return [(k, list(g)) for k, g in itertools.groupby("aabbb")], [(k, [v for v in g]) for k, g in itertools.groupby([1, 3, 2], key=lambda v: v % 2)], {k: len(list(g)) for k, g in itertools.groupby(sorted("abab"))}
@case
def itertools_tee(x, y): a, b = itertools.tee([1, 2, 3]); return next(a), list(b), list(a)
@case
def itertools_tensors(x, y): return [a @ b for a, b in itertools.product([x, y], repeat=2)], list(itertools.accumulate([x, y, x])), [a + b for a, b in itertools.pairwise([x, y])], list(itertools.chain([x], [y]))
@case
def itertools_lazy(x, y):
    log = []
    def f(v): log.append(v); return v
    it = itertools.chain((f(1) for _ in "a"), (f(2) for _ in "a")); first = next(it)
    return first, log
@case
def counters(x, y): c = itertools.count(); return next(c), next(c), [next(c) for _ in range(2)], next(itertools.count(1.5, 0.5))

# ------------------------------------------------------------ contextlib
@case
def context_managers(x, y):
    log = []
    with tagged(log, "a") as a, tagged(log, "b"): log.append(a); x = x + 1
    return x, log
@case
def context_swallows(x, y):
    log = []
    with tagged(log, "k"): raise KeyError("z")
    return log
@case
def context_passes_on(x, y):
    log = []
    try:
        with tagged(log, "v"): raise ValueError("v")
    except ValueError as e: log.append(str(e))
    return log
@case
def context_returns(x, y):
    log = []
    def f():
        with tagged(log, "r"): return x + 1
    return f(), log
@case
def context_in_loop(x, y):
    log = []
    for i in range(3):
        with tagged(log, str(i)):
            if i == 1: continue
            x = x + i
            if i == 2: break
    return x, log
@case
def exit_stacks(x, y):
    log = []
    with contextlib.ExitStack() as s:
        a = s.enter_context(tagged(log, "a")); s.callback(log.append, "cb"); s.push(lambda *e: log.append("push"))
        x = x * 2
    return x, log, a
@case
def exit_stack_error(x, y):
    log = []
    with contextlib.suppress(ZeroDivisionError), contextlib.ExitStack() as s:
        s.callback(log.append, "done")
        1 / 0
    return log
@case
def suppresses(x, y):
    with contextlib.suppress(KeyError, ValueError): {}["a"]
    with contextlib.suppress(IndexError): [][0]
    return x
@case
def null_contexts(x, y):
    with contextlib.nullcontext(5) as n: x = x * n
    with contextlib.nullcontext(): x = x + 1
    return x
@case
def closings(x, y):
    c = Closeable()
    with contextlib.closing(c) as d: was = d.open
    return was, c.open
@case
def context_decorators(x, y):
    log = []
    @tagged(log, "d")
    def f(v): return v * 2
    return f(x), f(y), log
@case
def context_inside(x, y):
    @contextlib.contextmanager
    def scaled(k):
        yield x * k
    with scaled(3) as z: return z

# ------------------------------------------------------------ inspection and types
@case
def signatures(x, y): s = inspect.signature(plain); return list(s.parameters), s.parameters["b"].default, str(s.parameters["c"].kind), "kw" in s.parameters, s.parameters["d"].default, inspect.signature(annotated).return_annotation
@case
def signature_bind(x, y): b = inspect.signature(plain).bind(1, c=2); b.apply_defaults(); return b.arguments["d"], b.args[0]
@case
def signature_filter(x, y): kw = {"a": 1, "c": 3, "zz": 5}; names = inspect.signature(annotated).parameters; return {k: v for k, v in kw.items() if k in names}
@case
def arg_specs(x, y): s = inspect.getfullargspec(plain); return s.args, s.varargs, s.varkw, s.kwonlyargs, s.defaults
@case
def inspections(x, y): return inspect.isfunction(plain), inspect.isclass(Node), inspect.ismethod(Node(1).__init__), inspect.isgeneratorfunction(tagged), inspect.isbuiltin(len), inspect.ismodule(math), inspect.iscoroutinefunction(plain), inspect.isroutine(len), inspect.getmro(Node)[0] is Node
@case
def function_attributes(x, y): return plain.__name__, plain.__defaults__, plain.__kwdefaults__, plain.__code__.co_argcount, plain.__code__.co_varnames[:2], annotated.__annotations__, plain.__module__, plain.__qualname__, callable(plain)
@case
def function_attributes_set(x, y):
    def f(): return f.calls
    f.calls = 3; f.calls += 1
    return f(), hasattr(f, "other"), f.__dict__
@case
def types_module(x, y): return isinstance(plain, types.FunctionType), isinstance(Node(1).__init__, types.MethodType), types.MethodType(lambda s, v: v, 3)(4), isinstance(len, types.BuiltinFunctionType), isinstance(math, types.ModuleType), isinstance(plain, types.LambdaType), isinstance((i for i in []), types.GeneratorType), isinstance(None, types.NoneType)
@case
def module_attributes(x, y): return math.pi, math.__name__, getattr(torch, "relu")(x), hasattr(math, "nope"), torch.nn.functional.__name__, vars(math)["e"]

# ------------------------------------------------------------ copy
@case
def copies(x, y): a = [1, [2]]; b = copy.copy(a); c = copy.deepcopy(a); a[1].append(3); return a, b, c, copy.copy({"k": a})["k"] is a, copy.deepcopy((1, [2])), copy.copy(3)
@case
def deepcopy_tensor(x, y): z = copy.deepcopy(x); z.add_(1); return x, z, copy.copy(y)
@case
def deepcopy_shared(x, y): a = [x]; b = copy.deepcopy([a, a]); return b, b[0] is b[1], b[0][0] is x
@case
def deepcopy_objects(x, y): n = Node(1, Node([2])); m = copy.deepcopy(n); m.child.v.append(3); return n.child.v, m.child.v, m.v, type(m).__name__
@case
def deepcopy_cycle(x, y): n = Node(1); n.child = n; m = copy.deepcopy(n); return m.child is m, m is n
@case
def deepcopy_containers(x, y): d = collections.OrderedDict(a=[1]); e = copy.deepcopy(d); e["a"].append(2); q = copy.deepcopy(collections.deque([[1]], 2)); s = copy.deepcopy({1, 2}); f = copy.deepcopy(collections.defaultdict(list, k=[1])); return d, e, list(q), q.maxlen, s, f["k"], f["new"]
@case
def deepcopy_config(x, y): c = copy.deepcopy(DEFAULTS); c["dims"].append(3); return c, DEFAULTS["dims"], copy.deepcopy(plain) is plain, copy.deepcopy(Node) is Node
@case
def copy_hooks(x, y):
    class A:
        def __copy__(self): return "copied"
        def __deepcopy__(self, memo): return "deep"
    return copy.copy(A()), copy.deepcopy(A()), copy.deepcopy([A()])

# ------------------------------------------------------------ the rest of the library
@case
def bisects(x, y): a = [1, 3, 5]; bisect.insort(a, 4); return a, bisect.bisect(a, 3), bisect.bisect_left(a, 3), bisect.bisect_right([1, 1], 1)
@case
def heaps(x, y): h = [3, 1, 2]; heapq.heapify(h); heapq.heappush(h, 0); return heapq.heappop(h), h, heapq.nlargest(2, [1, 5, 3]), heapq.nsmallest(1, [4, 2]), list(heapq.merge([1, 4], [2, 3])), heapq.heappushpop(h, 9), heapq.heapreplace(h, 7)
@case
def regular_expressions(x, y): m = PATTERN.match("ab-12"); return m.group(1), m.groups(), m.span(), re.sub(r"\d", "#", "a1b2"), re.findall(r"\w", "ab"), re.split(r",\s*", "a, b"), bool(re.match("x", "y")), re.fullmatch(r"a+", "aa").group(), PATTERN.search("q") is None, re.compile("a|b").pattern, re.escape("a.b"), [g.start() for g in re.finditer("a", "aba")], m["x"] if False else m[2], re.search(r"layers\.(\d+)\.", "m.layers.3.w").group(1)
@case
def regular_expression_function(x, y): return re.sub(r"\d", lambda m: str(int(m.group()) + 1), "a1b2"), re.subn("a", "b", "aa")
@case
def json_constants(x, y): return json.dumps({"a": [1, None, True]}), json.loads('{"a": [1, 2.5]}'), json.dumps([1, 2], indent=1), json.dumps({"b": 1, "a": 2}, sort_keys=True)
@case
def structs(x, y): return struct.pack("<ih", 1, 2), struct.unpack("<ih", b"\x01\x00\x00\x00\x02\x00"), struct.calcsize("i")
@case
def paths(x, y): p = pathlib.PurePosixPath("/a/b") / "c.txt"; return str(p), p.name, p.suffix, p.stem, p.parent.name, p.parts
@case
def numbers(x, y): return x * float(fractions.Fraction(1, 4)), float(fractions.Fraction(1, 3) + 1), str(decimal.Decimal("1.10") + 1), statistics.mean([1, 2, 3]), statistics.median([1, 5, 2]), int(decimal.Decimal(3))
@case
def strings(x, y): return string.ascii_lowercase[:3], string.capwords("a b"), string.Template("$a b").substitute(a=1), textwrap.dedent("  a\n  b"), string.digits
@case
def dates(x, y): return datetime.timedelta(days=1).total_seconds(), datetime.date(2020, 1, 2).isoformat(), datetime.datetime(2020, 1, 1).year, (datetime.date(2020, 1, 2) - datetime.date(2020, 1, 1)).days
@case
def system_queries(x, y): return sys.version_info >= (3, 8), sys.version_info[:1], sys.platform, sys.maxsize, sys.byteorder, sys.version_info.major, "torch" in sys.modules, sys.float_info.max, sys.getrecursionlimit() > 1
@case
def thread_locals(x, y): return LOCAL.value, getattr(LOCAL, "none", 3), hasattr(LOCAL, "none")
@case
def warnings_filters(x, y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x = x + 1
    return x
@case
def warnings_filtered(x, y):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="q"); warnings.filterwarnings("ignore")
        warnings.warn("q quiet")
    return x
@case
def loggings(x, y): LOGGER.debug("nothing %s", 1); LOGGER.info("shape %s", x.shape); return x, LOGGER.isEnabledFor(logging.DEBUG), LOGGER.name, logging.getLogger("dovetail.tests.quiet") is LOGGER, logging.INFO
@case
def weak_references(x, y): r = weakref.ref(NODE); return r().v, r() is NODE, REFERENCE().v
@case
def locals_read(x, y): a = 1; d = locals(); return sorted(d), d["a"], "x" in locals(), locals()["x"] is x
@case
def variables_read(x, y): a = 1; d = vars(); return sorted(d), d["a"], dir(), sorted(vars()), vars()["x"] is x
@case
def globals_read(x, y): return globals()["DEFAULTS"]["eps"], "plain" in globals(), globals().get("no_such_name", 4)
@case
def evals(x, y): return eval("1 + 2"), eval("DEFAULTS")["eps"], eval("a + 1", {"a": 2}), eval("x + y")
@case
def dirs(x, y): return "v" in dir(Node(1)), "sin" in dir(math), "upper" in dir("s"), "__init__" in dir(Node)
@case
def typing_module(x, y): T = typing.TypeVar("T"); return typing.cast("int", x), typing.get_type_hints(annotated)["a"], typing.Any is typing.Any, typing.Union[int, str] == typing.Union[str, int], typing.get_args(typing.Optional[int]), typing.get_origin(typing.List[int]), typing.NamedTuple.__name__, list[int] == list[int], typing.Literal["a"].__args__
@case
def overloads(x, y):
    @typing.no_type_check
    def f(a): return a
    @typing.final
    class A: ...
    return f(x)
@case
def local_imports(x, y):
    import math as m
    import os.path as p
    from collections import OrderedDict as OD, abc
    from torch.nn import functional as G
    return m.pi, p.join("a", "b"), OD(a=1), G.relu(x), abc.Sized.__name__
@case
def import_errors(x, y):
    try: import no_such_module_anywhere
    except ImportError as e: a = type(e).__name__
    try: from math import no_such_name
    except ImportError as e: return a, str(e).split(" (")[0]
@case
def recursions(x, y):
    def walk(t): return t + sum((walk(c) for c in range(t)), 0) if t < 3 else 0
    return summed(20), walk(2)
@case
def closures(x, y):
    def counter():
        n = 0
        def up(k=1): nonlocal n; n += k; return n
        def get(): return n
        return up, get
    up, get = counter(); up(); up(5)
    fs = [lambda: i for i in range(3)]; gs = [lambda i=i: i for i in range(3)]
    return get(), [f() for f in fs], [g() for g in gs], up.__closure__[0].cell_contents
@case
def default_arguments(x, y):
    def f(a, acc=[], *, k={}): acc.append(a); k[a] = len(acc); return acc, k
    f(1); return f(2)
@case
def keyword_errors(x, y):
    def f(a, /, b, *, c): return a
    out = []
    for g in (lambda: f(), lambda: f(1, 2), lambda: f(1, 2, 3), lambda: f(1, 2, c=1, d=2), lambda: f(a=1, b=2, c=3), lambda: f(1, b=2, c=3, **{"b": 1}) if False else f(1, 2, c=3)):
        try: out.append(g())
        except TypeError as e: out.append(str(e).split(".")[-1])
    return out
@case
def counting(x, y): return collections.Counter(len(w) for w in "a bb cc".split()).most_common(1), collections.namedtuple("Q", ["a"])(1).a
@case
def user_strings(x, y): return collections.UserString("ab").upper() == "AB", str(collections.UserString("q"))
# fmt: on


@pytest.mark.parametrize("name", sorted(case))
def test_case(name):
    case.check(name)
