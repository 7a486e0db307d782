"""A backend of one's own: it receives the captured graph and returns a callable.

Run: python examples/custom_backend.py
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch

import dovetail


def counting(graph: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
    """Print which functions the graph calls, then run it as it is."""
    calls = Counter(str(node.target) for node in graph.graph.nodes if node.op.startswith("call"))
    for name, count in calls.most_common():
        print(f"{count:3} x {name}")
    return graph.forward


@torch.no_grad()
def main() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)).eval()
    print(dovetail.compile(model, backend=counting)(torch.randn(1, 8)))


if __name__ == "__main__":
    main()
