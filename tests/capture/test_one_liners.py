"""Expressions that end well or raise, called with one value after the other: as plain Python every time.

Each line is an expression of a tensor `x` and a value `a`, and the values that `a` has in calls of one compiled
function.
"""

from __future__ import annotations

import math
from importlib import import_module

import pytest
import torch

import dovetail
from dovetail.request import Request
from dovetail.runtime.dispatch.dispatcher import wrap_function
from tests.fuzz.python.observe import Walk, difference


class Plain:
    pass


class Index:
    def __init__(self, n):
        self.n = n

    def __index__(self):
        return self.n


class Anything(type):
    def __instancecheck__(cls, instance):
        return cls.answer(instance)

    def __subclasscheck__(cls, other):
        return cls.answer(other)


class Everything(metaclass=Anything):
    answer = staticmethod(lambda value: value is not None)


class Disguised:
    @property
    def __class__(self):
        return dict


class Overriding:
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return 123


def special(name, value):
    return type("Special", (), {name: lambda self, *args: value})


KEY, ONES, WEIGHT = Plain(), torch.ones(2), torch.nn.Linear(2, 2).weight
NAN, NEW = math.nan, lambda text="nan": float(text)
NAMES = {id(ONES): "ones", id(WEIGHT): "weight"}
MODULES = {name: import_module(name) for name in "collections copy itertools math numpy operator".split()}
WIDTH = 48  # of the column of expressions
CASES = """
list(range(a))                                  Plain() | Index(2) | Index("x") | 3
operator.index(a)                               Plain() | Index(2) | Index("x") | 3 | 2.5
[1, 2, 3][a]                                    Plain() | Index(2) | Index("x") | 1
copy.deepcopy(a) == a                           frozenset({KEY}) | frozenset({1}) | (KEY,) | (1, 2)
copy.deepcopy(a) is a                           (1, (2,)) | ([],) | frozenset({1}) | {1}
copy.copy(a) is a                               (1, [2]) | frozenset({1}) | {1}
[b.n for b in copy.deepcopy(a)]                 {Index(1)} | frozenset({Index(2)}) | {Index(3)}
torch.ones(a)                                   collections.deque([2]) | [2]
torch.stack(a)                                  collections.deque([ONES]) | [ONES]
torch.tensor(a)                                 collections.deque([2]) | [2] | collections.deque([2.5, 1])
torch.asarray(obj=a)                            [2] | collections.deque([3])
type(a).__name__                                numpy.float64(1) | numpy.float64(2) | numpy.float64(3)
[type(a), a.__class__, isinstance(a, float)]    numpy.float64(1) | numpy.float64(2) | numpy.float64(3)
type(a.sum()).__name__                          numpy.ones(2) | numpy.zeros(3, numpy.float32)
isinstance(a.sum(), numpy.ndarray)              numpy.ones(2) | numpy.zeros(3, numpy.float32)
[a[0] in a[1:], a[0] is a[1], len({*a})]        (NAN, NAN) | (NAN, NEW()) | (NEW(), NAN) | (1.0, 1)
[a[0] in a[1:], a[1] is a[0], len({*a})]        [NAN, NEW()] | [NAN, NAN] | [1.5, 2.5] | [NAN, NAN]
a[0] in a[1:]                                   (1.0, 2.0) | (3.0, 4.0) | (5.0, 6.0) | (NAN, NAN) | (NAN, NEW())
[NAN in a, a == (NAN,), a.count(NAN)]           (NAN,) | (NEW(),) | (1.0,)
{NAN: 1}.get(a)                                 NAN | NEW() | 1.0
a[0] is a[1]                                    [2.5] * 2 | [2.5, NEW("2.5")] | [2.5] * 2
id(a) == id(ONES)                               ONES | torch.ones(2) | ONES
NAMES.get(id(a))                                ONES | torch.ones(2) | ONES | WEIGHT
[id(a) == id(v) for v in (x, ONES, WEIGHT)]     ONES | torch.ones(2) | WEIGHT | ONES
[id(a), hash((a, 1)), id(WEIGHT)]               ONES | WEIGHT | ONES
list(itertools.islice("abcd", a))               2 | 2.5 | -1 | None | Index(3) | Plain()
list(itertools.islice("abcd", *a))              (1, 3) | (0, None, 2) | (0, 4, 0) | (1.5, 3) | (0, -1)
{a} <= {1, 2}                                   1 | bytearray(b"a") | numpy.ones(2) | numpy.float64(2) | [1]
[1, 2] == a[0]                                  [numpy.float64(2)] | [numpy.float64(1)] | [3]
a[0] == a[1]                                    ([[1]], numpy.float32(2)) | ([1, 2], numpy.int64(1)) | (1, 2)
a[0] + a[1]                                     (numpy.float32(2), [1]) | (numpy.int64(1), (2, 3))
[a[0]] == [a[1]]                                (numpy.float32(2), [1, 2]) | (numpy.int64(1), [1])
torch.ones(3)[a]                                () | (0,) | 1
a in (numpy.ones(2), 1)                         2.5 | 1.5
[round(a), 1][1]                                Plain() | 2.5
abs(a)                                          Plain() | -2.5
pow(a, 2, 3)                                    Plain() | 2
list(enumerate("ab", a))                        2 | 2.5 | True
list(itertools.repeat(1, a))                    2 | None | 3
isinstance(a, Everything)                       Plain() | None | 3 | Plain
[isinstance(a, (int, Everything)), type(a)]     Plain() | None | 3
issubclass(a, (int, Everything))                Plain | int | float
[isinstance(a, (dict, list)), type(a).__name__] Disguised() | {} | []
[a.__class__.__name__, isinstance(a, Plain)]    Disguised() | Plain()
torch.overrides.is_tensor_like(a)               Overriding() | Overriding | Plain() | ONES
1 if special("__bool__", a)() else 2            True | 1.2 | 1 | None | ONES
len(special("__len__", a)())                    3 | -1 | 2.5 | True | None | Index(4)
bool(special("__len__", a)())                   3 | -1 | 0 | "a"
hash(special("__hash__", a)())                  3 | 2**70 | "a" | True | 1.5
{special("__hash__", a)(): 1} and 1             3 | "a" | None
str(special("__str__", a)())                    "a" | 3 | None
f"{special('__format__', a)()}"                 "a" | 3
repr([special("__repr__", a)()])                "a" | 3
int(special("__int__", a)())                    3 | True | 2.5 | "1"
float(special("__float__", a)())                2.5 | 3 | "1"
type(special("__init__", a)())                  None | 3
list(special("__iter__", a)())                  iter([1]) | [1] | 3
[v for v in special("__iter__", a)()]           iter([1]) | 3
len(*a)                                         ([3],) | ([3], [4]) | ()
isinstance(3, int, **a)                         {} | {"invalid": True}
sum([3], **a)                                   {"start": 2} | {"begin": 3}
min([3], **a)                                   {"default": 2} | {"foo": 3} | {"key": None}
sorted([3, 1], **a)                             {"reverse": True} | {"foo": 3}
{3: 4}.get(**a)                                 {"key": 3} | {}
list(enumerate(**a))                            {"iterable": [5], "start": 2} | {"iterable": "a"} | {"start": 1}
str(**a)                                        {"object": 5} | {"nobody": 5} | {}
list.append(a, 1)                               [1] | (1,) | Plain()
collections.defaultdict.fromkeys(a, 1)          "ab" | [] | {"k": 2} | 3
collections.defaultdict(a)                      None | list | 3
[k for k, g in [*itertools.groupby(a)]]         [1, 1, 2] | "" | "aab"
[[*g] for k, g in [*itertools.groupby(a)]]      [1, 1, 2] | "" | "aab"
[next(g) for k, g in itertools.groupby(a)]      [1, 1, 2] | "aab"
[vars(a).get("n", 5), "n" in a.__dict__]        Plain() | Index(3) | Plain() | Index(4)
[next(a.__iter__()), *a.__iter__()]             range(3) | "ab" | b"ab"
a in {frozenset({1}), 2}                        {1} | {2} | frozenset({1}) | 2
{frozenset({1}), 2}.discard(a)                  {1} | {2} | [1]
(v := {1: 2}.items(), [v])[1][0] is v           1
"""


UNUSED = """
5 / t.item()                                    2.0 | 0.0
5 // t.item()                                   2.0 | 0.0
5 % t.int().item()                              2.0 | 0.0
5 / (t.int().item() + 1 - 1) * 0                2.0 | 0.0
5 / len(x[x > t])                               0.0 | 2.0
math.log(t.item())                              2.0 | 0.0
math.log(t.int().item())                        2.0 | 0.0
math.exp(t.item())                              2.0 | 1000.0
int(t.item())                                   2.0 | math.inf | math.nan
"""


def outcome(function, x, value):
    walk = Walk()
    try:
        walk.root("result", function(x, value))
    except Exception as error:
        walk.root("error", (type(error), str(error)))
    return walk


ENDLESS = """
next(itertools.islice(itertools.cycle(itertools.count(3)), 5, None))
list(zip("ab", itertools.cycle(itertools.count())))
[k for k, g in zip(range(3), itertools.groupby(itertools.count()))]
[list(itertools.islice(g, 2)) for k, g in itertools.islice(itertools.groupby(itertools.repeat(1)), 1)]
5 in itertools.chain("a", itertools.count())
any(v > 3 for v in itertools.accumulate(itertools.count()))
list(itertools.islice(itertools.chain.from_iterable(itertools.repeat([1, 2])), 5))
list(itertools.islice(itertools.tee(itertools.count())[0], 3))
list(itertools.islice(itertools.zip_longest(itertools.count(), "a"), 3))
list(itertools.islice(itertools.filterfalse(bool, itertools.cycle([0, 1])), 3))
{5}.isdisjoint(itertools.count())
{1, 2}.issuperset(itertools.count())
"""


@pytest.mark.parametrize("text", ENDLESS.strip().splitlines())
def test_iterators_without_an_end_stay_lazy(text):
    compare(text, ["1"])


NAMED = """
torch.is_floating_point(input=x)
torch.numel(input=x)
torch.is_complex(input=x)
torch.is_signed(input=x)
torch.is_conj(input=x)
torch.is_autocast_enabled(device_type="cpu")
torch.overrides.is_tensor_like(inp=x)
torch._assert(condition=True, message="a")
torch.tensor(data=[1, 2])
torch.where(condition=x > 0, input=x, other=x * 2)
torch.nonzero(input=x > 5).shape[1]
"""


@pytest.mark.parametrize("text", NAMED.strip().splitlines())
def test_arguments_of_torchs_functions_by_name(text):
    compare(text, ["1"])


def renamed(name, qualname):
    def inner():
        return 1

    inner.__name__, inner.__qualname__ = name, qualname
    return inner


@pytest.mark.filterwarnings("ignore:torch.is_autocast_cpu_enabled:DeprecationWarning")
@pytest.mark.parametrize("text", ["torch.is_autocast_cpu_enabled()", 'torch.nn.modules.utils._ntuple(3, "triple")(a)',
                                  'vars(torch.nn.modules.utils)["_ntuple"](2)([a, a])', 'renamed("b", "c.d").__name__',
                                  'renamed("b", a).__qualname__', 'renamed("b", "c.d")()'])  # fmt: skip
def test_in_one_graph(text):
    function = eval(f"lambda x, a: (x + 1, {text})", {**MODULES, **globals()})
    compiled = dovetail.compile(function, backend="eager", fullgraph=True)
    for value in ("a", "b", "c"):
        for on in (False, True):
            with torch.autocast("cpu", enabled=on):
                assert compiled(ONES, value)[1] == function(ONES, value)[1]


def test_a_function_that_is_renamed_and_returned():
    made = dovetail.compile(lambda x, a: (x + 1, renamed(a, "c.d")), backend="eager", fullgraph=True)(ONES, "b")[1]
    assert (made.__name__, made.__qualname__, made()) == ("b", "c.d", 1)
    broken = dovetail.compile(lambda x: (x + 1, renamed(3, "c.d")), backend="eager")
    with pytest.raises(TypeError, match="must be set to a string"):
        broken(ONES)


def codes(records):
    captured = [found for r in records if (found := getattr(r, "captured", None)) is not None]
    return [b.code for c in captured for b in c.breaks]


def cases(table):
    found = {}
    for line in table.strip().splitlines():
        text, values = line[:WIDTH].strip(), line[WIDTH:].split(" | ")
        assert text not in found, text
        found[text] = values
    return found


@pytest.mark.parametrize(("text", "values"), cases(CASES).items())
def test_as_plain_python(text, values):
    compare(text, values)


@pytest.mark.parametrize("in_graph", [False, True])
@pytest.mark.parametrize(("text", "values"), cases(UNUSED).items())
def test_errors_of_numbers_that_nobody_uses(text, values, in_graph):
    with dovetail.config.patch(capture_scalar_outputs=in_graph):
        compare(f"[t := torch.tensor(a), {text}, None][2]", values)
        compare(f"[t := torch.tensor(a), {text}, None][2]", values, "dovetail")


ITERATORS = """
itertools.chain([x], [1], (2,))
itertools.chain.from_iterable([[x], [1], (2,)])
itertools.islice([x, 1, 2, 3], 3)
itertools.accumulate([1, 2, 3])
itertools.compress([x, 1, 2, 3], [1, 0, 1, 1])
itertools.starmap(pow, [(1, 2), (3, 4), (5, 6)])
itertools.takewhile(bool, [1, 2, 3, 0])
itertools.dropwhile(bool, [0, 1, 2])
itertools.filterfalse(bool, [0, [], ()])
itertools.cycle([1, x])
"""


@pytest.mark.parametrize("consumed", [0, 1, 9])
@pytest.mark.parametrize("text", ITERATORS.strip().splitlines())
def test_iterators_that_are_returned(text, consumed):
    def function(x):
        iterator = make(x)
        return iterator, list(itertools.islice(iterator, consumed)), x + 1

    itertools, make = MODULES["itertools"], eval(f"lambda x: {text}", {**MODULES, **globals()})
    compiled = dovetail.compile(function, backend="eager", fullgraph=True)
    for _ in range(2):
        ours, theirs = compiled(ONES), function(ONES)
        assert type(ours[0]) is type(theirs[0])
        assert list(itertools.islice(ours[0], 5)) == list(itertools.islice(theirs[0], 5))
        assert ours[1] == theirs[1]


@pytest.mark.parametrize("text", ["product([1], [2])", "permutations([1])", "combinations([1], 1)", "pairwise([1, 2])",
                                  "zip_longest([1])", "groupby([1])", "repeat(1, 2)"])  # fmt: skip
def test_iterators_that_are_returned_at_their_end(text):
    make = eval(f"lambda x: itertools.{text}", MODULES)
    compiled = dovetail.compile(lambda x: (iterator := make(x), len(list(iterator)), x + 1)[0], backend="eager")
    assert type(compiled(ONES)) is type(make(ONES))
    assert list(compiled(ONES)) == []


def test_tensors_met_twice_are_found_by_their_ids_in_one_graph():
    def function(x, tensors):
        seen = set()
        for tensor in tensors:
            if id(tensor) not in seen:
                seen.add(id(tensor))
                x = x + tensor
        return x

    compiled, other = dovetail.compile(function, backend="eager", fullgraph=True), torch.ones(2)
    for tensors in ([ONES, other], [ONES, ONES], [other, other, ONES]):
        torch.testing.assert_close(compiled(ONES, tensors), function(ONES, tensors))


def test_an_iterator_in_the_place_of_a_container_is_left_as_it_is():
    compiled = dovetail.compile(lambda x, a: (x + 1, a == {"k": 1}), backend="eager")
    for given in ({"k": 1}, {1, 2}, {"k": 2}):
        compiled(ONES, given)
    iterator = iter([1, 2, 3])
    compiled(ONES, iterator)
    assert list(iterator) == [1, 2, 3]


def compare(text, values, backend="eager"):
    space = {**MODULES, **globals()}
    function = eval(f"lambda x, a: (x + 1, {text})[1]", space)
    records = []
    compiled = wrap_function(function, Request(False, None, backend, "default", {}, records, []))
    for value in values:
        ours, theirs = (outcome(f, torch.ones(2), eval(value, space)) for f in (compiled, function))
        assert difference(ours, theirs) is None, value
    assert "internal-error" not in codes(records)
