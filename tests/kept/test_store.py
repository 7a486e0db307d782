"""The folder on disk: bounded, least used first, and harmless when damaged."""

from __future__ import annotations

import os

from dovetail.runtime.store import Store
from tests.kept import processes


def test_what_was_used_least_recently_goes_first(tmp_path):
    store = Store(tmp_path)
    keys = [f"{k:064x}" for k in range(10)]
    for age, key in enumerate(keys):
        store.put(key, bytes(1000))
        path = tmp_path / key[:2] / key
        os.utime(path, (0, 10_000 + age))
    assert store.get(keys[0]) is not None  # used now
    size = sum(path.stat().st_size for path in store.files())
    assert store.trim(size) == 0
    assert store.trim(size // 2) == 6
    assert [key for key in keys if store.get(key) is not None] == [keys[0], *keys[7:]]


PROGRAM = """
def f(x):
    return x.sin() * 3
show(dovetail.compile(f)(torch.ones(4)))
"""


def test_damaged_files_are_not_used(tmp_path):
    first = processes.run(PROGRAM, tmp_path)
    paths = list(Store(tmp_path).files())
    for path in paths:
        path.write_bytes(path.read_bytes()[:-1])
    again = processes.run(PROGRAM, tmp_path)
    assert again.shown == first.shown and again.compiled == 1
    assert processes.run(PROGRAM, tmp_path).restored == 1
    for path, other in zip(paths, reversed(paths), strict=True):
        path.write_bytes(other.read_bytes())
    assert processes.run(PROGRAM, tmp_path).shown == first.shown
