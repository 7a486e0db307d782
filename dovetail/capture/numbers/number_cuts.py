"""Cuts a captured graph where it needs the value of a number that a tensor holds.

    k = x.argmax().item()           piece 0: x.argmax()
    y = x.sin() * k         ->      numbers: item, and what is computed with numbers alone
                                    piece 1: x.sin() * k, where k is an input

The pieces are graphs as those on both sides of a graph break, in the order of the program.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field

import torch
import torch.fx
from torch.fx import Node

from dovetail.capture.tables.graph_functions import RESHAPING, impure, number_places, runs_alone
from dovetail.ir.aten import Uncompiled
from dovetail.ir.nodes import name_of, writes
from dovetail.ir.piece_graph import piece_of
from dovetail.ir.records import dataclass
from dovetail.ops.fake import to_fake
from dovetail.ops.fake.symbolic.size_questions import symbolic
from dovetail.ops.fake.wrapped import is_wrapper

NUMBERS = (int, float, torch.SymInt)  # and bool, which no graph takes
_turn_grad = torch._C._set_grad_enabled


@dataclass
class Piece:
    """Nodes that are compiled together, then those that compute numbers for what follows. `grad`: the mode in which it
    begins. `alone`: it is one node, which only PyTorch computes."""

    grad: bool
    alone: bool = False
    nodes: list[Node] = field(default_factory=list)
    numbers: list[Node] = field(default_factory=list)
    inputs: list[Node] = field(default_factory=list)
    outputs: list[Node] = field(default_factory=list)

    def graph(self, root: torch.fx.GraphModule) -> torch.fx.GraphModule:
        """Of `inputs` it computes `outputs`."""
        return piece_of(root, self.inputs, self.nodes, self.outputs)

    def fakes(self) -> list:
        """What the inputs look like."""
        return [to_fake(f) if isinstance(f, torch.Tensor) else f for f in (n.meta["fake"] for n in self.inputs)]


_NUMBERS = "it computes with numbers that it takes out of tensors"


def takes_numbers_out(graph: torch.fx.Graph) -> bool:
    """Does the graph compute with numbers that tensors hold, other than sizes, or with others where no kernel can?"""
    return any(_takes_out(n) or _takes_alone(n) for n in _calls(graph))


def _takes_out(node: Node) -> bool:
    return node.target == "item" and not isinstance(node.meta.get("fake"), torch.SymInt)


def _takes_alone(node: Node) -> bool:
    """Is it given a number that varies where only PyTorch takes one?"""
    given = (*enumerate(node.args), *node.kwargs.items())
    values = (value for place, value in given if runs_alone(node) and place in number_places(name_of(node)))
    return any(isinstance(value, Node) and isinstance(value.meta.get("fake"), NUMBERS) for value in values)


def cut(graph_module: torch.fx.GraphModule) -> list[Piece]:
    """The pieces, in order. Raises Uncompiled where they cannot be compiled on their own. The graph steers neither
    PyTorch's engine nor its settings.

    What passes from one to another looks as it did at the end of capture: nothing may have changed that before.
    """
    graph = graph_module.graph
    if torch.is_inference_mode_enabled() and any(n.target is _turn_grad and n.args[0] for n in graph.nodes):
        raise Uncompiled("it turns the recording of gradients on in inference mode")
    wrappers = any(is_wrapper(n.meta.get("fake")) for n in graph.nodes)
    changing = _changing(graph)
    if wrappers or changing is not None:
        more = "has tensors that are made of others" if wrappers else "changes what tensors are between them"
        why = _NUMBERS if any(map(_takes_out, _calls(graph))) else "it is cut into parts"
        raise Uncompiled(f"{why}, and {more}", () if changing is None else changing.meta.get("stack", ()))
    _name_inputs(graph)
    pieces = _pieces(graph.nodes)
    _connect(pieces, graph)
    if not all(map(_may_pass, (n for piece in pieces if not piece.alone for n in piece.inputs))):
        raise Uncompiled("it is cut into parts, between which something passes that no graph can be given")
    return pieces


def _calls(graph: torch.fx.Graph) -> list[Node]:
    return [n for n in graph.nodes if n.op in ("call_function", "call_method")]


def _name_inputs(graph: torch.fx.Graph) -> None:
    """Have an input used by its own name behind a write to it too, so that it is no result of the piece that writes.

    before:  a = p.mul_(2)    | a.add_(1)
    after:   a = p.mul_(2)    | p.add_(1)
    """
    inputs = {id(n.meta["fake"]): n for n in graph.find_nodes(op="placeholder") if n.meta.get("fake") is not None}
    for node in _calls(graph):
        if writes(node) and (same := inputs.get(id(node.meta.get("fake")))) is not None:
            node.replace_all_uses_with(same)


def _changing(graph: torch.fx.Graph) -> Node | None:
    """The first node that may give a tensor which it writes to another shape, or a history."""
    grad = torch.is_grad_enabled()
    for node in _calls(graph):
        if node.target is _turn_grad:
            grad = bool(node.args[0])
        elif writes(node) and _changes_metadata(node, grad):
            return node
    return None


def _changes_metadata(node: Node, grad: bool) -> bool:
    """`grad`: are histories recorded there?"""
    fakes = [n.meta.get("fake") for n in node.all_input_nodes]
    grads = grad and any(isinstance(f, torch.Tensor) and f.requires_grad for f in fakes)
    return grads or name_of(node) in RESHAPING or node.kwargs.get("out") is not None


def _is_number(node: Node) -> bool:
    return node.op.startswith("call") and isinstance(node.meta.get("fake"), NUMBERS)


def _pieces(nodes: Iterable[Node]) -> list[Piece]:
    pieces = [Piece(torch.is_grad_enabled())]
    places: dict[Node, Piece] = {}
    grad = pieces[0].grad
    for node in nodes:
        if node.op in ("placeholder", "output"):
            continue
        piece = pieces[-1]
        if _is_number(node):
            piece.numbers.append(node)
            continue
        waits = any(used in piece.numbers for used in node.all_input_nodes)
        numbers = [*filter(_is_number, node.all_input_nodes)]
        alone = bool(numbers) and (runs_alone(node) or any(isinstance(n.meta["fake"], bool) for n in numbers))
        alone |= _takes_alone(node)
        if waits or alone or piece.alone or piece.numbers and impure(node) and node.target is not _turn_grad:
            pieces.append(piece := Piece(grad, alone))
        if node.target is _turn_grad:
            grad = bool(node.args[0])
            if grad and not piece.grad:  # no graph begins to record inside
                pieces.append(Piece(grad))
                continue
        of = node.all_input_nodes
        if len(of) == 1 and isinstance(of[0].meta.get("fake"), (tuple, list)):  # one of several results
            piece = places.get(of[0], piece)
        places[node] = piece
        piece.nodes.append(node)
    return pieces


def _connect(pieces: list[Piece], graph: torch.fx.Graph) -> None:
    """Inputs and outputs of the pieces. Where one has sizes that vary, it gets all that says what they are."""
    wanted = {*graph.output_node().all_input_nodes}
    telling = [n for n in graph.nodes if n.op == "placeholder" and _is_sized(n)]
    for piece in pieces:
        inside = {*piece.nodes}
        used = {n: None for node in piece.nodes for n in node.all_input_nodes if n not in inside}
        sized = any(map(_is_sized, (*used, *piece.nodes)))
        piece.inputs = [*(dict.fromkeys(telling) | used if sized else used)]
        telling += [n for n in piece.numbers if _is_sized(n)]
    for piece in reversed(pieces):
        wanted |= {used for node in piece.numbers for used in node.all_input_nodes}
        piece.outputs = [node for node in piece.nodes if node in wanted]
        wanted |= {*piece.inputs}


def _is_sized(node: Node) -> bool:
    """Has it sizes that differ between calls? Then the inputs of the graph say what they are."""
    fake = node.meta.get("fake")
    return isinstance(fake, torch.SymInt) or isinstance(fake, torch.Tensor) and symbolic((*fake.shape, *fake.stride()))


def _may_pass(node: Node) -> bool:
    """Can it be an input of a graph?"""
    fake = node.meta.get("fake")
    return node.op == "placeholder" or isinstance(fake, (torch.Tensor, *NUMBERS)) and not isinstance(fake, bool)
