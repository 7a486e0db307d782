"""Structured control flow: one graph, both branches and any number of steps right with every backend."""

from __future__ import annotations

import functools

import pytest
import torch
import torch.utils._pytree as pytree
from torch._higher_order_ops import associative_scan, cond, map, scan, while_loop

import dovetail
from tests.capture.higher import BACKENDS, derivatives, refused, same

W = torch.randn(4, 4)
LINEAR = torch.nn.Linear(4, 4)
NORM = torch.nn.BatchNorm1d(4)


class Plain:
    """What the functions mean, in Python. PyTorch's own compile when they are called."""

    @staticmethod
    def cond(pred, true, false, operands=()):
        return true(*operands) if pred else false(*operands)

    @staticmethod
    def while_loop(test, body, carried):
        while test(*carried):
            carried = body(*carried)
        return carried

    @staticmethod
    def scan(step, carry, xs, dim=0, reverse=False):
        count = pytree.tree_leaves(xs)[0].shape[dim]
        ys = []
        for k in reversed(range(count)) if reverse else range(count):
            carry, y = step(carry, pytree.tree_map(lambda x: x.select(dim, k), xs))
            ys.append(y)
        if reverse:
            ys.reverse()
        return carry, pytree.tree_map(lambda *leaves: torch.stack(leaves, dim if leaves[0].dim() >= dim else 0), *ys)

    @staticmethod
    def map(function, xs, *args):
        rows = [function(row, *args) for row in xs]
        return pytree.tree_map(lambda *leaves: torch.stack(leaves), *rows)


class Ours:
    cond, while_loop, scan, map = staticmethod(cond), staticmethod(while_loop), staticmethod(scan), staticmethod(map)


def branches(t, x):
    return t.cond(x.sum() > 0, lambda a: a.sin() + W, lambda a: a.cos() * 2, (x,))


def closures(t, x):
    y = x * 2

    def yes():
        return {"a": y.sin(), "b": (x.clone(), y @ W)}

    def no():
        return {"a": y.cos(), "b": (y.clone(), y.exp())}

    return t.cond(x.sum() > 0, yes, no)


def nested(t, x):
    def yes(a):
        return t.cond(a[0, 0] > 0.5, lambda b: b + 1, lambda b: LINEAR(b), (a,))

    return t.cond(x.sum() > 0, yes, lambda a: a - 1, (x,))


def known_predicate(t, x):
    return t.cond(x.shape[0] > 3, lambda a: a + 1, lambda a: a - 1, (x,))


def same_tensor_back(t, x):
    return t.cond(x.sum() > 0, lambda a: (a, a), lambda a: (a.t().contiguous(), a[0].expand(4, 4)), (x,))[0] + 1


def branch_makes_a_list(t, x):
    def yes(a):
        parts = []
        for k in range(3):
            parts.append(a * k)
        return torch.stack(parts)

    return t.cond(x.max() > 0, yes, lambda a: a.expand(3, 4, 4).clone(), (x,))


def after_a_branch(t, x):
    y = t.cond(x.sum() > 0, lambda a: a.sin(), lambda a: a.cos(), (x,))
    y.add_(1)
    return y @ W, t.cond(y.sum() > 0, lambda: y * 2, lambda: y * 3)


def counted(t, x):
    return t.while_loop(lambda i, a: i < 5, lambda i, a: (i + 1, (a @ W).sin()), (torch.tensor(0), x))


def never(t, x):
    return t.while_loop(lambda a: a.abs().sum() < 0, lambda a: ((a + 1).t(),), (x,))


def until_large(t, x):
    return t.while_loop(lambda a: a.abs().sum() < 100, lambda a: ((a * 2).t(),), (x.t(),))[0]


def cumulative(t, x):
    return t.scan(lambda c, r: (c + r, (c * r).sin()), x[0].clone(), x)


def recurrent(t, x):
    def step(state, row):
        hidden = (state["h"] @ W + row).tanh()
        return {"h": hidden, "n": state["n"] + 1}, {"out": hidden.clone(), "row": row * 2}

    return t.scan(step, {"h": x[0].clone(), "n": torch.zeros(())}, x)


def backwards(t, x):
    return t.scan(lambda c, r: (c * 0.5 + r, c * r), x[0].clone(), x, reverse=True)


def mapped(t, x):
    return t.map(lambda row, w: (row @ w).sin(), x, W)


def step_with_branch(t, x):
    def step(c, row):
        return t.cond(row.sum() > 0, lambda: c + row, lambda: c - row), row * 2

    return t.scan(step, x[0].clone(), x)


PROGRAMS = [
    branches, closures, nested, known_predicate, same_tensor_back, branch_makes_a_list, after_a_branch, counted,
    never, until_large, cumulative, recurrent, backwards, mapped, step_with_branch,
]  # fmt: skip
NO_GRADIENTS = ("never",)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_values(program, backend):
    compiled = dovetail.compile(functools.partial(program, Ours), backend=backend, fullgraph=True)
    with torch.no_grad():
        for x in (torch.rand(4, 4), -torch.rand(4, 4), torch.rand(4, 4) + 1):
            same(compiled(x), program(Plain, x))


@pytest.mark.parametrize("program", [p for p in PROGRAMS if p.__name__ not in NO_GRADIENTS], ids=lambda p: p.__name__)
def test_gradients(program):
    compiled = dovetail.compile(functools.partial(program, Ours), fullgraph=True)
    for x in (torch.rand(4, 4), -torch.rand(4, 4)):
        same(derivatives(compiled, (x,)), derivatives(functools.partial(program, Plain), (x,)))


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_compilation_serves_both_branches(backend):
    explained = dovetail.explain(functools.partial(branches, Ours), backend=backend)
    with torch.no_grad():
        assert explained(torch.ones(4, 4)).graph_count == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_associative_scan(backend):
    def program(x):
        pairs = associative_scan(lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), (x, x + 1), 1, combine_mode="generic")
        return associative_scan(lambda a, b: a * 0.5 + b, x, 0, reverse=True, combine_mode="generic"), pairs

    x = torch.randn(5, 7)
    with torch.no_grad():
        same(dovetail.compile(program, backend=backend, fullgraph=True)(x), program(x))


@pytest.mark.parametrize("rows", [1, 2, 3, 6, 9])
@pytest.mark.parametrize("backend", BACKENDS)
def test_associative_scan_of_each_element_by_itself(rows, backend):
    """The operator that PyTorch's function calls for `combine_mode="pointwise"`, which it takes on GPUs alone."""

    def ours(a, b):
        def step(a, b, c, d):
            return a * c, b * c + d

        return torch.ops.higher_order.associative_scan(step, [a, b], ())[1]

    def program(a, b):
        found = [b[0]]
        for k in range(1, rows):
            found.append(found[-1] * a[k] + b[k])
        return torch.stack(found)

    args = tuple(torch.randn(rows, 3, 2) for _ in range(2))
    compiled = dovetail.compile(ours, backend=backend, fullgraph=True)
    same(compiled(*args), program(*args))
    same(derivatives(compiled, args), derivatives(program, args))



@pytest.mark.parametrize("backend", BACKENDS)
def test_branches_that_write(backend):
    def program(t, x, y, z):
        w = x * 1

        def yes(a):
            a.add_(1)
            w.mul_(2)
            return a.sum()

        def no(a):
            y.sub_(a)
            return a.sum() * 2

        return t.cond(z > 0, yes, no, (x,)), w

    compiled = dovetail.compile(functools.partial(program, Ours), backend=backend, fullgraph=True)
    for z in (1, -1):
        ours, theirs = [[torch.ones(3), torch.ones(3) * 2, torch.tensor(z)] for _ in range(2)]
        with torch.no_grad():
            same(compiled(*ours), program(Plain, *theirs))
        same(ours, theirs)


@pytest.mark.parametrize("backend", BACKENDS)
def test_statistics_kept_in_a_branch(backend):
    def program(t, x):
        return t.cond(x.sum() > 0, lambda: NORM(x), lambda: x + 1)

    compiled = dovetail.compile(functools.partial(program, Ours), backend=backend, fullgraph=True)
    with torch.no_grad():
        for x in (torch.rand(4, 4), -torch.rand(4, 4)):
            NORM.reset_running_stats()
            got, after = compiled(x), NORM.running_mean.clone()
            NORM.reset_running_stats()
            same((got, after), (program(Plain, x), NORM.running_mean))


def appends(x):
    seen = []
    y = cond(x.sum() > 0, lambda: (seen.append(1), x + 1)[1], lambda: x - 1)
    return y, seen


def prints(x):
    def yes():
        print("yes")
        return x + 1

    return cond(x.sum() > 0, yes, lambda: x - 1)


def assigns(x):
    count = 0

    def yes():
        nonlocal count
        count += 1
        return x + 1

    return cond(x.sum() > 0, yes, lambda: x - 1), count


REFUSED = {
    "side-effect-in-subgraph": [appends, prints, assigns],
    "cond-branches-differ": [
        lambda x: cond(x.sum() > 0, lambda: x, lambda: x[0]),
        lambda x: cond(x.sum() > 0, lambda: x, lambda: x.double()),
        lambda x: cond(x.sum() > 0, lambda: x, lambda: (x, x)),
        lambda x: cond(x.sum() > 0, lambda: (x, 1), lambda: (x, 2)),
    ],
    "loop-carries": [
        lambda x: while_loop(lambda a: a.sum() < 9, lambda a: (a[0],), (x,)),
        lambda x: scan(lambda c, r: (c.double(), r), x[0], x),
    ],
    "loop-over-numbers": [lambda x: while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a + 1), (0, x))],
    "data-dependent-branch": [lambda x: cond(x.sum() > 0, lambda: x if x.max() > 1 else -x, lambda: x)],
}


@pytest.mark.parametrize("code, program", [(code, p) for code, programs in REFUSED.items() for p in programs])
def test_what_is_refused(code, program):
    assert refused(program, torch.rand(4, 4)) == code


SIZED = {
    "cond": lambda f, x: f.cond(
        x.sum() > 0, lambda: x * x.shape[0] + torch.arange(x.shape[1]),
        lambda: x[: x.shape[0] // 2 + 1].sum() + torch.zeros(x.shape),
    ),
    "operands": lambda f, x: f.cond(x.sum() > 0, lambda y: y[1:] * y.shape[1], lambda y: y[:-1] + x.shape[0], (x,)),
    "while_loop": lambda f, x: f.while_loop(
        lambda i, y: i < 3, lambda i, y: (i + 1, y * x.shape[0] + torch.ones(x.shape[1])), (torch.tensor(0), x),
    ),
    "map": lambda f, x: f.map(lambda row: row / row.shape[0] + x.shape[1], x),
}  # fmt: skip


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", SIZED)
def test_sizes_inside_may_vary(name, backend, grad):
    compiled = dovetail.compile(functools.partial(SIZED[name], Ours), backend=backend, fullgraph=True)
    for rows, columns, sign in ((4, 6, 1), (6, 8, -1), (7, 10, 1), (2, 4, -1), (1, 2, 1), (5, 5, 1)):
        x = (torch.rand(rows, columns) * sign).requires_grad_(grad and name != "while_loop")
        found, wanted = compiled(x), SIZED[name](Plain, x)
        same(found, wanted)
        if x.requires_grad:
            same(*(torch.autograd.grad(y.square().sum(), x)[0] for y in (found, wanted)))
    assert len(compiled._dovetail_dispatcher.entries) <= 3
