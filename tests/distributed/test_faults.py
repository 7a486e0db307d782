"""A sample of `faults.py`: random programs of two ranks, one of which recompiles, fails, waits or is killed."""

from __future__ import annotations

from tests.distributed.ranks import IMPORTED
from tests.forks import python


def test_nobody_hangs_and_nothing_is_wrong() -> None:
    done = python("-m", "tests.distributed.faults", "--runs", "4", "--first", "158", imported=IMPORTED)
    assert done.returncode == 0, done.stdout + done.stderr
