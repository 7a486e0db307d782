"""`DistributedDataParallel` with compiled models, beside eager mode."""

from __future__ import annotations

import pytest

from tests.distributed.ranks import cases_of, outcomes

PROGRAM = "parallel_data"


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return outcomes(PROGRAM, tmp_path_factory.mktemp(PROGRAM))


@pytest.mark.parametrize("case", cases_of(PROGRAM))
def test_replicas_train_as_in_eager_mode(told: dict[str, str], case: str) -> None:
    assert not told[case], told[case]
