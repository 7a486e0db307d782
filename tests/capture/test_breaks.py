"""Graph breaks: the same results and effects as eager, in as few graphs as the program allows."""

from __future__ import annotations

import copy
import sys
import threading
import traceback
import warnings

import pytest
import torch
from torch import nn

import dovetail
from tests.capture.harness import compare


def read(x, log):
    y = x * 2
    log.append(y.sum().item())
    return y + 1


def effects(x):
    log = []
    a = x.sin()
    b = read(a, log)
    return b * a, log


def branch(x):
    if x.sum() > 0:
        y = x + 1
    else:
        y = x - 1
    return y.cos()


def value_or(x):
    return (x.sum() > 0) and x.cos().sum() or x.sin()


def negated(x):
    return x.sin() if not x.sum() > 0 else x.cos()


def loop(x):
    y = x
    for _ in range(5):
        y = y + 1
        v = y.sum().item()
    return y, v


def until(x):
    out = []
    while x.abs().sum() < 10:
        x = x + 1
        out.append(x)
    return out


def numbered(x):
    total = 0
    for k, row in enumerate([x, x + 1, x + 2]):
        total = total + row.sum().item() * k
    return total


def zipped(x):
    out = {}
    for name, row in zip(("a", "b"), [x, x + 1]):
        out[name] = row.max().tolist()
    return out


def closure(x):
    total = 0

    def add(value):
        nonlocal total
        total += value

    add(x.sum().item())
    add(2)
    return total, x + 1


def shared_cell(x):
    values = [x]

    def last():
        return values[-1]

    values.append(x.max().item())
    values.append(x + 1)
    return last, values


def aliases(x):
    rows = [x.clone()]
    same = rows
    view = rows[0][:1]
    if x.sum() > -100:
        same.append(1)
        view.add_(1)
    return rows, same is rows, view


def mutated(x):
    x.add_(1)
    if x.sum() > 0:
        x.mul_(2)
    return x.sin()


def formatted(x):
    text = f"{x.sum().item():.2f} and {x.shape}"
    return text, x + 1


def unpacked(x):
    a, (b, *c) = x[0].item(), x.tolist()
    return a, b, c


def starred(x):
    def total(*values, start=0):
        return sum(values, start)

    return total(*x.tolist(), **{"start": 1}) + x.max().item()


def nested_class(x):
    class Pair:
        def __init__(self, a):
            self.a = a

    return Pair(x + 1).a


def attribute(x):
    return x.grad_fn, x.is_contiguous(), x.__dict__


def conditional(x):
    return [row.item() if row > 0 else 0 for row in x]


def nothing_left(x):
    assert x.sum() > -1000
    assert x.max() < 1000, "too large"


PROGRAMS = [
    effects, branch, value_or, negated, loop, until, numbered, zipped, closure, aliases, mutated, formatted,
    unpacked, starred, nested_class, attribute, conditional, nothing_left,
]  # fmt: skip


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("program", PROGRAMS)
def test_program(program, sign):
    compiled = dovetail.compile(program, backend="eager")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for shift in (0.0, 0.25):
            x = sign * (torch.arange(3.0) + 0.5 + shift)
            ours, theirs = x.clone(), x.clone()
            compare(compiled(ours), program(theirs))
            compare(ours, theirs)


def test_cells_stay_shared():
    last, values = dovetail.compile(shared_cell, backend="eager")(torch.ones(2))
    values.append("later")
    assert last() == "later"


def deep(x, n):
    if n == 0:
        return x + x.sum().item()
    return deep(x * 2, n - 1) + 1


@pytest.mark.parametrize("depth", [1, 5, 20])
def test_a_break_costs_one_graph_however_deep_it_lies(depth):
    x = torch.ones(2)
    seen = dovetail.explain(lambda x: deep(x, depth) * 2, backend="eager")(x)
    assert (seen.graph_count, seen.graph_break_count) == (2, 1)
    compare(dovetail.compile(deep, backend="eager")(x, depth), deep(x, depth))


def toy(a, b):
    x = a / (torch.abs(a) + 1)
    print("woo")
    if b.sum() < 0:
        b = b * -1
    return x * b


def test_both_sides_of_a_branch_are_compiled_once(capsys):
    compiled = dovetail.compile(toy, backend="eager")
    for _ in range(3):
        for b in (torch.ones(2), -torch.ones(2)):
            compare(compiled(torch.ones(2), b), torch.full((2,), 0.5))
    assert capsys.readouterr().out == "woo\n" * 6
    assert len(compiled._dovetail_dispatcher.entries) == 1
    rests = compiled._dovetail_dispatcher.compiler.rests.values()
    assert [len(rest.entries) for rest in rests] == [1, 1]
    seen = dovetail.explain(toy, backend="eager")(torch.ones(2), torch.ones(2))
    assert (seen.graph_count, seen.graph_break_count) == (2, 1)


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.calls = 0
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, x):
        self.calls += 1
        h = self.layer(x)
        self.seen = self.seen + h
        if h.sum() > 0:
            return h, self.calls
        k = h.max().item()
        return self.layer(h) + k, self.extra()

    def extra(self):
        return super().extra_repr()


def test_module():
    torch.manual_seed(0)
    model = Counting().requires_grad_(False)
    same = copy.deepcopy(model)
    compiled = dovetail.compile(model, backend="eager")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for k in range(4):
            x = torch.randn(3) * (-1) ** k
            compare(compiled(x), same(x))
            compare(dict(model.named_buffers()), dict(same.named_buffers()))
            assert model.calls == same.calls == k + 1


def test_many_iterations_do_not_nest():
    def count(x):
        n = 0
        while x.sum() > 0:
            x = x - 1
            n += 1
        return n

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert dovetail.compile(count, backend="eager")(torch.full((1,), 2000.0)) == 2000


def test_an_iteration_does_not_recompile():
    seen = []

    @dovetail.disable
    def record(*values):
        seen.append(values)

    def loop(x):
        for row in [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]:
            x = x + 1
            record(row, x.sum().item())
        return x

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled = dovetail.compile(loop, backend="eager")
        compare(compiled(torch.zeros(2)), torch.full((2,), 12.0))
    assert seen == [(k, 2.0 * k) for k in range(1, 13)]
    rests = compiled._dovetail_dispatcher.compiler.rests.values()
    assert all(len(rest.entries) <= 2 for rest in rests)


def test_a_program_that_raises_after_a_break():
    def fails(x):
        if x.sum() > 0:
            raise KeyError("the user's")
        return x

    compiled = dovetail.compile(fails, backend="eager")
    for _ in range(2):
        with pytest.raises(KeyError, match="the user's"):
            compiled(torch.ones(2))
    compare(compiled(-torch.ones(2)), -torch.ones(2))


def test_fullgraph_raises_instead():
    with pytest.raises(dovetail.GraphBreakError, match="data-dependent-branch") as caught:
        dovetail.compile(branch, backend="eager", fullgraph=True)(torch.ones(2))
    assert caught.value.stack[-1].function == "branch"


def in_no_grad(x):
    with torch.no_grad():
        y = x + 1
        v = y.sum().item()
        z = y * v
    return z, torch.is_grad_enabled()


def caught(x):
    try:
        y = x + 1
        int("no" + str(y.sum().item()))
    except ValueError as error:
        return y, str(error)[:7]
    return y


def caught_outside(x):
    try:
        return fails_inside(x), 1
    except (KeyError, ValueError):
        y = x.sin()
    finally:
        x = x + 1
    return x, y


def fails_inside(x):
    v = x.sum().item()
    return [v][x.dim() + int(v * 0) + 5 - 5] if v is None else int("no")


class Manager:
    def __init__(self, log):
        self.log = log

    def __enter__(self):
        self.log.append("in")
        return self

    def __exit__(self, kind, error, trace):
        self.log.append(kind)
        return kind is ZeroDivisionError


def managed(x):
    log = []
    with Manager(log), Manager(log):
        log.append(x.sum().item())
        log.append(1 / (x.sum().item() * 0))
    return log, x + 1


def cleaned(x):
    log = []
    for k in range(3):
        try:
            if x.sum() > k:
                continue
            log.append(x.max().item())
        finally:
            log.append(k)
    return log


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("program", [in_no_grad, caught, caught_outside, managed, cleaned])
def test_blocks(program, sign):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled = dovetail.compile(program, backend="eager")
        for shift in (0.0, 0.25):
            x = sign * (torch.arange(3.0) + 0.5 + shift)
            compare(compiled(x), program(x))


@pytest.mark.parametrize("backend", ["eager", "dovetail"])
def test_a_mode_that_the_code_leaves_changed(backend):
    def leaves(x):
        torch.set_grad_enabled(False)
        return x + x.sum().item()

    with torch.enable_grad():
        dovetail.compile(leaves, backend=backend)(torch.ones(2))
        assert not torch.is_grad_enabled()


def test_an_error_inside_a_block_restores_the_mode():
    def fails(x):
        with torch.no_grad():
            v = x.sum().item()
            raise KeyError(v)

    with torch.enable_grad():
        with pytest.raises(KeyError):
            dovetail.compile(fails, backend="eager")(torch.ones(2))
        assert torch.is_grad_enabled()


@pytest.mark.parametrize("backend", ["eager", "dovetail"])
def test_a_graph_that_fails_leaves_the_blocks_that_it_begins_in(backend):
    def fails(x, lock):
        with lock, torch.no_grad():
            dovetail.graph_break()
            x.add_(1)
            return x[torch.tensor([7])]

    lock = threading.Lock()
    with torch.enable_grad():
        with pytest.raises(IndexError):
            dovetail.compile(fails, backend=backend)(torch.ones(2), lock)
        assert torch.is_grad_enabled() and not lock.locked()


def test_printing_what_is_known_does_not_break(capsys):
    def prints(x):
        print("shape", x.shape, x.dtype, end="!\n")
        return x + 1

    seen = dovetail.explain(prints, backend="eager")(torch.ones(2))
    assert (seen.graph_count, seen.graph_break_count) == (1, 0)
    assert capsys.readouterr().out == "shape torch.Size([2]) torch.float32!\n"


def test_printing_a_tensor_breaks_and_keeps_the_order(capsys):
    def prints(x):
        print("first", len(x))
        x = x + 1
        print(x)
        x.add_(1)
        print("then", x.sum())
        return x

    compare(dovetail.compile(prints, backend="eager")(torch.zeros(2)), torch.full((2,), 2.0))
    assert capsys.readouterr().out == "first 2\ntensor([1., 1.])\nthen tensor(4.)\n"


def lines(error):
    """(function, line within it) of the traceback's frames that are the user's."""
    frames = traceback.extract_tb(error.__traceback__)
    return [(f.name, f.line) for f in frames if f.filename == __file__ and f.name != "raised_by"]


def inner_step(x):
    return [1, 2][x.sum().item().__int__() + 5]


def outer_step(x):
    y = x + 1
    return inner_step(y) + 1


def raises_in_a_handler(x):
    try:
        return outer_step(x)
    except IndexError as error:
        x.sum().item()
        raise KeyError("second") from error


def raises_after_a_handler(x):
    try:
        int("no")
    except ValueError as error:
        kept = error
        x.sum().item()
    raise kept


def raised_by(function):
    with pytest.raises(Exception) as caught:
        function(torch.ones(2))
    return caught.value


@pytest.mark.parametrize("program", [outer_step, raises_in_a_handler, raises_after_a_handler])
def test_tracebacks(program):
    ours, theirs = raised_by(dovetail.compile(program, backend="eager")), raised_by(program)
    while theirs is not None:
        assert (type(ours), ours.args) == (type(theirs), theirs.args)
        assert lines(ours) == lines(theirs)
        assert ours.__suppress_context__ == theirs.__suppress_context__
        ours, theirs = ours.__cause__, theirs.__cause__


def test_a_handler_sees_the_error_that_the_step_raised():
    def reports(x, log):
        try:
            inner_step(x)
        except IndexError as error:
            log.append(lines(error))
            log.append(traceback.format_exc().splitlines()[-1])
            log.append(sys.exc_info()[1] is error)
        return x, sys.exc_info()

    ours, theirs = [], []
    compare(dovetail.compile(reports, backend="eager")(torch.ones(2), ours), reports(torch.ones(2), theirs))
    assert ours == theirs


def test_what_the_error_says_is_read_again_each_time():
    def reads(x, key):
        try:
            {}[x.sum().item(), key]
        except KeyError as error:
            x.sum().item()
            return error.args, str(error), repr(error)

    compiled = dovetail.compile(reads, backend="eager")
    for k in (1, 2, 3):
        compare(compiled(torch.ones(k), "ab"[k % 2]), reads(torch.ones(k), "ab"[k % 2]))


def entries(compiled):
    first = compiled._dovetail_dispatcher
    return [len(part.entries) for part in (first, *first.compiler.rests.values())]


@pytest.mark.parametrize("count", [4, 40])
def test_a_loop_with_a_counter_compiles_the_same_few_parts(count):
    def loop(x, n):
        total = 0.0
        for k in range(n):
            x = x + 1
            total = total + x.sum().item()
        return x, total

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled = dovetail.compile(loop, backend="eager")
        compare(compiled(torch.zeros(2), count), loop(torch.zeros(2), count))
    assert sum(entries(compiled)) <= 8


def test_a_generator_over_a_break_is_traced_on():
    ran = []

    def halves(x):
        try:
            for k in range(3):
                ran.append(torch.compiler.is_compiling())
                yield x / 2 + k
        finally:
            ran.append("closed")

    def loop(x):
        return [(y + 1, y.sum().item()) for y in halves(x)]

    compiled = dovetail.compile(loop, backend="eager")
    compare(compiled(torch.ones(2)), loop(torch.ones(2)))
    assert ran == [True, True, True, "closed", False, False, False, "closed"]


def test_a_generator_that_outlives_the_call():
    def starts(x):
        made = (x * k for k in range(1, 4))
        first = next(made)
        return first, first.sum().item(), made

    ours, theirs = (f(torch.ones(2)) for f in (dovetail.compile(starts, backend="eager"), starts))
    compare(ours[:2], theirs[:2])
    compare(list(ours[2]), list(theirs[2]))
    assert list(ours[2]) == []


def test_a_generator_left_waiting_is_closed_with_its_last_reference():
    def starts(x, log):
        def made():
            try:
                yield x + 1
            finally:
                log.append("closed")

        generator = made()
        y = next(generator)
        log.append(y.sum().item())
        return generator, y

    compiled = dovetail.compile(starts, backend="eager")
    compiled(torch.ones(2), [])  # compiling keeps it until the garbage is collected
    log = []
    generator, _ = compiled(torch.ones(2), log)
    assert log == [4.0]
    del generator
    assert log == [4.0, "closed"]


def test_effects_come_once_and_in_order(capsys):
    class Box:
        pass

    def works(x, box, log):
        log.append(1)
        box.a = x + 1
        print("one")
        v = x.sum().item()
        log.append(v)
        box.b = v
        print("two")
        del box.a
        if x.sum() > 0:
            log.append(list(vars(box)))
        return x

    for function in (works, dovetail.compile(works, backend="eager")):
        for _ in range(2):
            box, log = Box(), []
            function(torch.ones(2), box, log)
            assert log == [1, 2.0, ["b"]] and vars(box) == {"b": 2.0}
            assert capsys.readouterr().out == "one\ntwo\n"
