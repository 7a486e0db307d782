"""An exported program as PyTorch's own, which its exporter makes of the graph: operators of ATen, made functional, with
parameters and buffers as inputs.

What the exporter is given has no Python left but the graph's, so that what it captures is what we have captured. It is
told the ranges of sizes by its `Dim`s; conditions on them are checks in the graph.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.amp.autocast_mode as autocast_mode
import torch.fx
import torch.utils._pytree as pytree
from torch.fx.graph import _PyTreeCodeGen, _PyTreeInfo

from dovetail.errors import InvalidArgument
from dovetail.exporting import expressions
from dovetail.exporting.code import is_free
from dovetail.exporting.graph import with_checks
from dovetail.exporting.signature import Constant, ExportSignature, Input, SignatureNumber, Tensor
from dovetail.exporting.state import ExportState, is_spelled
from dovetail.interop import torchexport
from dovetail.ir.aten import output_of
from dovetail.ir.devices import HOST
from dovetail.ops.calls.higher_order import IMMEDIATE, OPERATOR_OF, TRANSFORMS

LEAST = 2  # PyTorch's exporter takes 0 and 1 for constants


#: It exports their results as constants, without a word.
DERIVATIVES = {*TRANSFORMS.values(), *IMMEDIATE.values()} - {TRANSFORMS[torch.func.vmap]}


def _enter_autocast(*arguments: Any) -> Any:
    made = torch.autocast(*arguments)
    made.__enter__()
    return made


def _exit_autocast(entered: Any) -> None:
    entered.__exit__(None, None, None)


#: PyTorch's own functions are only written down while its exporter traces; these change the mode, too.
BLOCKS: dict[Any, Any] = {
    **OPERATOR_OF,
    autocast_mode._enter_autocast: _enter_autocast,
    autocast_mode._exit_autocast: _exit_autocast,
}


def convert(graph: torch.fx.Graph, signature: ExportSignature, state: ExportState) -> Any:
    """A `torch.export.ExportedProgram`. Raises InvalidArgument where PyTorch's exporter would give another program."""
    if unspelled := [name for name in state.tensors if not is_spelled(name, torch.fx.GraphModule)]:
        raise InvalidArgument(f"to_torch: PyTorch's exporter has no tensors that are called {', '.join(unspelled)}")
    checked = with_checks(graph, signature)
    for node in checked.nodes:
        if node.target in DERIVATIVES:
            raise InvalidArgument(f"to_torch: PyTorch's exporter cannot express torch.func.{node.target.__name__}")
        node.target = BLOCKS.get(node.target, node.target)
    _write_exchanged(checked, signature)
    names = [name if is_free(name) else f"{name}_" for name in signature.names]
    if names[signature.positional :] != [*signature.names[signature.positional :]]:
        raise InvalidArgument(f"to_torch: generated code has no arguments that are called {', '.join(signature.names)}")
    checked.set_codegen(_PyTreeCodeGen(_PyTreeInfo(names, signature.takes, signature.gives)))
    module = state.module_of(torch.fx.GraphModule, checked)
    module.train(bool(signature.training))
    args, kwargs = pytree.tree_unflatten(list(_examples(signature, state)), signature.takes)
    values = dict(zip(names, [*args, *kwargs.values()], strict=True))
    related = {name for condition in signature.conditions for name in condition.names}
    every = {size.name for size in signature.sizes}  # where the exporter finds out by itself how sizes are related
    told = (_by_dimension(signature, names) for names in (related, every))
    said = [{n: _like(v, specs) for n, v in values.items()} for specs in told]
    try:
        made = torchexport.exported(module, args, kwargs, *said)
    except Exception as error:
        words = f"PyTorch's exporter cannot express this program: {type(error).__name__}: {error}"
        raise InvalidArgument(f"to_torch: {words}") from error
    _refuse_constants(made, signature)
    return made


def _write_exchanged(graph: torch.fx.Graph, signature: ExportSignature) -> None:
    """Buffers that get other tensors are written to instead, which is what the exporter knows of; the graph computes
    with copies of what they were, so that nothing else sees it."""
    exchanged = {name for names in signature.exchanged for name in names}
    for node in [n for n in graph.nodes if n.op == "get_attr" and n.target in exchanged]:
        with graph.inserting_after(node):
            copied = graph.call_method("clone", (node,))
        node.replace_all_uses_with(copied, lambda user, own=copied: user is not own)
    end: Any = output_of(graph)
    results = len(end.args[0]) - len(signature.exchanged)
    with graph.inserting_before(end):
        for names, value in zip(signature.exchanged, end.args[0][results:], strict=True):
            graph.call_method("copy_", (graph.get_attr(names[0]), graph.call_method("detach", (value,))))
    end.args = (end.args[0][:results],)


def _examples(signature: ExportSignature, state: ExportState) -> Iterator[Any]:
    """Arguments that fit. What is in tensors does not matter."""
    sizes = _example_sizes(signature)
    device = next((t.device for t in state.tensors.values()), HOST)
    for each in signature.inputs:
        if isinstance(each, Constant):
            yield each.value
        elif isinstance(each, SignatureNumber):
            yield expressions.value(each.size, sizes)
        else:
            shape = [expressions.value(size, sizes) for size in each.sizes]
            yield torch.zeros(shape, dtype=each.dtype, device=device)


def _example_sizes(signature: ExportSignature) -> dict[str, int]:
    """Sizes like those that the program was exported for, but none that PyTorch's exporter takes for a constant."""
    sizes = {size.name: size.example for size in signature.sizes}
    small = [size for size in signature.sizes if size.example < LEAST]
    choices = [range(max(size.low or 0, LEAST), size.example + 64) for size in small]
    for chosen in itertools.product(*choices):
        sizes |= {size.name: number for size, number in zip(small, chosen, strict=True)}
        if all(condition.holds(sizes) for condition in signature.conditions):
            break
    return sizes


def _by_dimension(signature: ExportSignature, related: set[str]) -> Iterator[Any]:
    """What `torch.export` is told about the sizes of each leaf."""
    dims: dict[str, Any] = {}
    for size in signature.sizes:
        low = max(size.low or 0, LEAST)
        made = torchexport.hint(low, size.high) if size.name in related else torchexport.dim(size.name, low, size.high)
        dims[size.name] = made
    for each in signature.inputs:
        if isinstance(each, Constant):
            yield None
        elif isinstance(each, SignatureNumber):  # to which it gives no names
            yield torchexport.hint(None, None)
        else:
            yield {k: _dim(of, dims, related) for k, of in enumerate(each.sizes) if not isinstance(of, int)}


def _like(value: Any, specs: Iterator[Any]) -> Any:
    """What is said of a container, which is a list where PyTorch has no container of its own for it."""
    kind = pytree._get_node_type(value)
    if kind not in pytree.SUPPORTED_NODES:
        return next(specs)
    children, context = pytree.SUPPORTED_NODES[kind].flatten_fn(value)
    said = [_like(child, specs) for child in children]
    return pytree.SUPPORTED_NODES[kind].unflatten_fn(said, context) if kind in OWN else said


OWN = (tuple, list, dict, namedtuple, OrderedDict, defaultdict, deque)


def _dim(of: Any, dims: Mapping[str, Any], related: set[str]) -> Any:
    if isinstance(of, str):
        return dims[of]
    if related.isdisjoint(expressions.names(of)) and expressions.is_linear(of):
        return expressions.value(of, dims)
    return torchexport.hint(0, None)


def _refuse_constants(made: Any, signature: ExportSignature) -> None:
    shown = {n.name: n.meta["val"] for n in made.graph.nodes if n.op == "placeholder"}
    for each, given in zip(signature.inputs, made.graph_signature.user_inputs, strict=True):
        for place, of, size in _sizes(each, shown.get(given, given) if isinstance(given, str) else given):
            number = _constant(size)
            if not isinstance(of, int) and number is not None:
                words = f"{place} ({expressions.text(of)}) the constant {number}"
                raise InvalidArgument(f"to_torch: PyTorch's exporter makes {words}")


def _sizes(each: Input, shown: Any) -> Iterator[tuple[str, Any, Any]]:
    """Places, what they are for us, and for PyTorch."""
    if isinstance(each, SignatureNumber):
        yield each.path, each.size, shown
    elif isinstance(each, Tensor):
        yield from ((f"{each.path}.shape[{k}]", of, shown.shape[k]) for k, of in enumerate(each.sizes))


def _constant(size: Any) -> int | None:
    """The number that a size of PyTorch's is, symbolic ones that have come to be one included."""
    return size.node.maybe_as_int() if isinstance(size, torch.SymInt) else size if isinstance(size, int) else None
