"""One operation, and calls of it with values that differ in type, in what they hold, or in which object they are.

The entries that one call leaves must not answer for another: a value that is baked in, or a guard too weak, shows.
"""

from __future__ import annotations

import random

#: Expressions of two values `a` and `b`, one a line. Whether equal texts of one character are one object is not asked:
#: the interpreter keeps some of them, as it likes.
OPERATIONS = """
a == b
a is b
a in (b, 1)
[a, 1] == [b, 1]
(a, 1) == (b, 1)
{0: a} == {0: b}
a != b
a < b
sorted([a, b]) == [a, b]
max(a, b)
a or b
a and b
not a
bool(a) + bool(b)
len({a, b})
{a: 1, b: 2}[a]
type(a) is type(b)
isinstance(a, (int, str))
str(a)[:30] if not "0x" in str(a) else 0
f"{a!r:.9}" if not "0x" in repr(a) else 0
len(a)
list(a) == list(b)
a[0]
a[b]
[1, 2, 3][a]
a + b
a * 2
-a
int(a)
float(a) + 1
hash(a) == hash(b)
hasattr(a, "v")
a.v
getattr(a, "b", b)
a(b)
sum(a)
[b].index(a)
[a, b].count(a)
b in a
tuple(a)
(lambda *q: len(q))(*a)
dict(a)
set(a) & set(b)
min([a, b], key=lambda v: str(v)[:3]) is a
a.items()
[*a.values()][0] is b
list(zip(a, b))
copy.deepcopy(a) == a
callable(a)
functools.reduce(operator.add, [a, b])
operator.eq(a, b)
a.__class__.__name__
a.count(b)
a.a is b
a.x + b
a if a == b else 5
dict.fromkeys([a]) == {b: None}
{(a, b): 1}.get((b, a))
frozenset([a]) == frozenset([b])
{a} <= {b}
any(v == b for v in a)
a.get(b, 4)
a.remove(b)
a.update(b)
a.append(b)
a.pop()
a.__contains__(b)
torch.zeros(2, dtype=a)
torch.ones(3)[a]
torch.ones(3) * a
torch.ones(2) + a if a == b else torch.ones(2) - b
torch.full((2,), a)
torch.ones(a)
range(a)[b]
"abc"[a]
round(a, b)
divmod(a, b)
a // b
iter(a).__next__()
dataclasses.asdict(a)
dataclasses.replace(a, b=b).b is b
a._asdict()
[x for x in a if x is b and not isinstance(x, str)]
(a, b).index(b)
a is P or b is P
issubclass(a, P)
collections.Counter([a, b]).most_common(1)[0][1]
sorted([(a, 1), (b, 0)])
next((k for k, v in {0: a, 1: b}.items() if v == b), None)
[copy.copy(a) is a, copy.deepcopy(a) is a]
a in [b] or b in (a,)
[type(a).__name__, type(b) is a.__class__]
list(itertools.islice(a, b))
operator.index(a) + 1
5 / a
list(range(a, b))
[*enumerate("ab", a)]
torch.tensor(a) + b
torch.stack([torch.ones(2), a])
torch.tensor([a, b])
torch.as_tensor(a)
[copy.deepcopy([a, b]), (lambda c: c[0] is c[1])(copy.deepcopy([a, a]))]
[a <= b, a >= b]
a - b
a ** b
a % b
a & b
a | b
a ^ b
[*a, *b]
{**a, **b}
[a, b] < [b, a]
a * b
b[::-1]
b[a:]
sum([a, b])
abs(a)
bool(a) and complex(a)
math.floor(a)
itertools.repeat(a, b).__next__()
str.join(a, [b])
[i for i, v in enumerate([a, b, a]) if v == a]
isinstance(a, type(b))
[v for v in sorted({a: 1, b: 2}, key=str)]
a.setdefault(b, 3)
a.extend(b)
a.add(b)
a.discard(b)
a.insert(0, b)
a.index(b)
a.real
a.numerator
a.dtype
torch.add(torch.ones(2), a, alpha=b)
torch.ones(2).to(a)
torch.ones(2, 2).sum(a)
torch.ones(2, 2).view(a)
torch.where(torch.ones(2) > 0, a, b)
x[a]
x * a + b
""".strip().splitlines()

#: What does not change, some of it the same object in each call.
FIXED = """
1
2
0
-1
True
False
None
1.0
2.5
-0.0
0.0
"a"
"b"
""
b"a"
()
(1,)
(1, 2)
(1.0, 2)
(1, 2.5)
("a", (1, None))
("a", (2, None))
(p,)
(q,)
(p, 1.5)
p
q
r1
r2
r3
C.A
C.B
Pt(1, 2)
Pt(1, 2.5)
P
R
len
max
1j
2j
range(3)
range(4)
slice(1, 2)
frozenset([1])
frozenset([2, 3])
frozenset([p])
torch.float32
torch.int64
decimal.Decimal("1")
decimal.Decimal("0")
decimal.Decimal("0.5")
fractions.Fraction(1, 2)
datetime.timedelta(1)
datetime.timedelta(2)
datetime.timedelta(0)
np.bool_(True)
np.int32(3)
torch.device("cpu")
float("inf")
float
int
np.float64(1)
np.float64(2)
np.int64(1)
torch.Size([1, 2])
torch.Size([1, 3])
nan
float("nan")
np.float32(2)
collections.deque(["a"])
frozenset({p, 1})
itertools.chain([1], [2])
1e300
""".strip().splitlines()

#: What is made anew for each call.
MADE = """
[1, 2]
[1, 3]
[1.0, 2]
[p]
[q, 1]
{"a": 1}
{"a": 2}
{"b": 1}
{1: p}
{1: q}
{p: 1}
{q: 1}
{(1, 2.5): 1}
{(1, 3.5): 1}
{1, 2}
{1, 3}
{p}
{q}
[[1]]
[[2]]
D(1)
D(2)
D(p)
D([1])
collections.deque([1, 2])
collections.deque([1, 3])
collections.OrderedDict(a=1)
collections.Counter("ab")
collections.Counter("aab")
bytearray(b"a")
bytearray(b"b")
np.ones(2)
np.zeros(2)
[None]
(1, [2])
(1, [3])
""".strip().splitlines()

CALLS = 10
SHARED = 0.3  # so often both values are one


def generate(seed: int) -> str:
    rng = random.Random(seed)
    pool = rng.sample(FIXED, rng.choice((3, 7))) + rng.sample(MADE, 2)
    lines = ["", "from tests.fuzz.values.objects import *", "", "def operation(x, a, b):"]
    lines += [f"    return x + 1, {rng.choice(OPERATIONS)}", "", "def calls():"]
    for _ in range(CALLS):
        one, other = rng.choice(pool), rng.choice(pool)
        lines.append(f"    yield [{one}] * 2" if rng.random() < SHARED else f"    yield [{one}, {other}]")
    return "\n".join(lines) + "\n"
