"""What every test starts from: the same seed, and the compiler's state as if freshly imported."""

from __future__ import annotations

import importlib.util

import pytest

HAS_TORCH = importlib.util.find_spec("torch") is not None


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """Tests that draw random inputs draw the same ones however they are ordered."""
    if HAS_TORCH:
        import torch

        torch.manual_seed(0)
