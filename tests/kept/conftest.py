from __future__ import annotations

from collections.abc import Iterator

import pytest

from .processes import Processes


@pytest.fixture(scope="package")
def processes() -> Iterator[Processes]:
    made = Processes()
    yield made
    made.close()
