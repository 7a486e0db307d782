"""The numbers in tensors that a graph makes of constants alone: nothing that varies is in them, so capture knows them.

    x.shape[torch.tensor(0)]
    x.view(2, torch.div(x.shape[0], 2, rounding_mode="trunc"))

When Python asks for one, what made the tensor runs once, on the host.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.fx
from torch.utils._python_dispatch import _disable_current_modes

from dovetail.capture.tables.graph_functions import impure, storage_of
from dovetail.capture.values.base import Args, Const, Kwargs, Session, Value
from dovetail.capture.values.containers import ListValue, SequenceValue
from dovetail.capture.values.tensor import TensorValue
from dovetail.ir.devices import HOST, on_host
from dovetail.ir.nodes import name_of

Node = torch.fx.Node

LARGEST = 2**16  # elements of a tensor
LONGEST = 64  # steps from the constants to a tensor

MAKERS = frozenset((
    torch.tensor, torch.as_tensor, torch.scalar_tensor, torch.arange, torch.linspace, torch.full, torch.zeros,
    torch.ones,
))  # fmt: skip
#: Operations of tensors that give the same each time, as functions, methods and operators.
STEPS = frozenset(
    """add sub mul div truediv floordiv true_divide floor_divide remainder mod fmod pow neg abs floor ceil
    round trunc sqrt maximum minimum max min sum prod cumsum any all eq ne lt le gt ge and_ or_ xor not_
    logical_and logical_or logical_not bitwise_and bitwise_or bitwise_not bitwise_xor clamp new_tensor
    new_full new_zeros new_ones int long float double bool to type view reshape unsqueeze squeeze flatten
    unbind split chunk getitem __getitem__ select stack cat flip clone detach""".split()
)
#: Of those, and of the makers, what rounds even where it is given whole numbers; other devices may round otherwise.
ROUNDING = frozenset("truediv div true_divide pow sqrt sum cumsum prod linspace".split())
#: Where all arguments are sizes and places; and where those after the tensor that is asked are.
MAKING = frozenset("zeros ones empty randn rand full".split())
ASKING = frozenset(
    "view reshape expand repeat tile narrow unflatten as_strided broadcast_to new_zeros new_ones new_empty".split()
)


def number(s: Session, tensor: TensorValue) -> Const | None:
    """What `tensor.item()` gives; None where it may be another one in another call, or an operation may change it."""
    known = _known(s, tensor) if tensor.fake.numel() == 1 else None
    return None if known is None else Const(known[0])


def listed(s: Session, tensor: TensorValue) -> Value | None:
    """What `tensor.tolist()` gives, of a vector."""
    known = _known(s, tensor) if tensor.fake.dim() == 1 else None
    return None if known is None else ListValue([Const(element) for element in known])


def index(s: Session, tensor: TensorValue) -> Const | None:
    """The integer that a tensor of constants holds, as an index; None if it is none."""
    known = integer(s, tensor)
    return None if known is None else Const(known)


def integer(s: Session, tensor: TensorValue) -> int | None:
    """What `operator.index(tensor)` gives: tensors of an integer or bool have one."""
    if tensor.fake.is_floating_point():
        return None
    known = number(s, tensor)
    return int(known.value) if known is not None and known.cls is not float else None


def sizes(s: Session, name: str, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
    """The arguments of an operation, with integers for tensors of constants that stand for sizes or places."""
    asked = name in ASKING
    if name == "arange":  # which takes any number
        return [_number(s, a) for a in args], {k: _number(s, a) for k, a in kwargs.items()}
    if not asked and name not in MAKING:
        return args, kwargs
    return [*args[:asked], *(_size(s, a) for a in args[asked:])], {k: _size(s, a) for k, a in kwargs.items()}


def _number(s: Session, value: Value) -> Value:
    return number(s, value) or value if isinstance(value, TensorValue) else value


def _size(s: Session, value: Value) -> Value:
    if isinstance(value, TensorValue):
        return index(s, value) or value
    if isinstance(value, SequenceValue) and any(isinstance(item, TensorValue) for item in value.items):
        return ListValue([_size(s, item) for item in value.items])
    return value


# ---------------------------------------------------------------- running what made it


def _known(s: Session, tensor: TensorValue) -> list[Any] | None:
    """The elements, one after the other."""
    steps = _steps(s, tensor.node)
    if steps is None or _written(s, steps):
        return None
    results: dict[Node, Any] = {}
    with _disable_current_modes(), torch._C.DisableTorchFunction(), torch.no_grad():
        for node in steps:
            results[node] = _run(node, results)
            if not _exact(node, results[node]):
                return None
        return results[tensor.node].flatten().tolist()


def _exact(node: Node, result: Any) -> bool:
    """Does every device compute this? Of floats, all do with whole numbers that the type has all neighbours of."""
    if not isinstance(result, torch.Tensor):
        return all(_exact(node, each) for each in result)
    if on_host(_first(node.meta["fake"])) or not result.is_floating_point():
        return True
    whole = (result == result.round()) & (result.abs() < 1 / torch.finfo(result.dtype).eps)
    return bool(whole.all()) and name_of(node) not in ROUNDING


def _first(fake: Any) -> torch.Tensor:
    return fake if isinstance(fake, torch.Tensor) else fake[0]


def _steps(s: Session, wanted: Node) -> list[Node] | None:
    """What leads from constants to a node, in order; None where something else does."""
    found: dict[Node, None] = {}
    ahead = [wanted]
    while ahead:
        node = ahead.pop()
        if not _step(s, node) or len(found) > LONGEST:
            return None
        found.pop(node, None)
        found[node] = None
        ahead += node.all_input_nodes
    return list(reversed(found))


def _step(s: Session, node: Node) -> bool:
    fake = node.meta.get("fake")
    results = fake if isinstance(fake, tuple) else (fake,)
    if node.graph is not s.graph or not node.op.startswith("call") or impure(node) or not all(map(_small, results)):
        return False
    return name_of(node) in STEPS or node.target in MAKERS


def _small(fake: Any) -> bool:
    if not isinstance(fake, torch.Tensor) or type(fake.numel()) is not int or fake.numel() > LARGEST:
        return False
    return fake.device.type != "meta" and (fake.device == HOST or not fake.is_complex())


def _written(s: Session, steps: list[Node]) -> bool:
    """May anything in the graph write to one of the tensors?"""
    memory = {storage_of(node) for node in steps}
    touched = (n for n in s.graph.nodes if n.op.startswith("call") and not _only_reads(n))
    return any(storage_of(given) in memory for n in touched for given in n.all_input_nodes)


def _only_reads(node: Node) -> bool:
    module = getattr(node.target, "__module__", None) or ""
    return not impure(node) and (node.op == "call_method" or module.split(".")[0] in ("torch", "_operator", "math"))


def _run(node: Node, results: dict[Node, Any]) -> Any:
    args, kwargs = torch.fx.map_arg((node.args, node.kwargs), results.__getitem__)
    kwargs = {name: value for name, value in kwargs.items() if name not in ("device", "pin_memory", "requires_grad")}
    function: Callable[..., Any] = getattr(args[0], node.target) if isinstance(node.target, str) else node.target
    return function(*(args[1:] if isinstance(node.target, str) else args), **kwargs)
