"""New values of inputs go where the inputs are if nothing needs the old ones; many groups run in one launch."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

import dovetail
from dovetail.codegen import cpu
from dovetail.ir.evaluate import evaluate
from dovetail.ir.loops import Batch, Group, Program
from dovetail.ir.spec import verify
from dovetail.options import Options
from dovetail.schedule import gather, schedule
from tests.schedule.test_meaning import lowered

A, B = torch.linspace(-2, 2, 48).reshape(6, 8), torch.linspace(-1, 3, 48).reshape(6, 8)
AT = torch.tensor([4, 1])
SQUARE = torch.linspace(-1, 1, 64).reshape(8, 8)


def adam(p, g, m, v, step):
    step.add_(1)
    m.lerp_(g, 0.1)
    v.mul_(0.9).addcmul_(g, g, value=0.1)
    p.sub_(m / (v.sqrt() + 1e-8) / (1 - 0.9**step))


def swap(x, y):
    old = x.clone()
    x.copy_(y)
    y.copy_(old)


def neighbours(x):
    x[:, 1:].add_(x[:, :-1].clone())


def old_value_later(x, y):
    old = x * 2
    x.add_(1)
    return old @ y.t()


def returned(x):
    x.mul_(2)
    return x + 1


def reduced(x):
    x.sub_(x.mean())


def through_a_view(x):
    x.t().mul_(2)
    return x.t().contiguous()


def cached(x, y, i):
    """A cache's new entries, and views of all of it."""
    x.index_copy_(0, i, y[:2])
    return x.t() @ x, x.unflatten(1, (2, 4)).sum(1)


def cached_by_index(x, y, i):
    x[:, i] = y[:, :2]
    return x.sum(1)


def decoded(x, y, i):
    """Two caches and what is computed in between."""
    x.index_copy_(0, i, y[:2] * 2)
    scores = (x.t() @ x).softmax(-1)
    y.index_copy_(1, i, scores[:6, :2])
    return y @ scores


def decoded_and_counted(x, y, count, i):
    """The places are computed; all of them are checked before anything is written."""
    x.index_copy_(0, i + count.long() * 0, y[:2])
    count.add_(1)
    return y.index_add_(0, i, x[:2]).sum()


def added_and_read_before(x, y, i):
    old = x.sum(1)
    x.index_add_(0, i, y[:2])
    return old, x.sum(1)


def added_and_old_value_later(x, y, i):
    old = x.clone()
    x.index_add_(0, i, y[:2])
    return old.mm(y.t()), x.sum(1)


def from_itself(x, i):
    x.copy_(x.index_copy(0, i, x[3:5]))


def checked_later(x, y, i):
    x.mul_(2)
    return y[i] + 1


#: Program, arguments, how many of the inputs written to are written in place (None: at least none wrongly).
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], int | None]] = {
    "one": (lambda x: x.mul_(2), (A,), 1),
    "twice": (lambda x: x.mul_(2).add_(1), (A,), 1),
    "from another": (lambda x, y: x.add_(y), (A, B), 1),
    "adam": (adam, (A, B, A * 0.1, A.abs(), torch.ones(())), 4),
    "swap": (swap, (A, B), None),
    "transposed": (lambda x: x.copy_(x.t().clone()), (SQUARE,), 0),
    "neighbours": (neighbours, (A,), None),
    "old value later": (old_value_later, (A, B), None),
    "returned": (returned, (A,), None),
    "mean first": (reduced, (A,), None),
    "through a view": (through_a_view, (SQUARE,), None),
    "broadcast": (lambda x, y: x.mul_(y[0]), (A, B), 1),
    "row of itself": (lambda x: x.mul_(x[0].clone()), (A,), 0),
    "cast": (lambda x, y: x.copy_(y), (A.double(), B), 1),
    "cached": (cached, (A, B, AT), 1),
    "cached by index": (cached_by_index, (A, B, AT), 1),
    "cached in a transposed one": (cached_by_index, (B.t(), A.t(), AT), 1),
    "two caches": (lambda x, y, i: (x.index_fill_(0, i, 1.0), y.scatter_(1, i[None], 2.0)), (A, B, AT), 2),
    "decoded": (decoded, (A, B, AT), 2),
    "decoded and counted": (decoded_and_counted, (A, B, torch.ones(()), AT), 3),
    "filled through a view": (lambda x, i: x.t().index_fill_(0, i, 1.0), (A, AT), 0),
    "added, and read before": (added_and_read_before, (A, B, AT), 1),
    "added, and the old value later": (added_and_old_value_later, (A, B, AT), None),
    "from itself": (from_itself, (A, AT), None),
    "masked": (lambda x, y: x.masked_scatter_(y > 0, y), (A, B), 1),
    "all of it": (lambda x, y, i: x.copy_(x.index_add(0, i, y[:2])), (A, B, AT), 1),
    "checked later": (checked_later, (A, B, torch.tensor([1, 5])), 1),
}  # fmt: skip


def in_place(program: Program) -> int:
    return sum(old.name == new.name for old, new in program.mutated)


@pytest.mark.parametrize("name", CASES)
def test_meaning(name):
    fn, args, expected = CASES[name]
    before = lowered(fn, *args)
    after = schedule(before, Options())
    verify(after)
    assert expected is None or in_place(after) == expected
    ours, theirs, eagers = ([a.clone() for a in args] for _ in range(3))
    got, want = evaluate(after, ours), evaluate(before, theirs)
    fn(*eagers)
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(ours, eagers)


@pytest.mark.parametrize("name", [name for name, (_, args, _) in CASES.items() if args[-1] is AT])
def test_writing_at_indices(name):
    """The memory, the counters of versions and the errors are eager's, in each of several calls."""
    fn, args, _ = CASES[name]
    compiled = dovetail.compile(fn, fullgraph=True)
    ours, theirs = ([a.clone() for a in args] for _ in range(2))
    where = [a.data_ptr() for a in ours]
    for _ in range(3):
        torch.testing.assert_close(compiled(*ours), fn(*theirs))
        torch.testing.assert_close(ours, theirs)
        assert [a._version for a in ours] == [a._version for a in theirs]
    assert [a.data_ptr() for a in ours] == where
    beyond = torch.tensor([4, 9])
    with pytest.raises((IndexError, RuntimeError)) as eager:
        fn(*theirs[:-1], beyond)
    with pytest.raises(type(eager.value)) as raised:
        compiled(*ours[:-1], beyond)
    assert str(raised.value) == str(eager.value)
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("x", [torch.ones(()).expand(3), torch.ones(1, 8).expand(6, 8), torch.ones(6).unfold(0, 4, 1)])
def test_not_where_elements_share_a_place(x):
    def rows(x, y):
        for row in x.unbind(0):
            row.add_(1)
        y.mul_(2)

    after = schedule(lowered(rows, x, torch.ones(4)), Options())
    assert [old.name for old, new in after.mutated if old.name == new.name] == ["a1"]
    for group in after.items:
        cpu.generate(group, Options())


def gathered(fn: Callable[..., Any], *args: Any) -> Program:
    program = schedule(lowered(fn, *args), Options())
    return gather(program, {g.name: cpu.generate(g) for g in program.items if isinstance(g, Group)})


def sizes(program: Program) -> list[int]:
    return [len(item.groups) if isinstance(item, Batch) else 1 for item in program.items]


def steps(*tensors):
    for p, g, count in zip(tensors[::3], tensors[1::3], tensors[2::3]):
        count.add_(1)
        p.sub_(g / (1 - 0.9**count))


def test_many_parameters_are_few_launches():
    args = [t for n in (40, 64, 80, 96, 120) for t in (torch.ones(n), torch.ones(n), torch.ones(()))]
    assert sizes(gathered(steps, *args)) == [5, 5, 5]


@pytest.mark.parametrize("threads", (1, 2, 5))
def test_large_and_small_ones_together(threads):
    """Shared out among threads by their work, empty ones included."""
    lengths = (300_000, 3, 0, 70_000, 1, 500_001, *[33] * 20)
    ours, theirs = ([t for n in lengths for t in (torch.ones(n), torch.arange(n) * 1.0, torch.ones(()))] for _ in "ab")
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        compiled = dovetail.compile(steps)
        for _ in range(3):
            compiled(*ours), steps(*theirs)
    finally:
        torch.set_num_threads(before)
    torch.testing.assert_close(ours, theirs)
    assert [t._version for t in ours] == [t._version for t in theirs]


def test_what_depends_on_each_other_stays_in_order():
    def chain(x, y):
        x.add_(1)
        y.add_(x[0])
        x.add_(y[0])

    assert sizes(gathered(chain, A, B)) in ([1, 1, 1], [1, 1])


def test_temporaries_do_not_wait():
    """What reads one runs as soon as it can, so that the memory can be used again."""
    def layers(x, *weights):
        for w in weights:
            x = (x @ w).tanh() * 2
        return x

    assert set(sizes(gathered(layers, SQUARE, *[SQUARE] * 4))) == {1}


def test_many_groups_without_memory_for_their_contexts():
    """They run one after the other."""
    program = """
import torch, dovetail
from dovetail.runtime.cpu import team
none = "define internal noalias ptr @malloc(i64 %bytes) { ret ptr null }"
team.MANY = team.MANY.replace("declare noalias ptr @malloc(i64)", none)
assert none in team.MANY
ours, theirs = ([torch.full((n, 70), float(n), requires_grad=True) for n in range(1, 9)] for _ in range(2))
optimizers = [torch.optim.Adam(p, lr=0.1) for p in (ours, theirs)]
steps = [dovetail.compile(optimizers[0].step, fullgraph=True), optimizers[1].step]
for _ in range(3):
    for parameters, step in zip((ours, theirs), steps):
        for p in parameters:
            p.grad = p.detach() * 0.5
        step()
torch.testing.assert_close(ours, theirs)
print("same")
"""
    found = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, timeout=300)
    assert found.stdout == "same\n", found.stderr
