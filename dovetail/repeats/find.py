"""A captured graph whose nodes come in equal turns, and the same one with few of them.

before:  %a = f(%x, %w0);  %b = f(%a, %w1);  %c = f(%b, %w2);  ...;  %y = f(%h, %w47);  return (g(%y),)
after:   %a = f(%x, %w0);  %b = f(%a, %w1);  %c = f(%b, %w2);  return (g(%c),)

A turn calls the same functions with the same constants on what looks the same: a value of the turn before, an input of
its own, or what all turns read. What follows reads the last turn alone. So each stage does with every turn what it does
with the one before, and `unfold.py` checks that it did.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.fx

from dovetail.ir.lazy_module import LazyGraphModule
from dovetail.ir.records import dataclass
from dovetail.ops.fake import FakeTensor
from dovetail.repeats.periods import longest, periods
from dovetail.repeats.rows import Place, Row

Node = torch.fx.Node

FEWEST = 8  # turns that are worth it
KEPT = 4  # turns of the short graph: `unfold.py` compares one with the next, between what stands at the ends


@dataclass(frozen=True)
class Short:
    """A short graph and fakes of its inputs; the captured graph has `inputs.more` turns more."""

    graph: torch.fx.GraphModule
    fakes: tuple[Any, ...]
    inputs: Row


def find(
    module: torch.fx.GraphModule, fakes: Sequence[Any]
) -> tuple[Short, Short] | None:
    """A short graph, and another one with a turn less. `fakes` of the graph's inputs. None if it has no turns, too few,
    or such as differ."""
    nodes = list(module.graph.nodes)
    calls = [n for n in nodes if n.op in ("call_function", "call_method")]
    if len(calls) < FEWEST or any("fake" not in n.meta for n in calls):
        return None
    described = {n: _described(n) for n in calls}
    kinds = {n: described[n][0] for n in calls}
    inputs = [n for n in nodes if n.op == "placeholder"]
    kinds |= {
        n: (looks(fake), _memory(fake))
        for n, fake in zip(inputs, fakes, strict=True)
    }
    read = {n: described[n][1] for n in calls}
    for period, start, end in periods([kinds[n] for n in calls]):
        turns = _Turns(calls, kinds, read, period)
        if turns.settle(start, end):
            return _shortened(module, fakes, inputs, turns, KEPT), _shortened(
                module, fakes, inputs, turns, KEPT - 1
            )
    return None


class _Turns:
    """`calls[start : start + count * period]` are `count` turns; `series` has the inputs of their own."""

    def __init__(
        self,
        calls: list[Node],
        kinds: dict[Node, Any],
        read: dict[Node, list[Node]],
        period: int,
    ) -> None:
        self.calls, self.kinds, self.read, self.period = calls, kinds, read, period
        self.at = {n: k for k, n in enumerate(calls)}
        self.start = self.count = 0
        self.series: dict[Node, Place] = {}

    @property
    def end(self) -> int:
        return self.start + self.count * self.period

    def settle(self, start: int, end: int) -> bool:
        """Are there turns among the calls from `start` on, each of which is like the one a period later?"""
        start, end = longest(end, self.alike, start)
        self.start = self.between(start, end)
        self.count = (end - self.start) // self.period + 1
        if self.count < FEWEST or not self.near() or not self.take_inputs():
            return False
        return self.inputs_apart() and self.followed()

    def between(self, start: int, end: int) -> int:
        """Where a turn may begin: not between calls of one turn that read one input."""
        read: dict[Node, list[int]] = {}
        for k in range(start, end):
            for used in self.read[self.calls[k]]:
                if used.op == "placeholder":
                    read.setdefault(used, []).append(k)
        inside: set[int] = set()
        for places in read.values():
            if places[-1] - places[0] < self.period:  # else it is read in all turns
                inside.update(
                    k % self.period for k in range(places[0] + 1, places[-1] + 1)
                )
        return next(
            (
                k
                for k in range(start, start + self.period)
                if k % self.period not in inside
            ),
            start,
        )

    def alike(self, position: int) -> bool:
        """Does the call read what the one a period later reads, or the same of its own turn?"""
        mine, later = (
            self.read[self.calls[k]] for k in (position, position + self.period)
        )
        return len(mine) == len(later) and all(map(self.corresponds, mine, later))

    def corresponds(self, mine: Node, later: Node) -> bool:
        if mine is later:
            return True
        if mine in self.at and later in self.at:
            return self.at[mine] + self.period == self.at[later]
        return (
            mine.op == later.op == "placeholder"
            and self.kinds[mine] == self.kinds[later]
        )

    def turn(self, position: int) -> int:
        return (position - self.start) // self.period

    def near(self) -> bool:
        """Does each turn read no other turn than the one before, but for what all of them read?"""
        for k in range(self.start + self.period, self.end):
            before, mine = (
                self.read[self.calls[at]] for at in (k - self.period, k)
            )
            for same, used in zip(before, mine, strict=True):
                if (
                    same is not used
                    and used in self.at
                    and self.turn(self.at[used]) < self.turn(k) - 1
                ):
                    return False
        return True

    def take_inputs(self) -> bool:
        """Number the inputs that are others in each turn."""
        for k in range(self.start, self.start + self.period):
            rounds = [
                self.read[self.calls[k + turn * self.period]]
                for turn in range(self.count)
            ]
            for members in zip(*rounds, strict=True):
                if members[0].op == "placeholder" and any(
                    m is not members[0] for m in members
                ):
                    if not self.take_series(members):
                        return False
        return True

    def take_series(self, members: tuple[Node, ...]) -> bool:
        known = self.series.get(members[0])
        name = known.series if known is not None else len(self.series)
        wanted = {
            member: Place(name, number) for number, member in enumerate(members)
        }
        if len(wanted) < self.count or any(
            self.series.get(m, p) != p for m, p in wanted.items()
        ):
            return False
        self.series |= wanted
        return True

    def inputs_apart(self) -> bool:
        """Is each of these read by its own turn alone?"""
        for node, (_, number) in self.series.items():
            for user in node.users:
                at = self.at.get(user)
                if (
                    at is None
                    or not self.start <= at < self.end
                    or self.turn(at) != number
                ):
                    return False
        return True

    def followed(self) -> bool:
        """Does what follows read the last turn alone?"""
        inside = {
            n: k for k, n in enumerate(self.calls) if self.start <= k < self.end
        }
        for node, at in inside.items():
            later = [u for u in node.users if u not in inside]
            if later and self.turn(at) != self.count - 1:
                return False
        return True


def _shortened(
    module: torch.fx.GraphModule,
    fakes: Sequence[Any],
    inputs: list[Node],
    turns: _Turns,
    count: int,
) -> Short:
    more, made, env = turns.count - count, torch.fx.Graph(), dict[Node, Node]()
    left_out = set(turns.calls[turns.start + count * turns.period : turns.end])
    left_out |= {n for n, place in turns.series.items() if place.number >= count}
    last = {  # the last turn's nodes, and what stands for them
        turns.calls[k]: turns.calls[k - more * turns.period]
        for k in range(turns.end - turns.period, turns.end)
    }
    for node in module.graph.nodes:
        if node not in left_out:
            copy = env[node] = made.node_copy(node, lambda n: env[last.get(n, n)])
            copy.meta = dict(node.meta)
    short = LazyGraphModule(module, made)
    short.meta.update(module.meta)
    kept = [
        (n, fake)
        for n, fake in zip(inputs, fakes, strict=True)
        if n not in left_out
    ]
    at = {n: k for k, (n, _) in enumerate(kept)}
    place = lambda n: turns.series.get(n) or Place(None, at[n])
    row = Row(tuple(place(n) for n, _ in kept), tuple(map(place, inputs)), more)
    return Short(short, tuple(fake for _, fake in kept), row)


# ---------------------------------------------------------------- what looks the same


def _described(node: Node) -> tuple[tuple, list[Node]]:
    """What a node does, without the nodes that it reads, and those in order."""
    read: list[Node] = []
    arguments = tuple(_parts((node.args, node.kwargs), read))
    facts = sorted(
        (key, repr(value))
        for key, value in node.meta.items()
        if key not in ("stack", "fake")
    )
    return (
        node.op,
        node.target,
        arguments,
        tuple(facts),
        looks(node.meta.get("fake")),
    ), read


def _parts(argument: Any, read: list[Node]) -> Iterator[Any]:
    if isinstance(argument, Node):
        read.append(argument)
        yield Node
    elif isinstance(argument, (tuple, list)):
        yield type(argument), len(argument)
        for part in argument:
            yield from _parts(part, read)
    elif isinstance(argument, dict):
        yield from _parts(list(argument.items()), read)
    elif isinstance(argument, slice):
        yield from _parts(
            (slice, argument.start, argument.stop, argument.step), read
        )
    else:
        yield type(argument), constant(argument)


def constant(value: Any) -> Any:
    """Equal for constants that are the same to every stage; 0.0 and -0.0 are not, and others are by identity."""
    if isinstance(
        value,
        (
            int,
            float,
            complex,
            str,
            bytes,
            torch.SymInt,
            torch.SymFloat,
            torch.SymBool,
        ),
    ):
        return repr(value)
    if value is None or isinstance(
        value, (torch.dtype, torch.layout, torch.memory_format, torch.device)
    ):
        return value
    return id(value)


def looks(fake: Any) -> Any:
    """All that stages ask of a value."""
    if isinstance(fake, (tuple, list)):
        return type(fake), tuple(map(looks, fake))
    if type(fake) is not FakeTensor:
        return type(fake), constant(fake)
    return (
        repr((tuple(fake.shape), fake.stride(), fake.storage_offset())), fake.dtype, fake.device,
        fake.requires_grad, _begins(fake), fake.is_neg(), fake.is_conj(), fake._is_view(),
    )  # fmt: skip


def _begins(fake: FakeTensor) -> Any:
    """Is it a leaf? PyTorch does not say so of some views whose base was written to: no other value is like them."""
    try:
        return fake.is_leaf
    except RuntimeError:
        return id(fake)


def _memory(fake: Any) -> Any:
    """What matters of the memory of an input: its size, and whose it is."""
    if type(fake) is not FakeTensor:
        return None
    return repr(fake.held), None if fake.owner is fake else id(fake.owner)
