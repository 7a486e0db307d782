from __future__ import annotations

import json
import os
from pathlib import Path

from tests.distributed.elastic import LIMIT, RUNS
from tests.distributed.ranks import IMPORTED
from tests.forks import PLACES, python
from tests.versions import VERSION


def test_runs_of_other_sizes_use_what_is_kept(tmp_path: Path) -> None:
    """And compute what they compute in eager mode."""
    settings = os.environ | {"PYTHONPATH": PLACES, "GLOO_SOCKET_IFNAME": "lo"}
    words = "-m", "tests.distributed.elastic", str(tmp_path)
    done = python(*words, env=settings, timeout=len(RUNS) * LIMIT, imported=IMPORTED)
    assert done.returncode == 0, done.stdout + done.stderr
    first, again, larger = (list(zip(*run)) for run in json.loads(done.stdout))
    assert max(larger[0]) < max(first[0]) / 2
    assert set(again[1]) == {int(VERSION < (2, 13))}  # where compilations with distributed tensors are not kept
    assert set(first[1]) == set(larger[1]) == {1}  # a mesh of other ranks is another
