"""The page of operators: it lists every row, and every row is of an operator."""

from __future__ import annotations

import torch

from dovetail.ops.own import check  # defines operators that have rows
from dovetail.ops.table import ROWS
from tests.versions import since

from .operators import PAGE, page

OWN = check


def test_the_page_is_what_the_rows_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `python -m tests.documents.operators`"


@since(13, "rows of newer operators are never asked for")
def test_every_row_is_of_an_operator() -> None:
    unknown = []
    for name in ROWS:
        space, _, rest = name.partition("::")
        packet, _, overload = rest.partition(".")
        found = getattr(getattr(torch.ops, space), packet, None)
        if found is None or overload and overload not in found.overloads():
            unknown.append(name)
    assert unknown == []
