"""Python runs this first in every process of a program that `dovetail doctor` runs: see `dovetail.commands.rung`.

This folder is the first on their path. What the machine has under this name runs too.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import os
import random
import sys
from typing import Any

NAME = "sitecustomize"


class AfterTorch(importlib.abc.MetaPathFinder):
    """Lets `rung.begin` run as soon as the program has imported torch; a program that never does is left alone."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        run: Any = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            run(module)
            importlib.import_module("dovetail.commands.rung").begin()

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


here = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [path for path in sys.path if os.path.abspath(path or ".") != here]
shadowing = sys.modules.pop(NAME, None)
if importlib.util.find_spec(NAME) is not None:
    importlib.import_module(NAME)
elif shadowing is not None:
    sys.modules[NAME] = shadowing
random.seed(int(os.environ.get("RANK", "0")))  # before the program can
sys.meta_path.insert(0, AfterTorch())
