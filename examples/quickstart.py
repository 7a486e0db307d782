"""Compile a function and a model, compare with eager, and look at what was compiled.

Run: python examples/quickstart.py
"""

from __future__ import annotations

import torch
from torch import nn

import dovetail


@dovetail.compile
def normalised(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Three operators that become one kernel: each row is read once."""
    z = nn.functional.gelu(x) + torch.sin(x)
    return torch.softmax(nn.functional.layer_norm(z, z.shape[-1:], weight, bias), dim=-1)


@torch.no_grad()
def main() -> None:
    x = torch.randn(512, 1024)
    weight, bias = torch.randn(1024), torch.randn(1024)
    rows = normalised(x, weight, bias)
    print("rows sum to one:", torch.allclose(rows.sum(-1), torch.ones(512), atol=1e-5))

    model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 10)).eval()
    compiled = dovetail.compile(model)
    batch = torch.randn(32, 64)
    print("largest difference from eager:", (compiled(batch) - model(batch)).abs().max().item())
    print("still the same class:", isinstance(compiled, nn.Sequential))
    print(dovetail.explain(model)(batch))


if __name__ == "__main__":
    main()
