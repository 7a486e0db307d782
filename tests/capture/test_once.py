"""Cached functions: computed once or shown once, as their cache decides."""

from __future__ import annotations

import functools
import logging

import pytest
import torch

import dovetail

LOG = logging.getLogger("tests.once")
X = torch.linspace(-1, 1, 4)


@functools.lru_cache(None)
def warning_once(logger, text):
    logger.warning(text)


class Logger:
    @functools.lru_cache(None)  # noqa: B019 (as a library does it)
    def once(self, text):
        LOG.warning(text)

    @functools.lru_cache(None)  # noqa: B019
    def factor(self, n):
        return n * 2


def test_a_cached_warning_is_shown_once(caplog):
    warning_once.cache_clear()

    def function(x):
        warning_once(LOG, "short")
        return x + 1

    compiled = dovetail.compile(function, backend="eager", fullgraph=True)
    for _ in range(3):
        torch.testing.assert_close(compiled(X), X + 1)
    assert [r.message for r in caplog.records] == ["short"]


def test_cached_methods(caplog):
    logger = Logger()

    def function(x):
        logger.once("narrow")
        return x * logger.factor(3)

    compiled = dovetail.compile(function, backend="eager", fullgraph=True)
    for _ in range(3):
        torch.testing.assert_close(compiled(X), X * 6)
    assert [r.message for r in caplog.records] == ["narrow"]


SEEN = []


class Plain:
    n = 0


def appended(n):
    SEEN.append(n)
    return n


MAKERS = {
    "appended": appended, "listed": lambda n: [n], "nested": lambda: ([1],), "table": dict,
    "object": Plain, "range": torch.arange,
}  # fmt: skip
CACHED = """
x + appended(3)
(counted(), x + COUNT)[1]
(listed(1).append(2), x + len(listed(1)))[1]
(x + 1, listed(1) is listed(1), listed(1) is listed(2))
(nested()[0].append(2), x + len(nested()[0]))[1]
(table().update({len(table()): 1}), x + len(table()))[1]
(setattr(object(), "n", object().n + 1), x + object().n)[1]
(range(2).add_(1), x + range(2))[1]
(x + range(4)[:2], range(4) is range(4))
(x + listed(5)[0], listed.cache_info().misses > 0)
"""


@pytest.mark.parametrize("text", CACHED.strip().splitlines())
def test_what_a_cache_gives_is_one_object(text):
    def results(wrap):
        SEEN.clear()
        space = {name: functools.lru_cache(None)(maker) for name, maker in MAKERS.items()}
        space["COUNT"] = 0
        space["counted"] = counted_in(space)
        function = wrap(eval(f"lambda x: {text}", space))
        return [(function(X[:2]), [*SEEN]) for _ in range(3)]

    torch.testing.assert_close(results(lambda f: dovetail.compile(f, backend="eager")), results(lambda f: f))


def counted_in(space):
    exec("def counted():\n    global COUNT\n    COUNT += 1", space)
    return functools.lru_cache(None)(space["counted"])
