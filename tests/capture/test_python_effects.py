"""What the program changes and shows beside its result: each scenario does the same with and without compiling.

A scenario gets `wrap`, which compiles a function or leaves it alone, and returns what can be observed; what it prints
is observed too. `whole` scenarios must be one graph.
"""

# ruff: noqa  one case is one line
from __future__ import annotations

import collections
import contextlib
import io
import itertools
import logging
import random
import sys
import threading
import time
import types
import warnings

import pytest
import torch

import dovetail
from tests.capture.harness import compare

WHOLE, BROKEN = {}, {}
COUNT = 0
TABLE = {}
LOG = []
LOGGER = logging.getLogger("dovetail.tests.effects")
LOGGER.propagate = False
T = torch.arange(4.0)


def whole(scenario): WHOLE[scenario.__name__] = scenario; return scenario
def broken(scenario): BROKEN[scenario.__name__] = scenario; return scenario


class Box:
    shared = 0
    def __init__(self, **kw): self.__dict__.update(kw)
    def __repr__(self): return f"Box({self.__dict__})"


# fmt: off
# ------------------------------------------------------------ printing
@whole
def prints(wrap):
    def f(x): print("a", 1, None, [1, 2], {"k": (1,)}, sep="-", end="!\n"); print(); print(x.shape, x.dtype, flush=True); return x + 1
    return wrap(f)(T)
@whole
def print_tensors(wrap):
    def f(x): y = x * 2; print(y, "then", y.sum()); print([y, {"t": x}], (y,)); return y
    return wrap(f)(T)
@whole
def print_before_mutation(wrap):
    def f(x): y = x.clone(); print(y); y.add_(1); print(y); y[0] = 9; print(y[0]); return y
    return wrap(f)(T)
@whole
def print_input_before_mutation(wrap):
    def f(x): print("before", x); x.mul_(2); print("after", x); return x.sum()
    return wrap(f)(T.clone())
@whole
def print_list_then_change(wrap):
    def f(x): a = [1, x]; print(a); a.append(2); print(a); a.clear(); print(a); return x
    return wrap(f)(T)
@whole
def print_formatted(wrap):
    def f(x): m = x.mean(); print(f"mean {m} of {x!r}: {m:.3f} {x.shape}"); print("mean %s" % m, "{} {}".format(m, 2), str(m) + "!", "-".join(["a", str(m)])); return m
    return wrap(f)(T)
@whole
def print_in_loop(wrap):
    def f(x):
        for i in range(3): print("step", i, x.sum()); x = x + i
        return x
    return wrap(f)(T)
@whole
def print_to_stderr(wrap):
    def f(x): print("err", file=sys.stderr); print("out", file=sys.stdout); sys.stdout.write("raw\n"); return x
    return wrap(f)(T)
@whole
def print_to_file(wrap):
    out = io.StringIO()
    def f(x): print("to file", x.shape, file=out); return x
    wrap(f)(T); wrap(f)(T)
    return out.getvalue()
@whole
def print_object(wrap):
    b = Box(a=1)
    def f(x): print(b, Box(q=2), f"{Box(z=x.shape)}"); b.a = 2; print(b); return x
    return wrap(f)(T)
@whole
def print_from_callee(wrap):
    def g(x): print("inner", x.shape[0]); return x
    def f(x): print("outer"); y = g(x); print("done"); return y
    return wrap(f)(T), wrap(f)(T)
@whole
def text_returned(wrap):
    def f(x): return f"sum={x.sum()}", str(x), repr(x[0])
    return wrap(f)(T)
@whole
def text_kept(wrap):
    log = []
    def f(x): log.append(f"s {x.sum()}"); x.add_(1); log.append(f"s {x.sum()}"); return x
    return wrap(f)(T.clone()), log
@broken
def print_redirected(wrap):
    def f(x):
        out = io.StringIO()
        with contextlib.redirect_stdout(out): print("inside", x.shape[0])
        print("outside")
        return out.getvalue()
    return wrap(f)(T)
@broken
def print_then_text_length(wrap):
    def f(x): y = x + 1; print(len(str(y))); return y * 2
    return wrap(f)(T)
@broken
def print_between_breaks(wrap):
    def f(x):
        print("one"); n = x.sum().item(); print("two", n); LOG2.append(n); print("three", LOG2)
        return x * n
    LOG2 = []
    return wrap(f)(T)

# ------------------------------------------------------------ logging and warnings
class Keep(logging.Handler):
    def __init__(self): super().__init__(); self.rows = []
    def emit(self, record): self.rows.append((record.levelname, record.getMessage()))
@whole
def logs(wrap):
    keep = Keep(); LOGGER.addHandler(keep); LOGGER.setLevel(logging.INFO)
    def f(x): LOGGER.debug("no %s", x.shape); LOGGER.info("sum %s", x.sum()); LOGGER.warning("a %d %s", 3, "b"); LOGGER.log(40, "level"); return x + 1
    g = wrap(f); g(T); LOGGER.setLevel(logging.DEBUG); g(T); LOGGER.setLevel(logging.ERROR); g(T)
    LOGGER.removeHandler(keep)
    return keep.rows
@whole
def warns(wrap):
    def f(x): warnings.warn("careful"); warnings.warn("old", DeprecationWarning); return x + 1
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        wrap(f)(T)
    return [(str(w.message), w.category, w.filename, w.lineno) for w in seen]
@whole
def warns_once(wrap):
    def f(x): warnings.warn("only once here"); return x + 1
    globals().pop("__warningregistry__", None)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("default")
        g = wrap(f); g(T); g(T)
    return len(seen)
@whole
def warns_ignored_inside(wrap):
    def f(x):
        with warnings.catch_warnings(): warnings.simplefilter("ignore"); warnings.warn("hidden")
        warnings.warn("seen"); return x
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        wrap(f)(T)
    return [str(w.message) for w in seen]
@broken
def warns_as_errors(wrap):
    def f(x):
        try:
            with warnings.catch_warnings(): warnings.simplefilter("error"); warnings.warn("bad")
        except UserWarning as e: return x, str(e)
    return wrap(f)(T)

# ------------------------------------------------------------ attributes, items, globals, cells
@whole
def attributes(wrap):
    b = Box(a=1, b=[1]); 
    def f(x): b.a += 1; b.c = x * 2; b.b.append(b.a); del b.a; b.a = 5; return b.c
    g = wrap(f); g(T); del b.a; b.a = 9; g(T)
    return b.__dict__, list(b.__dict__)
@whole
def class_attributes(wrap):
    Box.shared = 0
    def f(x): Box.shared = Box.shared + 1; Box.extra = x; return x * Box.shared
    g = wrap(f); r = g(T), g(T), Box.shared, Box.extra
    del Box.extra; Box.shared = 0
    return r
@whole
def class_attribute_through_instance(wrap):
    b = Box()
    def f(x): type(b).shared = 7; n = b.shared; b.shared = 8; return x * n, b.shared
    r = wrap(f)(T), Box.shared
    Box.shared = 0
    return r
@whole
def globals_written(wrap):
    global COUNT
    COUNT = 0
    def f(x):
        global COUNT, FRESH
        COUNT += 1; FRESH = x + COUNT
        return FRESH
    g = wrap(f); g(T); g(T)
    r = COUNT, FRESH
    del globals()["FRESH"]
    return r
@whole
def nonlocals(wrap):
    n, seen = 0, []
    def f(x):
        nonlocal n
        n += 2; seen.append(n)
        return x * n
    g = wrap(f); r = g(T), g(T)
    return r, n, seen
@whole
def lists(wrap):
    a = [1, 2, 3]; alias = a
    def f(x): a.append(x); a[0] = "z"; a.insert(1, [a]); a.reverse(); a.extend((1, 2)); del a[2]; return len(a)
    wrap(f)(T)
    return a is alias, len(a), a[0], a[-1], [type(v).__name__ for v in a]
@whole
def list_aliasing(wrap):
    inner = [1]; a, b = [inner], {"k": inner}
    def f(x): a[0].append(2); b["k"].append(x); b["new"] = a; return x
    wrap(f)(T)
    return inner, a[0] is b["k"], b["new"] is a
@whole
def dicts(wrap):
    d = {"a": 1, "b": 2}
    def f(x): d["c"] = x; del d["a"]; d["b"] += 1; d.setdefault("e", []).append(1); d.update(z=0); d.pop("z"); return x
    wrap(f)(T)
    return list(d.items())
@whole
def ordered_containers(wrap):
    o, d, q = collections.OrderedDict(a=1, b=2), collections.defaultdict(list), collections.deque([1, 2], maxlen=3)
    def f(x): o.move_to_end("a"); o["c"] = 1; d["k"].append(x); d["m"]; q.extend([3, 4]); q.appendleft(0); q.rotate(1); return x
    wrap(f)(T)
    return list(o), dict(d), list(q), q.maxlen
@whole
def sets_changed(wrap):
    s = {1, 2}
    def f(x): s.add(5); s.discard(1); s.update([7, 8]); return len(s)
    return wrap(f)(T), s
@whole
def user_objects(wrap):
    class Acc:
        def __init__(self): self.items = []; self.n = 0
        def add(self, v): self.items.append(v); self.n += 1; return self
        @property
        def last(self): return self.items[-1]
        @last.setter
        def last(self, v): self.items[-1] = v
    a = Acc()
    def f(x): a.add(x).add(2); a.last = 3; return a.n
    g = wrap(f); g(T); g(T)
    return a.items, a.n
@whole
def objects_returned(wrap):
    def f(x): a = [x]; b = Box(l=a, m={"a": a}); return b, a
    b, a = wrap(f)(T)
    return b.l is a, b.m["a"] is a, a, type(b) is Box
@whole
def returned_objects_are_new(wrap):
    def f(x): return [], {}, Box(), set()
    g = wrap(f); a, b = g(T), g(T)
    return [p is q for p, q in zip(a, b)]
@whole
def default_argument_state(wrap):
    def f(x, acc=[]): acc.append(len(acc)); return list(acc)
    g = wrap(f)
    return g(T), g(T), g(T)
@whole
def function_attributes(wrap):
    def f(x): f.calls = getattr(f, "calls", 0) + 1; return x * f.calls
    g = wrap(f); r = g(T), g(T)
    return r, f.calls
@whole
def module_state(wrap):
    m = torch.nn.Module(); m.register_buffer("n", torch.zeros(())); m.steps = 0; m.cache = {}
    def f(x): m.n += 1; m.steps += 1; m.cache["last"] = x + m.n; return x * m.n
    g = wrap(f); r = g(T), g(T)
    return r, m.n, m.steps, m.cache
@whole
def module_buffer_replaced(wrap):
    m = torch.nn.Module(); m.register_buffer("n", torch.zeros(2))
    def f(x): m.n = m.n + x[:2]; return m.n * 2
    g = wrap(f); r = g(T), g(T)
    return r, m.n, "n" in dict(m.named_buffers())
@whole
def simple_namespace(wrap):
    n = types.SimpleNamespace(a=1)
    def f(x): n.a += 1; n.b = x; return x
    wrap(f)(T)
    return n.a, n.b
@whole
def thread_local_state(wrap):
    loc = threading.local(); loc.n = 1
    def f(x): loc.n = loc.n + 1; return x * loc.n
    g = wrap(f); r = g(T), g(T)
    return r, loc.n
@whole
def exception_state(wrap):
    log = []
    def f(x):
        try: log.append("try"); raise ValueError("v")
        except ValueError as e: log.append(str(e)); log.append(e)
        finally: log.append("finally")
        return x
    wrap(f)(T)
    return log[:2], log[3], type(log[2]), log[2].args
@whole
def generator_effects(wrap):
    log = []
    def gen(n):
        for i in range(n): log.append(i); yield i
    def f(x): it = gen(5); next(it); return x + next(it)
    return wrap(f)(T), log
@whole
def classes_returned(wrap):
    def f(x):
        class A:
            n = 3
            t = x * 2
            def __init__(self, v): self.v = v
            def get(self): return self.v + self.t
            @property
            def p(self): return self.v * self.n
            @classmethod
            def make(cls): return cls(1)
        return A, A(x)
    A, a = wrap(f)(T)
    B, b = wrap(f)(T)
    return a.get(), a.p, A.__name__, type(a) is A, A.make().v, A is B, A(5).p, A.__module__
@whole
def closures_returned(wrap):
    def f(x):
        n = 0
        def up():
            nonlocal n
            n += 1
            return x + n
        def now(): return n
        return up, now
    up, now = wrap(f)(T)
    return up(), up(), now(), up.__name__
@whole
def iterators_returned(wrap):
    def f(x): it = iter([1, 2, 3]); next(it); return it, enumerate("ab", 3), zip([1], [x]), reversed([1, 2]), map(str, [1, 2]), filter(None, [0, 1]), itertools.chain([1], [2])
    return [list(v) for v in wrap(f)(T)]
@whole
def generators_returned(wrap):
    def gen(a, n):
        for i in range(n):
            got = yield a + i
            if got: n = got
    def f(x): g = gen(x, 4); h = gen(1, 3); next(h); return g, h, (i * x for i in range(2))
    g, h, e = wrap(f)(T)
    return list(g), next(h), list(h), list(e), g is iter(g)
@broken
def generator_function(wrap):
    def f(x):
        yield x + 1
        yield x + 2
    return list(wrap(f)(T))

# ------------------------------------------------------------ iterators from outside, random state, clocks
@broken
def outer_iterator(wrap):
    it = iter([1, 2, 3, 4])
    def f(x): return x * next(it)
    g = wrap(f)
    return g(T), g(T), list(it)
@broken
def outer_generator(wrap):
    def gen():
        for i in range(5): LOG.append(i); yield i
    LOG.clear(); it = gen()
    def f(x):
        for v in it:
            x = x + v
            if v == 2: break
        return x
    return wrap(f)(T), list(it), list(LOG)
@broken
def outer_counter(wrap):
    c = itertools.count()
    def f(x): return x + next(c), next(c)
    g = wrap(f)
    return g(T), g(T), next(c)
@broken
def outer_zip(wrap):
    z = zip([1, 2, 3], "abc"); m = map(lambda v: v * 2, [1, 2, 3])
    def f(x): return next(z), next(m), x
    return wrap(f)(T), list(z), list(m)
@broken
def random_module(wrap):
    def f(x): a = random.random(); b = random.randint(0, 9); c = [1, 2, 3]; random.shuffle(c); return x * a, b, c, random.choice("abc"), random.uniform(1, 2), random.gauss(0, 1)
    g = wrap(f); random.seed(3); r = g(T), g(T)
    return r, random.random()
@broken
def random_object(wrap):
    rng = random.Random(5)
    def f(x): return x * rng.random(), rng.sample(range(9), 2)
    g = wrap(f)
    return g(T), g(T), rng.random()
@broken
def random_branch(wrap):
    def f(x):
        if random.random() > 0.5: return x + 1
        return x - 1
    g = wrap(f); random.seed(0)
    return [g(T) for _ in range(6)]
@broken
def random_made_inside(wrap):
    def f(x): rng = random.Random(1); return x * rng.random()
    g = wrap(f)
    return g(T), g(T)
@broken
def clocks(wrap):
    def f(x): a = time.perf_counter(); y = x + 1; return y, time.perf_counter() >= a
    return wrap(f)(T)
@broken
def set_order(wrap):
    a, b = {8, 0}, {0, 8}
    s = set(); s.add(0); s.add(8)
    def f(x, v): return x, list(v)
    g = wrap(f)
    return g(T, a), g(T, b), g(T, s)
@broken
def set_of_tensors(wrap):
    def f(x):
        total = x * 0
        for t in {x, x + 1}: total = total + t
        return total
    return wrap(f)(T)
@broken
def environment(wrap):
    import os
    def f(x): return x, os.environ.get("TEST_VALUE", "none")
    g = wrap(f); a = g(T); os.environ["TEST_VALUE"] = "set"; b = g(T); del os.environ["TEST_VALUE"]
    return a, b, g(T)
@broken
def native_containers(wrap):
    import array
    b = bytearray(b"ab")
    def f(x): b.append(1); a = array.array("i", [1]); a.append(2); return x + len(b), list(a), bytes(b)
    g = wrap(f)
    return g(T), g(T), bytes(b)
@broken
def module_copied(wrap):
    import copy
    m = torch.nn.Linear(4, 4); m.weight.data.fill_(1.0); m.bias.data.fill_(0.0)
    def f(x): n = copy.deepcopy(m); return n(x), n is m, n.weight is m.weight
    with torch.no_grad(): return wrap(f)(T)
@broken
def views_copied(wrap):
    import copy
    def f(x): v = x[1:]; a, b = copy.deepcopy([x, v]); a.add_(1); return a, b, x
    return wrap(f)(T)
@broken
def bad_prints(wrap):
    class Sink:
        def __init__(self): self.rows = []
        def write(self, text): self.rows.append(text)
    sink = Sink()
    def f(x): print("a", file=sink); n = len(sink.rows); print("b", file=sink); return x + n
    return wrap(f)(T), sink.rows
# fmt: on


def observed(scenario, wrap):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), torch.no_grad():
        result = scenario(wrap)
    return result, out.getvalue(), err.getvalue()


def check(scenario, **how):
    dovetail.reset()
    expected = observed(scenario, lambda f: f)
    actual = observed(scenario, lambda f: dovetail.compile(f, backend="eager", **how))
    compare(actual, expected)


@pytest.mark.parametrize("name", sorted(WHOLE))
def test_whole(name):
    check(WHOLE[name], fullgraph=True)


@pytest.mark.parametrize("name", sorted(BROKEN))
def test_broken(name):
    check(BROKEN[name])


def test_empty_setting_breaks_at_each_call():
    """The documents' example: a print and a branch on a tensor, three graphs."""

    def toy_example(a, b):
        x = a / (torch.abs(a) + 1)
        print("woo")
        if b.sum() < 0:
            b = b * -1
        return x * b

    with dovetail.config.patch(reorderable_logging_functions=set()):
        found = dovetail.explain(toy_example)(torch.randn(10), torch.randn(10))
    assert (found.graph_count, found.graph_break_count) == (3, 2)
    found = dovetail.explain(toy_example)(torch.randn(10), torch.randn(10))
    assert (found.graph_count, found.graph_break_count) == (2, 1)


def test_users_own_function_is_called_after_the_graph():
    rows = []

    def note(*args):
        rows.append(args)

    def f(x):
        y = x.clone()
        note("before", y)
        y.add_(1)
        note("after", y)
        return y

    with dovetail.config.patch(reorderable_logging_functions={note}):
        dovetail.compile(f, backend="eager", fullgraph=True)(T)
    compare(rows, [("before", T), ("after", T + 1)])


def test_the_setting_can_be_added_to():
    before = set(dovetail.config.reorderable_logging_functions)
    dovetail.config.reorderable_logging_functions.add(len)
    assert len in dovetail.config.reorderable_logging_functions
    dovetail.config.reorderable_logging_functions.discard(len)
    assert set(dovetail.config.reorderable_logging_functions) == before
