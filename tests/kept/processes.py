"""Programs that are run in processes of their own, which share a folder of compilations."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tests.forks import ROOT, python

#: What a first compilation imports, so that each process need not.
IMPORTED = ("torch", "dovetail.pipeline", "tests.kept.outcomes")


class Outcome:
    """`shown` are the values, `compiled` how many compilations ran stages, `restored` how many did not."""

    def __init__(self, found: dict[str, Any]) -> None:
        assert "error" not in found, found["error"]
        self.shown, self.stages = found["shown"], found["stages"]
        captures = ["capture" in stages for stages in self.stages]
        self.compiled, self.restored = sum(captures), len(captures) - sum(captures)


def run(program: str, cache: Path, warm: bool = True, **environment: str) -> Outcome:
    return Outcome(run_all([program], cache, warm, **environment)[0])


def run_all(programs: list[str], cache: Path, warm: bool = True, **environment: str) -> list[dict[str, Any]]:
    """In one process, one after the other: what an `Outcome` is made of, for each."""
    own = {"PYTHONPATH": str(ROOT), "DOVETAIL_CACHE_DIR": str(cache), "WARM": str(int(warm))}
    done = python(
        "-c", "from tests.kept.outcomes import tell; tell()",
        given=json.dumps(programs), env=os.environ | own | environment, imported=IMPORTED,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found
