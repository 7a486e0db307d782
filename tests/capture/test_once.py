"""Cached functions: computed once or shown once, as their cache decides."""

from __future__ import annotations

import functools
import logging

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
