"""Expressions that are one graph, called three times by one compiled function: results and state as in eager."""

from __future__ import annotations

import dataclasses
import importlib

import pytest
import torch
import torch.return_types

import dovetail
from tests.fuzz.python.observe import Walk, difference

MODULES = {name: importlib.import_module(name) for name in "numpy random torch.return_types weakref".split()}
LINES = """
torch.return_types.max((x, x + 1))
torch.return_types.sort(sequence=[x, x + 1]).indices
weakref.ref(x)() + 1
[y := x + 1, weakref.ref(y)() is y]
weakref.ref(x)
torch._foreach_add([x, x.double()], 1 - torch.tensor(0.5))
torch._foreach_add_([y := x + 1, x * 2], y[0])
torch._foreach_sub((x, x), x.sum())
torch._foreach_div((x, x), x.sum())
dovetail.compile(torch.sin, backend="eager")(x)
dovetail.compile(lambda y, k=2: y * k, fullgraph=True)(x, k=3)
[(f := dovetail.compile(backend="eager")(pair))(x), f.__name__]
dovetail.compile(disable=True)(pair) is pair
[numpy.ones_like(x), numpy.full_like(x.view(1, 2), 3.5), numpy.zeros_like(x.int()), numpy.zeros_like(x, dtype="i2")]
[x[0] in [1, 2], x[1] not in (3, 2.0), x.sum() in [], 1 in [x[0], 2], x.sum() in (4, x[0])]
[x in [x], x not in [x * 2, x][1:], x[:1] in [5, 1], [v] == [1] if (v := 2) in [2] else 3]
x + x.shape[torch.tensor(0)] + [3, 5][torch.tensor(True)]
[x * len(range(torch.tensor(3))), torch.tensor(2.7, dtype=torch.int8).item(), x + float(torch.as_tensor(0.5))]
[x + 1 if torch.tensor(0.5) else x, [i for i in range(torch.tensor(2))]]
x.sum() + torch.arange(torch.arange(x.shape[0]).to(x.dtype)[0] + 8, -torch.tensor(3.0), -2, dtype=torch.long)
[x.view(torch.div(x.shape[0], 2, rounding_mode="trunc"), -1), x.new_zeros(torch.tensor(3) - 1)]
torch.arange(3).tolist() + [x]
[(t := torch.tensor(0)).add_(1), [x, 3][t]]
[t := torch.zeros(()), t.view(1).add_(1), x if t else 3]
[m := torch.nn.functional.pad(torch.ones(2, 3), (0, 2))[:, None].expand(2, 4, 5), x + 1 if (m > 0).all() else x - 1]
[m := torch.zeros(2, 3), m.__setitem__((0, 1), 2), m.masked_fill_(m > 1, 5.5), (m + 1)[0].tolist(), x]
x * (torch.ones(4).masked_fill(torch.arange(4) > 2, torch.finfo(x.dtype).min) < 0).sum().item()
x if torch.ones(1000, 1000).tril().sum() == 500500 else x + 1
torch.arange((p := torch.arange(9))[4] - p[1] + 2, p.new_tensor([-2])[0] - 1, -2) + x.sum()
[dovetail.mark_static_address(x + 1), torch._dynamo.mark_static_address(x + 2), x]
[x * i.item() for i in torch.linspace(0, 1, 3)] + [x[: torch.tensor([1, 0])[0]], x + int(torch.tensor(7) / 2)]
field(Record(x.sin())) + field(Record(x, by=3))
{"found": x[0] in [5, x[1]], "kept": (x[0] in [1],)}
""".strip().splitlines()


@dataclasses.dataclass(frozen=True)
class Record:
    x: torch.Tensor
    by: int = 2


@dovetail.allow_in_graph
def field(record):
    return record.x * record.by


def pair(x):
    return x, x + 1


def outcome(function):
    walk, x = Walk(), torch.tensor([1.0, 2.0])
    walk.root("result", function(x))
    walk.root("argument", x)
    return walk


def compiled(text, backend):
    function = eval(f"lambda x: {text}", {**MODULES, **globals()})
    return function, dovetail.compile(function, backend=backend, fullgraph=True)


@pytest.mark.parametrize("backend", ["eager", "dovetail"])
@pytest.mark.parametrize("text", LINES)
def test_as_in_eager(text, backend):
    theirs, ours = compiled(text, backend)
    for _ in range(3):
        assert difference(outcome(ours), outcome(theirs)) is None


BREAKING = """
x + 1 if x[0] in [1, 2] else x - 1
[(x[0] in [1, 2]) is True, x * 2]
[not x[0] in [3], (x[0] in [1]) + 1, (x[0] in [1]) == True]
f"{x[0] in [1, 2]}"
{x[0] in [1, 2]: 3}
x in [1, x]
x[0] in ["a", x[0] * 1]
x * (x[0] in [1])
[t := torch.tensor(0), t.data.add_(1), x.shape[t - 1]]
[any(v in [2] for v in x), x[0] in [1] and x]
[t := torch.zeros(2), t[0].add_(x[0]), x if t[0] else 3, t[1].item()]
[t := torch.zeros(2), t.__setitem__(0, x[1]), x if t.any() else 3]
torch.ones(3)[torch.tensor(5)].item() + x
x if torch.zeros(2, dtype=torch.int32).copy_(torch.tensor([0.5, 3e38]))[0] else 2 * x
""".strip().splitlines()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("text", BREAKING)
def test_as_in_eager_with_breaks(text):
    function = eval(f"lambda x: {text}")
    ours, found = dovetail.compile(function, backend="eager"), []
    for _ in range(3):
        for call in (ours, function):
            try:
                found.append(outcome(call))
            except (RuntimeError, IndexError) as error:
                found.append(str(error))
        mine, other = found[-2:]
        assert mine == other if isinstance(other, str) else difference(mine, other) is None
