"""An exported program: a graph of PyTorch's functions, its tensors, and what a call must look like."""

from __future__ import annotations

import copy
import importlib
import io
import os
from contextlib import AbstractContextManager, nullcontext
from typing import IO, Any

import torch
import torch.fx

from dovetail.errors import InvalidArgument
from dovetail.exporting.code import ExportedCode
from dovetail.exporting.signature import ExportSignature
from dovetail.exporting.state import ExportState, with_own_names
from dovetail.ir.graphtext import graph_text
from dovetail.runtime.dispatch.restore_modes import mode_state, restore


def _shown(bound: int | None) -> str:
    return "any" if bound is None else str(bound)


def _files() -> Any:
    # What reads and writes is loaded with the first file, not with the package.
    return importlib.import_module("dovetail.exporting.files")


def _opened(file: Any, mode: str) -> AbstractContextManager[IO[bytes]]:
    return nullcontext(file) if hasattr(file, "read") or hasattr(file, "write") else open(file, mode)


class ExportedModule(torch.fx.GraphModule):
    """An exported program as a module; it is called as the program was, and checks that the call fits."""

    _exported: ExportedProgram

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._exported.signature.check(args, kwargs)
        if torch.compiler.is_compiling():  # a compiler sees to the modes itself
            return super().__call__(*args, **kwargs)
        before = mode_state()
        try:
            return super().__call__(*args, **kwargs)
        except BaseException:  # the graph enters and leaves modes by nodes
            restore(before)
            raise

    def _leaves(self, args: Any, kwargs: Any) -> list:
        return self._exported.signature.leaves(args, kwargs)

    def train(self, mode: bool = True) -> ExportedModule:
        """The graph is what it is: raises InvalidArgument for a mode that the program was not exported in."""
        exported = self._exported.signature.training
        if exported is not None and mode != exported:
            names = ("evaluation", "training")
            raise InvalidArgument(
                f"the program was exported in {names[exported]} mode, and its graph has no other; export the model "
                f"after model.train({mode})"
            )
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> ExportedModule:
        state = copy.deepcopy(self._exported.state.as_in(self), memo)
        return ExportedProgram(with_own_names(self), self._exported.signature, state).module()

    def __reduce__(self) -> Any:
        data = io.BytesIO()
        _files().write(data, with_own_names(self), self._exported.signature, self._exported.state.as_in(self))
        return _read_module, (data.getvalue(),)


def _read_module(data: bytes) -> ExportedModule:
    return ExportedProgram(*_files().read(io.BytesIO(data), "the pickled module")).module()


class ExportedProgram:
    """What `dovetail.export` gives: a program that runs without the code that it was made of.

    graph: a `torch.fx.Graph` of PyTorch's functions and methods. Its placeholders are the leaves of the arguments, its
        attributes parameters, buffers and constants by name, its output the leaves of the result.
    signature: what it takes: names, types, sizes with ranges, conditions on them, the trees of arguments and result.
    """

    def __init__(self, graph: torch.fx.Graph, signature: ExportSignature, state: ExportState) -> None:
        self.graph, self.signature, self.state = graph, signature, state

    def module(self) -> ExportedModule:
        """The program as a `torch.fx.GraphModule` that shares parameters, buffers and constants with the model.

        It can be trained, moved, copied, pickled and compiled. Calls that do not fit raise InvalidArgument.
        """
        graph = copy.deepcopy(self.graph)
        graph.set_codegen(ExportedCode(self.signature))
        made = self.state.module_of(ExportedModule, graph)
        made._exported = self
        made.training = bool(self.signature.training)
        return made

    @property
    def state_dict(self) -> dict[str, torch.Tensor]:
        """Parameters and buffers by name; not the constants, nor buffers that a model's state leaves out."""
        return {name: t for name, t in self.state.tensors.items() if name not in self.state.temporary}

    @property
    def ranges(self) -> dict[str, tuple[int | None, int | None]]:
        """The smallest and the largest value of each size that differs from call to call; None where there is none."""
        return {size.name: (size.low, size.high) for size in self.signature.sizes}

    def save(self, file: str | os.PathLike[str] | IO[bytes]) -> None:
        """Write graph, signature and tensors to a file, by its path or open, which `load` reads; nothing in it is code.

        Raises InvalidArgument for a program with what files cannot hold: operators of the user's own in Python,
        classes in arguments or results that `torch.utils._pytree` knows no name for.
        """
        data = io.BytesIO()
        _files().write(data, self.graph, self.signature, self.state)
        with _opened(file, "wb") as target:
            target.write(data.getbuffer())

    @classmethod
    def load(cls, file: str | os.PathLike[str] | IO[bytes], map_location: Any = None) -> ExportedProgram:
        """Read what `save` wrote, tensors to the devices that `map_location` says (as `torch.load` has it).

        Where it is one device, the graph makes its tensors there, too. Raises InvalidArgument for a file that is
        damaged, or that was written by a version which this one cannot read.
        """
        with _opened(file, "rb") as source:
            return cls(*_files().read(source, str(getattr(source, "name", "the file")), map_location))

    def to_torch(self) -> Any:
        """The same program as a `torch.export.ExportedProgram`, for ONNX and other tools.

        PyTorch's exporter makes it of this graph, and is loaded for that; so is what it imports. Its sizes start at 2
        where the program's may be 0 or 1: it takes those for constants. Raises InvalidArgument for a size that it makes
        a constant of.
        """
        return importlib.import_module("dovetail.exporting.convert").convert(self.graph, self.signature, self.state)

    def __str__(self) -> str:
        takes = "\n".join(f"  {each}" for each in self.signature.inputs)
        sizes = "".join(f"\n  {s.name}: {_shown(s.low)} to {_shown(s.high)}" for s in self.signature.sizes)
        where = "".join(f"\n  {c}" + (f"  # {c.where}" if c.where else "") for c in self.signature.conditions)
        parts = [f"takes\n{takes}", f"sizes{sizes}" if sizes else "", f"where{where}" if where else ""]
        parts += [f"exchanges\n  {', '.join(names)}" for names in self.signature.exchanged]
        return "\n".join([*filter(None, parts), graph_text(self.graph)])
