"""Dovetail as a backend of PyTorch's own compiler, which captures the program and hands over its graphs.

PyTorch finds it through the entry point `dovetail` of the group `torch_dynamo_backends` (pyproject.toml) where it is
named, so that no import of this package is needed. Nothing of PyTorch's compiler is loaded here: who calls has it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.fx
from torch.utils.checkpoint import checkpoint

from dovetail import api
from dovetail.interop.torch_arguments import choices


def backend(
    graph: torch.fx.GraphModule, example_inputs: Sequence[Any], *, mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:  # fmt: skip
    """The graph, compiled. The first call compiles it, for the tensors that it is given then.

    example_inputs: tensors, or fakes, and symbolic numbers where the other compiler has found that they vary.
    mode, options: as of `torch.compile`; those without a meaning here are told of once.
    """
    graph = _in_known_words(graph)
    _ = graph.code  # it may be written only when it is asked for, and capture reads what is there
    compiled: Any = api.compile(graph.forward, **choices(mode, options))
    compiled._dovetail_dispatcher.varying |= frozenset(_varying(graph, example_inputs))
    return compiled


def _varying(graph: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Iterator[str]:
    """The names of numbers and sizes that are symbolic, as capture of the graph's code names them."""
    inputs = [node for node in graph.graph.nodes if node.op == "placeholder"]
    for node, given in zip(inputs, example_inputs, strict=False):
        known = node.meta.get("example_value", given)
        if isinstance(known, torch.SymInt):
            yield node.target
        elif isinstance(known, torch.Tensor):
            yield from (f"{node.target}.shape[{k}]" for k, size in enumerate(known.shape) if type(size) is not int)


# ---------------------------------------------------------------- operators that take graphs


def _called(body: Callable[..., Any], name: str, *inputs: Any) -> Any:
    """A region that is compiled once."""
    return body(*inputs)


def _recomputed(body: Callable[..., Any], *inputs: Any, **options: Any) -> Any:
    """A checkpoint."""
    contexts = getattr(body, "meta", {}).get("_checkpoint_context_fn")
    if contexts is not None:
        options = {**options, "context_fn": contexts}
    return checkpoint(body, *inputs, **{**options, "use_reentrant": False})


#: By name, what an operator stands for in the program's own words.
INSTEAD: Mapping[str, Callable[..., Any]] = {"invoke_subgraph": _called, "tag_activation_checkpoint": _recomputed}
#: Those that capture knows as they are.
KNOWN = frozenset(("cond", "while_loop", "flex_attention", "associative_scan"))


def _in_known_words(graph: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """The graph with operators that the program would have, too. What is left is called between graphs."""
    found = [n.name for n in graph.graph.nodes if _takes_graphs(n.target) and n.target.name() not in KNOWN]
    if not found:
        return graph
    made = copy.copy(graph.graph)
    for node in (node for node in made.nodes if node.name in found):
        name = node.target.name()
        node.target = INSTEAD[name] if name in INSTEAD else _between(node.target)
    return torch.fx.GraphModule(graph, made)


def _between(operator: Callable[..., Any]) -> Callable[..., Any]:
    # Not under the operator's own name, or the graph's code would call that.
    def between(*args: Any, **kwargs: Any) -> Any:
        return operator(*args, **kwargs)

    uncompiled: Callable[..., Any] = api.disable(between, reason=f"{operator} takes graphs")
    return uncompiled


def _takes_graphs(target: Any) -> bool:
    return isinstance(target, torch._ops.HigherOrderOperator)
