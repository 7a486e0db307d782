"""`config.repro_level = 4`: each call of a graph is compared with PyTorch's, and a wrong value leaves a repro."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dovetail.diagnostics.values import WrongValues, wrong


def compared(
    compiled: Callable[..., Any], graph: Callable[..., Any], report: Callable[[Exception, Sequence[Any]], None]
) -> Callable[..., Any]:
    """`compiled`, except that where it is wrong `report` is told and the graph's own results are given.

    Both run on copies first, gradients included, so that the program sees one run and one draw of random numbers.
    """

    def call(*inputs: Any) -> Any:
        words = wrong(graph, compiled, inputs)
        if not words:
            return compiled(*inputs)
        report(WrongValues(words), inputs)
        return graph(*inputs)

    return call
