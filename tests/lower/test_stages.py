"""Programs in which sizes are found out. The meta device stands for the host, so that the CPU is one to wait for."""

from __future__ import annotations

import pytest
import torch

import dovetail
from dovetail.lower import stages


def test_a_device_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """For all numbers that are known at a time, as the sizes of what experts are given."""
    waits = []
    numbers = stages.numbers
    monkeypatch.setattr(stages, "numbers", lambda tensors: waits.append(len(tensors)) or numbers(tensors))
    monkeypatch.setattr(stages, "HOST", torch.device("meta"))

    def experts(x, counts):
        for _ in range(2):
            parts = x.split((counts + 0).tolist())
            x = torch.cat([part * (k + 1) for k, part in enumerate(parts)])
            counts = counts.flip(0)
        return x

    compiled = dovetail.compile(experts, fullgraph=True)
    for counts in ([3, 1, 4, 0], [2, 2, 2, 2], [0, 0, 0, 8]):
        given = torch.randn(8, 3), torch.tensor(counts)
        waits.clear()
        torch.testing.assert_close(compiled(*given), experts(*given), rtol=0, atol=0)
        assert sum(waits) == 8 and len(waits) <= 2
    with pytest.raises(RuntimeError, match="to sum exactly to 8"):
        compiled(torch.randn(8, 3), torch.tensor([3, 3, 3, 3]))
