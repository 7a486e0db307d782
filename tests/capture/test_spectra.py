"""Signals out of their spectra, of which PyTorch's native code asks whether the windows overlap."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import dovetail
from tests.autograd.comparing import Call, leaf, same

WINDOW = torch.hann_window(16)
CALLS: dict[str, dict[str, Any]] = {
    "as it comes": {},
    "of a length": {"length": 60},
    "normalized": {"normalized": True},
    "from the start": {"center": False, "window": WINDOW + 0.1},
    "a short window": {"win_length": 12, "window": torch.hann_window(12)},
    "of all frequencies": {"onesided": False},
}


def changed(x: torch.Tensor, call: dict[str, Any]) -> torch.Tensor:
    given = {"window": WINDOW, **call}
    there = {name: value for name, value in given.items() if name != "length"}
    return torch.istft(torch.stft(x, 16, 4, return_complex=True, **there) * 1.5, 16, 4, **given)


@pytest.mark.parametrize("shape", [(64,), (2, 64)], ids=str)
@pytest.mark.parametrize("name", CALLS)
def test_a_signal_and_its_gradient(name: str, shape: tuple[int, ...]) -> None:
    def program(call: Call) -> Any:
        x = leaf(*shape)
        y = call(x, CALLS[name])
        y.square().sum().backward()
        return y, y.stride(), x.grad

    same(program, changed, rtol=1e-4, atol=1e-5)


def test_lengths_that_vary_and_windows_that_do_not_overlap() -> None:
    compiled = dovetail.compile(changed, fullgraph=True)
    for size in (64, 80, 128):
        x = torch.randn(2, size)
        torch.testing.assert_close(compiled(x, {}), changed(x, {}), rtol=1e-4, atol=1e-5)
    with pytest.raises(RuntimeError, match="window overlap add min: 1"):
        compiled(torch.randn(2, 64), {"window": torch.zeros(16)})
