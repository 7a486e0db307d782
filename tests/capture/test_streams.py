"""What only passes on the items of a generator (`enumerate`, `zip`, ...), with a graph break in the generator."""

from __future__ import annotations

import itertools
import random
import warnings
from collections import deque

import pytest
import torch

import dovetail
from tests.capture.harness import compare
from tests.capture.test_break_protocols import broken_inside, sign


def rows(x, count=4):
    for k in range(count):
        yield sign(x + k)


def numbered(x):
    for k, v in enumerate(rows(x), 1): x = x + v * k
    return x


def kept(x):
    for v in filter(lambda v: v is not x, rows(x)): x = x + v
    return x


def scaled(x):
    for v in map(lambda v: v * 2, rows(x)): x = x + v
    return x


def paired(x):
    for v, w in zip(rows(x), rows(x, 3)): x = x + v * w
    return x


def nested(x): return [(k, v) for k, v in enumerate(map(lambda v: v + 1, filter(lambda v: v is not x, rows(x))))]
def queued(x): return list(deque(rows(x), 2)), list(deque(rows(x), maxlen=3)), list(deque(rows(x)))
def starred(x): return [x, *rows(x), *enumerate(rows(x))], (*rows(x), x), {*map(id, rows(x))} != set()
def given(x): return torch.stack([*rows(x)]), max(*(v.sum() for v in rows(x)))
def spread(x): return (lambda *v: sum(v))(*rows(x))
def unpacked(x): a, b, c = rows(x, 3); return a + b * c
def unpacked_in_part(x): a, *b = rows(x); *c, d = enumerate(rows(x)); return a, b, c, d
def listed(x): return list(enumerate(rows(x))), dict(enumerate(rows(x))), sorted(enumerate(rows(x)), key=len)


STREAMED = (numbered, kept, scaled, paired, nested, queued, starred, given, spread, unpacked, unpacked_in_part, listed)


@pytest.mark.parametrize("fn", STREAMED, ids=lambda fn: fn.__name__)
def test_the_body_of_the_generator_is_compiled(fn):
    assert {"sin", "cos"} <= broken_inside(fn, 4)


def too_many(x): a, b = rows(x, 9); return a, b
def too_few(x): a, b, c = rows(x, 2); return a, b, c
def endless(x):
    import itertools
    a, b = itertools.count(); return a, b
def no_iterator(x): a, b = object(); return a, b


@pytest.mark.parametrize("fn", (too_many, too_few, endless, no_iterator), ids=lambda fn: fn.__name__)
def test_what_cannot_be_unpacked(fn):
    texts = []
    for call in (fn, dovetail.compile(fn, backend="eager")):
        with pytest.raises((ValueError, TypeError)) as caught:
            call(torch.ones(2))
        texts.append(str(caught.value))
    assert texts[0] == texts[1]


MAKERS = (
    "source({n})", "source({n})", "range({n})", "[x, 1, 2]", "enumerate({S})", "enumerate({S}, 5)", "zip({S}, {S})",
    "map(tag, {S})", "filter(pick, {S})", "filter(None, {S})", "zip({S})", "map(lambda a, b: (a, b), {S}, {S})",
)  # fmt: skip
USES = (
    "for v in {S}:\n            log.append(v)", "log.append(deque({S}, 2))",
    "for v in {S}:\n            log.append(v)\n            if len(log) > 6: break",
    "log.append(list({S}))", "log.extend({S})", "a, *b = {S}; log.append((a, b))", "log.append([*{S}])",
    "s = {S}\n        log.append(next(s))\n        for v in s: log.append(v)",
    "s = {S}\n        for v in s:\n            log.append((v, next(s, 'end')))", "log.append(tuple({S}))",
    "s = {S}\n        log.append(list(s)); log.append(list(s))", "log.append({k: 1 for k, _ in enumerate({S})})",
    "a, b = {S}; log.append((a, b))", "log.append(dict(enumerate({S})))", "log.append(len((lambda *v: v)(*{S})))",
)  # fmt: skip


def program(draw):
    lines = []
    for text in draw.choices(USES, k=draw.randint(1, 3)):
        depth = 0
        while "{S}" in text:
            depth += 1
            text = text.replace("{S}", draw.choice(MAKERS if depth < 4 else MAKERS[:4]), 1)
        while "{n}" in text:
            text = text.replace("{n}", draw.choice("01235"), 1)
        lines.append(text)
    body = "\n        ".join(lines)
    return (
        "def f(x, log):\n"
        "    def source(n):\n"
        "        for k in range(n):\n"
        "            log.append(('gives', k))\n"
        "            if k % 2: end()\n"
        "            yield x * k\n"
        "        log.append('closed')\n"
        "    def tag(v):\n        end()\n        return 'tagged', v\n"
        "    def pick(v):\n        log.append('picks')\n        end()\n        return True\n"
        f"    try:\n        {body}\n"
        "    except (ValueError, TypeError, StopIteration, RuntimeError) as error:\n"
        "        log.append((type(error), str(error)))\n"
        "    return log, x + 1\n"
    )


@pytest.mark.parametrize("seed", range(120))
def test_any_stream(seed):
    space = {"end": dovetail.graph_break, "deque": deque}
    exec(program(random.Random(seed)), space)
    compiled = dovetail.compile(space["f"], backend="eager")
    for _ in range(2):
        compare(compiled(torch.ones(2), []), space["f"](torch.ones(2), []))


@pytest.mark.parametrize("given", [
    "closing(log)", "enumerate(closing(log))", "zip(closing(log), range(3))", "map(abs, closing(log))",
    "(v for v in closing(log))", "itertools.chain(closing(log), [5])", "filter(None, enumerate(closing(log)))",
])  # fmt: skip
def test_a_generator_behind_others_is_closed_when_the_loop_is_left(given):
    def closing(log):
        try:
            yield from range(3)
        finally:
            log.append("closed")

    def function(x, log, make):
        for _ in make(log):
            dovetail.graph_break()
            break
        log.append("after")
        return x + 1

    make = eval(f"lambda log: {given}", {"closing": closing, "itertools": itertools})
    compiled, log = dovetail.compile(function, backend="eager"), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled(torch.ones(2), log, make)
    assert log == ["closed", "after"]
