"""What is concatenated is stored where it is computed, if that does not keep more alive at once."""

from __future__ import annotations

import random

import pytest
import torch
import torch.nn.functional as F

from dovetail.ir.evaluate import evaluate
from dovetail.ir.loops import Check, Group, Program, Store
from dovetail.ir.spec import verify
from dovetail.lower import lower
from dovetail.options import Options
from dovetail.schedule import schedule
from dovetail.schedule.fusion.inline import inline
from dovetail.schedule.memory.lifetimes import Lifetimes
from dovetail.schedule.memory.store_in_concat import store_early
from tests.normalize.harness import functional
from tests.schedule.test_meaning import lowered


def steps(x):
    """Each is read by the next, and stored in the result."""
    found = [x.sin()]
    for _ in range(39):
        found.append((found[-1] + x).tanh())
    return torch.stack(found)


def later(x):
    """The parts are computed, then something large, which the result must not lie beside."""
    found = [x.sin()]
    for _ in range(7):
        found.append((found[-1] + x).tanh())
    large = (x @ x.expand(64, *x.shape)).amax()
    return torch.stack(found), large


def order(program):
    """`s` for a store of a part, `.` for any other kernel."""
    groups = [item for item in program.items if isinstance(item, Group)]
    return "".join("s" if g.name.startswith("stack") else "." for g in groups)


X = torch.rand(64, 64)
ANY = 1 << 40


def most_alive(program: Program) -> int:
    return int(Lifetimes(program).live.max())


def test_a_part_is_stored_behind_what_computes_it():
    program = lowered(steps, X)
    assert order(program) == "." * 79 + "s" * 40
    assert order(store_early(program, ANY)) == ".s" + "..s" * 39
    assert order(store_early(program, most_alive(program) // 2)) == "." * 79 + "s" * 40
    torch.testing.assert_close(evaluate(store_early(program, ANY), (X,))[0], steps(X))


def test_kernels_have_steps_and_their_stores():
    program = schedule(lowered(steps, X), Options())
    assert len(program.items) <= 5
    assert most_alive(program) <= 44 * X.nbytes


def sums(x):
    """Of each state; the state is stored only where the next kernel begins."""
    state, found = x, []
    for k in range(40):
        state = state * x[k] + x
        found.append((state * x).sum(1))
    return torch.stack(found, 1)


@pytest.mark.parametrize("fn", [steps, sums])
def test_no_store_of_a_part_is_a_kernel_of_its_own(fn):
    names = [item.name.partition("_")[2] for item in schedule(lowered(fn, X), Options()).items]
    assert "stack" not in names and len(names) < 10


def test_few_parts_and_inputs_stay():
    few = lowered(lambda x: torch.stack([x.cumsum(0), x.cumsum(1)]), X)
    assert store_early(few, ANY).items == few.items
    given = lowered(lambda *x: torch.stack(x), *[X] * 5)
    assert store_early(given, ANY).items == given.items


def test_what_is_looked_up_is_checked_before():
    def fn(x):
        return torch.stack([F.embedding((x + k).sum(1).long(), x) for k in range(8)])

    program = store_early(inline(lowered(fn, X), exact_rounding=False), ANY)
    kinds = [type(statement) for item in program.items if isinstance(item, Group) for statement in item.statements()]
    assert kinds.count(Check) == 8 and kinds[-8:] == [Store] * 8


def random_program(seed: int, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Steps, products, lookups and sums, whose results are put together and used again."""
    found, made, rng = [x], [], random.Random(seed)
    for _ in range(rng.randint(8, 40)):
        kind = rng.randrange(8)
        a, b = rng.choices(found, k=2)
        if kind == 0:
            found.append(a @ b)
        elif kind == 1:
            found.append(F.embedding((a[:, 0] * 7).long().abs() % 8, b))
        elif kind == 2:
            parts = rng.choices(found, k=rng.randint(2, 9))
            rows = torch.cat(parts, 1).view(8, -1, 8).transpose(0, 1)
            made.append(torch.stack(parts) if rng.randrange(2) else rows)
            found += [made[-1].sum(0) / 8, made[-1][0]]
        else:
            found.append((a + b.sin() if kind < 5 else a.tanh() * b))
    return *made, torch.stack(found[-9:]), found[-1]


@pytest.mark.parametrize("bound", ["nothing more", "anything"])
def test_random_programs(bound):
    moved = 0
    for seed in range(30):
        x = torch.linspace(-1, 1, 64).reshape(8, 8).sin()
        program = lower(functional(lambda x, seed=seed: random_program(seed, x), x), Options())
        most = ANY if bound == "anything" else most_alive(program)
        early = store_early(program, most)
        moved += early.items != program.items
        verify(early)
        assert most_alive(early) <= most
        torch.testing.assert_close(evaluate(early, (x,)), evaluate(program, (x,)), rtol=0, atol=0)
    assert moved > 10


def test_nothing_more_is_alive_beside_what_is_large():
    program = lowered(later, X)
    most = most_alive(program)
    assert most_alive(store_early(program, most)) <= most
