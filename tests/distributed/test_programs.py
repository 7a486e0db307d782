"""The programs of `programs/`, in which compiled models train beside the same ones in eager mode."""

from __future__ import annotations

import functools

import pytest

from tests.distributed.ranks import cases_of, outcomes

PROGRAMS = ("parallel_data", "sharded", "flat", "tensors", "differing", "pipelines")


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory):
    return functools.cache(lambda program: outcomes(program, tmp_path_factory.mktemp(program)))


@pytest.mark.parametrize(("program", "case"), [(p, case) for p in PROGRAMS for case in cases_of(p)])
def test_ranks_compute_what_they_compute_in_eager_mode(told, program: str, case: str) -> None:
    assert not told(program)[case], told(program)[case]
