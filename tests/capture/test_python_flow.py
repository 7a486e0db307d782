"""Exceptions, generators, coroutines, pattern matching; each case is one graph."""

# ruff: noqa  one case is one line
from __future__ import annotations

import collections
import dataclasses
import enum
import traceback
import types

import pytest
import torch

from tests.capture.python_cases import Cases

case = Cases()


# fmt: off
class Mine(Exception):
    def __init__(self, code, *rest): super().__init__(code, *rest); self.code = code
class Child(Mine):
    def __str__(self): return f"child {self.code}"
@dataclasses.dataclass
class P:
    x: int
    y: int = 0
class Color(enum.Enum):
    RED = 1
    BLUE = 2
NT = collections.namedtuple("NT", "a b")
def fails(kind, *args): raise kind(*args)
def count_up(n):
    for i in range(n): yield i
    return "done"
def delegate(n):
    r = yield from count_up(n)
    yield r
async def coro(v): return v + 1
async def coro_outer(v):
    a = await coro(v)
    return await coro(a) * 2
async def agen(n):
    for i in range(n): yield i
class Awaitable:
    def __init__(self, v): self.v = v
    def __await__(self):
        got = yield self.v
        return got
@types.coroutine
def switch(v):
    got = yield v
    return got
class AsyncCtx:
    async def __aenter__(self): return 5
    async def __aexit__(self, *e): return True
def drive(c):
    try:
        while True: c.send(None)
    except StopIteration as e: return e.value

# ------------------------------------------------------------ exceptions
@case
def catch_kinds(x, y):
    out = []
    for k in (ValueError, KeyError, IndexError, ZeroDivisionError, Mine, Child):
        try: fails(k, "m")
        except ArithmeticError as e: out.append(("arith", e.args))
        except (LookupError, ValueError) as e: out.append((type(e).__name__, str(e)))
        except Mine as e: out.append((e.code, str(e), isinstance(e, Child)))
    return out
@case
def finally_order(x, y):
    log = []
    def f(n):
        try:
            log.append("try")
            if n == 0: raise ValueError
            if n == 1: return "r"
        except ValueError: log.append("except"); return "e"
        else: log.append("else")
        finally: log.append("finally")
        return "end"
    return f(0), f(1), f(2), log
@case
def finally_overrides(x, y):
    def f():
        try: return 1
        finally: return 2
    def g():
        for i in range(3):
            try: continue
            finally: 
                if i == 1: break
        return i
    def h():
        try: raise ValueError
        finally: return 3
    return f(), g(), h()
@case
def nested_try(x, y):
    out = []
    try:
        try: raise KeyError("a")
        except KeyError: out.append("inner"); raise ValueError("b")
        finally: out.append("fin")
    except ValueError as e: out.append(str(e)); out.append(type(e.__context__).__name__)
    return out
@case
def raise_from(x, y):
    try:
        try: raise KeyError("k")
        except KeyError as e: raise ValueError("v") from e
    except ValueError as e: return type(e.__cause__).__name__, type(e.__context__).__name__, e.__suppress_context__
@case
def raise_from_none(x, y):
    try:
        try: raise KeyError("k")
        except KeyError: raise ValueError("v") from None
    except ValueError as e: return e.__cause__, e.__suppress_context__, type(e.__context__).__name__
@case
def reraise(x, y):
    try:
        try: raise Mine(3)
        except Mine: raise
    except Mine as e: return e.code
@case
def reraise_none(x, y):
    try: raise
    except RuntimeError as e: return str(e)
@case
def raise_class_or_instance(x, y):
    out = []
    for e in (ValueError, ValueError("a", 2), Mine(1, 2)):
        try: raise e
        except Exception as c: out.append((c.args, str(c), repr(c)))
    return out
@case
def raise_non_exception(x, y):
    try: raise 3
    except TypeError as e: return str(e)
@case
def except_unbinds(x, y):
    try: raise ValueError
    except ValueError as e: pass
    try: e
    except UnboundLocalError as q: return type(q).__name__
@case
def exception_attributes(x, y):
    try: raise Mine(7, "r")
    except Mine as e:
        e.extra = 1; e.add_note("note")
        return e.args, e.code, e.extra, e.__notes__, e.with_traceback(None) is e
@case
def exception_equality(x, y): a = ValueError(1); return a == a, a == ValueError(1), isinstance(a, Exception), a.args == (1,), repr(KeyError("k")), str(KeyError("k"))
@case
def native_exceptions(x, y):
    out = []
    for f in (lambda: {}["q"], lambda: [][1], lambda: int("z"), lambda: 1 / 0, lambda: None.foo, lambda: (1).foo, lambda: nope, lambda: "a" + 1, lambda: x.nothing, lambda: next(iter([])), lambda: len(5), lambda: (lambda n: n())(5), lambda: iter(4)):
        try: f()
        except Exception as e: out.append(type(e).__name__)
    return out
@case
def native_messages(x, y):
    out = []
    for f in (lambda: None.foo, lambda: (1).foo, lambda: nope, lambda: len(5), lambda: (lambda n: n())(5), lambda: iter(4), lambda: P().x, lambda: P(1).q, lambda: math_sqrt, lambda: [1, 2][9], lambda: {1: 2}[3], lambda: 1 @ 2, lambda: -"a", lambda: 3 in 5):
        try: f()
        except Exception as e: out.append(str(e))
    return out
@case
def tensor_exceptions(x, y):
    try: return x @ torch.zeros(3, 3)
    except RuntimeError as e: return x + 1
@case
def tensor_exceptions_view(x, y):
    out = []
    for f in (lambda: x.view(3, 5), lambda: x + torch.zeros(3), lambda: x[9], lambda: torch.cat([x, y[0]]), lambda: x.reshape(7), lambda: torch.stack([x, y[:2]])):
        try: f(); out.append("ok")
        except (RuntimeError, IndexError) as e: out.append(type(e).__name__)
    return out
@case
def tensor_type_errors(x, y):
    try: torch.add(x, "a")
    except TypeError: return x
@case
def assertion_messages(x, y):
    out = []
    try: assert x.shape[0] == 5, f"got {x.shape[0]}"
    except AssertionError as e: out.append(str(e))
    try: assert []
    except AssertionError as e: out.append(e.args)
    assert x.dim() == 2, "never"
    return out
@case
def assert_not_none(x, y):
    assert x is not None and isinstance(y, torch.Tensor), "bad"
    return x + y
@case
def exception_groups(x, y):
    out = []
    try: raise ExceptionGroup("g", [ValueError(1), KeyError(2), TypeError(3)])
    except* ValueError as e: out.append(("v", len(e.exceptions)))
    except* (KeyError, TypeError) as e: out.append(("k", [type(q).__name__ for q in e.exceptions]))
    return out
@case
def exception_group_naked(x, y):
    out = []
    try: raise ValueError(1)
    except* ValueError as e: out.append(type(e).__name__)
    return out
@case
def exception_group_rest(x, y):
    try:
        try: raise ExceptionGroup("g", [ValueError(1), KeyError(2)])
        except* ValueError: pass
    except ExceptionGroup as e: return [type(q).__name__ for q in e.exceptions], e.message
@case
def system_exceptions(x, y):
    out = []
    for k in (StopIteration, GeneratorExit, SystemExit, KeyboardInterrupt):
        try: raise k(1)
        except BaseException as e: out.append((type(e).__name__, e.args))
    return out
@case
def stop_iteration_value(x, y):
    try: raise StopIteration(5)
    except StopIteration as e: return e.value
@case
def exception_as_value(x, y):
    def safe(f):
        try: return f(), None
        except Exception as e: return None, e
    v, e = safe(lambda: 1 / 0)
    return v, type(e).__name__, str(e)
@case
def exception_in_comprehension(x, y):
    try: return [10 // i for i in (1, 0)]
    except ZeroDivisionError: return "zero"
@case
def exception_in_loop(x, y):
    n = 0
    for i in range(5):
        try:
            if i % 2: raise ValueError(i)
            n += i
        except ValueError as e: n += 100 * e.args[0]; continue
        finally: n += 1
    return n, x * n
@case
def exception_through_calls(x, y):
    def a(): raise Mine("deep")
    def b():
        try: a()
        finally: log.append("b")
    log = []
    try: b()
    except Mine as e: return str(e), log, e.code
@case
def exception_context_chain(x, y):
    try:
        try: 1 / 0
        except ZeroDivisionError: {}["x"]
    except KeyError as e: return type(e.__context__).__name__, e.__cause__
@case
def key_error_default(x, y):
    d = {"a": x}
    try: return d["b"]
    except KeyError as e: return e.args[0], d["a"]
@case
def attribute_error_fields(x, y):
    try: P(1).zip
    except AttributeError as e: return e.name, type(e.obj).__name__
@case
def exception_isinstance_tuple(x, y):
    kinds = (ValueError, KeyError)
    try: raise KeyError
    except kinds: return 1
@case
def finally_with_return_value(x, y):
    def f():
        a = [1]
        try: return a
        finally: a.append(2)
    return f()

# ------------------------------------------------------------ generators
@case
def generator_basic(x, y): return list(count_up(3)), list(delegate(2)), sum(i for i in count_up(4)), [*count_up(1)], tuple(delegate(0)), max(count_up(3)), dict(zip("ab", count_up(2)))
@case
def generator_return_value(x, y):
    g = count_up(1); next(g)
    try: next(g)
    except StopIteration as e: return e.value
@case
def generator_two_way(x, y):
    def avg():
        total, n = 0, 0
        while True:
            v = yield total / n if n else None
            if v is None: return total
            total += v; n += 1
    g = avg(); next(g); a = g.send(4); b = g.send(8)
    try: g.send(None)
    except StopIteration as e: return a, b, e.value
@case
def generator_throw(x, y):
    log = []
    def g():
        while True:
            try: v = yield 1
            except ValueError as e: log.append(str(e)); yield "caught"
            finally: log.append("f")
    it = g(); next(it); r = it.throw(ValueError("x")); it.close()
    return r, log
@case
def generator_throw_class(x, y):
    def g():
        try: yield 1
        except KeyError: yield 2
    it = g(); next(it); return it.throw(KeyError), next(it, "end")
@case
def generator_closed(x, y):
    log = []
    def g():
        try: yield 1; yield 2
        except GeneratorExit: log.append("exit"); raise
    it = g(); next(it); it.close(); it.close()
    return log, next(it, "none")
@case
def generator_unstarted_close(x, y):
    it = count_up(2); it.close()
    return list(it)
@case
def generator_delegation_send(x, y):
    def inner():
        a = yield 1
        b = yield a * 2
        return a + b
    def outer():
        r = yield from inner()
        yield ("r", r)
    g = outer(); next(g); p = g.send(5); q = g.send(7)
    return p, q
@case
def generator_delegation_list(x, y):
    def g(): yield from [1, 2]; yield from "ab"; yield from {"k": 1}; r = yield from (); yield r
    return list(g())
@case
def generator_delegation_throw(x, y):
    log = []
    def inner():
        try: yield 1
        except ValueError: log.append("inner"); yield 2
    def outer(): yield from inner(); yield 3
    g = outer(); next(g); a = g.throw(ValueError()); return a, next(g), log
@case
def generator_tensors(x, y):
    def layers(t):
        for i in range(3): t = t * 2 + i; yield t
    return [t.sum() for t in layers(x)], torch.stack(list(layers(y)))
@case
def generator_lazy(x, y):
    log = []
    def g():
        for i in range(3): log.append(i); yield i
    for v in g():
        if v == 1: break
    return log
@case
def generator_expression_scope(x, y): n = 2; g = (i * n for i in range(3)); n = 5; return list(g)
@case
def generator_infinite(x, y):
    def nat():
        n = 0
        while True: yield n; n += 1
    return [v for v, _ in zip(nat(), "abc")]
@case
def generator_in_any(x, y):
    log = []
    def g():
        for i in range(5): log.append(i); yield i == 2
    return any(g()), log
@case
def generator_exception(x, y):
    def g():
        yield 1
        raise ValueError("g")
    try: return list(g())
    except ValueError as e: return str(e)
@case
def generator_stop_inside(x, y):
    def g():
        yield 1
        raise StopIteration
    try: list(g())
    except RuntimeError as e: return str(e)
@case
def generator_pipeline(x, y):
    def src(): yield from range(6)
    def even(it): return (v for v in it if v % 2 == 0)
    def sq(it):
        for v in it: yield v * v
    return list(sq(even(src())))
@case
def generator_attributes(x, y): g = count_up(1); return g.__name__, isinstance(g, types.GeneratorType), iter(g) is g, hasattr(g, "send")
@case
def generator_recursive(x, y):
    def flat(v):
        for i in v:
            if isinstance(i, (list, tuple)): yield from flat(i)
            else: yield i
    return list(flat([1, [2, (3, [4])], x.shape[0]]))
@case
def generator_unpack(x, y): a, b, c = count_up(3); d, *e = count_up(4); return a, b, c, d, e
@case
def generator_sorted(x, y): return sorted((v % 3 for v in range(6)), reverse=True), set(count_up(2)), "".join(str(v) for v in count_up(3)), 2 in count_up(5)
@case
def generator_context(x, y):
    out = []
    def g():
        try: yield x
        finally: out.append("closed")
    for v in g(): out.append(v.shape[0])
    return out

# ------------------------------------------------------------ coroutines
@case
def coroutine_driven(x, y): return drive(coro(x)), drive(coro_outer(1))
@case
def coroutine_send(x, y):
    async def f():
        a = await Awaitable(1)
        b = await Awaitable(2)
        return a, b
    c = f(); out = [c.send(None), c.send("A")]
    try: c.send("B")
    except StopIteration as e: return out, e.value
@case
def coroutine_types(x, y):
    async def f(): return await switch(3)
    c = f(); a = c.send(None)
    try: c.send(4)
    except StopIteration as e: return a, e.value
@case
def coroutine_exception(x, y):
    async def f():
        try: await coro("s")
        except TypeError: return "caught"
    return drive(f())
@case
def coroutine_close(x, y): c = coro(1); c.close(); return x
@case
def async_generators(x, y):
    async def f(): return [i async for i in agen(3)]
    return drive(f())
@case
def async_for(x, y):
    async def f():
        n = 0
        async for i in agen(4): n += i
        else: n += 100
        return n
    return drive(f())
@case
def async_with(x, y):
    async def f():
        async with AsyncCtx() as v:
            raise ValueError
        return v
    return drive(f())

# ------------------------------------------------------------ match
@case
def match_literals(x, y):
    def f(v):
        match v:
            case 1: return "one"
            case "a" | "b": return "letter"
            case None: return "none"
            case True: return "true"
            case -1 | 2.5: return "num"
            case 1 + 2j: return "complex"
            case b"z": return "bytes"
            case _: return "other"
    return [f(v) for v in (1, "b", None, -1, 2.5, 1 + 2j, b"z", (), True)]
@case
def match_sequences(x, y):
    def f(v):
        match v:
            case []: return "empty"
            case [a]: return ("one", a)
            case (1, *rest): return ("starts", rest)
            case [a, [b, c], *_]: return (a, b, c)
            case [*init, "end"]: return init
            case str() | bytes(): return "text"
            case [_, _]: return "pair"
    return [f(v) for v in ([], [5], (1, 2, 3), [2, (3, 4), 9], [7, 8, "end"], "ab", [3, 4], range(2), {1}, collections.deque([1]))]
@case
def match_mappings(x, y):
    def f(v):
        match v:
            case {"kind": "a", "n": int(n)} if n > 1: return ("a", n)
            case {"kind": k, **rest}: return (k, rest)
            case {}: return "mapping"
    return [f(v) for v in ({"kind": "a", "n": 3}, {"kind": "a", "n": 1}, {"q": 1}, [], collections.OrderedDict(kind=2), collections.defaultdict(int))]
@case
def match_classes(x, y):
    def f(v):
        match v:
            case P(x=0): return "zero"
            case P(a, y=b) if b: return (a, b)
            case P(1): return "p1"
            case NT(a, b): return ("nt", a, b)
            case int(n) | float(n): return ("num", n)
            case str(s): return s
            case Color.RED: return "red"
            case Color(): return "color"
            case list([a, *_]): return a
            case dict(): return "dict"
            case torch.Tensor(): return "tensor"
    return [f(v) for v in (P(0), P(2, 3), P(1), NT(1, 2), 5, 1.5, "s", Color.RED, Color.BLUE, [9, 8], {}, x)]
@case
def match_binding(x, y):
    match {"a": [1, {"b": (x, 2)}]}:
        case {"a": [int() as n, {"b": (t, k)}]} as whole: return n, t + k, len(whole)
@case
def match_shape(x, y):
    match x.shape:
        case (b, c) if b == c: return x * b
        case (b,): return x
@case
def match_none_falls(x, y):
    r = "untouched"
    match 5:
        case 6: r = "six"
    return r
@case
def match_too_many(x, y):
    try:
        match P(1):
            case P(1, 2, 3): return 1
    except TypeError as e: return str(e)
# fmt: on


@pytest.mark.parametrize("name", sorted(case))
def test_case(name):
    case.check(name)
