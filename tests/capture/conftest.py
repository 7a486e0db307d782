"""Capture needs torch alone; where the code generator's packages are missing, the package's own __init__ is skipped."""

from __future__ import annotations

import importlib.util
import sys
import types
from pathlib import Path

if importlib.util.find_spec("llvmlite") is None and "dovetail" not in sys.modules:
    package = types.ModuleType("dovetail")
    package.__path__ = [str(Path(__file__).resolve().parents[2] / "dovetail")]
    sys.modules["dovetail"] = package
