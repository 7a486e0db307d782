"""What every test starts from: the same seed, and kernels compiled by this run alone."""

from __future__ import annotations

import fcntl
import gc
import importlib.util
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import pytest

os.environ.setdefault("DOVETAIL_STRICT", "1")  # read when dovetail is imported: what fails inside must not go unnoticed
os.environ.setdefault("DOVETAIL_WARM_START", "0")  # each test compiles; tests/kept turns it on
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # each process of a test would compile the package anew: 0.7 s
sys.dont_write_bytecode = False
HAS_TORCH = importlib.util.find_spec("torch") is not None


@pytest.fixture(autouse=True, scope="session")
def _own_cache() -> Iterator[None]:
    """A folder of this run's own, which child processes share; a user's cache is neither read nor filled."""
    with tempfile.TemporaryDirectory(prefix="kernels") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, "DOVETAIL_CACHE_DIR", folder)
        yield


@pytest.fixture(autouse=True, scope="session")
def _little_in_the_background() -> None:
    if HAS_TORCH:
        from tests import background

        background.quick_seeds()
        background.seldom_collections()


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[], Any]], Any]:
    """`once(name, make)`: what `make` gives, as JSON keeps it, made by one of pytest's workers for all of them."""
    folder = tmp_path_factory.getbasetemp()
    folder = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder

    def found(name: str, make: Callable[[], Any]) -> Any:
        kept = folder / f"{name}.json"
        with open(folder / f"{name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not kept.exists():
                kept.write_text(json.dumps(make()))
        return json.loads(kept.read_text())

    return found


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """Tests that draw random inputs draw the same ones however they are ordered."""
    if HAS_TORCH:
        import torch

        torch.manual_seed(0)


@pytest.fixture(scope="module")
def small_heap() -> None:
    """For tests that collect garbage often: what others have left in the process is not looked through each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def threads_put_back() -> Iterator[None]:
    """For tests that set the number of threads."""
    import torch

    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)
