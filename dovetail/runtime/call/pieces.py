"""The Python text that runs the pieces of a graph (`capture/numbers/number_cuts.py`), and computes numbers between.

def call(x):
    argmax, = piece0(x)
    item = argmax.item()
    del argmax
    mul, = piece1(x, item)
    return (mul,)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import torch.fx

from dovetail.ir.records import dataclass
from dovetail.runtime.call.program import LASTING, execute

_numbers = count()


@dataclass(frozen=True)
class PiecesText:
    """`functions` are those that it computes numbers by; from line `lasting` on, what has been done stays done."""

    text: str
    functions: dict[str, Any]
    lasting: int


def print_pieces(graph: torch.fx.Graph, pieces: Sequence[Any], shown: int | None, whole: bool) -> PiecesText:
    """What computes the graph by its pieces. `shown`: the first piece that does what shows; is it known only of the
    `whole` of it whether it has?"""
    functions: dict[str, Any] = {}
    lines: list[str] = []
    ends: list[int] = []  # for each piece the number of the line that runs it
    turned = [n.args[0] for n in graph.nodes if n.target is torch._C._set_grad_enabled]
    for k, piece in enumerate(pieces):
        if turned:
            lines.append(f"set_grad({piece.grad})")
        if piece.outputs:
            results = "".join(f"{n.name}, " for n in piece.outputs)
            lines.append(f"{results}= piece{k}({_listed(piece.inputs)})")
        elif piece.nodes:
            lines.append(f"piece{k}({_listed(piece.inputs)})")
        ends.append(len(lines) + 1)
        lines += [_number(node, functions) for node in piece.numbers]
        lines += _dropped(pieces, k, graph)
    lines += [f"set_grad({turned[-1]})"] if turned else []
    lines.append(f"return {_text(graph.output_node().args[0])}")
    given = _listed([n for n in graph.nodes if n.op == "placeholder"])
    text = "\n".join([f"def call({given}):", *(f"    {line}" for line in lines), ""])
    return PiecesText(text, functions, len(lines) + 2 if shown is None else ends[shown] + (not whole))


def load_pieces(printed: PiecesText, compiled: Sequence[Callable[..., Any]]) -> Callable[..., Any]:
    """A callable of the graph's inputs, which calls a callable for each piece."""
    names = {"set_grad": torch._C._set_grad_enabled, LASTING: {"call": printed.lasting}, **printed.functions}
    names |= {f"piece{k}": run for k, run in enumerate(compiled)}
    execute(printed.text, f"<dovetail pieces {next(_numbers)}>", names, name="call")
    return names.pop("call")


def _listed(nodes: Sequence[Any]) -> str:
    return ", ".join(node.name for node in nodes)


def _dropped(pieces: Sequence[Any], k: int, graph: torch.fx.Graph) -> list[str]:
    """Gives back the memory of what nothing uses any more."""
    later = {used for piece in pieces[k + 1 :] for used in piece.inputs}
    later |= {used for piece in pieces[k + 1 :] for node in piece.numbers for used in node.all_input_nodes}
    later |= {*graph.output_node().all_input_nodes}
    seen = [*pieces[k].outputs, *(n for n in pieces[k].inputs if n.op.startswith("call"))]
    gone = [n for n in seen if n not in later]
    return [f"del {_listed(gone)}"] if gone else []


def _number(node: torch.fx.Node, functions: dict[str, Any]) -> str:
    """`item = x.item()`"""
    args = [_text(a) for a in node.args] + [f"{k}={_text(v)}" for k, v in node.kwargs.items()]
    if node.op == "call_method":
        return f"{node.name} = {args[0]}.{node.target}({', '.join(args[1:])})"
    function = f"function{len(functions)}"
    functions[function] = node.target
    return f"{node.name} = {function}({', '.join(args)})"


def _text(value: Any) -> str:
    if isinstance(value, torch.fx.Node):
        return value.name
    if isinstance(value, tuple | list):
        inside = "".join(f"{_text(v)}, " for v in value)
        return f"({inside})" if isinstance(value, tuple) else f"[{inside}]"
    return repr(value)
