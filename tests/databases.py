"""PyTorch's own databases of operators and optimizers."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
import unittest
import warnings

import torch


def load(name: str) -> types.ModuleType:
    """A module of `torch.testing._internal`.

    They want the package expecttest for one base class, which unittest's own can stand in for.
    """
    if "expecttest" not in sys.modules and importlib.util.find_spec("expecttest") is None:
        stand_in = types.ModuleType("expecttest")
        stand_in.TestCase = unittest.TestCase  # type: ignore[attr-defined]
        sys.modules["expecttest"] = stand_in
    default = torch.get_default_dtype()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = importlib.import_module(f"torch.testing._internal.{name}")
    torch.set_default_dtype(default)  # which PyTorch's own tests change
    for each in ("common_utils", "opinfo.core"):
        user = sys.modules.get(f"torch.testing._internal.{each}")
        if user is not None:  # looks for a TestCase, for longer than a test takes
            user.extract_test_fn = lambda: None  # type: ignore[attr-defined]
    return module
