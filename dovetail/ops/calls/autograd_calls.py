"""Nodes that steer PyTorch's autograd engine itself: graphs with them run as they were captured.

A call of `backward`, a new leaf or reading `.grad` is no computation on tensors: a functional graph would lose it.
`torch.autograd.grad` is one: it takes tensors and gives tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx

from dovetail.ir.aten import Uncompiled, output_of
from dovetail.ops.fake import FakeMode
from dovetail.ops.fake.symbolic.number import NumberNeeded


class Relay:
    """A hook whose function is known later, and the handle that takes the hook away."""

    handle: Any = None

    def __init__(self, function: Callable[..., Any] | None) -> None:
        self.function = function

    def __call__(self, tensor: torch.Tensor) -> Any:
        return self.function(tensor)  # type: ignore[misc]


class Hook:
    """Registers a hook on a tensor by its method `name`, for PyTorch's engine to call; gives the relay."""

    def __init__(self, name: str, function: Callable[..., Any] | None) -> None:
        self.function = function
        self.__name__ = self.__qualname__ = name

    def __call__(self, tensor: torch.Tensor) -> Relay:
        made = Relay(self.function)
        made.handle = getattr(tensor, self.__name__)(made if self.function is None else self.function)
        return made


def remove_hook(relay: Relay) -> None:
    """Takes a hook off its tensor again."""
    relay.handle.remove()


def register_hook(tensor: torch.Tensor, hook: Callable[[Any], Any]) -> Any:
    """`tensor.register_hook` between two graphs. A compiled graph is one node of PyTorch's, whose hooks are called with
    None where eager would not come by."""
    if not isinstance(tensor.grad_fn, torch.autograd.function.BackwardCFunction):
        return tensor.register_hook(hook)
    return tensor.register_hook(lambda gradient: None if gradient is None else hook(gradient))


def set_data(tensor: torch.Tensor, new: torch.Tensor) -> None:
    """`tensor.data = new`: other memory for a tensor that stays what it is to autograd."""
    tensor.data = new


def unseen_leaf_(tensor: torch.Tensor) -> torch.Tensor:
    """`tensor.requires_grad_()` where nobody sees what is accumulated in the tensor: a graph need not compute it."""
    return tensor.requires_grad_()


METHODS = frozenset(("backward", "requires_grad_", "retain_grad", "register_hook", "detach_"))


def steered(graph: torch.fx.Graph) -> Uncompiled | None:
    """Why PyTorch's engine has to give what the graph returns its history, so that it runs as captured; or None."""
    for node in graph.nodes:
        if name := steers(node):
            return Uncompiled(f"{name!r} in it is for PyTorch's autograd engine to do", node.meta.get("stack", ()))
    return None


def steers(node: torch.fx.Node) -> str:
    """What the node has the engine do, as `backward`, a new leaf or a hook; empty if nothing."""
    target, name = node.target, getattr(node.target, "__name__", "")
    if node.op == "call_method":
        return str(target) if target in METHODS else ""
    if node.op != "call_function":
        return ""
    if isinstance(target, Hook) or target in (set_data, torch.nn.Parameter, torch.autograd.backward):
        return name
    if target is getattr and node.args[1] == "grad":
        return "grad"
    return "requires_grad" if node.kwargs.get("requires_grad") is True else ""


def calls_engine(graph: torch.fx.Graph) -> bool:
    """Does it compute gradients, after which what led to them may not be differentiated again?"""
    return any(node.target is torch.autograd.grad for node in graph.nodes)


def leaves_of(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The tensors whose gradients a backward pass from this one accumulates."""
    found: dict[int, torch.Tensor] = {}
    if tensor.grad_fn is None and tensor.requires_grad:
        return [tensor]
    stack, seen = [tensor.grad_fn], set()
    while stack:
        function = stack.pop()
        if function is None or function in seen:
            continue
        seen.add(function)
        variable = getattr(function, "variable", None)
        if variable is not None:
            found[id(variable)] = variable
        stack += [following for following, _ in function.next_functions]
    return list(found.values())


def used_up(fake: torch.Tensor) -> bool:
    """Does PyTorch's engine refuse to go through the history of a fake tensor, which is as the real one's will be?

    No where nobody can tell, since an operator wants its sizes as numbers: then it cannot be recorded either.
    """
    try:
        with torch.autograd.set_multithreading_enabled(False):
            torch.autograd.grad(fake, leaves_of(fake), torch.ones_like(fake), retain_graph=True)
    except NumberNeeded:
        return False
    except RuntimeError as error:
        return "second time" in str(error)
    return False


def needs_autograd(fakes: Sequence[Any]) -> bool:
    """Would eager record this graph for a backward pass?"""
    return torch.is_grad_enabled() and any(isinstance(f, torch.Tensor) and f.requires_grad for f in fakes)


def begins_to_record(graph: torch.fx.Graph, fakes: Sequence[Any]) -> bool:
    """Is something computed behind a place where recording of gradients begins inside the graph?"""
    if torch.is_grad_enabled() or not any(getattr(f, "requires_grad", False) for f in fakes):
        return False
    on = False
    for node in graph.nodes:
        if node.target is torch._C._set_grad_enabled:
            on = node.args == (True,)
        elif on and node.op.startswith("call"):
            return True
    return False


def makes_leaves(graph: torch.fx.Graph, fakes: Sequence[Any]) -> Uncompiled | None:
    """The same of a graph that returns tensors that require gradients which no input asked for."""
    new = Uncompiled("it gives a tensor that requires gradients, as nothing that it is given does")
    made = [node.meta.get("fake") for node in output_of(graph).all_input_nodes if node.op != "placeholder"]
    wanted = [f for f in made if isinstance(f, torch.Tensor) and f.requires_grad]
    try:
        return new if any(f.is_leaf for f in wanted) or wanted and not needs_autograd(fakes) else None
    except RuntimeError:  # PyTorch forbids to ask for the history of some views whose base was written to
        return new


def without_gradients(graph: torch.fx.Graph) -> list[int] | None:
    """Places of outputs whose history a backward pass inside has used up; None if others require gradients too."""
    if not calls_engine(graph):
        return []
    results: Any = output_of(graph).args[0]
    fakes = [(k, n.meta.get("fake")) for k, n in enumerate(results) if isinstance(n, torch.fx.Node)]
    wanted = [(k, f) for k, f in fakes if isinstance(f, torch.Tensor) and f.requires_grad and not f.is_leaf]
    with FakeMode():
        used = [k for k, f in wanted if used_up(f)]
    return used if len(used) in (0, len(wanted)) else None
