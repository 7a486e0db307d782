"""Torch-level graph in, functional ATen graph out.

    x.add_(1); return x[0]      ->      %add = aten.add.Tensor(%x, 1);  mutated: x <- %add
                                        %select = aten.select.int(%add, 0, 0);  output 0 is a view of x
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterator, Sequence
from types import FunctionType
from typing import Any

import torch
import torch.fx

from dovetail.errors import InternalError
from dovetail.ir.aten import AtenGraph, subprograms
from dovetail.ir.callers import of_library
from dovetail.normalize.outputs import finish, finish_values
from dovetail.normalize.passes import simplify
from dovetail.normalize.recording.attention_chain import PRODUCTS
from dovetail.normalize.recording.attention_masks import with_rows_in_one_piece, without_known_mask
from dovetail.normalize.recording.checkpoints import checkpointed
from dovetail.normalize.recording.control_flow import CONTROL
from dovetail.normalize.recording.inplace_view_methods import turned, turns
from dovetail.normalize.recording.recorder import AtenRecorder
from dovetail.normalize.recording.templates import TEMPLATES, wanted
from dovetail.normalize.recording.written_attention import fused
from dovetail.ops.calls import higher_order
from dovetail.ops.calls.autograd_calls import calls_engine
from dovetail.ops.calls.fused_optimizers import FUSED_STEPS
from dovetail.ops.fake import to_fake
from dovetail.ops.fake.symbolic.retry import called, methodcaller
from dovetail.ops.own.check import classes
from dovetail.options import Options


def normalize(graph_module: torch.fx.GraphModule, fakes: Sequence[Any], options: Options) -> AtenGraph:
    """Run the graph on `fakes`, one for each placeholder, recording ATen operators.

    Works under the grad mode and autocast state of the caller. Raises Unsupported for what has no
    functional form or depends on values, with the user's stack where nodes carry one.
    """
    return _simplified(record(graph_module, fakes, options), options)


def _simplified(aten: AtenGraph, options: Options) -> AtenGraph:
    for part in subprograms(aten):
        part.graphs = tuple(_simplified(graph, options) for graph in part.graphs)
    return simplify(aten, options)


def record(graph_module: torch.fx.GraphModule, fakes: Sequence[Any], options: Options | None = None) -> AtenGraph:
    """The functional graph as recorded, before any pass."""
    return _recorded(graph_module, fakes, finish, options)


def inner(graph_module: torch.fx.GraphModule, fakes: Sequence[Any]) -> AtenGraph:
    """The same for a graph that another one runs."""
    return _recorded(graph_module, fakes, finish_values)


def _recorded(
    graph_module: torch.fx.GraphModule, fakes: Sequence[Any], close: Callable[[AtenRecorder, Any], AtenGraph],
    options: Options | None = None,
) -> AtenGraph:  # fmt: skip
    recorder = AtenRecorder()
    recorder.options = options
    grad = torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
    with torch.inference_mode(False), torch.set_grad_enabled(grad):
        leaves = fakes if calls_engine(graph_module.graph) else [_plain(f) for f in fakes]
        inputs = placeholders(recorder, graph_module, leaves)
        with recorder:
            outputs = run_graph(graph_module, inputs, recorder)
        return close(recorder, outputs)


def _plain(fake: Any) -> Any:
    """Nothing is differentiated: a real tensor that requires gradients need not be the leaf that its fake would be."""
    return to_fake(fake, leaf=False) if isinstance(fake, torch.Tensor) and fake.requires_grad else fake


def placeholders(recorder: AtenRecorder, graph_module: torch.fx.GraphModule, fakes: Sequence[Any]) -> list:
    """One graph input for each placeholder, with the metadata of its fake."""
    names = [n.name for n in graph_module.graph.nodes if n.op == "placeholder"]
    if len(names) != len(fakes):
        raise InternalError("normalize", f"{len(fakes)} inputs for {len(names)} placeholders")
    return [recorder.placeholder(name, fake) for name, fake in zip(names, fakes, strict=True)]


def run_graph(graph_module: torch.fx.GraphModule, inputs: list, recorder: AtenRecorder) -> Any:
    """What the graph returns. It may leave another grad mode behind, which is for the program to set when it runs."""
    with torch.set_grad_enabled(torch.is_grad_enabled()):
        return _run_nodes(graph_module, inputs, recorder)


def _run_nodes(graph_module: torch.fx.GraphModule, inputs: list, recorder: AtenRecorder) -> Any:
    env: dict[torch.fx.Node, Any] = {}
    given = iter(inputs)
    for node in graph_module.graph.nodes:
        recorder.stack = node.meta.get("stack")
        recorder.lines.begin(recorder.stack)
        if node.op == "placeholder":
            env[node] = next(given)
        elif node.target is operator.getitem and isinstance(node.args[0], torch.fx.Node) and _holds(env[node.args[0]]):
            env[node] = env[node.args[0]][_values(node.args[1], env)]
        elif node.op in ("call_function", "call_method"):
            args, kwargs = _values(node.args, env), _values(node.kwargs, env)
            env[node] = (turned if turns(node, args) else _run_node)(recorder, node, args, kwargs, env)
        elif node.op == "get_attr":
            env[node] = operator.attrgetter(str(node.target))(graph_module)
        elif node.op == "output":
            return _values(node.args[0], env)
        else:
            raise InternalError("normalize", f"node {node.name} is a {node.op}")
    raise InternalError("normalize", "the graph has no output")


def _holds(value: Any) -> bool:
    """Is it a container, of which an item is no operation?"""
    return type(value) in (list, tuple)


def _run_node(
    recorder: AtenRecorder, node: torch.fx.Node, args: tuple, kwargs: dict[str, Any], env: dict[Any, Any]
) -> Any:
    if node.op == "call_method":
        return called(methodcaller, (node.target, *args), kwargs)
    if node.target is torch.nn.functional.scaled_dot_product_attention:
        args, kwargs = without_known_mask(recorder, args, kwargs)
        if recorder.options is not None and recorder.options.numerics == "default":
            args, kwargs = with_rows_in_one_piece(args, kwargs)
    if node.target in TEMPLATES and wanted(recorder.options):
        result = called(TEMPLATES[node.target], args, kwargs)
        if result is not NotImplemented:
            return result
    if isinstance(node.target, higher_order.Checkpoint) and node.target.plain:
        return checkpointed(recorder, node.target, args, run_graph)
    control = CONTROL.get(node.target)
    if node.target is torch.nn.functional.one_hot:
        check_classes(*args, **kwargs)
    if kwargs.get("out") is not None:
        with recorder.writing(kwargs["out"]):
            return called(_callee(node), args, kwargs)
    with _as_captured(node, env):
        result = called(_callee(node), args, kwargs) if control is None else control(recorder, inner, *args)
    if node.target in PRODUCTS and (attention := fused(recorder, node, env, result)) is not None:
        return attention
    recorder.adopt(result, [env[used] for used in node.all_input_nodes])
    if node.target in _ADDING_IN_PLACE and (before := recorder.added_to(result)) is not None:
        torch._C._increment_version([result] * (before + 1))
    return result


@contextlib.contextmanager
def _as_captured(node: torch.fx.Node, env: dict[Any, Any]) -> Iterator[None]:
    """A function of the program's may ask whether tensors require gradients, which they do without a history where
    nothing is differentiated."""
    flagged = []
    if type(node.target) is FunctionType and not torch.is_grad_enabled() and not of_library(node.target.__module__):
        flagged = [env[used] for used in node.all_input_nodes if _lost_its_flag(used.meta.get("fake"), env[used])]
    for tensor in flagged:
        tensor.requires_grad_()
    try:
        yield
    finally:
        for tensor in flagged:
            tensor.requires_grad_(False)


def _lost_its_flag(captured: Any, tensor: Any) -> bool:
    both = isinstance(captured, torch.Tensor) and isinstance(tensor, torch.Tensor)
    return both and captured.requires_grad and not tensor.requires_grad


def check_classes(tensor: Any, num_classes: Any = -1) -> None:
    """As eager does, and its decomposition does not."""
    if not isinstance(num_classes, int) or num_classes > 0:
        classes(tensor, num_classes)


def _callee(node: torch.fx.Node) -> Any:
    if node.target in FUSED_STEPS:
        return FUSED_STEPS[node.target]
    traced = isinstance(node.target, higher_order.Apply) and node.target.graphs is not None
    return node.target.recorded if traced else node.target  # type: ignore[union-attr]


#: These add to what they have made in place, or not if they see a tensor subclass, as fakes are.
_ADDING_IN_PLACE = frozenset((torch.nn.functional.linear,))


def _values(argument: Any, env: dict[torch.fx.Node, Any]) -> Any:
    if isinstance(argument, torch.fx.Node):
        return env[argument]
    if isinstance(argument, tuple):
        items = [_values(a, env) for a in argument]
        return type(argument)(*items) if hasattr(argument, "_fields") else tuple(items)
    if isinstance(argument, list):
        return [_values(a, env) for a in argument]
    if isinstance(argument, dict):
        return {k: _values(v, env) for k, v in argument.items()}
    if isinstance(argument, slice):
        return slice(_values(argument.start, env), _values(argument.stop, env), _values(argument.step, env))
    return argument
