"""Random programs that write at indices into their arguments: results, arguments, versions and errors are eager's."""

from __future__ import annotations

import random

import pytest
import torch

import dovetail

WRITES = {
    "copy": lambda a, b, i, j, d: a.index_copy_(d, i, b.index_select(d, j) * 1.5),
    "put rows": lambda a, b, i, j, d: a.__setitem__(i, b[j] + 1),
    "put columns": lambda a, b, i, j, d: a.__setitem__((slice(None), i), b[:, j] + 1),
    "add": lambda a, b, i, j, d: a.index_add_(d, j, b.index_select(d, i) * 0.5),
    "fill": lambda a, b, i, j, d: a.index_fill_(d, i, 0.25),
    "scatter": lambda a, b, i, j, d: a.scatter_(1, i[None].expand(8, -1).contiguous(), b[:, :3] * 2),
    "scatter_add": lambda a, b, i, j, d: a.scatter_add_(0, i[:, None].expand(-1, 8), b[:3].clone()),
    "everywhere": lambda a, b, i, j, d: a.mul_(0.75),
    "a slice": lambda a, b, i, j, d: a[1:4, 2:].add_(1),
}
READS = {
    "views": lambda a, b, d: a.t()[1:3].sum(0) + b.view(-1)[:8],
    "both": lambda a, b, d: (a * b).sum(d),
    "all": lambda a, b, d: a.clone(),
    "product": lambda a, b, d: a @ b.t(),
}


def program(seed):
    chosen = random.Random(seed)
    steps = []
    for _ in range(chosen.randint(2, 7)):
        name = chosen.choice([*WRITES, *READS])
        steps.append((name, chosen.randrange(3), chosen.randrange(3), chosen.randrange(2)))

    def run(x, y, z, i, j):
        given, read = (x, y, z), []
        for name, a, b, d in steps:
            if name in WRITES:
                WRITES[name](given[a], given[b], i, j, d)
            else:
                read.append(READS[name](given[a], given[b], d))
        return read

    return run


def outcome(fn, tensors, indices):
    try:
        return fn(*tensors, *indices)
    except (IndexError, RuntimeError) as error:
        return type(error), str(error)


@pytest.mark.parametrize("seed", range(24))
def test_random_program(seed):
    torch.manual_seed(seed)
    fn = program(seed)
    compiled = dovetail.compile(fn, fullgraph=True)
    theirs = [torch.randn(8, 8) for _ in range(3)]
    for beyond in (None, None, 0, 1):
        mine, theirs = ([t.clone() for t in theirs] for _ in range(2))
        indices = [torch.randperm(8)[:3], torch.randint(0, 8, (3,))]
        if beyond is not None:
            indices[beyond][2] = 9
        got, want = outcome(compiled, mine, indices), outcome(fn, theirs, indices)
        if isinstance(want, tuple):
            assert got == want
        else:
            torch.testing.assert_close(got, want)
            assert [t._version for t in mine] == [t._version for t in theirs]
        torch.testing.assert_close(mine, theirs)
