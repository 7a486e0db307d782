"""Exported programs in files: a zip with the graph and the signature as JSON, and the tensors as torch.save has them.

    program.json    {"format": 2, "torch": "2.13.0", "graph": [...], "signature": {...}, "state": {...}}
    tensors.pt      {"l.weight": tensor, ...}, read with weights_only=True

Functions are written down by name, and only those of PyTorch and Python's operators are read: a file brings no code.
"""

from __future__ import annotations

import io
import json
import pickle
import warnings
import zipfile
from typing import IO, Any

import torch
import torch.fx
import torch.utils._pytree as pytree

from dovetail.errors import InvalidArgument
from dovetail.exporting import trees
from dovetail.exporting.encoding import Decoder, Encoder
from dovetail.exporting.signature import (
    Condition,
    Constant,
    ExportSignature,
    Input,
    SignatureNumber,
    Size,
    Tensor,
    children,
)
from dovetail.exporting.state import GRAPHS, ExportState

FORMAT = 2
PROGRAM, TENSORS = "program.json", "tensors.pt"

Parts = tuple[torch.fx.Graph, ExportSignature, ExportState]


def write(file: IO[bytes], graph: torch.fx.Graph, signature: ExportSignature, state: ExportState) -> None:
    """Raises InvalidArgument, before anything is written, for what files cannot hold."""
    written = {
        "format": FORMAT,
        "torch": str(torch.__version__),
        "graph": Encoder().graph(graph),
        "graphs": {name: Encoder().module(module) for name, module in state.graphs.items()},
        "signature": _signature(signature),
        "state": _state(state),
    }
    text = json.dumps(written, indent=1)
    own = {name: t.detach() for name, t in state.tensors.items() if state.names[id(t)] == name}
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(PROGRAM, text)
        with archive.open(TENSORS, "w", force_zip64=True) as tensors:
            torch.save(own, tensors)


def read(file: IO[bytes], what: str, map_location: Any = None) -> Parts:
    """What `write` was given; raises InvalidArgument, which names the file as `what`."""
    try:
        with zipfile.ZipFile(file) as archive:
            written, tensors = json.loads(archive.read(PROGRAM)), archive.read(TENSORS)
        known = written.get("format")
    except (zipfile.BadZipFile, KeyError, ValueError, AttributeError) as error:
        raise InvalidArgument(f"{what} is no exported program, or is damaged: {error}") from error
    if known != FORMAT:
        raise InvalidArgument(f"{what} has the format {known}, but this version reads {FORMAT}; export it again")
    by = f"{what}, which was written with PyTorch {written.get('torch')}, cannot be read with {torch.__version__}"
    device = torch.device(map_location) if isinstance(map_location, (str, torch.device)) else None
    try:
        state = _read_state(written["state"], torch.load(io.BytesIO(tensors), map_location, weights_only=True))
        names = {*state.tensors, *(f"{GRAPHS}.{name}" for name in written["graphs"])}
        state.graphs = {name: Decoder(by, device).module(module) for name, module in written["graphs"].items()}
        graph = Decoder(by, device, names).graph(written["graph"])
        signature = _read_signature(written["signature"], Decoder(by, device))
    except InvalidArgument:
        raise
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        raise InvalidArgument(f"{by}: {error!r}") from error
    except (RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise InvalidArgument(f"{by}: {error}") from error
    _tell_of_records(signature.gives, what)
    return graph, signature, state


# ---------------------------------------------------------------- the signature


def _signature(signature: ExportSignature) -> dict[str, Any]:
    value = Encoder().value
    return {
        "names": signature.names,
        "positional": signature.positional,
        "training": signature.training,
        "exchanged": signature.exchanged,
        "inputs": [_input(each) for each in signature.inputs],
        "sizes": [vars(size) for size in signature.sizes],
        "conditions": [vars(condition) for condition in signature.conditions],
        "takes": trees.written(signature.takes, "an argument"),
        "gives": trees.written(signature.gives, "the result"),
        "constants": value([each.value for each in signature.inputs if isinstance(each, Constant)]),
    }


def _input(each: Input) -> dict[str, Any]:
    found: dict[str, Any] = {"name": each.name, "path": each.path}
    found |= {"number": each.size} if isinstance(each, SignatureNumber) else {}
    if isinstance(each, Tensor):
        found |= {"dtype": str(each.dtype).removeprefix("torch."), "sizes": each.sizes}
    return found


def _read_signature(written: dict[str, Any], decoder: Decoder) -> ExportSignature:
    constants = iter(decoder.value(written["constants"]))
    inputs: list[Input] = []
    for each in written["inputs"]:
        if "dtype" in each:
            sizes = tuple(map(_tuples, each["sizes"]))
            inputs.append(Tensor(each["name"], each["path"], decoder.value({"dtype": each["dtype"]}), sizes))
        elif "number" in each:
            inputs.append(SignatureNumber(each["name"], each["path"], _tuples(each["number"])))
        else:
            inputs.append(Constant(each["name"], each["path"], next(constants)))
    conditions = [{name: _tuples(part) for name, part in each.items()} for each in written["conditions"]]
    takes, gives = (trees.read(written[name], decoder.what, name == "gives") for name in ("takes", "gives"))
    if children(takes)[1].context != written["names"][written["positional"] :]:
        raise ValueError(f"the names of its arguments are {written['names']}")
    return ExportSignature(
        tuple(written["names"]), written["positional"], tuple(inputs),
        tuple(Size(**size) for size in written["sizes"]), tuple(Condition(**each) for each in conditions),
        takes, gives, written["training"],
        tuple(map(tuple, written["exchanged"])),
    )  # fmt: skip


def _tell_of_records(spec: pytree.TreeSpec, what: str) -> None:
    if names := dict.fromkeys(kind.name for kind in trees.records(spec)):
        warnings.warn(
            f"{what}: results are dovetail's Records with the parts of {', '.join(names)}, which nobody has registered "
            "here; import the module that does before this file is read, if it shall be that class",
            stacklevel=5,
        )  # fmt: skip


def _tuples(expression: Any) -> Any:
    return tuple(map(_tuples, expression)) if isinstance(expression, list) else expression


# ---------------------------------------------------------------- tensors


def _state(state: ExportState) -> dict[str, Any]:
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


def _read_state(written: dict[str, Any], tensors: dict[str, torch.Tensor]) -> ExportState:
    state, made = ExportState(), {}
    for name, facts in written.items():
        first = facts["tensor"]
        if first not in made:
            tensor, grad = tensors[first], facts["requires_grad"]
            made[first] = torch.nn.Parameter(tensor, grad) if facts["parameter"] else tensor.requires_grad_(grad)
        state.add(name, made[first], facts["temporary"])
    return state
