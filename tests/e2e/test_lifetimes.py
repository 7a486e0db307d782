"""Objects live as long as eager lets them: generators are closed, inputs and models are let go."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch

import dovetail

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
