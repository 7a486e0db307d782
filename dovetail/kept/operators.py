"""The program's own operators in a compilation.

What such an operator computes is each process's own code, which the compiled program calls. A compilation relies on how
it is declared, on which kernels there are for it, and on what its results look like, which its code says when it is
given fakes: another process asks its own the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
import torch.fx
import torch.utils._pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from dovetail.ir.records import dataclass
from dovetail.kept.objects import Unkept
from dovetail.ops.fake.tensor import FakeTensor

#: Namespaces of what processes compute together. Operators are given the name of a group.
COLLECTIVES = frozenset(("_c10d_functional", "_c10d_functional_autograd"))
#: Namespaces of operators that come with PyTorch, or with us.
NAMESPACES = frozenset(("aten", "prims", "prim", "mkldnn", "mkl", "quantized", "onednn", "dovetail", *COLLECTIVES))
#: Classes of operators, and of names for several.
OPERATORS = (torch._ops.OpOverload, torch._ops.OpOverloadPacket)
#: Kernels that decide what else an operator does besides computing.
_KEYS = (
    "CPU", "CUDA", "Meta", "CompositeExplicitAutograd", "ADInplaceOrView", "Autograd", "AutogradCPU", "AutogradCUDA",
)  # fmt: skip
#: With these an operator becomes others, by code that no guard knows.
_TAKEN_APART = (
    "CompositeImplicitAutograd", "CompositeImplicitAutogradNestedTensor", "Functionalize", "Python", "PreDispatch",
    "AutocastCPU", "AutocastCUDA", "PythonDispatcher", "PythonTLSSnapshot",
)  # fmt: skip


@dataclass(frozen=True)
class OperatorCall:
    """A call in a captured graph, with fakes; `looks` is what its results look like."""

    operator: Any
    args: tuple
    kwargs: dict[str, Any]
    looks: Any


def is_own(found: Any) -> bool:
    """Is it an operator, or an operator's name for several, of the program's?"""
    return isinstance(found, OPERATORS) and _namespace(found) not in NAMESPACES


def _namespace(found: Any) -> str:
    name = found.namespace if isinstance(found, torch._ops.OpOverload) else found._qualified_op_name.partition("::")[0]
    return str(name)


def calls(module: torch.fx.GraphModule) -> list[OperatorCall]:
    """Those of the program's own operators. Raises Unkept for one whose results are not known to follow from fakes."""
    found = [_call(node) for node in module.graph.nodes if is_own(node.target)]
    return [*found, *(call for _, inner in module.named_children() for call in calls(inner))]  # type: ignore[arg-type]


def groups(module: torch.fx.GraphModule) -> set[str]:
    """The names of the groups of processes that compute together."""
    nodes = [n for n in module.graph.nodes if isinstance(n.target, OPERATORS) and _namespace(n.target) in COLLECTIVES]
    found = {leaf for node in nodes for leaf in (*node.args, *node.kwargs.values()) if _is_group(leaf)}
    return found.union(*(groups(inner) for _, inner in module.named_children()))  # type: ignore[arg-type]


def _is_group(leaf: Any) -> bool:
    return isinstance(leaf, str) and leaf in dist.distributed_c10d._world.pg_names.values()


def _call(node: torch.fx.Node) -> OperatorCall:
    args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda n: n.meta.get("fake", _UNKNOWN))
    leaves = pytree.tree_leaves((args, kwargs, node.meta.get("fake", _UNKNOWN)))
    if not all(_is_plain(leaf) for leaf in leaves):
        raise Unkept(f"the operator {node.target} is the program's own, and is given what is not known beforehand")
    call = OperatorCall(node.target, args, dict(kwargs), look(node.meta["fake"]))
    if not holds(call):
        raise Unkept(f"the operator {node.target} is the program's own, and its results differ from call to call")
    return call


_UNKNOWN = object()


def _is_plain(leaf: Any) -> bool:
    if isinstance(leaf, torch.Tensor):
        return type(leaf) is FakeTensor and not leaf._has_symbolic_sizes_strides
    return isinstance(leaf, (type(None), bool, int, float, complex, str, torch.dtype, torch.device, torch.layout))


def look(result: Any) -> Any:
    """What results look like, as plain data."""
    leaves, structure = pytree.tree_flatten(result)
    return str(structure), tuple(map(_seen, leaves))


def _seen(leaf: Any) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    return tuple(leaf.shape), leaf.stride(), leaf.storage_offset(), str(leaf.dtype), str(leaf.device), leaf.layout


def holds(call: OperatorCall) -> bool:
    """Do this process's operator's results look like that?"""
    with torch.no_grad(), _disable_current_modes():
        return bool(look(call.operator(*call.args, **call.kwargs)) == call.looks)


def signature(found: Any) -> list:
    """How it is declared, as plain data. Raises Unkept for one that is more than an operator to call."""
    return [(str(o._schema), sorted(map(str, o.tags)), _kernels(o)) for o in overloads(found)]


def overloads(found: Any) -> list:
    """Of a name for several; an operator is its own only one."""
    if isinstance(found, torch._ops.OpOverload):
        return [found]
    return [getattr(found, name) for name in found.overloads()]


def _kernels(overload: Any) -> list[str]:
    has, name = torch._C._dispatch_has_kernel_for_dispatch_key, overload.name()
    if any(has(name, key) for key in _TAKEN_APART) or overload.py_kernels:
        raise Unkept(f"the operator {overload} is the program's own, and is made of others")
    return [key for key in _KEYS if has(name, key)]


def changed(made: Sequence[OperatorCall]) -> Any:
    """The first of the operators whose results look otherwise here; None if there is none."""
    return next((call.operator for call in made if not holds(call)), None)
