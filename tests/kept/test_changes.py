"""What another process has compiled is used where nothing has changed, and nowhere else."""

from __future__ import annotations

import pytest

from tests.kept import processes

#: A program as text; each of the changes `(old, new)` must lead to another compilation, or to no other result.
PROGRAMS = {
    "a line": ("""
def f(x):
    return x.sin() * 2
show(dovetail.compile(f)(torch.ones(3)))
""", [("* 2", "* 3"), (".sin()", ".cos()")]),
    "a global": ("""
SCALE = 2.0
def f(x):
    return x * SCALE
show(dovetail.compile(f)(torch.ones(3)))
""", [("2.0", "3.0"), ("2.0", "torch.tensor(2.5)")]),
    "a function that is called": ("""
def inner(x, k=2):
    return x * k
def f(x):
    return inner(x) + 1
show(dovetail.compile(f)(torch.ones(3)))
""", [("k=2", "k=4"), ("x * k", "x - k")]),
    "a nested tensor": ("""
def f(t):
    return t.sin() * 2
rows = [torch.ones(2, 4), torch.ones(3, 4)]
t = torch.nested.nested_tensor(rows, layout=torch.jagged, requires_grad=False)
show(dovetail.compile(f)(t).values())
""", [("t.sin", "t.cos"), ("=False", "=True"), ("rows,", "rows[:1],"), ("ones(3, 4)]", "ones(3, 4)] * 2")]),
    "what a closure holds": ("""
def make(k, table):
    def inner(x):
        return x * k + table["a"]
    return inner
show(dovetail.compile(make(2, {"a": 1}))(torch.ones(3)))
""", [("make(2", "make(3"), ('"a": 1', '"a": 5')]),
    "what a decorator's closure holds": ("""
def scaled(k):
    def decorate(fn):
        def wrapper(*args):
            return fn(*args) * k
        return wrapper
    return decorate
@scaled(2)
def inner(x):
    return x + 1
class M(torch.nn.Module):
    @scaled(3)
    def forward(self, x):
        return inner(x)
show(dovetail.compile(M())(torch.ones(3)))
""", [("@scaled(2)", "@scaled(4)"), ("@scaled(3)", "@scaled(5)"), ("x + 1", "x + 2")]),
    "an attribute": ("""
class M(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.k, self.rows = 2, [1, 2]
        self.line = torch.nn.Linear(3, 3)
    def forward(self, x):
        return self.line(x) * self.k + sum(self.rows)
show(dovetail.compile(M().eval())(torch.ones(2, 3)))
""", [("self.rows = 2,", "self.rows = 4,"), ("[1, 2]", "[1, 2, 3]"),
      ("nn.Linear(3, 3)", "nn.Linear(3, 3, bias=False)"),
      ("self.line(x)", "self.line(x).relu()")]),
    "a class": ("""
class Base:
    k = 2
    def scaled(self, x):
        return x * self.k
class Own(Base):
    def __call__(self, x):
        return self.scaled(x)
own = Own()
def f(x):
    return own(x) + isinstance(own, Base)
show(dovetail.compile(f)(torch.ones(3)))
""", [("k = 2", "k = 5"), ("class Own(Base):", "class Own(Base):\n    k = 7"),
      ("class Own(Base):", "class Own(Base):\n    def scaled(self, x): return x - 1")]),
    "another base": ("""
class A:
    def go(self, x): return x + 1
class B:
    def go(self, x): return x + 2
class C(A): pass
c = C()
show(dovetail.compile(lambda x: c.go(x))(torch.ones(3)))
""", [("class C(A)", "class C(B)")]),
    "a container": ("""
table = {"a": 1.0, "b": torch.ones(3)}
names = {"a"}
def f(x):
    return x * table["a"] + (table["b"] if "b" in table else 0) + len(table) + ("z" in names)
show(dovetail.compile(f)(torch.ones(3)))
""", [('"a": 1.0', '"a": 2.0'),
      (', "b": torch.ones(3)', ""), ('"a": 1.0', '"a": 1.0, "c": 3'), ('{"a"}', '{"a", "z"}')]),
    "types and sizes": ("""
def f(x):
    return x.sum() if x.shape[0] > 3 else x * 2
show(dovetail.compile(f)(torch.ones(3)))
""", [("ones(3)", "ones(4)"), ("ones(3)", "ones(3, dtype=torch.float64)"), ("ones(3)", "ones(2, 3)"),
      ("ones(3)", "ones(3).requires_grad_()"), ("ones(3)", "ones(6)[::2]")]),
    "which tensors are one": ("""
a = torch.ones(3)
b = torch.ones(3)
def f(x):
    a.add_(x)
    return a * b
show(dovetail.compile(f)(torch.ones(3)), a, b)
""", [("b = torch.ones(3)", "b = a")]),
    "modes": ("""
def f(x):
    return x * 2 if torch.is_grad_enabled() else x * 3
show(dovetail.compile(f)(torch.ones(3)))
""", [("show(", "torch.set_grad_enabled(False); show(")]),
    "enumerations and paths": ("""
import enum, pathlib
class Kind(enum.Enum):
    A = 1
    B = 2
kind, place = Kind.A, pathlib.Path("a/b")
def f(x):
    return x * kind.value + (kind is Kind.A) + len(str(place))
show(dovetail.compile(f)(torch.ones(3)))
""", [("kind, place = Kind.A", "kind, place = Kind.B"), ("A = 1", "A = 5"), ("a/b", "a/bcd")]),
    "options": ("""
def f(x):
    return (x.bfloat16() + 1).float() * 3
show(dovetail.compile(f)(torch.ones(3)))
""", [("dovetail.compile(f)", 'dovetail.compile(f, options={"numerics": "eager"})'),
      ("dovetail.compile(f)", "dovetail.compile(f, dynamic=True)")]),
    "properties, partials, caches": ("""
import functools
class P:
    @property
    def k(self): return 2
    @staticmethod
    def s(x): return x + 1
    @classmethod
    def c(cls, x): return x * 3
    @functools.cached_property
    def d(self): return 4
p = P()
add = functools.partial(torch.add, alpha=2)
def f(x):
    return add(p.c(p.s(x)) * p.k, x) + p.d
show(dovetail.compile(f)(torch.ones(3)))
""", [("return 2", "return 5"),
      ("x + 1", "x + 2"), ("x * 3", "x * 4"), ("return 4", "return 6"), ("alpha=2", "alpha=3")]),
}  # fmt: skip


OWN_TENSORS = """
class Doubled(torch.Tensor):
    def __new__(cls, inner): return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
    def __init__(self, inner): self.inner = inner
    def __tensor_flatten__(self): return ["inner"], None
    @staticmethod
    def __tensor_unflatten__(parts, context, size, stride): return Doubled(parts["inner"])
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        inner = [a.inner if isinstance(a, cls) else a for a in args]
        return cls(TABLE[0](func(*inner)))
TABLE = [lambda x: x * 2]
show(dovetail.compile(lambda x: x.sin() + 1, fullgraph=True)(Doubled(torch.ones(3))).inner)
"""


def test_what_a_tensor_class_of_the_program_does_is_found_out_in_each_process(tmp_path):
    """Its code has run while compiling, and may have found anything."""
    texts = [OWN_TENSORS, OWN_TENSORS.replace("x * 2", "x * 3")]
    found = [processes.run(text, tmp_path) for text in texts]
    alone = processes.run_all(texts, tmp_path, warm=False)
    assert [each.shown for each in found] == [each["shown"] for each in alone]
    assert found[0].shown != found[1].shown


@pytest.mark.parametrize("name", PROGRAMS)
def test_changes(name, tmp_path):
    program, changes = PROGRAMS[name]
    first, again = processes.run(program, tmp_path), processes.run(program, tmp_path)
    assert again.shown == first.shown
    assert first.compiled and not first.restored and again.restored and not again.compiled, again.stages
    assert all(old in program for old, _ in changes)
    changed = [program.replace(old, new, 1) for old, new in changes]
    expected = processes.run_all([*changed, program], tmp_path, warm=False)
    for change, text, alone in zip(changes, changed, expected):
        found = processes.run(text, tmp_path)
        assert found.shown == alone["shown"], change
        assert found.shown != first.shown or found.compiled, change
