"""Groups with the same structure are one kernel, with their own buffers as its arguments."""

from __future__ import annotations

import itertools
from dataclasses import replace

import torch

from dovetail.codegen.cpu import generate, kernel
from dovetail.ir import dims
from dovetail.ir.loops import Check, Const, Group, Load, Local, Loop, Reduce, Store
from dovetail.ir.ranges import new_range
from dovetail.ir.structure import Structure, structure_of, with_buffers
from tests.codegen.harness import buffer, op, run


def _row_sums(x, out, prefix, kind="sum", message="no"):
    i, j = new_range(f"{prefix}i", x.shape[0]), new_range(f"{prefix}j", x.shape[1])
    load = Load(buffer(f"{prefix}x", x), (i, j))
    return Group(f"{prefix}g", (i,), (
        Loop((j,), (Check(op("lt", load, Const(9.0, torch.float32)), message),)),
        Loop((j,), (Reduce(f"{prefix}r", kind, load, torch.float32),)),
        Loop((), (Store(buffer(f"{prefix}y", out, "output"), (i,), Local(f"{prefix}r", torch.float32)),)),
    ))  # fmt: skip


def test_names_do_not_matter():
    x, out = torch.rand(3, 50), torch.empty(3)
    a, b = _row_sums(x, out, "a", message="first"), _row_sums(x, out, "b", message="second")
    assert Structure(a).key == Structure(b).key
    assert generate(a).symbol == generate(b).symbol
    assert {p.name for p in generate(b).pointers} == {"bx", "by"}
    assert (generate(a).messages, generate(b).messages) == (("first",), ("second",))
    for prefix, group in (("a", a), ("b", b), ("a", a)):
        assert run(group, {f"{prefix}x": x, f"{prefix}y": out.zero_()}) == 0
        torch.testing.assert_close(out, x.sum(1))


def test_everything_else_does():
    x, out = torch.rand(3, 50), torch.empty(3)
    keys = [
        Structure(_row_sums(x, out, "a")).key,
        Structure(_row_sums(x, out, "a", "max")).key,
        Structure(_row_sums(x[:, :49], out, "a")).key,
        Structure(_row_sums(torch.rand(50, 3).t(), out, "a")).key,
        Structure(_row_sums(torch.rand(4, 50), torch.empty(4), "a")).key,
    ]
    assert len(set(keys)) == len(keys)


def test_ranges_that_several_loops_share_are_told_apart():
    """Both loops walk i and j; the second one stores x or its transpose."""
    x, y, out = torch.rand(7, 7), torch.rand(7, 7), torch.empty(7, 7)
    i, j = new_range("i", 7), new_range("j", 7)
    total = Local("r", torch.float32)
    groups = {}
    for name, index in (("plain", (i, j)), ("transposed", (j, i))):
        load = Load(buffer("x", x), index)
        groups[name] = Group("g", (), (
            Loop((i, j), (Reduce("r", "sum", Load(buffer("y", y), (i, j)), torch.float32),)),
            Loop((i, j), (Store(buffer("out", out, "output"), (i, j), op("mul", load, total)),)),
        ))  # fmt: skip
    assert Structure(groups["plain"]).key != Structure(groups["transposed"]).key
    for name, wanted in (("plain", x), ("transposed", x.t())):
        assert run(groups[name], {"x": x, "y": y, "out": out}) == 0
        torch.testing.assert_close(out, wanted * y.sum())


def test_which_buffer_is_read_twice_matters():
    x, y, out = torch.rand(40), torch.rand(40), torch.empty(40)
    i = new_range("i", 40)
    load = {name: Load(buffer(name, t), (i,)) for name, t in (("x", x), ("y", y))}
    values = [op("sub", op("sub", load[a], load[b]), load[c]) for a, b, c in ("xyx", "xyy", "yxx")]
    groups = [Group("g", (i,), (Loop((), (Store(buffer("out", out, "output"), (i,), v),)),)) for v in values]
    assert Structure(groups[0]).key != Structure(groups[1]).key
    assert Structure(groups[1]).key == Structure(groups[2]).key
    expected = x - y - x, x - y - y, y - x - x
    for group, want in zip(groups, expected, strict=True):
        assert run(group, {"x": x, "y": y, "out": out}) == 0
        assert torch.equal(out, want)


def test_run_time_indices():
    table, ids, out = torch.rand(9, 30), torch.randint(0, 9, (4,)), torch.empty(4, 30)
    i, j = new_range("i", 4), new_range("j", 30)
    row = dims.value(Load(buffer("ids", ids), (i,)), 9)
    group = Group(
        "g", (i, j), (Loop((), (Store(buffer("out", out, "output"), (i, j), Load(buffer("t", table), (row, j))),)),)
    )
    assert Structure(group).key == Structure(group).key
    assert run(group, {"ids": ids, "t": table, "out": out}) == 0
    assert torch.equal(out, table[ids])


def _transposed(names):
    """Addresses are sums of three ranges: their order must not be that of the names that came first."""
    x, y, out = torch.rand(6, 50, 8), torch.rand(8, 6, 50), torch.empty(50, 8, 6)
    i, j, k = (new_range(name, size) for name, size in zip(names, x.shape, strict=True))
    value = op("add", Load(buffer("x", x), (i, j, k)), Load(buffer("y", y), (k, i, j)))
    return Group("g", (i, j, k), (Loop((), (Store(buffer("out", out, "output"), (j, k, i), value),)),))


def test_who_asked_first_does_not_matter():
    groups = [_transposed(names) for names in itertools.permutations(("i1", "i2", "i3"))]
    assert len({Structure(group).key for group in groups}) == 1
    texts = set()
    for group in groups:
        kernel._known.clear()
        texts.add(generate(group).text)
    assert len(texts) == 1


def test_one_and_many_take_the_same_arguments():
    x, out = torch.rand(3, 50), torch.empty(3)
    for group in (_transposed(("i1", "i2", "i3")), _row_sums(x, out, "a")):
        assert generate(group, many=True).takes_as(generate(group))


def test_other_buffers_of_the_same_layout_keep_what_was_written_down():
    x = torch.rand(3, 50)
    i, j = new_range("i", 3), new_range("j", 50)
    parts = op("add", *(Load(buffer(name, x), (i, j)) for name in ("x", "y")))
    group = Group("g", (i, j), (Loop((), (Store(buffer("z", x, "output"), (i, j), parts),)),))
    other = buffer("other", x)
    changes = {
        "names": other, "strides": replace(other, strides=(1, 3)), "offset": replace(other, offset=4),
        "dtype": replace(other, dtype=torch.float64), "one for two": buffer("y", x),
    }  # fmt: skip
    structure_of(group)
    for what, found in changes.items():
        made = with_buffers(group, "g2", {"x": found})
        assert (made._structure is not None) is (what == "names")
        written = Structure(made)
        assert structure_of(made).key == written.key and structure_of(made).buffers == written.buffers
        assert structure_of(made).renamed() == written.renamed()
