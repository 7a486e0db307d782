"""Loops with graph breaks that use an index or key that changes: a few entries serve all iterations."""

from __future__ import annotations

import copy
import random
import warnings
from collections import OrderedDict, defaultdict

import numpy
import pytest
import torch

import dovetail
from tests.capture.harness import compare
from tests.capture.test_growing import checked, entries, total

COUNT = 30
NAMES = {
    "torch": torch, "N": COUNT, "f": total, "end": dovetail.graph_break, "numpy": numpy,
    "defaultdict": defaultdict,
}  # fmt: skip



class Parts:
    def __init__(self):
        vars(self).update({f"part{k}": torch.ones(3) * k for k in range(COUNT)})


NAMES["Parts"] = Parts

#: What is made before the loop, and the loop. `f` is not compiled, `end()` ends the graph.
LOOPS = {
    "store": ("out = [None] * N", "for k in range(N): out[k] = f(x + k)"),
    "store after a break": ("out = [None] * N", "for k in range(N): y = x * k; end(); out[k] = y"),
    "store an item": ("out = [None] * N", "for k in range(N): out[k] = (x * k).sum().item()"),
    "store from the end": ("out = [None] * N", "for k in range(N): out[-k - 1] = f(x + k)"),
    "store and read": ("out = [x] * N", "for k in range(1, N): out[k] = f(out[k - 1]) + 1"),
    "add to items": ("out = [0.0] * N", "for k in range(N): out[k] += f(x + k)"),
    "exchange": ("out = [x * k for k in range(N)]", "for k in range(1, N): out[k], out[-k] = out[-k], out[k]; end()"),
    "two lists": ("out, b = [None] * N, [x] * N", "for k in range(N): out[k] = f(b[k]); b[k - 1] = out[k]"),
    "lists in a list": ("out = [[1, 2] for _ in range(N)]", "for k in range(N): out[k][0] = f(x * k); out[k][1] = k"),
    "read a list": ("out = [x * k for k in range(N)]", "for k in range(N): x = x + out[k]; end()"),
    "read numbers": ("out = [float(k) for k in range(N)]", "for k in range(N): x = x + out[k]; end()"),
    "read a tuple": ("out = tuple(x * k for k in range(N))", "for k in range(N): x = x + out[k]; end()"),
    "windows": ("out = [x * k for k in range(N)]", "for k in range(0, N, 2): x = x + sum(out[k : k + 2]); end()"),
    "append and change": ("out = []", "for k in range(N):\n    if len(out) <= k: out.append(f(x))\n    out[k] += 1"),
    "grid": ("out = [[0] * 5 for _ in range(6)]", "for k in range(N): out[k // 5][k % 5] = f(x * k)"),
    "while": ("out, k = [None] * N, 0", "while k < N: out[k] = f(x + k); k += 1"),
    "one function deep": ("out = [None] * N\n  def put(k, v): out[k] = f(v)", "for k in range(N): put(k, x + k)"),
    "given": ("def put(o, k): o[k] = f(x); return o[k]\n  out = [0] * N", "for k in range(N): x + put(out, k)"),
    "a dictionary": ("out = {-1: x}", "for k in range(N): out[k] = f(out[k - 1]) + k"),
    "get": ("out = {}", "for k in range(N): out[k % 7] = out.get(k % 7, 0) + f(x)"),
    "get an item": ("out = {}", "for k in range(N): out[k] = (x * k).sum().item() + out.get(k - 1, 0)"),
    "in": ("out = {}", "for k in range(N):\n    if k not in out: out[k] = f(x)"),
    "names": ("out = {f'n{k}': k for k in range(N)}", "for name in list(out): out[name] = f(x) + out[name]"),
    "made names": ("out = {}", "for k in range(N): out[f'l{k}'] = f(x); x = x + out[f'l{k}']"),
    "read under names": ("out = {f'n{k}': x * k for k in range(N)}", "for n in list(out): x = x + out[n]; end()"),
    "renamed": ("out = {}", "for n in [f'n{k}' for k in range(N)]: out[n.replace('n', 'm.')] = f(x)"),
    "chosen": ("out = [f'n{k}' for k in range(N)]", "for n in out:\n    if '4' in n: x = x + len(n)\n    end()"),
    "pairs": ("out = {}", "for k in range(N): out[k, 'a'] = f(x) + out.get((k - 1, 'a'), 0)"),
    "attributes": ("out, o = 0, Parts()", "for k in range(N): x = x + getattr(o, f'part{k}'); end()"),
    "walked": ("out = {f'n{k}': k for k in range(N)}", "for name, v in out.items(): out[name] = f(x) + v"),
    "while and a dictionary": ("out, k = {}, 0", "while k < N:\n    out[k] = f(x + k); k += 1"),
    "both": ("out, b = [None] * N, {-1: x}", "for k in range(N): out[k] = f(x + k); b[k] = b[k - 1] + out[k]"),
    "a list for each key": ("out = defaultdict(list)", "for k in range(N): out[k].append(f(x))"),
    "a list for some keys": ("out = defaultdict(list)", "for k in range(N): out[k % 5].append(f(x))"),
    "del": ("out = {k: x + k for k in range(N)}", "for k in range(N): f(x); del out[k]"),
    "pop": ("out = {k: x + k for k in range(N)}", "for k in range(N): x = x + out.pop(k); f(x)"),
    "insert": ("out = [0] * 3", "for k in range(N): out.insert(k, f(x + k))"),
    "insert in the middle": ("out = [0] * N", "for k in range(N): out.insert(-k // 2, f(x + k))"),
    "pop from the middle": ("out = [x * k for k in range(2 * N)]", "for k in range(N): x = x + f(out.pop(N - k))"),
    "del in the middle": ("out = [x * k for k in range(2 * N)]", "for k in range(N): f(x); del out[k]"),
    "move": ("out = [x * k for k in range(2 * N)]", "for k in range(N): out.insert(k, out.pop(-k - 1)); f(x)"),
    "two items": ("out = [0] * (2 * N)", "for k in range(N): out[k:k + 2] = [f(x), k]"),
    "two items for one": ("out = [0] * N", "for k in range(N): out[k:k + 1] = [f(x), k]; x = x + out[k]"),
    "del two items": ("out = [0] * (3 * N)", "for k in range(N): f(x); del out[k:k + 2]"),
    "prefixes": ("out = [x * k for k in range(N)]", "for k in range(N): x = x + len(out[:k]); end()"),
    "prefixes kept": ("b, out = [[k] for k in range(N)], []", "for k in range(N): out.append(b[:k]); end()"),
    "ends": ("b, out = tuple(range(N)), []", "for k in range(N): out.append((b[k:], b[-k:])); end()"),
    "a set": ("out = set()", "for k in range(N):\n    if k % 7 not in out: out.add(k % 7); f(x)"),
    "rows": ("out = torch.zeros(N, 3)", "for k in range(N): y = x + k; end(); out[k] = y"),
    "columns": ("out = torch.zeros(3, N)", "for k in range(N): out[:, k] = f(x + k)"),
    "elements": ("out = torch.zeros(2, N)", "for k in range(N): out[1, k] += f(x + k)"),
    "the row before": ("out = torch.zeros(N, 3)", "for k in range(1, N): out[k] = out[k - 1] + x; end()"),
    "read rows": ("out = torch.arange(3.0 * N).reshape(N, 3)", "for k in range(N): x = x + out[k] * out[-k]; end()"),
    "a row of a product": ("out = torch.zeros(N, 3)", "for k in range(N): x = x + (out * 2 + x)[k]; end()"),
    "select": ("out = torch.arange(3.0 * N).reshape(3, N)", "for k in range(N): x = x + out.select(1, k); end()"),
    "narrow": ("out = torch.ones(N, 3)", "for k in range(N): x = x + torch.narrow(out, 0, k, 1)[0]; end()"),
    "behind the last key": ("out = {}", "for k in range(N): out[len(out)] = f(x + k)"),
    "few keys": ("out = {}", "for k in range(N):\n    if len(out) < 20: out[k] = f(x + k)"),
    "few items": ("out = set()", "for k in range(N):\n    if len(out) < 20: out.add(k); f(x)"),
    "read an array": ("a, out = numpy.arange(N), 0", "for k in range(N): x = x + a[k]; end()"),
    "elements of an array": ("a = numpy.zeros((N, 3))", "for k in range(N): a[k, 1] += 2.0; end()\n  out = a.tolist()"),
    "array rows": ("a = numpy.ones((N, 3))", "for k in range(N): a[k] = (x * k).numpy(); end()\n  out = a.sum()"),
    "slices": ("out = torch.arange(3.0 * N).reshape(N, 3)", "for k in range(N - 1): x = x + out[k:k + 2].sum(); end()"),
}  # fmt: skip


def loop(made, body):
    space = dict(NAMES)
    exec(f"def fn(x):\n  {made}\n  {body}\n  return x, out\n", space)
    return space["fn"]


@pytest.mark.parametrize("name", LOOPS)
def test_a_few_entries_serve_all_iterations(name):
    assert max(entries(checked(loop(*LOOPS[name]), torch.ones(3)))) <= 4


def test_parts_of_a_tensor_have_gradients():
    fn = loop("out = w", "for k in range(N): x = x + (out[k] * x).sin(); end()")
    weights = [torch.arange(3.0 * COUNT).reshape(COUNT, 3).requires_grad_() for _ in range(2)]
    for weight, call in zip(weights, (fn, dovetail.compile(fn, backend="aot_eager"))):
        fn.__globals__["w"] = weight
        call(torch.ones(3))[0].sum().backward()
    torch.testing.assert_close(weights[0].grad, weights[1].grad)


def test_looking_for_a_key_makes_no_entry():
    compiled = dovetail.compile(lambda x, out: x + out["a"][0], backend="eager")
    for out in (defaultdict(list, a=[1]), defaultdict(list, a=[2], b=[3]), defaultdict(lambda: [4], c=[5])):
        checked(compiled.__wrapped__, torch.ones(2), out, compiled=compiled)


INDICES = ("i", "j", "-i", "i - j", "i + 1", "-1", "0", "2", "i % 3", "len(out) - i")
KEYS = (
    "i", "j", "a", "b", "0", "'p'", "i + 1", "a + b", "True", "f'{i}'", "1.0", "(i, j)", "(1, 2)", "(i, 'p')", "(a, b)",
    "i / 2", "a.upper()",
)  # fmt: skip
PARTS = ("i", "-i", "i - j", "1", "0, i", "i, j", ":, i", ":, i:j", "i:", "i, :", "i, ::2", ":, -i, None", "i:i + 2")
LISTS = (
    "out[{I}] = x * {n}", "out[{I}] = {n}", "r.append(out[{I}])", "r.append(t[{I}])", "out[{I}] += 1",
    "out[{I}], out[{I}] = out[{I}], out[{I}]", "out.append({n})", "out.insert(0, {n})", "r.append(out.pop())",
    "r.append(out.pop({I}))", "r.append(out.pop(0))", "del out[{I}]", "r.append(list(out))", "r.append(len(out))",
    "out.insert({I}, {n})", "out[{I}:{I}] = [{n}]", "out[{I}:{I}] = t", "del out[{I}:{I}]", "r.append(len(out[{I}:]))",
    "u = out[:{I}]; r.append(u); u.append(out); out = u", "out[{I}:{I}] = out[{I}:]", "r.append(t[:{I}])",
    "r.append(out[1:])", "r.append(out[{I}:{I}])", "r.append(t[{I}:])", "r.append(out[:{I}])",
    "u = out + [{n}]; r.append(u[{I}]); u[{I}] = 5; r.append(u)", "nest[{I}][0] = {n}",
    "r.append(nest[{I}][{I}])", "nest[{I}] = nest[{I}]", "r.append(out)", "out += [x]", "r.append(t[{I}] is out[{I}])",
    "u = nest[{I}]; nest[{I}] = [9, 9, 9]; u[0] = {n}; r.append(u)", "out.reverse()", "r.append([v for v in out])",
)  # fmt: skip
TABLES = (
    "d[{K}] = x * {n}", "d[{K}] = {n}", "r.append(d[{K}])", "r.append(d.get({K}, {n}))", "r.append({K} in d)",
    "del d[{K}]", "r.append(d.pop({K}))", "r.append(d.pop({K}, {n}))", "r.append(d.setdefault({K}, {n}))",
    "d[{K}] = d[{K}]", "r.append(list(d.items()))", "r.append(len(d))", "d[len(d)] = {n}",
    "r.append(d[len(d) - 1])", "r.append(len(q))", "r.append({K} not in d.keys())",
    "d[{K}] += 1", "d.update([({K}, {n})])", "r.append(d.copy())", "r.append({K} in q)", "q.add({K})",
    "q.discard({K})", "m[{K}].append({n})", "r.append(m[{K}])", "r.append(dict(m))", "d.popitem()", "d.clear()",
)  # fmt: skip
TENSORS = (
    "o[{P}] = {n}", "o[{P}] = p[{P}]", "r.append(o[{P}])", "r.append(p[{P}] * 2)", "o[{P}] += {n}", "r.append(o.sum())",
    "o.mul_(2)", "v = o[{P}]; v += 1; r.append(v)", "r.append(o[{P}] is o[{P}])",
    "v = o[{P}]; o[{P}] = 7; r.append(v)", "p = o", "r.append((o * 1)[{P}])",
    "w = o * 2; w[i] += 1; r.append(w[j]); r.append(w)", "g = p.numpy(); g[{P}] = {n}",
    "g = p.numpy(); g[{P}] += 1; r.append(float(g[{P}].sum()))",
    "g = o.numpy(); u = g[{P}]; g[{P}] = 7; r.append(float(u.sum()))",
)  # fmt: skip
PLACES = {"{I}": INDICES, "{K}": KEYS, "{P}": PARTS, "{n}": tuple("0123")}


def program(draw):
    lines = []
    for line in draw.choices(draw.choice((LISTS, TABLES, TENSORS, LISTS + TABLES)), k=draw.randint(2, 7)):
        for place, choices in PLACES.items():
            while place in line:
                line = line.replace(place, draw.choice(choices), 1)
        lines.append(line)
    lines.insert(draw.randrange(len(lines)), draw.choice(("end()", "pass")))
    body = "\n        ".join(lines)
    return (
        f"def f(x, i, j, a, b, out, t, nest, d, m, q, o, p):\n    r = []\n    try:\n        {body}\n"
        "    except (LookupError, TypeError) as error:\n"
        "        r.append((type(error), 'of bounds' in str(error) or str(error)))\n"
        "    return r, i + j, x + 1\n"
    )


def arguments(draw):
    x = torch.ones(2)

    def some(*values, most=5):
        return [draw.choice(values) for _ in range(draw.randint(0, most))]

    out, shared = some(1, 2, "a", torch.tensor(5.0), None, 2.5, x), [1, 2, 3]
    pair = tuple(out) if draw.random() < 0.3 else tuple(some(1, 2, 2.5))
    nest = [draw.choice([shared, [draw.randint(0, 3), 5, 6]]) for _ in range(draw.randint(1, 4))]
    table = {key: draw.choice([1, x, "z", 2.5]) for key in some(0, 1, 2, -1, "p", "q", "pq", "1", (1, 2), 0.5)}
    lists = defaultdict(list, {key: [1] for key in some(0, 1, 2, "p", most=3)})
    rows, other = torch.arange(12.0).reshape(3, 4), torch.arange(12.0).reshape(3, 4) + 20
    numbers = draw.randint(-3, 4), draw.randint(-3, 4)
    table.update({(draw.randint(0, 2), draw.choice([2, "p"])): 4 for _ in range(draw.randint(0, 2))})
    kinds = draw.choice([dict, OrderedDict])(table), lists, set(some(0, 1, 2, "p", "q", most=4))
    last = rows, draw.choice([rows, other, other, other])
    return x, *numbers, draw.choice("pq1"), draw.choice("pq"), out, pair, nest, *kinds, *last


@pytest.mark.parametrize("seed", range(200))
def test_any_index_and_key(seed):
    draw, space = random.Random(seed), dict(NAMES)
    exec(program(draw), space)
    compiled = dovetail.compile(space["f"], backend="eager")
    for _ in range(7):
        ours = arguments(draw)
        theirs = copy.deepcopy(ours)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            actual, expected = outcome(compiled, ours), outcome(space["f"], theirs)
        compare(actual, expected), compare(ours, theirs)
        assert [*map(repr, ours[8])] == [*map(repr, theirs[8])]


def outcome(call, args):
    try:
        return call(*args)
    except RuntimeError as error:
        return type(error)
