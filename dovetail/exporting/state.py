"""The tensors of an exported program by name: parameters, buffers, and constants from anywhere else."""

from __future__ import annotations

import copy
import keyword
import re
from collections.abc import Callable, Sequence
from dataclasses import field
from functools import cache
from typing import Any, TypeVar

import torch
import torch.fx

from dovetail.ir.records import dataclass

Module = TypeVar("Module", bound=torch.fx.GraphModule)

TABLES = ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set")  # what a module has
CONSTANTS = "_constants"  # the module that holds tensors which are neither parameters nor buffers
GRAPHS, RENAMED = "_graphs", "_renamed"


@dataclass
class ExportState:
    """`tensors` in the order of the model's state; those with two names are in it twice. `temporary` are the names of
    buffers that are not saved with a model's state. `graphs` are what functions that take functions run; the graph has
    them under `GRAPHS`."""

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

    def as_in(self, module: torch.nn.Module) -> ExportState:
        """The same with the tensors that the module has under these names now."""
        found = ExportState(graphs=self.graphs)
        for name in self.tensors:
            *path, last = name.split(".")
            found.add(name, _tensor(_part(module, path), last), name in self.temporary)
        return found

    def module_of(self, kind: type[Module], graph: torch.fx.Graph) -> Module:
        """A module of the graph that has all of it, in this order: also what the graph does not use."""
        root = self._installed(torch.nn.Module())
        renamed = _renamed(graph, kind)
        root.__dict__[RENAMED] = Renamed(root, renamed)
        made = kind(root, graph, "Exported")
        for table in TABLES:
            made.__dict__[table] = root.__dict__[table]
        made.__dict__[RENAMED] = Renamed(made, renamed)
        return made

    def _installed(self, module: torch.nn.Module) -> torch.nn.Module:
        for name, tensor in self.tensors.items():
            *path, last = name.split(".")
            owner = _part(module, path)
            if isinstance(tensor, torch.nn.Parameter):
                owner.register_parameter(last, tensor)
            else:
                owner.register_buffer(last, tensor, persistent=name not in self.temporary)
        for name, graph in self.graphs.items():
            _part(module, [GRAPHS]).add_module(name, graph)
        return module


def _part(module: torch.nn.Module, path: Sequence[str]) -> torch.nn.Module:
    """The part of a module at the path; a new one where there is none."""
    for name in path:
        if name not in module._modules:
            module.add_module(name, torch.nn.Module())
        module = module._modules[name]  # type: ignore[assignment]
    return module


def _tensor(module: torch.nn.Module, name: str) -> Any:
    return module._parameters[name] if name in module._parameters else module._buffers[name]


# ---------------------------------------------------------------- names that code cannot have


class Renamed:
    """Tensors of a module under names that generated code can have: `targets` has these by what they are there."""

    def __init__(self, module: torch.nn.Module, targets: dict[str, str]) -> None:
        self.targets = targets
        self._places = {}
        for target, name in targets.items():
            *path, last = target.split(".")
            self._places[name] = _part(module, path), last
        # Asked for by torch.fx, which copies what a graph uses to the graph's module.
        self._non_persistent_buffers_set = {
            name for name, (part, last) in self._places.items() if last in part._non_persistent_buffers_set
        }

    def __getattr__(self, name: str) -> Any:
        return _tensor(*self.__dict__["_places"][name])


def with_own_names(module: torch.fx.GraphModule) -> torch.fx.Graph:
    """A copy of the module's graph as it is now, with the names that the tensors have in its state."""
    graph = copy.deepcopy(module.graph)
    names = {f"{RENAMED}.{name}": target for target, name in module.__dict__[RENAMED].targets.items()}
    for node in graph.nodes:
        node.target = names.get(node.target, node.target) if node.op == "get_attr" else node.target
    return graph


def _renamed(graph: torch.fx.Graph, kind: type[torch.fx.GraphModule]) -> dict[str, str]:
    """Other names, which the graph has from then on, for those that it cannot have in a module of this kind."""
    found: dict[str, str] = {}
    for node in graph.nodes:
        if node.op == "get_attr" and not is_spelled(node.target, kind):
            node.target = f"{RENAMED}.{found.setdefault(node.target, f't{len(found)}')}"
    return found


def is_spelled(target: str, kind: type[torch.fx.GraphModule]) -> bool:
    """Can code of such a module have the name?"""
    first, *rest = target.split(".")
    plain = all(part.isidentifier() and not keyword.iskeyword(part) or part.isdigit() for part in (first, *rest))
    return plain and first not in _own() and not hasattr(kind, first)


@cache
def _own() -> set[str]:
    """What such modules have themselves, beside what their class has."""
    made = torch.fx.GraphModule(torch.nn.Module(), torch.fx.Graph())
    return {*vars(made), "_exported", "_in_spec", "_out_spec", "shape_env", RENAMED}


def of_program(fn: Callable[..., Any]) -> ExportState:
    """The parameters and buffers of a module, or of the module that a method belongs to."""
    owner, state = owner_of(fn), ExportState()
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
