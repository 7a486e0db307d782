"""Settings of tiles differ from test to test: no kernel of another test's is taken."""

from __future__ import annotations

import importlib

import pytest


@pytest.fixture(autouse=True)
def new_kernels():
    kept = importlib.import_module("dovetail.codegen.gpu.kernel").MADE
    kept.clear()
    yield
    kept.clear()
