"""What nodes with graphs of their own call: the captured graph runs these in eager.

A graph comes as a GraphModule. `given` says which leaves of the arguments its first parameters are; the others
are `lifted`: tensors that the captured function closed over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.func
import torch.utils._pytree as pytree
import torch.utils.checkpoint

from dovetail.ir.records import dataclass

# ---------------------------------------------------------------- transforms


def closed(graph: Any, given: Sequence[int], lifted: Sequence[Any]) -> Callable[..., Any]:
    """The captured function, as a callable of its own arguments. Its graph gives a list; `structure` is the nest."""

    def function(*args: Any, **kwargs: Any) -> Any:
        leaves = pytree.tree_leaves((args, kwargs))
        return pytree.tree_unflatten(graph.forward(*(leaves[k] for k in given), *lifted), graph.structure)

    return function


def _transform(transform: Callable[..., Any], immediate: bool = False) -> Callable[..., Any]:
    def run(graph: Any, given: Any, settings: dict[str, Any], args: Any, kwargs: Any, lifted: Any) -> Any:
        function = closed(graph, given, lifted)
        return transform(function, *args, **settings) if immediate else transform(function, **settings)(*args, **kwargs)

    run.__name__ = run.__qualname__ = transform.__name__
    return run


def call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call what an earlier node gave."""
    return function(*args, **kwargs)


#: torch.func's transforms of a function: what a node that calls the transformed function calls.
TRANSFORMS: dict[Any, Callable[..., Any]] = {
    transform: _transform(transform)
    for transform in (
        torch.func.grad, torch.func.grad_and_value, torch.func.vmap, torch.func.jacrev, torch.func.jacfwd,
        torch._functorch.apis.chunk_vmap,
    )
}  # fmt: skip


def linearize(function: Callable[..., Any], *primals: Any) -> Any:
    """`torch.func.linearize`, whose own tracing is not needed for a function that is a graph already."""

    def tangents_map(*tangents: Any) -> Any:
        return torch.func.jvp(function, primals, tangents)[1]

    return function(*primals), tangents_map


#: Those that are called with the function and its arguments at once.
IMMEDIATE: dict[Any, Callable[..., Any]] = {
    transform: _transform(transform, immediate=True) for transform in (torch.func.vjp, torch.func.jvp, linearize)
}


# ---------------------------------------------------------------- control flow

Tensors = Sequence[torch.Tensor]
OPERATORS = torch.ops.higher_order


def cond(pred: torch.Tensor, true: Any, false: Any, true_lifted: Tensors, false_lifted: Tensors) -> list:
    """`torch.cond`, run in eager: the graph of the side that `pred` chooses."""
    return true.forward(*true_lifted) if pred else false.forward(*false_lifted)


def while_loop(test: Any, body: Any, carried: Tensors, test_lifted: Tensors, body_lifted: Tensors) -> list:
    """What is carried is row-major, and never one of the tensors given."""
    return _repeated(test.forward, body.forward, list(map(fresh, carried)), test_lifted, body_lifted)


def scan(body: Any, count: int, init: Tensors, xs: Tensors, lifted: Tensors) -> list:
    """The last of what is carried (`count` values, for a map 0), then the other results of each step, stacked."""
    return _stepped(body.forward, count, list(map(fresh, init)), xs, lifted)


def _repeated(test: Any, body: Any, carried: list, test_lifted: Any, body_lifted: Any) -> list:
    while test(*carried, *test_lifted)[0]:
        carried = body(*carried, *body_lifted)
    return list(carried)


def _stepped(step: Any, count: int, carried: list, xs: Any, lifted: Any) -> list:
    columns = []
    for row in zip(*(x.unbind(0) for x in xs), strict=True):
        results = step(*carried, *row, *lifted)
        carried = results[:count]
        columns.append(results[count:])
    return [*carried, *map(stacked, zip(*columns, strict=True))]


def cond_operator(pred: Any, true: Any, false: Any, true_lifted: Tensors, false_lifted: Tensors) -> Any:
    """`cond` by PyTorch's operator, for those who trace it. It wants each tensor once."""
    both: list = []
    for tensor in (*true_lifted, *false_lifted):
        if not any(tensor is other for other in both):
            both.append(tensor)

    def branch(graph: Any, lifted: Tensors) -> Callable[..., Any]:
        places = [k for t in lifted for k, other in enumerate(both) if other is t]
        return lambda *given: tuple(graph(*[given[k] for k in places]))

    return OPERATORS.cond(pred, branch(true, true_lifted), branch(false, false_lifted), tuple(both))


def while_loop_operator(test: Any, body: Any, carried: Tensors, test_lifted: Tensors, body_lifted: Tensors) -> Any:
    """`while_loop` by PyTorch's operator."""
    first, second = len(carried), len(carried) + len(test_lifted)
    return OPERATORS.while_loop(
        lambda *given: test(*given[:second])[0], lambda *given: tuple(body(*given[:first], *given[second:])),
        tuple(carried), (*test_lifted, *body_lifted),
    )  # fmt: skip


#: What traces a graph with the former is shown the latter.
OPERATOR_OF: dict[Any, Callable[..., Any]] = {cond: cond_operator, while_loop: while_loop_operator}


def fresh(tensor: torch.Tensor) -> torch.Tensor:
    """A copy in rows: what a graph of its own gets, whatever the layout outside."""
    return tensor.clone(memory_format=torch.contiguous_format)


def stacked(column: Sequence[Any]) -> Any:
    """The results of all steps as one tensor; what is no tensor is the same in each."""
    return torch.stack(list(column)) if isinstance(column[0], torch.Tensor) else column[0]


# ---------------------------------------------------------------- control flow of compiled graphs, see `Subprogram`


def choose(callables: Any, pred: torch.Tensor, true_inputs: Any, false_inputs: Any) -> Any:
    """A `Subprogram`'s branches, compiled: the one that `pred` chooses runs."""
    return callables[0](*true_inputs) if pred else callables[1](*false_inputs)


def loop(callables: Any, carried: Any, test_lifted: Any, body_lifted: Any) -> list:
    """A `Subprogram`'s loop, compiled: what it carries is copied first, since the body may write to it."""
    test, body = callables
    return _repeated(test, body, [t.clone() for t in carried], test_lifted, body_lifted)


def steps(count: int, callables: Any, carried: Any, xs: Any, lifted: Any) -> list:
    """Of a scan that carries `count` values."""
    (step,) = callables
    return _stepped(step, count, [t.clone() for t in carried], xs, lifted)


# ---------------------------------------------------------------- gradients of the user's own


@dataclass(frozen=True)
class Graphs:
    """What forward and backward of a `torch.autograd.Function` compute.

    `forward` gives `count` results, then what backward reads of what it has computed; it takes `taken` of the values
    around. `backward` takes a gradient for each result, then each of `read`: one `around`, or one `kept` by forward;
    those in `saved` were given to `save_for_backward`. `constant` are results that have no gradient. `several`: is the
    result a tuple?
    """

    forward: Any
    backward: Any
    taken: tuple[int, ...]
    read: tuple[tuple[str, int], ...]
    saved: tuple[bool, ...]
    count: int
    several: bool
    constant: tuple[int, ...]


class Apply:
    """`cls.apply` of a `torch.autograd.Function`; `fixed` are the arguments that a graph cannot name, by position.

    It takes `count` arguments, then the values around that `graphs` take, if there are any.
    """

    def __init__(self, cls: type, fixed: dict[int, Any], count: int, graphs: Graphs | None = None) -> None:
        self.cls, self.fixed, self.count, self.graphs = cls, fixed, count, graphs
        self.__name__ = self.__qualname__ = f"{cls.__name__}_apply"

    def __call__(self, *args: Any) -> Any:
        return self.cls.apply(*self.given(args))  # type: ignore[attr-defined]

    def given(self, args: Sequence[Any]) -> list:
        """All arguments in order, the fixed ones in their places."""
        rest = iter(args)
        return [self.fixed[k] if k in self.fixed else next(rest) for k in range(self.count)]

    def recorded(self, *args: Any) -> Any:
        """The same by `graphs`: no code of the user's runs."""
        own = self.count - len(self.fixed)
        return Recorded.apply(self.graphs, args[own:], *self.given(args[:own]))


class Recorded(torch.autograd.Function):
    """Two graphs in the place of a user's function."""

    @staticmethod
    def forward(ctx: Any, graphs: Graphs, around: Sequence[Any], *inputs: Any) -> Any:
        found = graphs.forward.forward(*(around[k] for k in graphs.taken))
        results = found[: graphs.count]
        kept = {"around": around, "kept": found[graphs.count :]}
        read = [kept[kind][k] for kind, k in graphs.read]
        ctx.save_for_backward(*[value for value, saved in zip(read, graphs.saved, strict=True) if saved])
        ctx.read = [None if saved else value for value, saved in zip(read, graphs.saved, strict=True)]
        ctx.mark_non_differentiable(*[results[k] for k in graphs.constant])
        ctx.graphs = graphs
        return tuple(results) if graphs.several else results[0]

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        graphs, saved = ctx.graphs, iter(ctx.saved_tensors)
        read = [next(saved) if is_saved else value for value, is_saved in zip(ctx.read, graphs.saved, strict=True)]
        return None, None, *graphs.backward.forward(*(g.contiguous() for g in gradients), *read)


#: The function behind the mark that keeps PyTorch's compiler out (and that would load it).
checkpoint_function = getattr(torch.utils.checkpoint.checkpoint, "__wrapped__", torch.utils.checkpoint.checkpoint)


_SELECTIVE = torch.utils.checkpoint._CachingTorchDispatchMode


class Checkpoint:
    """`torch.utils.checkpoint.checkpoint` with these settings, called as transforms are."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.reentrant = settings.get("use_reentrant") is not False
        self.plain = not settings.get("debug") and ("context_fn" not in settings or self.policy() is not None)
        self.__name__ = self.__qualname__ = "checkpoint"

    def policy(self) -> Callable[..., Any] | None:
        """What says of each operator of one call whether its result is kept, if that is all that `context_fn` does.

        `plain`: so it is, or nobody has a say in what is kept; and nobody is told of it.
        """
        first = self.settings["context_fn"]()[0] if "context_fn" in self.settings else None
        return first.policy_fn if type(first) is _SELECTIVE else None

    def __call__(self, graph: Any, given: Any, settings: Any, args: Any, kwargs: Any, lifted: Any) -> Any:
        return checkpoint_function(closed(graph, given, lifted), *args, **self.settings, **kwargs)
