"""Lists, tuples and texts of any length: what is done at their ends relies on no more than that they reach so far."""

from __future__ import annotations

import random
import warnings

import pytest
import torch

import dovetail
from tests.capture.harness import compare
from tests.capture.test_growing import checked, entries, total

COUNT = 30


def last(x):
    out = [x]
    for k in range(COUNT):
        out[-1] = out[-1] + total(x + k)
    return out


def inserted(x):
    out = []
    for k in range(COUNT):
        out.insert(0, total(x + k))
    return out


def popped(x):
    out = list(range(COUNT))
    for _ in range(COUNT):
        x = x + out.pop()
        dovetail.graph_break()
    return x, out


def queued(x):
    out = [x] * 3
    for k in range(COUNT):
        out.append(total(x * k))
        x = x + out.pop(0)
    return x, out


def tuple_grown(x):
    out = (x,)
    for k in range(COUNT):
        out += (total(out[-1] + k),)
    return out


def hidden_states(x):
    states, others = (), ()
    for _ in range(COUNT):
        states = states + (x,)
        x = x + total(x) * 0 + 1
        others = (*others, x)
    return states, others


def list_added(x):
    out, other = [], []
    for k in range(COUNT):
        out = out + [total(x + k)]
        other = [*other, k]
    return out, other


def text(x):
    out = "a"
    for _ in range(COUNT):
        out += "x"
        dovetail.graph_break()
    return out


def texts(x):
    out = ""
    for k in range(COUNT):
        out += f"{(x + k).sum().item():.1f} "
        out = f"{out}{k}"
    return out


def window(x):
    out = [x]
    for k in range(COUNT):
        out.append(total(x * k))
        if len(out) > 4:
            out = out[-4:]
    return out


def rows(x):
    table, y = x + torch.arange(3.0 * COUNT).reshape(COUNT, 3), x
    for row in table:
        y = y + row
        dovetail.graph_break()
    return y


def parts(x):
    table, y = x + torch.arange(3.0 * COUNT).reshape(COUNT, 3), x
    for k, (row, other) in enumerate(zip(table.unbind(0), table.chunk(COUNT))):
        y = y + row * k + other[0]
        dovetail.graph_break()
    return y


@pytest.mark.parametrize(
    "fn",
    [last, inserted, popped, queued, tuple_grown, hidden_states, list_added, text, texts, window, rows, parts],
    ids=lambda fn: fn.__name__,
)
def test_a_loop_compiles_the_same_few_parts(fn):
    assert max(entries(checked(fn, torch.ones(3)))) <= 3


LINES = (
    "out.append(x + {k})", "out.extend((x, {k}))", "out += [{k}]", "out.insert({i}, {k})", "r.append(out.pop({i}))",
    "r.append(out.pop())", "r.append(out.pop(0))", "out[{i}] = x * {k}", "out[-1] = {k}", "del out[{i}]",
    "r.append(out[{i}])", "r.append(t[{i}])", "r.append(out[{i}:])", "r.append(t[:{i}])", "r.append(out[{i}:{j}])",
    "t = t[{i}:{j}]", "t = t + (x, {k})", "t = ({k}, *t)", "t = (*t, *t)", "out = out + [{k}]", "out = [{k}, *out]",
    "r.append(len(out))", "r.append(len(t))", "r.append(bool(out))", "r.append(bool(t))", "r.append(list(t))",
    "r.append(tuple(out))", "r.append(out.copy())", "out[{i}:{j}] = [{k}]", "out.reverse()", "out += t",
    "t += tuple(out)",
    "r.append(t)", "r.append(out)", "u = out; u.append({k})", "r.append(sum(1 for _ in t))",
    "s = s + '{k}'", "s += s", "r.append(f'{{s}}{k}')", "r.append(s)", "r.append(s == 'a{k}')", "r.append(s[-1:])",
)  # fmt: skip


def program(random_):
    lines = random_.choices(LINES, k=random_.randint(2, 7))
    draw = random_.randint
    filled = [line.format(k=draw(0, 3), i=draw(-4, 4), j=draw(-4, 4)) for line in lines]
    body = "\n        ".join(filled)
    return (
        f"def f(x, out, t, s):\n    r = []\n    try:\n        {body}\n"
        "    except IndexError as error:\n        r.append(str(error))\n    return r, t, s, x + 1\n"
    )


@pytest.mark.parametrize("seed", range(150))
def test_any_length(seed):
    source = program(random.Random(seed))
    space = {}
    exec(source, space)
    compiled = dovetail.compile(space["f"], backend="eager")
    random_ = random.Random(seed)
    for _ in range(6):
        given = [random_.choice([1, 2, "a", torch.tensor(5.0), None, 2.5]) for _ in range(random_.randint(0, 6))]
        pair = tuple(random_.choice([given, [1, 2, 3], given[:2]]))
        text = random_.choice(["a", "", "a1", "b"])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ours, theirs = list(given), list(given)
            actual, expected = compiled(torch.ones(2), ours, pair, text), space["f"](torch.ones(2), theirs, pair, text)
        compare(actual, expected), compare(ours, theirs)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "dovetail"])
def test_a_place_in_the_storage_matters_only_where_it_shows(backend):
    def views(row, table):
        row.mul_(2)
        return row[1:], row.view(-1, 2), table[0] + row.sum()

    def places(row, table):
        return row.as_strided((2,), (1,)), row.storage_offset(), row.as_strided((2,), (1,), 1) + 1

    for fn, count in ((views, 1), (places, 3)):
        compiled = dovetail.compile(fn, backend=backend)
        for k in range(3):
            ours, theirs = torch.arange(12.0).reshape(3, 4), torch.arange(12.0).reshape(3, 4)
            actual, expected = compiled(ours[k], torch.ones(2)), fn(theirs[k], torch.ones(2))
            compare(actual, expected), compare(ours, theirs)
            assert actual[0].data_ptr() - ours.data_ptr() == expected[0].data_ptr() - theirs.data_ptr()
        assert sum(entries(compiled)) == count


def test_a_view_of_another_type_refuses_some_places():
    def pairs(row):
        return torch.view_as_complex(row.view(2, 2)) * 2

    compiled = dovetail.compile(pairs)
    table = torch.arange(9.0)
    compare(compiled(table[2:6]), pairs(table[2:6]))
    for fn in (pairs, compiled):
        with pytest.raises(RuntimeError, match="divisible by 2"):
            fn(table[1:5])
