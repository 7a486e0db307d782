"""Running again, on the host and while capturing, the part of a graph that made a tensor of constants."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.fx
from torch.utils._python_dispatch import _disable_current_modes

from dovetail.capture.tables.graph_functions import impure, storage_of
from dovetail.capture.values.base import Session
from dovetail.capture.values.tensor import TensorValue
from dovetail.ir.devices import HOST, on_host
from dovetail.ir.nodes import in_place, name_of

Node = torch.fx.Node

LARGEST = 2**20  # elements of a tensor: what masks of attention have
LONGEST = 64  # steps from the constants to a tensor

MAKERS = frozenset((
    torch.tensor, torch.as_tensor, torch.scalar_tensor, torch.arange, torch.linspace, torch.full, torch.zeros,
    torch.ones, torch.eye,
))  # fmt: skip
#: Operations of tensors, as functions, methods and operators, that place elements elsewhere.
PLACING = frozenset(
    """view view_as reshape unsqueeze squeeze flatten unflatten expand expand_as broadcast_to repeat permute transpose t
    swapaxes movedim narrow roll unbind split chunk getitem __getitem__ select stack cat flip clone detach contiguous
    masked_fill where triu tril pad""".split()
)
#: That round each element once, if at all, and so give what is nearest on every device.
NEAREST = frozenset(
    "add sub mul neg abs floor ceil trunc maximum minimum max min clamp float double to type type_as".split()
)
#: And others that give the same each time.
STEPS = PLACING | NEAREST | frozenset(
    """div truediv floordiv true_divide floor_divide remainder mod fmod pow round sqrt sum prod cumsum any all eq ne lt
    le gt ge and_ or_ xor not_ logical_and logical_or logical_not bitwise_and bitwise_or bitwise_not bitwise_xor isin
    new_tensor new_full new_zeros new_ones ones_like zeros_like full_like int long bool to type type_as""".split()
)
#: Of those, and of the makers, what rounds even where it is given whole numbers; other devices may round otherwise.
ROUNDING = frozenset("truediv div true_divide pow sqrt sum cumsum prod linspace".split())
#: What writes to a tensor, beside the steps' names with a "_" behind.
WRITING = frozenset("setitem __setitem__ fill_ copy_ zero_".split())


def elements(s: Session, tensor: TensorValue) -> list[Any] | None:
    """Of a tensor, one after the other; None where another call may have others, or finding them takes too long."""
    steps = _steps(s, tensor.node)
    with _disable_current_modes(), torch._C.DisableTorchFunction(), torch.no_grad():
        results = None if steps is None else _results(steps)
        return None if results is None else results[tensor.node].flatten().tolist()


# ---------------------------------------------------------------- which steps


def _steps(s: Session, wanted: Node) -> list[Node] | None:
    """What leads from constants to a node, in order, with all that writes to it; None where something else does."""
    found: set[Node] = set()
    ahead = [wanted]
    while ahead:
        while ahead:
            node = ahead.pop()
            if node in found:
                continue
            if not _step(s, node) or len(found) > LONGEST:
                return None
            found.add(node)
            ahead += node.all_input_nodes
        ahead += _writers(s, found)
    return [node for node in s.graph.nodes if node in found]


def _step(s: Session, node: Node) -> bool:
    if node.graph is not s.graph or not node.op.startswith("call"):
        return False
    if in_place(node):
        known = name_of(node) in WRITING or node.op == "call_method" and _plain_name(node) in STEPS
        written, *others = map(_is_float, node.all_input_nodes)
        return known and (written or not any(others))
    fake = node.meta.get("fake")
    small = all(map(_small, fake if isinstance(fake, tuple) else (fake,)))
    return small and not impure(node) and (name_of(node) in STEPS or node.target in MAKERS)


def _is_float(node: Node) -> bool:
    fake = node.meta.get("fake")
    return isinstance(fake, torch.Tensor) and fake.is_floating_point()


def _plain_name(node: Node) -> str:
    """Of what is computed, in place or not."""
    return name_of(node).removesuffix("_") if in_place(node) else name_of(node)


def _small(fake: Any) -> bool:
    if not isinstance(fake, torch.Tensor) or type(fake.numel()) is not int or fake.numel() > LARGEST:
        return False
    return fake.device.type != "meta" and (fake.device == HOST or not fake.is_complex())


def _writers(s: Session, steps: Iterable[Node]) -> list[Node]:
    """What else in the graph may write to one of the tensors."""
    memory = {storage_of(node) for node in steps} - {0}
    touched = (n for n in s.graph.nodes if n.op.startswith("call") and n not in steps and not _only_reads(n))
    return [n for n in touched if any(storage_of(given) in memory for given in n.all_input_nodes)]


def _only_reads(node: Node) -> bool:
    module = getattr(node.target, "__module__", None) or ""
    return not impure(node) and (node.op == "call_method" or module.split(".")[0] in ("torch", "_operator", "math"))


# ---------------------------------------------------------------- running them


def _results(steps: Iterable[Node]) -> dict[Node, Any] | None:
    """None where another device may have others, or PyTorch raises: it will when the graph runs."""
    results: dict[Node, Any] = {}
    for node in steps:
        try:
            results[node] = _run(node, results)
        except (RuntimeError, IndexError, ValueError, TypeError):
            return None
        if not _exact(node, results[node], next((results[n] for n in node.all_input_nodes), None)):
            return None
    return results


def _run(node: Node, results: dict[Node, Any]) -> Any:
    args, kwargs = torch.fx.map_arg((node.args, node.kwargs), results.__getitem__)
    kwargs = {name: value for name, value in kwargs.items() if name not in ("device", "pin_memory", "requires_grad")}
    function: Callable[..., Any] = getattr(args[0], node.target) if isinstance(node.target, str) else node.target
    return function(*(args[1:] if isinstance(node.target, str) else args), **kwargs)


def _exact(node: Node, result: Any, given: Any) -> bool:
    """Does every device compute this? Of floats, all do with whole numbers that the type has all neighbours of."""
    if isinstance(result, (tuple, list)):
        return all(_exact(node, each, given) for each in result)
    name = _plain_name(node)
    if name in PLACING or name_of(node) in WRITING or on_host(_first(node.meta["fake"])):
        return True
    if not result.is_floating_point():
        return result.dtype is torch.bool or not _of_floats(given) or torch.equal(result.to(given.dtype), given.trunc())
    if name in NEAREST and "alpha" not in node.kwargs:
        return True
    whole = (result == result.round()) & (result.abs() < 1 / torch.finfo(result.dtype).eps)
    return bool(whole.all()) and name not in ROUNDING


def _of_floats(given: Any) -> bool:
    return isinstance(given, torch.Tensor) and given.is_floating_point()


def _first(fake: Any) -> torch.Tensor:
    return fake if isinstance(fake, torch.Tensor) else fake[0]
