"""What does not pass, and why. A name without a dtype covers all of an operator's dtypes.

`cases` is a regular expression for the cases that may fail; everything else of the entry must pass.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Reason:
    text: str
    cases: str = ""  # empty: all


EXCEPTIONS: dict[str, Reason] = {}


def excused(entry: str, case: str) -> str | None:
    """The reason why this case of this entry may fail."""
    reason = EXCEPTIONS.get(entry) or EXCEPTIONS.get(entry.partition("[")[0])
    if reason is None or not re.search(reason.cases, case):
        return None
    return reason.text
