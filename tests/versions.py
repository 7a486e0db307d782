"""What tests may not ask of some versions of PyTorch, because those cannot do it themselves."""

from __future__ import annotations

import pytest
import torch

VERSION = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])


def since(minor: int, reason: str) -> pytest.MarkDecorator:
    """Skip with PyTorch versions before 2.`minor`, which differ for `reason`."""
    return pytest.mark.skipif(VERSION < (2, minor), reason=reason)
