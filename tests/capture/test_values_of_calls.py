"""Operations on Python values that differ from call to call, compiled once; `tests.fuzz.values` found each line.

A line has the operation on `a` and `b`, then the calls. They see what a call returns, raises and leaves in its values.
"""

from __future__ import annotations

import pytest

from tests.fuzz.values.__main__ import check

LINES = """
a + b ;; [collections.deque([1, 3]), torch.Size([1, 2])] ;; [[1], collections.deque([3])] ;; [torch.Size([1]), (2,)]
a + b ;; [{1: p}, torch.Size([1, 2])] ;; [(1,), torch.Size([1, 2])]
a == b ;; [[1], collections.deque([1])] ;; [collections.deque([1]), [1]] ;; [(1,), torch.Size([1])]
[copy.copy(a) is a, copy.copy(a)] ;; [torch.Size([1, 3]), 0] ;; [Pt(1, 2), 0] ;; [(1, 2), 0]
copy.deepcopy(a) == a ;; [{p: 1}, 0] ;; [{1: [2]}, 0] ;; [{q}, 0]
[k is v for k, v in copy.deepcopy(a).items()] ;; [{p: p}, 0] ;; [collections.OrderedDict([(q, p)]), 0]
[copy.deepcopy([a, b]), (lambda c: c[0] is c[1])(copy.deepcopy([a, a]))] ;; [([1],), 2] ;; [{1}, 2] ;; [{1: 2}, [3]]
b in a ;; ["a", ()] ;; ["a", "a"] ;; [b"a", P] ;; [range(4), r1] ;; ["a", r1]
[*a.values()] ;; [{np.float64(2): [1]}, 0] ;; [{nan: [1]}, 0] ;; [{float("inf"): [1]}, 0]
dict.fromkeys([a]) == {b: None} ;; ["", ""] ;; [False, ""] ;; [float("nan")] * 2 ;; [(1,), 2] ;; [float("nan")] * 2
[a, b].count(a) ;; [decimal.Decimal("1"), 1.0] ;; [1.0, decimal.Decimal("1")] ;; [decimal.Decimal("1"), True]
[a == b, b != a] ;; [decimal.Decimal("0.5"), fractions.Fraction(1, 2)] ;; [datetime.timedelta(1), r1] ;; [len, r1]
[not a, bool(a), a or b] ;; [decimal.Decimal("0"), 1] ;; [datetime.timedelta(0), 1] ;; [datetime.timedelta(1), 1]
a < b ;; [np.int64(1), fractions.Fraction(1, 2)] ;; [fractions.Fraction(1, 2), np.float64(1)] ;; [np.int64(1), 2]
set(a) & set(b) ;; [np.zeros(2), np.zeros(2)] ;; [np.ones(2), np.zeros(2)]
a is b ;; [np.float64(1), np.float64(1)] ;; [(1, 2), 2] ;; [np.float64(1)] * 2 ;; [np.float64(2), np.float64(2)]
a is b ;; [np.float32(1), np.float32(1)] ;; [np.float32(1)] * 2 ;; [np.float32(2), np.float32(2)]
a is b ;; [np.int64(1)] * 2 ;; [np.int64(1), np.int64(1)] ;; [range(3)] * 2 ;; [range(3), range(3)]
{a: 1}.get(b), {(a, 1): 2}.get((b, 1)) ;; [fractions.Fraction(1), 1] ;; [0.5, fractions.Fraction(1, 2)]
{(a, b): 1}.get((b, a)) ;; [fractions.Fraction(1, 2), decimal.Decimal("0.5")] ;; [fractions.Fraction(1, 2)] * 2
a is b, a ;; [slice(1, 2)] * 2 ;; [slice(1, 2), slice(1, 2)] ;; [slice(1, 2), 3] ;; [slice(1, 2)] * 2
[[b].index(a), [a, b].count(a)] ;; [np.float64(2), np.float32(2)] ;; [False] * 2 ;; [np.float64("nan")] * 2
dict.fromkeys([a]) == {b: None} ;; [np.int64(1), (1.0, 2)] ;; [(1.0, 2), np.int64(1)]
a == b ;; [-0.0, frozenset({p, 1})] ;; [np.float32(2), R] ;; [[None], np.float32(2)] ;; [np.ones(2), [None, 1]]
torch.tensor(a) + b ;; [np.float64(2)] * 2 ;; [np.int32(2), 1] ;; [np.float16(2), 1] ;; [np.bool_(1), 1] ;; [2.0, 1]
torch.tensor([a, b]) ;; [np.float64(2), 1] ;; [np.float16(2), 1] ;; [np.bool_(1), 1] ;; [np.float32(2), 2.5]
torch.as_tensor(np.sqrt(a)) ;; [1, 1] ;; [2, 1] ;; [3, 1] ;; [4, 1]
[copy.copy(a) is a, copy.deepcopy(a) is a] ;; [datetime.timedelta(1), 1] ;; [slice(1, 2), 1] ;; [decimal.Decimal(1), 1]
[copy.copy(a) is a, copy.deepcopy(a) is a] ;; [torch.device("cpu"), 1] ;; [np.float64(1), 1] ;; [C.A, 1]
dict(a) ;; [["ab", (1, 2)], 0] ;; [["ab", "c"], 0] ;; [[1], 0] ;; ["a", 0] ;; [collections.deque(["a"]), 0]
a.update(b) ;; [{"b": 1}, "b"] ;; [{"b": 1}, ["cd", "e"]] ;; [{"b": 1}, [r2]] ;; [{"b": 1}, [[1, 2], [3, 4]]]
copy.deepcopy(a) == a ;; [frozenset([2, 3]), 0] ;; [itertools.chain([1], [2]), 0] ;; [{1, 2}, 0] ;; [iter([1]), 0]
[*a] ;; [frozenset([2, 3]), 0] ;; [itertools.chain([1], [2]), 0] ;; [{1, 2}, 0] ;; [iter([1]), 0]
a in (b, 1) ;; [np.int32(3), decimal.Decimal("0.5")] ;; [np.int32(1), 2]
[a.real is a, a.real] ;; [np.zeros(2), 1] ;; [np.zeros(2) + 1j, 1]
x[a] ;; [np.bool_(True), 1] ;; [np.int64(1), 1] ;; [True, 1]
torch.full((2,), a) ;; [np.bool_(True), 1] ;; [np.complex64(4), 1] ;; [np.float64(2), 1] ;; [True, 1]
str.join(a, [b]) ;; ["b"] * 2 ;; ["b", C.A] ;; [decimal.Decimal("1"), "b"] ;; ["c", 1] ;; ["d", "e"]
b[a:] ;; ["", np.ones(2)] ;; [1, np.ones(2)]
copy.deepcopy([a, b]) ;; [{q}, {q}] ;; [{q}] * 2 ;; [[1], [1]] ;; [[1]] * 2 ;; [D(1), D(1)] ;; [D(1)] * 2
[divmod(a, b), a * b, b - a] ;; [1.0, 1.0] ;; [nan, np.float64(1)] ;; [2.5, np.float64(2)] ;; [3, np.float32(2)]
""".strip().splitlines()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("line", LINES)
def test_each_call_is_as_eager(line):
    operation, *calls = line.split(" ;; ")
    lines = ["from tests.fuzz.values.objects import *", "def operation(x, a, b):", f"    return x + 1, {operation}"]
    outcome = check("\n".join([*lines, "def calls():", *(f"    yield {call}" for call in calls)]))
    assert (outcome.difference, outcome.codes["break internal-error"]) == (None, 0)
