"""The digest of this package's own files, which every compilation on disk belongs to."""

from __future__ import annotations

import os

import pytest

from dovetail.kept import shelf


@pytest.fixture
def package(monkeypatch, tmp_path):
    monkeypatch.setenv("DOVETAIL_CACHE_DIR", str(tmp_path / "cache"))
    paths = [tmp_path / f"{name}.py" for name in "ab"]
    for path in paths:
        path.write_text(f"# {path.stem}")
    monkeypatch.setattr(shelf, "_files", lambda package: list(map(str, paths)))
    return paths


def test_files_that_nobody_wrote_to_are_not_read_again(package, monkeypatch):
    first, read = shelf._own_code(), shelf.Path.read_bytes
    monkeypatch.setattr(shelf.Path, "read_bytes", lambda path: path.suffix == ".py" and pytest.fail() or read(path))
    assert shelf._own_code() == first


def test_a_change_shows_whatever_the_times_say(package):
    first, times = shelf._own_code(), package[0].stat()
    package[0].write_text("# c")
    os.utime(package[0], ns=(times.st_atime_ns, times.st_mtime_ns))
    second = shelf._own_code()
    package[0].write_text("# a")
    assert second != first == shelf._own_code()
