"""Programs that are run in processes of their own, which share a folder of compilations."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


class Outcome:
    """`shown` are the values, `compiled` how many compilations ran stages, `restored` how many did not."""

    def __init__(self, found: dict[str, Any]) -> None:
        assert "error" not in found, found["error"]
        self.shown, self.stages = found["shown"], found["stages"]
        captures = ["capture" in stages for stages in self.stages]
        self.compiled, self.restored = sum(captures), len(captures) - sum(captures)


class Processes:
    """Starts them, as forks of one process."""

    def __init__(self) -> None:
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        pipe = subprocess.PIPE
        command = [sys.executable, "-m", "tests.kept.zygote"]
        self.parent = subprocess.Popen(command, env=env, cwd=ROOT, stdin=pipe, stdout=pipe, text=True)

    def run(self, program: str, cache: Path, warm: bool = True, **environment: str) -> Outcome:
        return Outcome(self.run_all([program], cache, warm, **environment)[0])

    def run_all(
        self, programs: list[str], cache: Path, warm: bool = True, **environment: str
    ) -> list[dict[str, Any]]:
        """In one process, one after the other: what an `Outcome` is made of, for each."""
        given = {"DOVETAIL_CACHE_DIR": str(cache), "WARM": str(int(warm)), **environment}
        assert self.parent.stdin is not None and self.parent.stdout is not None
        self.parent.stdin.write(json.dumps({"programs": programs, "environment": given}) + "\n")
        self.parent.stdin.flush()
        found: list[dict[str, Any]] = json.loads(self.parent.stdout.readline())
        return found

    def close(self) -> None:
        self.parent.communicate()
