"""Deques from outside: their ends, their limits and items under indices that vary, in random programs."""

from __future__ import annotations

import random
import warnings
from collections import deque

import pytest
import torch

import dovetail
from tests.capture.harness import compare

STEPS = (
    "d.append({n})", "d.appendleft(x * {n})", "r.append(d.pop())", "r.append(d.popleft())", "r.append(d[{I}])",
    "d[{I}] = {n}", "d[{I}] = x + {n}", "d.rotate({n})", "d.rotate(-1)", "d.rotate(i)", "r.append(len(d))",
    "r.append(bool(d))", "d.extend([{n}, x])", "d.extendleft([{n}, 5])", "r.append(list(d))", "r.append(d.copy())",
    "d.insert({I}, {n})", "del d[{I}]", "r.append(d + e)", "e.append(d[{I}])", "d, e = e, d", "d += [7]",
    "r.append(tuple(d))", "d[{I}] += 1", "r.append(next(w, 'end'))", "r.append(deque(d, 3))", "d.clear()",
    "r.append(list(reversed(d)))", "d.reverse()", "r.append(d.maxlen)", "w = iter(d)", "r.append(3 in d)",
    "d.remove(2)", "r.append(d.count(2))", "r.append([*d, 1])", "r.append(d[1:2])", "d[{I}], d[{I}] = d[{I}], d[{I}]",
)  # fmt: skip
PLACES = {"{I}": ("i", "-i", "0", "-1", "1", "i - 1", "len(d) - 1", "i + 1", "-2"), "{n}": tuple("0123")}


def program(draw):
    lines = []
    for line in draw.choices(STEPS, k=draw.randint(2, 7)):
        for place, choices in PLACES.items():
            while place in line:
                line = line.replace(place, draw.choice(choices), 1)
        lines.append(line)
    lines.insert(draw.randrange(len(lines)), draw.choice(("end()", "pass", "end()")))
    body = "\n        ".join(lines)
    return (
        f"def f(x, i, d, e, w):\n    r = []\n    try:\n        {body}\n"
        "    except (LookupError, TypeError, RuntimeError, ValueError) as error:\n"
        "        r.append((type(error), str(error)))\n"
        "    return r, i, x + 1, list(d), list(e), d.maxlen\n"
    )


def arguments(seed):
    draw, x = random.Random(seed), torch.ones(2)

    def queue():
        items = [draw.choice([1, 2, "a", 2.5, x, None]) for _ in range(draw.randint(0, 6))]
        return deque(items, draw.choice([None, 3, 4, 1, 6]))

    first = queue()
    return x, draw.randint(-3, 4), first, queue(), iter(first if draw.random() < 0.7 else [1, 2])


def left(walker):
    """What is left to walk, or why it cannot be."""
    try:
        return [*walker]
    except RuntimeError as error:
        return str(error)


@pytest.mark.parametrize("seed", range(150))
def test_deques_change_as_eagers_do(seed):
    draw, space = random.Random(seed), {"end": dovetail.graph_break, "deque": deque}
    exec(program(draw), space)
    compiled = dovetail.compile(space["f"], backend="eager")
    for call in range(7):
        ours, theirs = arguments(100 * seed + call), arguments(100 * seed + call)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compare(compiled(*ours), space["f"](*theirs))
        for k in (2, 3):
            compare([*ours[k]], [*theirs[k]])
            assert ours[k].maxlen == theirs[k].maxlen
        compare(left(ours[4]), left(theirs[4]))


def test_nothing_is_pushed_out_of_a_deque_with_room():
    compiled = dovetail.compile(lambda x, d: (d.append(x), d[0], len(d)), backend="eager")
    for size, limit in ((1, 3), (2, 3), (3, 3), (3, None), (5, None), (3, 9)):
        ours, theirs = deque(range(size), limit), deque(range(size), limit)
        compare(compiled(torch.ones(2), ours), compiled.__wrapped__(torch.ones(2), theirs))
        compare([*ours], [*theirs])
