"""Classes made and changed inside, attribute protocols, dataclasses, enums; each case is one graph."""

# ruff: noqa  one case is one line
from __future__ import annotations

import abc
import collections
import collections.abc
import contextlib
import copy
import dataclasses
import enum
import functools
import types
import typing
import weakref

import pytest
import torch

from tests.capture.python_cases import Cases

case = Cases()


# fmt: off
class Base:
    kind = "base"
    def __init__(self, t): self.t = t
    def go(self): return self.t + 1
    @classmethod
    def of(cls, t): return cls(t)
    @staticmethod
    def twice(t): return t * 2

SHARED = Base(1)
class Left(Base):
    def go(self): return super().go() * 2
class Right(Base):
    def go(self): return super().go() + 10
class Diamond(Left, Right):
    def go(self): return super().go() - self.t

class Temperature:
    def __init__(self, c): self._c = c
    @property
    def f(self): return self._c * 9 / 5 + 32
    @f.setter
    def f(self, value): self._c = (value - 32) * 5 / 9
    @f.deleter
    def f(self): self._c = 0

class Typed:
    def __set_name__(self, owner, name): self.name = "_" + name
    def __get__(self, obj, cls=None): return self if obj is None else getattr(obj, self.name, 0)
    def __set__(self, obj, value): setattr(obj, self.name, value * 2)
    def __delete__(self, obj): delattr(obj, self.name)

class WithTyped:
    a = Typed()
    b = Typed()

class Lazyish:
    def __init__(self): self.log = []
    def __getattr__(self, name):
        if name.startswith("x_"): return len(name)
        raise AttributeError(name)
    def __setattr__(self, name, value): object.__setattr__(self, name, value if name == "log" else (name, value))
    def __delattr__(self, name): self.log.append(name); object.__delattr__(self, name)

class Every:
    def __init__(self): self.n = 1
    def __getattribute__(self, name): return object.__getattribute__(self, name) if name.startswith("_") or name == "n" else name * 2

class Slotted:
    __slots__ = ("a", "b")
    def __init__(self, a, b=None): self.a = a; self.b = b

class Vec:
    def __init__(self, *v): self.v = v
    def __add__(self, o): return Vec(*[a + b for a, b in zip(self.v, o.v)]) if isinstance(o, Vec) else NotImplemented
    def __radd__(self, o): return Vec(*[o + a for a in self.v])
    def __iadd__(self, o): self.v = (*self.v, o); return self
    def __matmul__(self, o): return sum(a * b for a, b in zip(self.v, o.v))
    def __neg__(self): return Vec(*[-a for a in self.v])
    def __invert__(self): return "inv"
    def __abs__(self): return len(self.v)
    def __round__(self, n=0): return ("round", n)
    def __len__(self): return len(self.v)
    def __getitem__(self, k): return self.v[k]
    def __eq__(self, o): return isinstance(o, Vec) and self.v == o.v
    def __hash__(self): return hash(self.v)
    def __lt__(self, o): return self.v < o.v
    def __le__(self, o): return self.v <= o.v
    def __contains__(self, x): return any(x == a for a in self.v)
    def __bool__(self): return bool(self.v)
    def __call__(self, k=1): return Vec(*[a * k for a in self.v])
    def __repr__(self): return f"Vec{self.v}"
    def __format__(self, spec): return f"<{spec}>"
    def __index__(self): return self.v[0]
    def __int__(self): return 42
    def __float__(self): return 4.5
    def __enter__(self): return self
    def __exit__(self, *e): return True
    def __divmod__(self, o): return ("dm", o)
    def __rsub__(self, o): return ("rsub", o)
    def __pow__(self, o, m=None): return ("pow", o, m)
    def __lshift__(self, o): return ("ls", o)
    def __rtruediv__(self, o): return ("rdiv", o)
    def __reversed__(self): return iter(self.v[::-1])

class Meta(type):
    def __call__(cls, *args): made = super().__call__(*args); made.meta = cls.__name__; return made
    def __getattr__(cls, name): return f"meta {name}"
    def __len__(cls): return 3
    def __iter__(cls): return iter("abc")
    def __contains__(cls, k): return k == "in"
    def __getitem__(cls, k): return k * 2
    @property
    def label(cls): return cls.__name__ + "!"
    def helper(cls): return cls.__name__
class Metaed(metaclass=Meta):
    def __init__(self, n=0): self.n = n

class Singleton:
    _one = None
    def __new__(cls, *args):
        made = super().__new__(cls); made.args = args
        return made

class Color(enum.Enum):
    RED = 1
    BLUE = 2
    CRIMSON = 1
    @property
    def lower(self): return self.name.lower()
    @classmethod
    def default(cls): return cls.BLUE
class Num(enum.IntEnum):
    ONE = 1
    TWO = 2
class Perm(enum.Flag):
    R = enum.auto()
    W = enum.auto()
    X = enum.auto()
class Text(str, enum.Enum):
    A = "a"
    B = "b"
class IFlag(enum.IntFlag):
    A = 1
    B = 2

@dataclasses.dataclass
class Point:
    x: typing.Any
    y: int = 2
    tags: list = dataclasses.field(default_factory=list)
    hidden: int = dataclasses.field(default=5, repr=False, compare=False)
    def norm(self): return self.x * self.y
@dataclasses.dataclass(frozen=True)
class Frozen:
    a: int
    b: int = 3
@dataclasses.dataclass(order=True)
class Ordered:
    a: int
    b: str = "z"
@dataclasses.dataclass
class Init:
    a: int
    scale: dataclasses.InitVar[int] = 2
    total: int = dataclasses.field(init=False)
    common: typing.ClassVar[int] = 9
    def __post_init__(self, scale): self.total = self.a * scale
@dataclasses.dataclass(kw_only=True)
class KwOnly:
    a: int
    b: int = 1
@dataclasses.dataclass
class ChildPoint(Point):
    z: int = 7
@dataclasses.dataclass(slots=True)
class SlotsData:
    a: typing.Any
    b: int = 1
@dataclasses.dataclass(eq=True, unsafe_hash=True)
class Hashed:
    a: int

class NT(typing.NamedTuple):
    a: typing.Any
    b: int = 3
    def total(self): return self.a + self.b
CN = collections.namedtuple("CN", "p q", defaults=[4])
class SubCN(CN):
    __slots__ = ()
    def s(self): return self.p + self.q

class Shape(abc.ABC):
    @abc.abstractmethod
    def area(self): ...
    def describe(self): return self.area() * 2
class Square(Shape):
    def __init__(self, n): self.n = n
    def area(self): return self.n * self.n
class Foreign: ...
Shape.register(Foreign)
@typing.runtime_checkable
class HasGo(typing.Protocol):
    def go(self): ...
class Gen(typing.Generic[typing.TypeVar("T")]):
    def __init__(self, v): self.v = v

class Cached:
    def __init__(self, t): self.t = t; self.calls = 0
    @functools.cached_property
    def costly(self): self.calls += 1; return self.t * 3
    @functools.lru_cache  # noqa: B019
    def method(self, k): return k + 1
    part = functools.partialmethod(lambda self, a, b: (a, b), 7)
    @functools.singledispatchmethod
    def show(self, v): return "any"
    @show.register
    def _(self, v: int): return "int"
@functools.total_ordering
class Total:
    def __init__(self, n): self.n = n
    def __eq__(self, o): return self.n == o.n
    def __lt__(self, o): return self.n < o.n

class Registry:
    found = {}
    def __init_subclass__(cls, tag="none", **kw): super().__init_subclass__(**kw); cls.tag = tag
class Counted:
    count = 0
    def __init__(self): type(self).count += 1
class UserIter:
    def __init__(self, n): self.n = n
    def __iter__(self): return self
    def __next__(self):
        if self.n == 0: raise StopIteration
        self.n -= 1
        return self.n
class OldSeq:
    def __getitem__(self, k):
        if k > 2: raise IndexError
        return k * 10
class MyDict(dict):
    def __missing__(self, k): return k + "?"
    def __getattr__(self, k): return self[k]
class MyList(list):
    def append(self, v): super().append(v); super().append(v)
class MyMapping(collections.abc.Mapping):
    def __init__(self, **kw): self._d = kw
    def __getitem__(self, k): return self._d[k]
    def __iter__(self): return iter(self._d)
    def __len__(self): return len(self._d)
class MySeq(collections.abc.Sequence):
    def __getitem__(self, k): return [1, 2, 3][k]
    def __len__(self): return 3
class MyMutable(collections.abc.MutableMapping):
    def __init__(self): self.d = {}
    def __getitem__(self, k): return self.d[k]
    def __setitem__(self, k, v): self.d[k] = v
    def __delitem__(self, k): del self.d[k]
    def __iter__(self): return iter(self.d)
    def __len__(self): return len(self.d)
class UD(collections.UserDict): ...
class UL(collections.UserList): ...

# ------------------------------------------------------------ inheritance and attribute protocols
@case
def methods_and_mro(x, y): return Diamond(x).go(), Left.of(y).go(), Base.twice(x), Diamond.kind, Diamond.__mro__[1].__name__
@case
def super_forms(x, y): return super(Diamond, Diamond(x)).go(), super(Left, Diamond(x)).go(), Base.go(Diamond(x))
@case
def super_classmethod(x, y):
    class A:
        @classmethod
        def make(cls, v): return (cls.__name__, v)
    class B(A):
        @classmethod
        def make(cls, v): return super().make(v + 1)
    return B.make(1)
@case
def property_set_delete(x, y):
    t = Temperature(x); t.f = y; a = t._c; del t.f
    return a, t._c, t.f
@case
def property_without_setter(x, y):
    class A:
        @property
        def p(self): return 1
    try: A().p = 2
    except AttributeError: return x
@case
def descriptors(x, y):
    w = WithTyped(); w.a = x; w.b = 3
    before = w.a, w.b
    del w.b
    return before, w.b, isinstance(WithTyped.a, Typed), sorted(w.__dict__)
@case
def getattr_fallback(x, y):
    v = Lazyish(); v.q = 3; r = v.x_abc, v.q, hasattr(v, "nope"); del v.q
    return r, v.log, getattr(v, "gone", "default")
@case
def getattribute(x, y): return Every().hello, Every().n
@case
def slots(x, y):
    v = Slotted(x); v.b = y; del v.a
    try: v.c = 1
    except AttributeError: return v.b, hasattr(v, "a")
@case
def setattr_delattr(x, y):
    v = Base(x); setattr(v, "z", y); w = getattr(v, "z"); delattr(v, "z")
    return w, hasattr(v, "z"), vars(v).keys() == {"t"}
@case
def object_dict(x, y):
    v = Base(x); v.__dict__["w"] = y; v.__dict__.update(q=1)
    return v.w, v.q, list(v.__dict__), "w" in v.__dict__, len(vars(v))
@case
def new_override(x, y): return Singleton(1, 2).args, type(Singleton()).__name__
@case
def new_returns_other(x, y):
    class A:
        def __new__(cls, v): return v * 2
    return A(x)
@case
def bound_methods(x, y):
    b = Base(x); m = b.go
    return m(), m.__self__ is b, m.__func__ is Base.go, b.go == b.go, b.go is b.go, m.__name__
@case
def class_of(x, y): return type(Base(x)) is Base, Base(x).__class__.__name__, isinstance(Left(x), Base), issubclass(Left, (int, Base))
@case
def metaclass_call(x, y): return Metaed(3).meta, Metaed(4).n, Metaed.anything, Metaed.label, Metaed.helper()
@case
def metaclass_container(x, y): return len(Metaed), list(Metaed), "in" in Metaed, Metaed[4]
@case
def singleton_pattern(x, y):
    class S:
        one = None
        def __new__(cls):
            if cls.one is None: cls.one = super().__new__(cls)
            return cls.one
    return S() is S()

# ------------------------------------------------------------ classes made inside
@case
def class_inside(x, y):
    class A:
        n = 3
        def f(self, t): return t * self.n
    return A().f(x), A.n, A.__name__
@case
def class_closure(x, y):
    class A:
        def f(self): return x + y
        def g(self): return self.f() * 2
    return A().g()
@case
def class_inherits_inside(x, y):
    class A(Base):
        def go(self): return super().go() * 3
    return A(x).go(), issubclass(A, Base), A.kind
@case
def class_body_logic(x, y):
    class A:
        names = [c.upper() for c in "ab"]
        if len(names) == 2: z = 1
        else: z = 2
        for i in range(3): pass
        del i
    return A.names, A.z, hasattr(A, "i")
@case
def class_with_tensor_attribute(x, y):
    class A:
        t = x + 1
        def f(self): return self.t * 2
    return A.t, A().f()
@case
def class_attribute_assigned(x, y):
    class A: n = 1
    A.n = 2; A.m = x; a = A()
    a.n += 1
    return A.n, a.n, A.m, A().m
@case
def class_method_assigned(x, y):
    class A: ...
    A.f = lambda self, t: t + 1
    a = A(); a.g = types.MethodType(lambda self, t: t * 2, a)
    return a.f(x), a.g(y)
@case
def class_decorator(x, y):
    def deco(c): c.extra = 5; return c
    @deco
    class A: ...
    return A.extra, A().extra
@case
def class_properties_inside(x, y):
    class A:
        def __init__(self): self._v = x
        @property
        def v(self): return self._v
        @v.setter
        def v(self, n): self._v = n * 2
        @staticmethod
        def s(q): return q + 1
        @classmethod
        def c(cls): return cls.__name__
    a = A(); a.v = y
    return a.v, A.s(1), A.c(), a.c()
@case
def class_slots_inside(x, y):
    class A:
        __slots__ = ("v",)
        def __init__(self, v): self.v = v
    return A(x).v, hasattr(A(1), "__dict__")
@case
def class_metaclass_inside(x, y):
    class M(type):
        def __new__(mcs, name, bases, ns, **kw):
            made = super().__new__(mcs, name, bases, ns); made.tagged = name + "!"
            return made
    class A(metaclass=M): ...
    return A.tagged, type(A).__name__
@case
def init_subclass(x, y):
    class A(Registry, tag="hi"): ...
    class B(Registry): ...
    return A.tag, B.tag
@case
def set_name_inside(x, y):
    class D:
        def __set_name__(self, owner, name): self.n = name
        def __get__(self, o, c): return self.n
    class A: field = D()
    return A().field
@case
def type_three_arguments(x, y):
    A = type("A", (Base,), {"n": 4, "f": lambda self: self.n + 1})
    return A(x).f(), A.__name__, A(x).go()
@case
def type_of_and_call(x, y): return type(Base(x))(y).go()
@case
def dataclass_inside(x, y):
    @dataclasses.dataclass
    class P:
        a: torch.Tensor
        b: int = 2
    p = P(x)
    return p.a * p.b, P(1) == P(1), repr(P(1, 2)).split(".")[-1]
@case
def namedtuple_inside(x, y):
    P = collections.namedtuple("P", "a b")
    p = P(x, 2)
    return p.a * p.b, p._replace(b=3).b, P._fields, p[1]
@case
def typed_namedtuple_inside(x, y):
    class P(typing.NamedTuple):
        a: int
        b: int = 5
    return P(1).b, P(1) == (1, 5)
@case
def enum_inside(x, y):
    class E(enum.Enum):
        A = 1
        B = 2
    return E.A.name, E(2).name, len(E), [e.value for e in E]
@case
def exception_class_inside(x, y):
    class Bad(ValueError):
        def __init__(self, n): super().__init__(f"bad {n}"); self.n = n
    try: raise Bad(3)
    except ValueError as e: return str(e), e.n, type(e).__name__
@case
def module_class_inside(x, y):
    class M(torch.nn.Module):
        def forward(self, t): return t.relu() + 1
    return M()(x)
@case
def simple_namespace(x, y):
    n = types.SimpleNamespace(a=x, b=2); n.c = 3; del n.b
    return n.a, n.c, hasattr(n, "b"), n == types.SimpleNamespace(a=x, c=3) if False else 0
@case
def generic_class(x, y): return Gen[int](x).v, Gen(y).v
@case
def counted_class(x, y):
    old = Counted.count; Counted(); Counted(); n = Counted.count; Counted.count = old
    return n - old

# ------------------------------------------------------------ operators of user classes
@case
def arithmetic_overloads(x, y): return (Vec(1, 2) + Vec(3, 4)).v, (1 + Vec(1)).v, Vec(1, 2) @ Vec(3, 4), (-Vec(1)).v, ~Vec(1), abs(Vec(1, 2)), round(Vec(1), 2)
@case
def more_arithmetic(x, y): return divmod(Vec(1), 2), 3 - Vec(1), Vec(1) ** 2, pow(Vec(1), 2, 3), Vec(1) << 2, 1 / Vec(1), Vec(1) == Vec(1), Vec(1) != Vec(2)
@case
def reflected_with_tensor(x, y): return (x + Vec(1, 2)).v if False else Vec(x, y) @ Vec(y, x)
@case
def in_place_overload(x, y):
    v = w = Vec(1); v += 5
    return v.v, v is w
@case
def comparison_overloads(x, y): return Vec(1) < Vec(2) <= Vec(2), sorted([Vec(3), Vec(1)])[0].v, max(Vec(1), Vec(4)).v, Vec(2) > Vec(1)
@case
def container_overloads(x, y): return len(Vec(1, 2)), Vec(1, 2)[1], 2 in Vec(1, 2), bool(Vec()), [*Vec(1, 2)], list(reversed(Vec(1, 2))), Vec(5, 6)[::-1]
@case
def hash_overloads(x, y): return {Vec(1): "a"}[Vec(1)], len({Vec(1), Vec(1), Vec(2)}), Vec(2) in {Vec(2): 0}, hash(Vec(1)) == hash((1,))
@case
def text_overloads(x, y): return repr(Vec(1)), str(Vec(2)), f"{Vec(1)!r}", f"{Vec(1):>3}", "%s" % Vec(1), "{}".format(Vec(1)), [Vec(1)].__repr__() if False else ""
@case
def number_overloads(x, y): return int(Vec(1)), float(Vec(1)), [10, 20, 30][Vec(1)], range(Vec(3)), "ab" * Vec(2) if False else 0
@case
def call_overload(x, y): return Vec(1, 2)(3).v, Vec(x)(2).v[0]
@case
def with_suppress(x, y):
    with Vec(1): raise ValueError
    return x
@case
def user_iterators(x, y): return list(UserIter(3)), [*OldSeq()], sum(UserIter(4)), 20 in OldSeq(), dict(enumerate(UserIter(2)))
@case
def identity_and_equality(x, y):
    a, b = Base(1), Base(1)
    return a == b, a == a, a is not b, a in [a], b in [a], {a: 1}.get(b), [a].index(a)

# ------------------------------------------------------------ dataclasses
@case
def dataclass_basic(x, y): p = Point(x); p.tags.append(1); return p.norm(), p.tags, p.hidden, Point(1) == Point(1), Point(1, tags=[2]) != Point(1)
@case
def dataclass_repr(x, y): return repr(Point(1)), str(Frozen(1)), f"{Ordered(1)}"
@case
def dataclass_frozen(x, y):
    f = Frozen(1)
    try: f.a = 2
    except dataclasses.FrozenInstanceError: return hash(f) == hash(Frozen(1)), {f: 1}[Frozen(1, 3)]
@case
def dataclass_replace(x, y): return dataclasses.replace(Frozen(1), b=9).b, dataclasses.replace(Point(x), y=5).norm()
@case
def dataclass_asdict(x, y): return dataclasses.asdict(Frozen(1)), dataclasses.astuple(Ordered(2)), dataclasses.asdict(Point(1))
@case
def dataclass_asdict_tensor(x, y): return dataclasses.asdict(Point(x + 1))
@case
def dataclass_fields(x, y): return [f.name for f in dataclasses.fields(Point)], {f.name: getattr(Point(1), f.name) for f in dataclasses.fields(Point(1))}
@case
def dataclass_order(x, y): return Ordered(1) < Ordered(2), sorted([Ordered(2), Ordered(1, "b"), Ordered(1, "a")])[0].b, Ordered(1) >= Ordered(1)
@case
def dataclass_initvar(x, y): return Init(3).total, Init(3, 5).total, Init.common
@case
def dataclass_kwonly(x, y): return KwOnly(a=1).b, KwOnly(b=3, a=2).a
@case
def dataclass_child(x, y): return ChildPoint(x, 3, z=1).norm(), ChildPoint(1).z, dataclasses.is_dataclass(ChildPoint)
@case
def dataclass_slots(x, y): s = SlotsData(x); s.b = 5; return s.a, s.b
@case
def dataclass_hash(x, y): return len({Hashed(1), Hashed(1), Hashed(2)})
@case
def dataclass_returned(x, y): return Frozen(2), Ordered(1, "q"), [SlotsData(4)]
@case
def dataclass_field_access(x, y): return Point.__dataclass_fields__["y"].default, "x" in Point.__dataclass_fields__, Point.__match_args__

# ------------------------------------------------------------ named tuples, enums
@case
def named_tuples(x, y): n = NT(x); return n.a, n.b, n.total(), n[0], n._fields, n._replace(b=1).b, list(n._asdict()), NT(1, 2) == (1, 2)
@case
def named_tuples_collections(x, y): c = CN(x); return c.q, CN._make([1, 2]), SubCN(1, 2).s(), c._asdict()["p"], CN(q=1, p=2), len(c)
@case
def named_tuple_unpack(x, y): a, b = NT(x, 2); return a * b, [*CN(1)], CN(1, 2) + (3,), CN(1, 2)[:1], max(CN(3, 9))
@case
def named_tuple_repr(x, y): return repr(CN(1, 2)), str(NT(1)), CN(1, 2) < CN(2, 0), hash(CN(1, 2)) == hash((1, 2))
@case
def enum_access(x, y): return Color.RED.name, Color(2).name, Color["BLUE"].value, Color.RED is Color.CRIMSON, Color.RED.lower, Color.default().value, Color.RED == Color.BLUE
@case
def enum_iteration(x, y): return [c.name for c in Color], len(Color), list(Color)[0] is Color.RED, Color.RED in Color, list(Color.__members__)
@case
def enum_repr(x, y): return str(Color.RED), repr(Color.RED), f"{Num.ONE}", f"{Text.A.value}", Text.A == "a", hash(Color.RED) == hash(Color.RED)
@case
def enum_int(x, y): return x * Num.TWO, Num.ONE + 1, Num(2) is Num.TWO, Num.ONE < Num.TWO, [10, 20][Num.ONE], max(Num).name
@case
def enum_flags(x, y): return (Perm.R | Perm.W).value, Perm.R in (Perm.R | Perm.X), (Perm.R | Perm.W) & Perm.W == Perm.W, bool(Perm.R & Perm.X), ~Perm.R == Perm.W | Perm.X, IFlag.A | 4
@case
def enum_bad_value(x, y):
    try: Color(99)
    except ValueError as e: return str(e)
@case
def enum_keys(x, y): return {Color.RED: x}[Color.RED], {c: c.value for c in Color}[Color.BLUE], Color.RED in {Color.RED}
@case
def enum_dispatch(x, y): return {Color.RED: torch.add, Color.BLUE: torch.mul}[Color.RED](x, y)

# ------------------------------------------------------------ abc, protocols, typing
@case
def abstract_classes(x, y): return Square(x).describe(), isinstance(Foreign(), Shape), issubclass(Foreign, Shape), isinstance(3, collections.abc.Hashable)
@case
def abstract_instantiation(x, y):
    try: Shape()
    except TypeError: return x
@case
def abc_checks(x, y): return isinstance([], collections.abc.Sequence), isinstance({}, collections.abc.Mapping), isinstance({1}, collections.abc.Set), isinstance(iter([]), collections.abc.Iterator), isinstance(len, collections.abc.Callable), isinstance((i for i in ()), collections.abc.Generator), isinstance(x, collections.abc.Iterable)
@case
def protocol_checks(x, y): return isinstance(Base(x), HasGo), isinstance(3, HasGo)
@case
def union_checks(x, y): return isinstance(3, int | str), isinstance(x, torch.Tensor | None), isinstance("s", (int, str)), issubclass(bool, int | str)
@case
def typing_helpers(x, y): return typing.cast(int, 3), typing.get_origin(list[int]) is list, typing.get_args(dict[str, int])[0] is str, typing.get_type_hints(Base.go), list[int]([1, 2]), typing.Optional[int] == int | None
@case
def type_checking(x, y):
    if typing.TYPE_CHECKING: return y
    v: int = 3
    w: list[int]
    return x * v
@case
def user_mappings(x, y): m = MyMapping(a=1, b=2); return m["a"], list(m), m.get("q"), dict(m), "b" in m, sorted(m.items()), len(m), {**m}, list(m.values()), m == {"a": 1, "b": 2}
@case
def user_sequences(x, y): s = MySeq(); return list(s), s.index(2), 3 in s, list(reversed(s)), s.count(1)
@case
def user_mutable(x, y): m = MyMutable(); m["a"] = 1; m.update(b=2); m.setdefault("c", 3); p = m.pop("a"); del m["b"]; return p, dict(m), m.popitem(), len(m)
@case
def dict_subclass(x, y): d = MyDict(a=1); d["b"] = x; return d["zz"], d.a, d.get("q"), len(d), list(d), d.b
@case
def list_subclass(x, y): v = MyList([1]); v.append(2); return list(v), len(v), v[0], isinstance(v, list)
@case
def user_dict_list(x, y): d = UD(a=1); d["b"] = 2; v = UL([1, 2]); v.append(3); return dict(d), d.get("q"), list(v), len(v), v[1:].data, "a" in d
@case
def cached_properties(x, y): c = Cached(x); a = c.costly; b = c.costly; return a, b, c.calls
@case
def cached_methods(x, y): return Cached(x).method(3), Cached(x).part(8)
@case
def single_dispatch_method(x, y): return Cached(x).show("s"), Cached(x).show(1)
@case
def total_order(x, y): return Total(1) < Total(2), Total(1) >= Total(1), Total(3) > Total(2), Total(1) <= Total(0), sorted([Total(2), Total(1)])[0].n
@case
def weak_reference(x, y): r = weakref.ref(SHARED); return r() is SHARED, r().kind
@case
def object_defaults(x, y): o = object(); return o == o, o != object(), isinstance(o, object), bool(o), o is None
@case
def id_hash_is(x, y): a = [1]; b = a; return id(a) == id(b), id(a) == id([1]), hash("a") == hash("a"), a is b
@case
def copy_objects(x, y): p = Base(x); q = copy.copy(p); q.t = y; r = copy.deepcopy(p); return p.t, q.t, r.t, type(r).__name__
@case
def native_attributes(x, y): return hasattr(Base, "__abstractmethods__"), getattr(int, "__abstractmethods__", 3), Base.__basicsize__
@case
def class_dict(x, y): return "go" in Base.__dict__, "go" in vars(Left), Base.__doc__, Base.__name__, Base.__qualname__, Base.__module__, Left.__bases__[0] is Base, Base.__dict__["kind"]
@case
def callable_checks(x, y): return callable(Vec(1)), callable(Base(x)), callable(len), callable(Base), callable(lambda: 0), callable(x)
@case
def object_as_context(x, y):
    class T:
        def __enter__(self): self.v = x; return self
        def __exit__(self, t, e, tb): self.done = t is None; return False
    with T() as t: z = t.v + 1
    return z, t.done
@case
def nested_class(x, y):
    class A:
        class B: n = 3
        def get(self): return self.B.n
    return A().get(), A.B.__qualname__.split(".")[-1]
@case
def method_via_class_attr(x, y): return Left.__dict__["go"](Left(x)), getattr(Left, "go")(Left(y)), Left.go.__get__(Left(x))()
@case
def reduce_methods(x, y): return [Base.go, Left.go][0](Base(x)), list(map(Base.go, [Base(x), Left(y)]))
@case
def instance_shadows_class(x, y): b = Base(x); b.kind = "own"; k = b.kind; del b.kind; return k, b.kind
@case
def abstract_property(x, y):
    class A(abc.ABC):
        @property
        @abc.abstractmethod
        def v(self): ...
    class B(A):
        @property
        def v(self): return x
    return B().v
@case
def context_class(x, y):
    class C(contextlib.ContextDecorator):
        def __enter__(self): return self
        def __exit__(self, *e): return False
    @C()
    def f(t): return t + 1
    return f(x)
# fmt: on


@pytest.mark.parametrize("name", sorted(case))
def test_case(name):
    case.check(name)
