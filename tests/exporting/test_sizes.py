"""Sizes that differ from call to call: the forms of `dynamic_shapes`, ranges, conditions, and errors."""

from __future__ import annotations

import re

import pytest
import torch
from torch.export import Dim, ShapesCollection

import dovetail
from dovetail.errors import InvalidArgument, SpecializedDimension

from .checking import check

X, Y, Z = torch.randn(6, 4), torch.randn(6, 4), torch.randn(3, 4)


def add(x, y):
    return x + y, x.shape[0] * 2, x.reshape(-1, 2).sum(1)


batch = Dim("batch", min=2, max=64)
FORMS = {
    "a name": {"x": {0: "n"}, "y": {0: "n"}},
    "a Dim": {"x": {0: Dim("n")}, "y": {0: Dim("n")}},
    "by position": ({0: "n"}, {0: "n"}),
    "a list": [{0: "n"}, {-2: "n"}],
    "all dimensions": (("n", None), ("n", 4)),
    "hints": ({0: Dim.AUTO, 1: Dim.STATIC}, {0: Dim.DYNAMIC}),
    "AUTO follows": ({0: "n"}, {0: Dim.AUTO}),
}


@pytest.mark.parametrize("form", FORMS)
def test_forms(form, tmp_path):
    others = [(torch.randn(n, 4), torch.randn(n, 4)) for n in (1, 2, 9)]
    program = check(add, (X, Y), others=others, dynamic_shapes=FORMS[form], path=tmp_path / "p")
    assert len(program.ranges) == 1
    with pytest.raises(InvalidArgument, match=re.escape("y.shape[0] is 5; the program is exported for 6")):
        program.module()(X, torch.randn(5, 4))


def test_a_collection_of_torchs():
    shapes = ShapesCollection()
    shapes[X] = {0: Dim("n")}
    program = dovetail.export(torch.nn.Identity(), (X,), dynamic_shapes=shapes)
    assert program.ranges == {"n": (0, None)}


def test_marks_on_tensors():
    x = X.clone()
    dovetail.mark_dynamic(x, 0, max=10)
    program = dovetail.export(lambda x: x * 2, (x,))
    assert list(program.ranges.values()) == [(0, 10)]
    assert program.module()(torch.ones(3, 4)).shape == (3, 4)
    assert vars(x).keys() == {"_dovetail_marks"} and not vars(X)


def test_nested_arguments():
    def nested(d, *more, **named):
        return d["a"][0] + more[1] * named["k"]

    args, kwargs = ({"a": [X, None]}, None, Y), {"k": torch.ones(6, 4)}
    shapes = {"d": {"a": [{0: "n"}, None]}, "more": (None, {0: "n"}), "named": {"k": {0: "n"}}}
    module = dovetail.export(nested, args, kwargs, shapes).module()
    assert module({"a": [Z, None]}, None, Z, k=torch.ones(3, 4)).equal(Z + Z)


def test_ranges_come_from_bounds_and_from_the_program():
    def at_least(x, y):
        return x[3] + y[0]

    bounded = dovetail.export(at_least, (X, Y), dynamic_shapes=({0: "n"}, {0: batch}))
    assert bounded.ranges == {"n": (4, None), "batch": (2, 64)}
    module = bounded.module()
    with pytest.raises(InvalidArgument, match=r"x.shape\[0\] \(n\) is 3; the program is exported for at least 4"):
        module(Z, Y)
    with pytest.raises(InvalidArgument, match=r"\(batch\) is 1; the program is exported for between 2 and 64"):
        module(X, Y[:1])


def test_sizes_that_follow_from_others():
    n = Dim("n", max=8)
    shapes = ({0: n}, {0: 2 * n}, {0: n + 1})
    args = (torch.randn(3), torch.randn(6), torch.randn(4))
    others = [(torch.randn(5), torch.randn(10), torch.randn(6))]
    program = check(lambda x, y, z: x + y[::2] + z[1:], args, others=others, dynamic_shapes=shapes)
    assert program.ranges == {"n": (0, 8)}
    with pytest.raises(InvalidArgument, match=re.escape("y.shape[0] is 9; the program is exported for 10 (2 * n)")):
        program.module()(torch.randn(5), torch.randn(9), torch.randn(6))


def test_multiples_of_what_is_no_size_itself():
    n = Dim("n")
    program = dovetail.export(lambda x, y: (x * 2, y), (torch.randn(6), torch.randn(9)), None, ({0: 2 * n}, {0: 3 * n}))
    program.module()(torch.randn(4), torch.randn(6))
    with pytest.raises(InvalidArgument):
        program.module()(torch.randn(5), torch.randn(6))


def test_conditions(tmp_path):
    def halves(x):
        if x.shape[0] % 2 == 0:
            return x[: x.shape[0] // 2]
        return x

    program = check(halves, (X,), others=[(X[:4],)], dynamic_shapes=({0: "n"},), path=tmp_path / "p")
    (condition,) = program.signature.conditions
    assert str(condition) == "n % 2 == 0" and "test_sizes.py" in condition.where
    with pytest.raises(InvalidArgument, match="the program is exported for n % 2 == 0"):
        program.module()(Z)


def test_a_relation_from_which_no_size_follows_is_a_condition():
    def program(x, y):
        return x if (x.shape[0] * y.shape[0]) % 9 == 0 else y

    made = dovetail.export(program, (X, Z), None, ({0: "n"}, {0: "m"}))
    assert [str(c) for c in made.signature.conditions] == ["(n * m) % 9 == 0"]


def test_a_size_that_the_program_never_looks_at():
    program = dovetail.export(lambda x, y: x + 1, (X, Y), dynamic_shapes=(None, {0: "n"}))
    assert program.module()(X, Z).shape == (6, 4)


def test_one_may_be_exported_for_any_number():
    program = dovetail.export(lambda x: x * x.sum(), (torch.ones(1, 4),), dynamic_shapes=({0: "n"},))
    assert program.module()(X).equal(X * X.sum())


def test_hints_may_become_constants():
    program = dovetail.export(lambda x: x.view(6, 4), (X,), dynamic_shapes=({0: Dim.AUTO},))
    assert program.ranges == {} and program.signature.inputs[0].sizes == (6, 4)


def in_a_loop(x):
    for _ in range(x.shape[0]):
        x = x + 1
    return x


CONSTANTS = {
    "a name": {0: "n"}, "a Dim": {0: Dim("n")}, "a hint": {0: Dim.DYNAMIC},
}  # fmt: skip


@pytest.mark.parametrize("form", CONSTANTS)
def test_a_declared_size_that_becomes_a_constant(form):
    with pytest.raises(SpecializedDimension) as raised:
        dovetail.export(in_a_loop, (X,), dynamic_shapes=(CONSTANTS[form],))
    message = str(raised.value)
    assert "x.shape[0] is marked dynamic, but was made the constant 6" in message
    assert "for _ in range(x.shape[0])" in message and "What to do:" in message


WRONG = {
    "an unknown argument": ({"z": {0: "n"}}, "there is no argument 'z'; the arguments are x, y"),
    "too few": (({0: "n"},), "it has 1 items for 2 arguments (x, y)"),
    "no dictionary": ("n", "it must be a dictionary by argument or a tuple"),
    "a dimension too many": (({2: "n"}, None), "x has 2 dimensions, so there is no dimension 2"),
    "dimensions missing": ((("n",), None), "x has 2 dimensions, but 1 are described"),
    "another number": (({0: 5}, None), "x.shape[0] is 6 in this call, not 5"),
    "no size": (({0: 2.5}, None), "x.shape[0] is described by 2.5 (float)"),
    "bounds": (({0: Dim("n", max=5)}, None), "x.shape[0] is 6 in this call, which is not at most 5"),
    "two sizes": (({0: "n", 1: "n"}, None), "x.shape[0] and x.shape[1] are both 'n', but 6 and 4 in this call"),
    "a structure": (({"a": {0: "n"}}, None), "x has 2 dimensions, so there is no dimension 'a'"),
    "sizes that are equal": (({0: "n"}, {0: "m"}), "x.shape[0] (n) and y.shape[0] (m) are declared as sizes of"),
    "a bound that is too wide": (({0: Dim("n", min=1)}, {0: Dim("n", min=1)}), "is declared with min=1, but"),
}


def two_rows(x, y):
    return (x + y)[1]


@pytest.mark.parametrize("name", WRONG)
def test_what_makes_no_sense(name):
    shapes, words = WRONG[name]
    with pytest.raises(InvalidArgument, match=re.escape(words)):
        dovetail.export(two_rows, (X, Y), dynamic_shapes=shapes)


def chunked(x):
    """Rows in one chunk of 8, filled up with zeros: for at most 8."""
    filled = torch.nn.functional.pad(x, (0, 0, 0, -x.shape[0] % 8))
    chunks = [filled[k * 8 : k * 8 + 8].cumsum(0) for k in range(filled.shape[0] // 8)]
    return x + torch.cat(chunks)[: x.shape[0]]


@pytest.mark.parametrize("shapes", [{0: "rows"}, {0: "rows", 1: "columns"}], ids=str)
def test_bounds_that_follow_from_several_sizes(shapes):
    program = check(chunked, (X,), others=[(torch.randn(n, 4),) for n in (2, 8)], dynamic_shapes=(shapes,))
    assert program.ranges["rows"][1] == 8
    with pytest.raises(InvalidArgument, match=r"x.shape\[0\] \(rows\) is 9; .* 8, as .*test_sizes.py:\d+ relies on"):
        program.module()(torch.randn(9, 4))


def test_what_no_size_can_be_is_no_condition():
    program = dovetail.export(lambda x: x if x.shape[0] * 4 != 6 else x + 1, (X,), dynamic_shapes=({0: "n"},))
    assert program.signature.conditions == ()


def test_relations_are_told_by_the_users_names():
    n, m = Dim("n"), Dim("m")
    with pytest.raises(InvalidArgument, match=r"test_sizes.py:\d+ relies on n == 2\*m\n"):
        dovetail.export(add, (X, Y), dynamic_shapes=({0: n}, {0: 2 * m}))


def takes_any(x, *xs, **named):
    return sum(t.sum(0) for t in (x, *xs, *named.values()))


@pytest.mark.parametrize("shapes", [
    {"xs": ({0: "n"}, None), "named": {"a": {0: "n"}}}, ({0: "n"}, ({0: "n"}, None), {"a": {0: "n"}}),
    {"xs_0": {0: "n"}, "a": {0: "n"}}, (None, {0: "n"}, None, {0: "n"}),
], ids=str)  # fmt: skip
def test_arguments_that_one_parameter_takes(shapes):
    program = dovetail.export(takes_any, (X, X, X), {"a": Y}, shapes)
    assert program.ranges.keys() == {"n"}
    assert program.signature.inputs[1].sizes == ("n", 4) and program.signature.inputs[2].sizes == (6, 4)


def test_bounds_of_hints():
    shapes = ({0: Dim.AUTO(min=3, max=9)}, {0: Dim.AUTO})
    program = dovetail.export(lambda x, y: x + y, (X, Y), None, shapes)
    assert [*program.ranges.values()] == [(3, 9)]
    program = dovetail.export(lambda x: x if x.shape[0] > 4 else -x, (X,), None, ({0: Dim.AUTO(min=3, max=9)},))
    assert [*program.ranges.values()] == [(5, 9)]  # AUTO promises nothing
