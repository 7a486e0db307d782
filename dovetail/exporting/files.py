"""Exported programs in files: a zip with the graph and the signature as JSON, and the tensors as torch.save has them.

    program.json    {"format": 1, "torch": "2.13.0", "graph": [...], "signature": {...}, "state": {...}}
    tensors.pt      {"l.weight": tensor, ...}, read with weights_only=True

Functions are written down by name, and only those of PyTorch and Python's operators are read: a file brings no code.
"""

from __future__ import annotations

import io
import json
import zipfile
from typing import Any

import torch
import torch.fx
import torch.utils._pytree as pytree

from dovetail.errors import InvalidArgument
from dovetail.exporting.encoding import Decoder, Encoder
from dovetail.exporting.signature import Condition, Constant, Signature, Size, Tensor
from dovetail.exporting.state import State

FORMAT = 1
PROGRAM, TENSORS = "program.json", "tensors.pt"

Parts = tuple[torch.fx.Graph, Signature, State]


def packed(graph: torch.fx.Graph, signature: Signature, state: State) -> bytes:
    """The file's contents."""
    written = {
        "format": FORMAT,
        "torch": str(torch.__version__),
        "graph": Encoder().graph(graph),
        "graphs": {name: Encoder().module(module) for name, module in state.graphs.items()},
        "signature": _signature(signature),
        "state": _state(state),
    }
    tensors, data = io.BytesIO(), io.BytesIO()
    own = {name: t.detach() for name, t in state.tensors.items() if state.names[id(t)] == name}
    torch.save(own, tensors)
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr(PROGRAM, json.dumps(written, indent=1))
        archive.writestr(TENSORS, tensors.getvalue())
    return data.getvalue()


def unpacked(data: bytes, what: str, map_location: Any = None) -> Parts:
    """What `packed` was given; raises InvalidArgument, which names the file as `what`."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            written, tensors = json.loads(archive.read(PROGRAM)), archive.read(TENSORS)
        known = written.get("format")
    except (zipfile.BadZipFile, KeyError, ValueError, AttributeError) as error:
        raise InvalidArgument(f"{what} is no exported program, or is damaged: {error}") from error
    if known != FORMAT:
        raise InvalidArgument(f"{what} has the format {known}, but this version reads {FORMAT}; export it again")
    by = f"{what}, which was written with PyTorch {written.get('torch')}, cannot be read with {torch.__version__}"
    try:
        found = torch.load(io.BytesIO(tensors), map_location=map_location, weights_only=True)
        state = _read_state(written["state"], found)
        state.graphs = {name: Decoder(by).module(module) for name, module in written["graphs"].items()}
        return Decoder(by).graph(written["graph"]), _read_signature(written["signature"], by), state
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise InvalidArgument(f"{by}: {error!r}") from error


# ---------------------------------------------------------------- the signature


def _signature(signature: Signature) -> dict[str, Any]:
    value = Encoder().value
    return {
        "names": signature.names,
        "positional": signature.positional,
        "training": signature.training,
        "exchanged": signature.exchanged,
        "inputs": [_input(each) for each in signature.inputs],
        "sizes": [vars(size) for size in signature.sizes],
        "conditions": [vars(condition) for condition in signature.conditions],
        "takes": _tree(signature.takes, "an argument"),
        "gives": _tree(signature.gives, "the result"),
        "constants": value([each.value for each in signature.inputs if isinstance(each, Constant)]),
    }


def _input(each: Tensor | Constant) -> dict[str, Any]:
    found: dict[str, Any] = {"name": each.name, "path": each.path}
    if isinstance(each, Tensor):
        found |= {"dtype": str(each.dtype).removeprefix("torch."), "sizes": each.sizes}
    return found


def _tree(spec: pytree.TreeSpec, what: str) -> str:
    try:
        written = pytree.treespec_dumps(spec)
        _refuse_factories(written)
        return written
    except (NotImplementedError, TypeError, AttributeError) as error:
        raise InvalidArgument(
            f"save: a class in {what} has no name that files could have: {error}. Register it with "
            "torch.utils._pytree under a serialized_type_name, or use tuples, lists and dictionaries."
        ) from error


def _read_signature(written: dict[str, Any], what: str) -> Signature:
    constants = iter(Decoder(what).value(written["constants"]))
    inputs: list[Tensor | Constant] = []
    for each in written["inputs"]:
        if "dtype" in each:
            sizes = tuple(map(_tuples, each["sizes"]))
            inputs.append(Tensor(each["name"], each["path"], getattr(torch, each["dtype"]), sizes))
        else:
            inputs.append(Constant(each["name"], each["path"], next(constants)))
    conditions = [{name: _tuples(part) for name, part in each.items()} for each in written["conditions"]]
    return Signature(
        tuple(written["names"]), written["positional"], tuple(inputs),
        tuple(Size(**size) for size in written["sizes"]), tuple(Condition(**each) for each in conditions),
        _read_tree(written["takes"], what), _read_tree(written["gives"], what), written["training"],
        tuple(map(tuple, written["exchanged"])),
    )  # fmt: skip


FACTORIES = ("list", "dict", "set", "tuple", "int", "float", "bool", "str")


def _refuse_factories(written: str) -> None:
    """What makes the items of a `defaultdict` is called later, and must be no code of the file's choice."""

    def refuse(found: dict[str, Any]) -> dict[str, Any]:
        module, name = found.get("default_factory_module"), found.get("default_factory_name")
        if module is not None and (module != "builtins" or name not in FACTORIES):
            raise NotImplementedError(f"a defaultdict of {module}.{name}")
        return found

    json.loads(written, object_hook=refuse)


def _read_tree(written: str, what: str) -> pytree.TreeSpec:
    try:
        _refuse_factories(written)
        return pytree.treespec_loads(written)
    except NotImplementedError as error:
        raise InvalidArgument(f"{what}: {error}. Import the module that registers the class first.") from error


def _tuples(expression: Any) -> Any:
    return tuple(map(_tuples, expression)) if isinstance(expression, list) else expression


# ---------------------------------------------------------------- tensors


def _state(state: State) -> dict[str, Any]:
    """Each name with what stands behind it: the first name of the tensor, and what it is."""
    return {
        name: {
            "tensor": state.names[id(tensor)],
            "parameter": isinstance(tensor, torch.nn.Parameter),
            "requires_grad": tensor.requires_grad,
            "temporary": name in state.temporary,
        }
        for name, tensor in state.tensors.items()
    }


def _read_state(written: dict[str, Any], tensors: dict[str, torch.Tensor]) -> State:
    state, made = State(), {}
    for name, facts in written.items():
        first = facts["tensor"]
        if first not in made:
            tensor, grad = tensors[first], facts["requires_grad"]
            made[first] = torch.nn.Parameter(tensor, grad) if facts["parameter"] else tensor.requires_grad_(grad)
        state.add(name, made[first], facts["temporary"])
    return state
