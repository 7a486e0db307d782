"""Classes among arguments, results and constants: kept in files, and read where nobody knows them."""

from __future__ import annotations

import copy
import enum
import json
import pickle
import sys
from collections import OrderedDict, defaultdict, deque, namedtuple
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.utils._pytree as pytree

import dovetail
from dovetail.errors import GraphBreakError, InvalidArgument
from dovetail.exporting.trees import Record
from tests.forks import python

from .checking import assert_same, check
from .test_files import rewritten

X = torch.randn(3, 4)
Pair = namedtuple("Pair", "first second")


@dataclass
class Output:
    logits: torch.Tensor
    extra: Any = None
    size: int = 0


pytree.register_dataclass(Output, serialized_type_name="tests.exporting.Output")


class Kind(enum.Enum):
    ONE, OTHER = 1, "other"


class Count(enum.IntEnum):
    TWO = 2


def containers(x):
    keyed = {1: x, (2, (3, "a")): x + 1, None: x, "b": (x, []), 0.5: x}
    return keyed, defaultdict(list, c=x), OrderedDict(d=x), deque([x], maxlen=3), defaultdict(None, e=x)


@pytest.mark.parametrize("function", [
    containers, lambda x: (x.max(0), [torch.topk(x, 2)]), lambda x: Pair(x, {"a": Pair(x, 1)}), lambda x: Output(x),
    lambda x: {"a": Output(x, [x], 3)}, lambda x: (Kind.ONE, b"bytes", torch.channels_last, x),
])  # fmt: skip
def test_results(function, tmp_path):
    check(function, (X,), path=tmp_path / "p")


def test_arguments(tmp_path):
    args = Pair(X, [X]), Output(X, None, 2), deque([X]), OrderedDict(b=X, a=X)
    program = check(lambda p, o, d, k: p.first + o.logits * o.size + d[0] + k["a"], args, path=tmp_path / "p")
    with pytest.raises(InvalidArgument, match="it was called with"):
        program.module()(*args[:-1], OrderedDict(a=X, b=X))


def test_dictionaries_in_any_order(tmp_path):
    given = {"b": {"c": X, 0: 1}, "a": [X + 1]}
    program = check(lambda d: (d["a"][0] - d["b"]["c"], [*d]), (given,), path=tmp_path / "p")
    difference, keys = program.module()({"a": [X + 1], "b": {0: 1, "c": X}})
    assert difference.equal(X + 1 - X) and keys == ["b", "a"]  # those of the export
    with pytest.raises(InvalidArgument, match="it was called with"):
        program.module()({"a": [X], "b": {"d": X, 0: 1}})


LOADED = """
import sys, torch, dovetail
program = dovetail.ExportedProgram.load(sys.argv[1])
result = program.module()(torch.ones(3, 4))
output, pair, kind = result
assert output.logits.equal(pair.first) and output["logits"] is output[0] and output.extra is None and output.size == 7
assert [*output.keys()] == ["logits", "size"] and len(output) == 2 and "size" in output and "extra" not in output
assert type(pair).__name__ == "Pair" and str(kind) == "test_of_files.Kind(1)"
program.save(sys.argv[2])
torch.export.save(program.to_torch(), sys.argv[3]) if len(sys.argv) > 3 else None
"""
MODULE = """
import enum
from collections import namedtuple
from dataclasses import dataclass
from typing import Any
import torch
from torch.utils._pytree import register_dataclass
Pair = namedtuple("Pair", "first second")
class Kind(enum.Enum):
    ONE = 1
@dataclass
class Output:
    logits: Any
    extra: Any = None
    size: int = 0
register_dataclass(Output, serialized_type_name="test_of_files.Output")
def function(x):
    return Output(x * 2, size=7), Pair(x * 2, None), Kind.ONE
"""


def test_a_process_without_the_classes(tmp_path, monkeypatch):
    (tmp_path / "test_of_files.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    import test_of_files

    dovetail.export(test_of_files.function, (X,)).save(tmp_path / "p")
    done = python("-c", LOADED, *(str(tmp_path / name) for name in "pq"))
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Records with the parts of test_of_files.Output, which nobody has registered here" in done.stderr
    again = dovetail.ExportedProgram.load(tmp_path / "q").module()  # where the classes are there
    assert_same(again(X), test_of_files.function(X))
    del sys.modules["test_of_files"]


def unseen(found):
    return json.loads(json.dumps(found).replace("exporting.Output", "exporting.Unseen"))


def test_records(tmp_path):
    dovetail.export(lambda x: Output(x, size=2), (X,)).save(tmp_path / "p")
    rewritten(tmp_path / "p", unseen)
    with pytest.warns(UserWarning, match=r"Records with the parts of tests\.exporting\.Unseen"):
        program = dovetail.ExportedProgram.load(tmp_path / "p")
    record = program.module()(X)
    assert type(record) is Record and "tests.exporting.Unseen(logits=tensor(" in repr(record)
    for other in (copy.deepcopy(record), pickle.loads(pickle.dumps(record)), pytree.tree_map(lambda t: t, record)):
        assert other.logits.equal(X) and other.size == 2 and {**other}.keys() == {"logits", "size"}
    with pytest.raises(AttributeError, match="Unseen has no part 'loss'"):
        _ = record.loss
    with pytest.raises(TypeError):
        iter(record)
    assert dovetail.compile(program.module())(X).logits.equal(X)
    assert program.to_torch().module()(X).logits.equal(X)


def test_arguments_of_classes_that_are_not_there(tmp_path):
    dovetail.export(lambda o: o.logits + 1, (Output(X),)).save(tmp_path / "p")
    rewritten(tmp_path / "p", unseen)
    with pytest.raises(InvalidArgument, match=r"Unseen is not registered\. Import the module that registers the class"):
        dovetail.ExportedProgram.load(tmp_path / "p")


@pytest.mark.parametrize("constant", [Kind.ONE, Kind.OTHER, Count.TWO, torch.contiguous_format, b"text"])
def test_constants(constant, tmp_path):
    def function(x, c):
        return x * 2 if c in (Kind.ONE, Count.TWO) else x + 1

    program = check(function, (X, constant), path=tmp_path / "p")
    with pytest.raises(InvalidArgument, match="the program is exported for"):
        program.module()(X, 2)


def test_a_defaultdict_with_code_of_its_own(tmp_path):
    program = dovetail.export(lambda x: defaultdict(lambda: 3, a=x), (X,))
    with pytest.raises(InvalidArgument, match="the result has a defaultdict of"):
        program.save(tmp_path / "p")


class Cache:
    """Puts its own tensors together, as caches of language models do."""

    def __init__(self, parts):
        self.parts = [torch.cat([torch.empty(0, 4), part]) for part in parts]

    def extend(self, x):
        self.parts[0] = torch.cat([self.parts[0], x])
        return self


pytree.register_pytree_node(
    Cache, lambda cache: ([*cache.parts], None), lambda parts, _: Cache(parts), serialized_type_name="tests.Cache"
)


def attends(x, *, cache, by):
    cache.extend(x)
    return (x @ cache.parts[0].t()).softmax(-1) @ cache.parts[0] * by, cache, cache.parts[1]


def test_objects_that_have_other_tensors_than_they_were_made_of(tmp_path):
    def call(x, first, second):
        result, cache, other = attends(x, cache=Cache([first, second]), by=2)
        return result, [*cache.parts], other

    args, other = (X, torch.randn(5, 4), X * 2), (torch.randn(2, 4), torch.randn(9, 4), X)
    kwargs = {"cache": Cache(args[1:]), "by": 2}
    shapes = ({0: "n"}, [{0: "past"}, None], None)
    program = dovetail.export(attends, args[:1], kwargs, shapes)
    program.save(tmp_path / "p")
    loaded = dovetail.ExportedProgram.load(tmp_path / "p").module()
    for way in (program.module(), loaded, dovetail.compile(program.module())):
        for x, *parts in (args, other):
            result, cache, last = way(x, cache=Cache(parts), by=2)
            assert_same((result, [*cache.parts], last), call(x, *parts), atol=1e-5, rtol=1e-5)
    assert program.ranges.keys() == {"n", "past"} and not program.state.tensors


def test_arguments_that_the_program_changes():
    def adds(d, x):
        d["in"]["b"] = x + d["in"]["a"]
        return {"result": d["in"]}

    with pytest.warns(UserWarning, match=r"leaves arguments as they are; only its result has .* d\['in'\]"):
        module = dovetail.export(adds, ({"in": {"a": X}}, X)).module()
    given = {"in": {"a": X + 1}}
    assert module(given, X)["result"]["b"].equal(X + given["in"]["a"]) and given["in"].keys() == {"a"}


def test_tensors_of_arguments_that_no_call_brings():
    x = X.clone().requires_grad_()
    x.grad = torch.ones(3, 4)
    with pytest.raises(GraphBreakError, match=r"uses x.grad, a tensor of an argument that no other"):
        dovetail.export(lambda x: x.detach() + x.grad, (x,))
