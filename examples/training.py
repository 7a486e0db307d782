"""Train a small network: the whole step, optimizer included, is one compiled graph.

Run: python examples/training.py
"""

from __future__ import annotations

import torch

import dovetail


def main() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.GELU(), torch.nn.Linear(64, 3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=200)

    @dovetail.compile(fullgraph=True)
    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    teacher = torch.randn(8, 3)
    for number in range(200):
        x = torch.randn(256, 8)
        loss = step(x, (x @ teacher).argmax(dim=1))
        schedule.step()  # another learning rate: the same code
        if number % 50 == 0:
            print(f"step {number:3d}  loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
