"""`dovetail doctor` in the process that runs the tests, and programs in forks, which find PyTorch imported.

What is about the start of a process is not tried here: that the doctor sees when a program imports PyTorch, what it
hands on, and how it ends what it has started. For that there is `ladder.Ladder` itself.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import sys
from collections.abc import Mapping
from typing import IO

from dovetail.commands import ladder, rung
from tests import forks


class InForks(ladder.Ladder):
    def _ended(self, environment: Mapping[str, str], errors: IO[bytes]) -> int | None:
        told = json.loads(environment[rung.VARIABLE]) | {"doctor": forks.parent()}
        places = os.pathsep.join((str(forks.ROOT), environment["PYTHONPATH"]))
        done = forks.python(
            "-m", "tests.commands.doctors", *self.command, cwd=os.getcwd(),
            env={**environment, rung.VARIABLE: json.dumps(told), "PYTHONPATH": places},
        )  # fmt: skip
        errors.write(done.stderr.encode())
        return done.returncode


if __name__ == "__main__":
    runpy.run_path(str(ladder.STARTUP / "sitecustomize.py"))
    importlib.import_module("dovetail.commands.rung").begin()
    forks.run(*sys.argv[1:])
