"""A graph's module whose Python code is made when it is first run or looked at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.fx._lazy_graph_module import _LazyGraphModule


class LazyGraphModule(_LazyGraphModule):
    """PyTorch's runs itself as a module when its code is there, past `forward`: hooks of all modules would run, too."""

    def _lazy_forward(self, *args: Any, **kwargs: Any) -> Any:
        self.real_recompile()
        return type(self).forward(self, *args, **kwargs)

    forward = _lazy_forward


def python_of(graph: Any) -> Callable[..., Any]:
    """The function of what runs a graph, whose code is there."""
    if hasattr(graph, "real_recompile"):
        graph.real_recompile()
    found: Callable[..., Any] = graph.forward
    return found
