"""Exported programs in files, in other processes, and modules that are copied, pickled, moved and trained."""

from __future__ import annotations

import copy
import io
import json
import pickle
import zipfile
from collections import defaultdict

import pytest
import torch
import torch.utils._pytree as pytree
from torch import nn

import dovetail
from dovetail.errors import InvalidArgument
from dovetail.exporting.files import PROGRAM
from tests.forks import python

from .checking import assert_same, check
from .test_programs import MODELS, Tied

X = torch.randn(3, 4)


def branches(x):
    y = torch.cond(x.sum() > 0, lambda x: torch.cond(x[0, 0] > 0, torch.sin, torch.cos, (x,)), lambda x: x - 1, (x,))
    rows = torch.vmap(lambda row: row.sum() * SHIFT)(y)
    gradient = torch.func.grad(lambda x: (x**2).sum())(x)
    return y, rows, gradient, torch.utils.checkpoint.checkpoint(torch.tanh, x, use_reentrant=False)


SHIFT = torch.tensor(2.0)


def repeats(x):
    return torch.while_loop(lambda k, x: k < 3, lambda k, x: (k + 1, x * 2), (torch.tensor(0), x))


@pytest.mark.parametrize("function", [branches, repeats])
def test_functions_that_take_functions(function, tmp_path):
    program = check(function, (X,), others=[(-X.abs(),), (X.abs(),)], path=tmp_path / "p")
    compiled = dovetail.compile(program.module(), fullgraph=True)
    for x in (X, -X.abs(), X.abs()):
        assert_same(compiled(x), function(x), atol=1e-5, rtol=1e-5)


WITHOUT_THE_MODEL = """
import sys, torch, dovetail
module = dovetail.ExportedProgram.load(sys.argv[1]).module()
x, expected = torch.load(sys.argv[2])
assert torch.allclose(module(x), expected)
heavy = [m for m in sys.modules if m.startswith(("torch._dynamo", "sympy", "dovetail.capture", "tests"))]
assert not heavy, heavy[:5]
"""


def test_another_process_needs_neither_the_model_nor_capture(tmp_path):
    model, args = MODELS["attention for inference"]
    dovetail.export(model, args).save(tmp_path / "p")
    torch.save((args[0], model(*args)), tmp_path / "data")
    done = python("-c", WITHOUT_THE_MODEL, str(tmp_path / "p"), str(tmp_path / "data"))
    assert done.returncode == 0, done.stderr[-2000:]


def test_tied_weights_stay_tied(tmp_path):
    dovetail.export(Tied(), (torch.tensor([1, 2]),)).save(tmp_path / "p")
    module = dovetail.ExportedProgram.load(tmp_path / "p", map_location="cpu").module()
    assert module.head.weight is module.embedding.weight
    assert [*module.state_dict()] == [*Tied().state_dict()]


def test_modules_share_the_models_weights():
    model = nn.Linear(4, 4)
    module = dovetail.export(model, (X,)).module()
    assert module.weight is model.weight
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    module(X).sum().backward()
    optimizer.step()
    assert module(X).equal(model(X))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["copy", "pickle"])
def test_modules_are_copied(copied):
    model = Tied()
    module = dovetail.export(model, (torch.tensor([1, 2]),)).module()
    with torch.no_grad():
        model.embedding.weight.mul_(2)
    other = copied(module)
    assert other(torch.tensor([1, 2])).equal(module(torch.tensor([1, 2])))
    assert other.head.weight is other.embedding.weight is not model.head.weight
    with pytest.raises(InvalidArgument):
        other(torch.tensor([1]))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["copy", "pickle"])
def test_modules_are_copied_as_their_graph_is(copied):
    module = dovetail.export(nn.Linear(4, 4), (X,)).module()
    (output,) = (n for n in module.graph.nodes if n.op == "output")
    with module.graph.inserting_before(output):
        output.args = ((module.graph.call_function(torch.relu, output.args[0]),),)
    module.recompile()
    assert copied(module)(X).equal(module(X)) and module(X).min() == 0


def test_modules_are_moved():
    module = dovetail.export(Tied(), (torch.tensor([1, 2]),)).module().to(torch.float64)
    assert module(torch.tensor([1, 2])).dtype == torch.float64


def damaged(path):
    path.write_bytes(path.read_bytes()[:100])


def newer(path):
    rewritten(path, lambda program: program | {"format": 99})


def of_another_library(path):
    text = {"name": "x_1", "op": "call_function", "target": "torch.ops.nowhere.op.default", "args": []}
    rewritten(path, lambda program: program | {"graph": [text]})


def with_code(path, op="call_function", target="os.system", args=("true",)):
    text = {"name": "x_1", "op": op, "target": target, "args": [*args]}
    rewritten(path, lambda program: program | {"graph": [text]})


def rewritten(path, change):
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    parts[PROGRAM] = json.dumps(change(json.loads(parts[PROGRAM])))
    with zipfile.ZipFile(path, "w") as archive:
        for name, part in parts.items():
            archive.writestr(name, part)


WRONG = [
    (damaged, "is no exported program, or is damaged"), (newer, "has the format 99, but this version reads 2"),
    (of_another_library, "import the library that has it"), (with_code, "there is no os.system here"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "words"), WRONG, ids=lambda v: getattr(v, "__name__", ""))
def test_files_that_cannot_be_read(change, words, tmp_path):
    path = tmp_path / "program.dt"
    dovetail.export(lambda x: x * 2, (X,)).save(path)
    change(path)
    with pytest.raises(InvalidArgument, match=words) as raised:
        dovetail.ExportedProgram.load(path)
    assert str(path) in str(raised.value)


CODE = [
    ("call_function", "operator.call", ()), ("call_function", "torch.from_file", ("name", True, 9)),
    ("call_function", "torch.ops.load_library.__call__", ("name.so",)), ("call_function", "torch.functional.torch", ()),
    ("call_function", "torch.masked.MaskedTensor", ()), ("call_function", "getattr", ("x", "__class__")),
    ("call_method", "__reduce_ex__", ("x", 2)), ("call_method", "__subclasses__", ("x",)),
    ("get_attr", "forward.__globals__", ()), ("get_attr", "__class__", ()), ("call_module", "forward", ()),
    ("call_function", "torch.add", ({"dtype": "load"},)), ("call_function", "torch.add", ({"layout": "hub"},)),
]  # fmt: skip


@pytest.mark.parametrize(("op", "target", "args"), CODE, ids=str)
def test_files_bring_no_code(op, target, args, tmp_path):
    dovetail.export(lambda x: x * 2, (X,)).save(tmp_path / "p")
    with_code(tmp_path / "p", op, target, args)
    with pytest.raises(InvalidArgument, match=r"there is no|tensors have no|no graph has|is no (dtype|layout)"):
        dovetail.ExportedProgram.load(tmp_path / "p")


def test_names_in_files_are_no_code(tmp_path):
    dovetail.export(lambda x, *, y: x * y, (X,), {"y": X}).save(tmp_path / "p")
    code = "x=print('run')"

    def otherwise(found):
        found["graph"][0] |= {"name": code, "target": code}
        found["graph"][2]["args"][0] = {"node": code}
        return found

    rewritten(tmp_path / "p", otherwise)
    assert "print(" not in dovetail.ExportedProgram.load(tmp_path / "p").module().code
    rewritten(tmp_path / "p", lambda found: found | {"signature": found["signature"] | {"names": ["x", code]}})
    with pytest.raises(InvalidArgument, match="the names of its arguments are"):
        dovetail.ExportedProgram.load(tmp_path / "p")


class Laid(nn.Module):
    """Tensors that are not contiguous, that share memory and that are conjugates."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 6).t())
        self.part = nn.Parameter(self.weight.detach()[:2])
        self.conv = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
        self.register_buffer("expanded", torch.randn(4).expand(3, 4))
        self.register_buffer("lazy", torch.randn(3, dtype=torch.complex64).conj())
        self.register_buffer("empty", torch.empty(0, 4))
        self.frozen = nn.Parameter(torch.randn(4), requires_grad=False)
        self.scale = torch.ones(4, requires_grad=True)

    def forward(self, x):
        y = x @ self.weight.t(), self.expanded + x * self.frozen * self.scale, self.part * 1, self.lazy.clone()
        return *y, torch.cat([self.empty, x])


@pytest.mark.parametrize("way", ["a file", "a pickle"])
def test_how_tensors_are_laid_out_is_kept(way):
    model, file = Laid(), io.BytesIO()
    program = dovetail.export(model, (X,))
    program.save(file)
    file.seek(0)
    copies = pickle.dumps(program.module())
    read = dovetail.ExportedProgram.load(file).module() if way == "a file" else pickle.loads(copies)
    assert_same(read(X), model(X))
    states = (m.state_dict(keep_vars=True).items() for m in (read, model))
    for (name, mine), (other, theirs) in zip(*states, strict=True):
        assert (name, mine.stride(), mine.requires_grad) == (other, theirs.stride(), theirs.requires_grad)
        assert mine.equal(theirs) and mine.is_conj() == theirs.is_conj()
    with torch.no_grad():
        read.weight.zero_()
    assert not read.part.any() and [n for n, _ in read.named_parameters()] == [n for n, _ in model.named_parameters()]


def of_devices(x, device):
    x = x.to("cpu") + torch.zeros(4, device="cpu") + torch.arange(4, device=x.device)
    return x.to(device), torch.vmap(lambda row: row + torch.ones(4, device=device))(x)


def test_devices_are_mapped(tmp_path):
    program = dovetail.export(of_devices, (X, torch.device("cpu")))
    program.save(tmp_path / "p")
    read = dovetail.ExportedProgram.load(tmp_path / "p", map_location="meta")
    assert "cpu" not in str(read) and read.module()(X.to("meta"), torch.device("meta"))[1].is_meta
    same = dovetail.ExportedProgram.load(tmp_path / "p", map_location="cpu").module()
    assert_same(same(X, torch.device("cpu")), of_devices(X, torch.device("cpu")))


def test_dictionaries_that_make_their_items(tmp_path):
    program = dovetail.export(lambda x: defaultdict(list, a=x), (X,))
    program.save(tmp_path / "p")
    assert dovetail.ExportedProgram.load(tmp_path / "p").module()(X)["b"] == []

    def otherwise(found):
        found["signature"]["gives"]["context"][0] = "exec"
        return found

    rewritten(tmp_path / "p", otherwise)
    with pytest.raises(InvalidArgument, match="a defaultdict of exec"):
        dovetail.ExportedProgram.load(tmp_path / "p")


class Unnamed:
    """Known to `torch.utils._pytree`, under no name that files could have."""

    def __init__(self, x):
        self.x = x


pytree.register_pytree_node(Unnamed, lambda u: ([u.x], None), lambda parts, _: Unnamed(*parts))


def test_classes_without_a_name_for_files(tmp_path):
    program = dovetail.export(lambda u: Unnamed(u.x + 1), (Unnamed(X),), dynamic_shapes=([{0: "n"}],))
    assert program.module()(Unnamed(torch.ones(5, 4))).x.equal(torch.full((5, 4), 2.0))
    with pytest.raises(InvalidArgument, match=r"u\[0\].shape\[1\] is 3"):
        program.module()(Unnamed(torch.ones(5, 3)))
    with pytest.raises(InvalidArgument, match="a class in an argument has no name that files could have"):
        program.save(tmp_path / "p")


def test_the_program_in_words():
    n = torch.export.Dim("n", max=8)
    text = str(dovetail.export(nn.Linear(4, 2), (X,), None, ({0: n},)))
    assert "takes\n  input: float32[n, 4]\nsizes\n  n: 0 to 8\n" in text and "torch.nn.functional.linear(" in text
