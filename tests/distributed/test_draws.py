"""A sample of `draws.py`: random training programs of several ranks."""

from __future__ import annotations

from tests.distributed.ranks import IMPORTED
from tests.forks import python


def test_losses_and_parameters_are_eagers() -> None:
    """Of layers that are spread along sequences and sharded, as one compiled model."""
    done = python("-m", "tests.distributed.draws", "--runs", "1", "--first", "34", imported=IMPORTED)
    assert done.returncode == 0 and "of 0 eager" in done.stdout, done.stdout + done.stderr
