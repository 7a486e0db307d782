"""The tensors of an exported program by name: parameters, buffers, and constants from anywhere else."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
import torch.fx

Module = TypeVar("Module", bound=torch.fx.GraphModule)

TABLES = ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set")  # what a module has
CONSTANTS = "_constants"  # the module that holds tensors which are neither parameters nor buffers


@dataclass
class State:
    """`tensors` in the order of the model's state; those with two names are in it twice. `temporary` are the names of
    buffers that are not saved with a model's state. `graphs` are what functions that take functions run."""

    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    temporary: set[str] = field(default_factory=set)
    graphs: dict[str, torch.fx.GraphModule] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)  # the first of each tensor

    def name_of(self, tensor: torch.Tensor, source: str) -> str:
        """Its name; a new one, made of the path to it, if it is a constant that was not known yet."""
        found = self.names.get(id(tensor))
        if found is None:
            stem = re.sub(r"\W+", "_", source.removeprefix("self.")).strip("_") or "tensor"
            found, count = f"{CONSTANTS}.{stem}", 1
            while found in self.tensors:
                found, count = f"{CONSTANTS}.{stem}_{count}", count + 1
            self.add(found, tensor, not isinstance(tensor, torch.nn.Parameter))
        return found

    def add(self, name: str, tensor: torch.Tensor, temporary: bool = False) -> None:
        self.tensors[name] = tensor
        self.names.setdefault(id(tensor), name)
        self.temporary |= {name} if temporary else set()

    def as_in(self, module: torch.nn.Module) -> State:
        """The same with the tensors that the module has under these names now."""
        found = State(graphs=self.graphs)
        for name in self.tensors:
            *path, last = name.split(".")
            found.add(name, getattr(module.get_submodule(".".join(path)), last), name in self.temporary)
        return found

    def module_of(self, kind: type[Module], graph: torch.fx.Graph) -> Module:
        """A module of the graph that has all of it, in this order: also what the graph does not use."""
        root = self._installed(torch.nn.Module())
        made = kind(root, graph, "Exported")
        for table in TABLES:
            made.__dict__[table] = root.__dict__[table]
        return made

    def _installed(self, module: torch.nn.Module) -> torch.nn.Module:
        for name, tensor in self.tensors.items():
            *path, last = name.split(".")
            owner = module
            for part in path:
                if part not in owner._modules:
                    owner.add_module(part, torch.nn.Module())
                owner = owner._modules[part]  # type: ignore[assignment]
            if isinstance(tensor, torch.nn.Parameter):
                owner.register_parameter(last, tensor)
            else:
                owner.register_buffer(last, tensor, persistent=name not in self.temporary)
        for name, graph in self.graphs.items():
            module.add_module(name, graph)
        return module


def of_program(fn: Callable[..., Any]) -> State:
    """The parameters and buffers of a module, or of the module that a method belongs to."""
    owner, state = owner_of(fn), State()
    if owner is None:
        return state
    kept = owner.state_dict(keep_vars=True).keys()
    for path, module in owner.named_modules(remove_duplicate=False):
        for name, tensor in (*module._parameters.items(), *module._buffers.items()):
            if tensor is not None:
                full = f"{path}.{name}" if path else name
                state.add(full, tensor, full not in kept)
    return state


def owner_of(fn: Any) -> torch.nn.Module | None:
    """The module that is exported itself, or by a method of its."""
    owner = fn if isinstance(fn, torch.nn.Module) else getattr(fn, "__self__", None)
    return owner if isinstance(owner, torch.nn.Module) else None
