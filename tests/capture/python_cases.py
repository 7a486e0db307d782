"""What the test_python_* files share: one-line functions of two 4x4 tensors, captured whole and compared with eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tests.capture.harness import check


class Cases(dict[str, Callable[..., Any]]):
    """Functions by name; two of one name would hide each other."""

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        assert function.__name__ not in self, function.__name__
        self[function.__name__] = function
        return function

    def check(self, name: str) -> None:
        torch.manual_seed(0)
        with torch.no_grad():
            check(self[name], torch.randn(4, 4), torch.randn(4, 4))
