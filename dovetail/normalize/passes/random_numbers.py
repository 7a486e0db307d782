"""Draw random numbers inside the kernels that use them, on devices where no generator has to be asked one by one.

before:  %d = native_dropout(%x, 0.5, True);  %y = getitem(%d, 0);  %mask = getitem(%d, 1)
after:   %seeds = randint(-2**63, 2**63 - 1, [10]);  %u = dovetail.draw(%seeds, 9, ...)
         %mask = lt(%u, 0.5);  %y = mul(mul(%x, %mask), 2.0)

The seeds come from the device's generator, so the program's numbers follow from its state, and a recorded CUDA graph
draws others each time. A backward pass keeps seeds instead of masks. The numbers are not eager's: so operators are left
alone under `config.fallback_random`, and where a program draws little at a time (which samples a residual branch is
dropped for, a noise of a few numbers), since one kernel for each costs what asking for seeds does.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Set
from typing import Any

import torch
import torch.fx

from dovetail.ir.aten import CHECKPOINTED, AtenGraph
from dovetail.ir.devices import traits
from dovetail.normalize.passes.writer import GraphWriter
from dovetail.ops.calls.schema import bound
from dovetail.ops.fake import on_fakes
from dovetail.ops.fake.rules.layout import dense_order
from dovetail.ops.fake.symbolic.size_questions import dim_or_node
from dovetail.ops.own.philox import KINDS, draw

aten = torch.ops.aten
Node = torch.fx.Node

#: Which of the seeds are used: small and round numbers would be part of a kernel's text.
FIRST, STEP = 9, 2

FEW = 4096  # numbers that an operator draws about as fast as it is launched


def draw_in_kernels(graph: AtenGraph, backward_nodes: Set[Node]) -> None:
    """In place on the graph; `backward_nodes` are left alone: each of its runs draws anew."""
    with on_fakes():
        found: dict[torch.device, list[_Draw]] = {}
        for node in graph.graph.nodes:
            if node.op == "call_function" and node.target in _ROWS and node not in backward_nodes:
                one = _Draw(node)
                if one.fits():
                    found.setdefault(one.device, []).append(one)
        for device, draws in found.items():
            if all(draws_few(one.like) for one in draws):
                continue
            seeds = _seeds(GraphWriter(graph.graph, draws[0].node), device, FIRST + STEP * len(draws))
            for k, one in enumerate(draws):
                one.replace(seeds, FIRST + STEP * k)


def _seeds(write: GraphWriter, device: torch.device, count: int) -> Node:
    whole = torch.iinfo(torch.int64)
    made = write.call(aten.randint.low, whole.min, whole.max, [count], dtype=torch.int64, device=device)
    made.meta.pop(CHECKPOINTED, None)  # they are drawn once
    return made


class _Draw:
    """One random operator: its arguments by name, and what is written in its place."""

    def __init__(self, node: Node) -> None:
        self.node, self.given = node, bound(node.target, node.args, dict(node.kwargs))
        val = node.meta["val"]
        self.like = val[0] if isinstance(val, (tuple, list)) else val
        self.device, self.dtype = self.like.device, self.like.dtype
        self.row = _ROWS[node.target]

    def fits(self) -> bool:
        plain = traits(self.device).draws and self.given.get("generator") is None and self.dtype in _WIDE
        return plain and dense_order(self.like.shape, self.like.stride()) is not None and self.row[0](self)

    def replace(self, seeds: Node, place: int) -> None:
        self.write, self.seeds, self.place = GraphWriter(self.node.graph, self.node), seeds, place
        made = self.row[1](self)
        if not isinstance(made, tuple):
            self.exchange(self.node, made)
            return
        for user in list(self.node.users):
            self.exchange(user, made[user.args[1]])  # type: ignore[index]
        self.node.graph.erase_node(self.node)

    def exchange(self, old: Node, new: Node) -> None:
        old.replace_all_uses_with(new)
        old.graph.erase_node(old)

    # ------------------------------------------------------------ what rows are made of

    def draw(self, kind: str) -> Node:
        size, stride = (tuple(map(dim_or_node, values)) for values in (self.like.shape, self.like.stride()))
        val = self.like.new_empty_strided(self.like.shape, self.like.stride(), dtype=KINDS[kind].dtype)
        return self.write.add(draw, (self.seeds, self.place, size, stride, kind), {}, val)

    def wide(self, name: str) -> Node:
        """Drawn with the precision that the result asks for; half types are computed with in float32."""
        return self.draw(f"double {name}" if self.dtype is torch.float64 else name)

    def call(self, target: Any, *args: Any) -> Node:
        return self.write.call(target, *args)

    def cast(self, value: Node) -> Node:
        same = value.meta["val"].dtype is self.dtype
        return value if same else self.write.call(aten._to_copy.default, value, dtype=self.dtype)

    def number(self, *names: str, default: float) -> Any:
        return next((self.given[name] for name in names if name in self.given), default)


# ---------------------------------------------------------------- the operators

_WIDE = frozenset((
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
    torch.uint8, torch.bool,
))  # fmt: skip
_ROWS: dict[Any, tuple[Callable[[_Draw], bool], Callable[[_Draw], Any]]] = {}


Written = Callable[[_Draw], Any]


def _row(*targets: Any, fits: Callable[[_Draw], bool] = lambda d: True) -> Callable[[Written], Written]:
    def register(written: Written) -> Written:
        _ROWS.update(dict.fromkeys(targets, (fits, written)))
        return written

    return register


def _numbers(*values: Any) -> bool:
    return all(isinstance(v, (int, float)) and not isinstance(v, bool) and math.isfinite(v) for v in values)


def _floating(d: _Draw) -> bool:
    return bool(d.dtype.is_floating_point)


@_row(
    aten.native_dropout.default,
    fits=lambda d: _numbers(d.given["p"]) and 0 < d.given["p"] < 1 and d.given["train"] is not False
    and all(user.target is operator.getitem for user in d.node.users),
)  # fmt: skip
def _dropout(d: _Draw) -> Any:
    keep = 1 - d.given["p"]
    mask = d.call(aten.lt.Scalar, d.wide("uniform"), keep)
    return d.call(aten.mul.Tensor, d.call(aten.mul.Tensor, d.given["input"], mask), 1 / keep), mask


@_row(aten.bernoulli.default, fits=_floating)
def _bernoulli(d: _Draw) -> Node:
    return d.cast(d.call(aten.lt.Tensor, d.wide("uniform"), d.given["self"]))


@_row(aten.bernoulli.p, fits=lambda d: _numbers(d.given["p"]) and 0 <= d.given["p"] <= 1)
def _bernoulli_of_number(d: _Draw) -> Node:
    return d.cast(d.call(aten.lt.Scalar, d.wide("uniform"), d.given["p"]))


@_row(aten.rand.default, aten.rand_like.default, fits=_floating)
def _rand(d: _Draw) -> Node:
    """A value that becomes 1 in a half type is 0 instead, as in PyTorch's kernels."""
    drawn = d.wide("uniform")
    made = d.cast(drawn)
    return made if made is drawn else d.call(aten.masked_fill.Scalar, made, d.call(aten.ge.Scalar, made, 1), 0)


def _ends(d: _Draw) -> tuple[Any, Any]:
    return d.number("from", default=0.0), d.number("to", default=1.0)


@_row(aten.uniform.default, fits=lambda d: _floating(d) and _numbers(*_ends(d)) and _ends(d)[0] <= _ends(d)[1])
def _uniform(d: _Draw) -> Node:
    low, high = _ends(d)
    made = d.cast(d.call(aten.add.Tensor, d.call(aten.mul.Tensor, d.wide("uniform"), high - low), low))
    return d.call(aten.masked_fill.Scalar, made, d.call(aten.ge.Scalar, made, high), low)


@_row(aten.randn.default, aten.randn_like.default, fits=_floating)
def _randn(d: _Draw) -> Node:
    return d.cast(d.wide("normal"))


@_row(
    aten.normal_functional.default, aten.normal.Tensor_float, aten.normal.Tensor_Tensor, aten.normal.float_Tensor,
    fits=lambda d: _floating(d) and all(
        isinstance(v, Node) or _numbers(v) and (name == "mean" or v >= 0) for name, v in _moments(d).items()
    ) and isinstance(_moments(d)["std"], (int, float)),
)  # fmt: skip
def _normal(d: _Draw) -> Node:
    mean, deviation = _moments(d).values()
    return d.cast(d.call(aten.add.Tensor, d.call(aten.mul.Tensor, d.wide("normal"), deviation), mean))


def _moments(d: _Draw) -> dict[str, Any]:
    return {"mean": d.number("mean", default=0.0), "std": d.number("std", default=1.0)}


@_row(aten.exponential.default, fits=lambda d: _floating(d) and _numbers(_rate(d)) and _rate(d) > 0)
def _exponential(d: _Draw) -> Node:
    """Never 0: the logarithm of what is nearest to 1 counts as half a unit in the last place."""
    drawn = d.wide("uniform")
    left = d.call(aten.rsub.Scalar, drawn, 1)
    least = torch.finfo(drawn.meta["val"].dtype).eps / 2
    lower = d.call(aten.clamp_min.default, d.call(aten.neg.default, d.call(aten.log.default, left)), least)
    return d.cast(d.call(aten.mul.Tensor, lower, 1 / _rate(d)))


def _rate(d: _Draw) -> Any:
    return d.number("lambd", default=1.0)


def _bounds(d: _Draw) -> tuple[Any, Any]:
    return d.number("low", default=0), d.number("high", default=None)  # type: ignore[arg-type]


def _whole(d: _Draw) -> bool:
    low, high = _bounds(d)
    return isinstance(low, int) and isinstance(high, int) and 0 < high - low < 2**63 and d.dtype is not torch.bool


@_row(
    aten.randint.default, aten.randint.low, aten.randint_like.default, aten.randint_like.low_dtype, fits=_whole
)  # fmt: skip
def _randint(d: _Draw) -> Node:
    """From as many random bits as leave no value noticeably likelier than others."""
    low, high = _bounds(d)
    span = high - low
    if span <= 2**31:
        scaled = d.call(aten.mul.Tensor, d.draw("word"), span)
        found = d.call(aten.bitwise_right_shift.Tensor_Scalar, scaled, 32)
    else:
        found = d.call(aten.remainder.Scalar, d.draw("long"), span)
    return d.cast(d.call(aten.add.Tensor, found, low))


def draws_few(like: torch.Tensor) -> bool:
    """Would eager's operator draw little for such a tensor?"""
    numel = like.numel()
    return isinstance(numel, int) and numel <= FEW
