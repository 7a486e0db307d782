"""The programs of `programs/`, in which compiled models train beside the same ones in eager mode."""

from __future__ import annotations

import functools
import importlib.util

import pytest

from tests.distributed.ranks import BACKEND, WORLD, cases_of, outcomes
from tests.forks import python

PROGRAMS = ("parallel_data", "sharded", "flat", "tensors", "differing", "pipelines", "loops", "language")
if importlib.util.find_spec("transformers"):
    PROGRAMS += ("losses",)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory, once):
    return functools.cache(lambda program: once(program, lambda: outcomes(program, tmp_path_factory.mktemp(program))))


@pytest.fixture(scope="module", autouse=True)
def devices() -> None:
    if BACKEND == "nccl":
        found = int(python("-c", "import torch; print(torch.cuda.device_count())").stdout)
        if found < WORLD:
            pytest.skip(f"{WORLD} CUDA devices are needed, and PyTorch sees {found}")


@pytest.mark.parametrize(
    ("program", "case"),
    [pytest.param(p, case, marks=pytest.mark.xdist_group(p)) for p in PROGRAMS for case in cases_of(p)],
)
def test_ranks_compute_what_they_compute_in_eager_mode(told, program: str, case: str) -> None:
    assert not told(program)[case], told(program)[case]
