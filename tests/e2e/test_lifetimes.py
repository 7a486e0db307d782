"""Objects live as long as eager lets them: generators are closed, inputs and models are let go."""

from __future__ import annotations

import contextlib
import gc
import weakref
from typing import Any

import pytest
import torch

import dovetail

pytestmark = pytest.mark.usefixtures("small_heap")

X = torch.randn(3)
log: list[str] = []


def rows(x, name="rows"):
    try:
        yield x
        yield x + 1
    finally:
        log.append(f"{name} closed")


@contextlib.contextmanager
def block(name):
    log.append(f"enter {name}")
    try:
        yield
    finally:
        log.append(f"leave {name}")


def left_by_break(x):
    for row in rows(x):
        break
    log.append("after")
    return row * 2


def dropped_by_a_store(x):
    it = rows(x)
    y = next(it)
    it = None
    log.append("after")
    return y * 2


def dropped_by_del(x):
    it = rows(x)
    y = next(it)
    del it
    log.append("after")
    return y * 2


def dropped_with_its_frame(x):
    y = first(x)
    log.append("after")
    return y * 2


def first(x):
    for row in rows(x):
        return row


def variables_go_in_order(x):
    def inner(x):
        a, b = rows(x, "a"), rows(x, "b")
        next(b), next(a)
        return x

    y = inner(x)
    log.append("after")
    return y * 2


def at_the_very_end(x):
    it = rows(x)
    return next(it) * 2


def left_by_an_exception(x):
    try:
        for _ in rows(x):
            raise ValueError("no")
    except ValueError:
        log.append("caught")
    return x * 2


def kept_by_a_traceback(x):
    def inner(x):
        it = rows(x)
        next(it)
        raise ValueError("no")

    try:
        inner(x)
    except ValueError:
        log.append("caught")
    log.append("after")
    return x * 2


def inside_zip(x):
    y = sum(k * row for k, row in zip([2], rows(x)))
    log.append("after")
    return y


def inside_any(x):
    y = any(row.dim() for row in rows(x))
    log.append("after")
    return x * y


def around_a_block(x):
    def inner():
        with block("a"):
            yield x
            yield x + 1

    for row in inner():
        break
    log.append("after")
    return row * 2


def around_no_grad(x):
    def inner():
        with torch.no_grad():
            yield x
            yield x + 1

    for row in inner():
        break
    log.append(str(torch.is_grad_enabled()))
    return row * 2


def one_waits_for_another(x):
    def outer():
        try:
            yield from rows(x)
        finally:
            log.append("outer closed")

    for row in outer():
        break
    log.append("after")
    return row * 2


def still_referred_to(x):
    it = rows(x)
    kept = [it]
    y = next(it)
    it = None
    log.append("not yet")
    y = y + next(kept[0])
    kept.clear()
    log.append("after")
    return y


ABANDONED = [
    left_by_break, dropped_by_a_store, dropped_by_del, dropped_with_its_frame, variables_go_in_order, at_the_very_end,
    left_by_an_exception, kept_by_a_traceback, inside_zip, inside_any, around_a_block, around_no_grad,
    one_waits_for_another, still_referred_to,
]  # fmt: skip


def thrown_into_the_inner(x):
    def inner():
        try:
            yield x
        except ValueError:
            log.append("inner caught")
            yield x + 5

    def outer():
        try:
            yield from inner()
        except ValueError:
            log.append("outer caught")

    it = outer()
    next(it)
    return it.throw(ValueError("a"))


def thrown_and_returned(x):
    def inner():
        try:
            yield x
        except ValueError:
            return x * 3

    def outer():
        found = yield from inner()
        yield found + 1

    it = outer()
    next(it)
    return it.throw(ValueError("a"))


def closed_from_outside_in(x):
    def outer():
        try:
            yield from rows(x)
        finally:
            log.append("outer closed")

    it = outer()
    next(it)
    it.close()
    log.append("after")
    return x * 2


def thrown_into_a_list(x):
    def outer():
        try:
            yield from [x, x]
        except ValueError:
            yield x * 4

    it = outer()
    next(it)
    return it.throw(ValueError("a"))


class Recorder:
    def __init__(self, x):
        self.x = x

    def __iter__(self):
        return self

    def __next__(self):
        return self.x

    def send(self, value):
        log.append("send")
        return self.x * value

    def throw(self, *error):
        log.append("throw")
        raise StopIteration(self.x + 9)

    def close(self):
        log.append("close")


def a_users_iterator(x):
    def outer():
        yield (yield from Recorder(x))
        yield from Recorder(x)

    it = outer()
    next(it)
    y = it.send(3)
    z = it.throw(ValueError("a"))
    next(it)
    it.close()
    return y + z


DELEGATED = [
    thrown_into_the_inner, thrown_and_returned, closed_from_outside_in, thrown_into_a_list, a_users_iterator,
]  # fmt: skip


def noted(fn: Any, *args: Any) -> Any:
    log.clear()
    return fn(*args), list(log)


@pytest.mark.parametrize("fn", [*ABANDONED, *DELEGATED], ids=lambda fn: fn.__name__)
def test_generators_end_as_in_eager(fn: Any) -> None:
    compiled = dovetail.compile(fn, backend="eager", fullgraph=True)
    (expected, told) = noted(fn, X)
    for _ in range(2):
        (actual, said) = noted(compiled, X)
        assert said == told
        torch.testing.assert_close(actual, expected)


def test_an_error_while_a_generator_is_closed_is_not_the_programs(recwarn: Any) -> None:
    def fn(x):
        def inner():
            try:
                yield x
            finally:
                raise ValueError("unraisable")

        for row in inner():
            break
        return row * 2

    seen: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.unraisablehook", seen.append)
        torch.testing.assert_close(dovetail.compile(fn, backend="eager")(X), X * 2)
    assert len(seen) == 1


class Thing:
    def __init__(self):
        self.n = 2


def changes_an_object(o, x):
    o.seen = True
    return x + o.n


def breaks(o, x):
    dovetail.graph_break()
    return x + o.n


def reads_values(o, x):
    return x.tolist()[0] + o.n


def raises(o, x):
    raise ValueError("no")


def runs_eagerly(o, x):
    with open("/dev/null"):
        return x + len(locals())


def trains(o, x):
    (x * x.requires_grad_()).sum().backward()
    return x.grad


@pytest.fixture
def no_collector() -> Any:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


LET_GO = [changes_an_object, breaks, reads_values, raises, runs_eagerly, trains]


@pytest.mark.parametrize("fn", LET_GO, ids=lambda fn: fn.__name__)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_arguments_go_with_their_last_reference(fn: Any, no_collector: Any) -> None:
    """The first call compiles, and a failure to compile is no reason to keep them either."""
    compiled = dovetail.compile(fn)
    for _ in range(2):
        o, x = Thing(), torch.randn(3)
        seen = [weakref.ref(o), weakref.ref(x)]
        with contextlib.suppress(ValueError):
            compiled(o, x)
        del o, x
        assert [ref() for ref in seen] == [None, None]


def test_recompiling_leaves_nothing_behind() -> None:
    """Objects of every kind are counted after 20 compilations and after 60 more."""
    x = torch.randn(3)

    def compile_often(times: int) -> int:
        for k in range(times):
            compiled = dovetail.compile(lambda x, k=k: (x + k).relu() if k % 2 else x.tolist()[0] + k, backend="eager")
            compiled(x)
        gc.collect()
        return len(gc.get_objects())

    first = compile_often(20)
    assert compile_often(60) - first < 60 * 20
    assert not gc.garbage


def test_a_model_and_what_it_closes_over_can_go() -> None:
    class Held(torch.nn.Linear):
        pass

    def build() -> tuple[Any, list[Any]]:
        model, thing = Held(3, 3), Thing()

        @dovetail.compile
        def step(x):
            y = model(x) * thing.n
            dovetail.graph_break()
            return y.sum() + model(x).sum()

        step(X).backward()
        return step, [weakref.ref(model), weakref.ref(thing), weakref.ref(step), weakref.ref(model.weight)]

    step, seen = build()
    assert all(ref() is not None for ref in seen)
    del step
    gc.collect()
    assert [ref() for ref in seen] == [None] * 4


def asks(x):
    return x + (1 if x.is_inference() else 2)


def asks_of_a_result(x):
    y = x + 1
    return y * (3 if y.is_inference() else 5)


@pytest.mark.parametrize("fn", [asks, asks_of_a_result], ids=lambda fn: fn.__name__)
def test_what_is_an_inference_tensor(fn: Any) -> None:
    with torch.inference_mode():
        made = torch.ones(3)
    compiled = dovetail.compile(fn, backend="eager")
    for x in (torch.ones(3), made, torch.ones(3)):
        torch.testing.assert_close(compiled(x), fn(x))
        with torch.inference_mode():
            torch.testing.assert_close(compiled(x), fn(x))


def test_a_compiled_generator_function_says_that_it_runs_eagerly() -> None:
    def rows_of(x):
        yield x + 1
        yield x + 2

    compiled = dovetail.compile(rows_of)
    with pytest.warns(UserWarning, match="generator-function") as told:
        for _ in range(2):
            torch.testing.assert_close(list(compiled(X)), [X + 1, X + 2])
    assert len(told) == 1
    with pytest.raises(dovetail.GraphBreakError, match="rows_of yields or awaits"):
        dovetail.compile(rows_of, fullgraph=True)(X)


def dropped_after_a_break(x):
    it = rows(x)
    y = next(it)
    dovetail.graph_break()
    it = None
    log.append("after")
    return y * 2


def left_after_a_break(x):
    for row in rows(x):
        dovetail.graph_break()
        break
    log.append("after")
    return row * 2


def left_in_one_of_two_ways(x):
    for row in rows(x):
        if row.sum() > -1e9:
            break
    log.append("after")
    return row * 2


@pytest.mark.parametrize("fn", [dropped_after_a_break, left_after_a_break, left_in_one_of_two_ways])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_generators_end_in_time_around_graph_breaks(fn: Any) -> None:
    compiled = dovetail.compile(fn, backend="eager")
    (expected, told) = noted(fn, X)
    (actual, said) = noted(compiled, X)
    assert said == told
    torch.testing.assert_close(actual, expected)


def held_to_the_end(x):
    it = rows(x)
    y = next(it)
    dovetail.graph_break()
    dovetail.graph_break()
    log.append("after")
    return y * 2


def closed_between_breaks(x):
    it = rows(x)
    y = next(it)
    dovetail.graph_break()
    it.close()
    log.append("after")
    dovetail.graph_break()
    return y * 2


@pytest.mark.parametrize("fn", [held_to_the_end, closed_between_breaks])
@pytest.mark.filterwarnings("error::UserWarning")
def test_a_graph_ends_while_a_generator_waits_that_lives_to_the_end(fn: Any) -> None:
    compiled = dovetail.compile(fn, backend="eager")
    (expected, told) = noted(fn, X)
    for _ in range(2):
        (actual, said) = noted(compiled, X)
        assert said == told
        torch.testing.assert_close(actual, expected)
