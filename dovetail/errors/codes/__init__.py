"""Every reason why a graph ends or a function runs eagerly, by its stable code.

`docs/graph-breaks.md` is made from this table, and `dovetail help CODE` prints a row. A message adds what only the
place knows: names, types, the line.
"""

from __future__ import annotations

from dovetail.errors.codes.code import Code
from dovetail.errors.codes.of_programs import (
    ASKED_FOR,
    CHECKS_OF_COMPILED_CODE,
    EXPORT,
    STATE_OF_THE_PROCESS,
    TRANSFORMS_AND_SUBGRAPHS,
    WHERE_A_GRAPH_CAN_END,
)
from dovetail.errors.codes.of_python import NATIVE_CODE, PYTHON
from dovetail.errors.codes.of_tensors import (
    OPERATORS_IN_FUNCTIONAL_FORM,
    SIZES,
    TENSORS_AND_ATTRIBUTES,
    VALUES_OF_TENSORS,
)

SECTIONS: dict[str, dict[str, Code]] = {
    "Values of tensors": VALUES_OF_TENSORS,
    "Tensors and their attributes": TENSORS_AND_ATTRIBUTES,
    "Native code": NATIVE_CODE,
    "Python": PYTHON,
    "State of the process": STATE_OF_THE_PROCESS,
    "Asked for": ASKED_FOR,
    "Where a graph can end": WHERE_A_GRAPH_CAN_END,
    "Transforms and subgraphs": TRANSFORMS_AND_SUBGRAPHS,
    "Sizes": SIZES,
    "Export": EXPORT,
    "Checks of compiled code": CHECKS_OF_COMPILED_CODE,
    "Operators in functional form": OPERATORS_IN_FUNCTIONAL_FORM,
}

CODES: dict[str, Code] = {code: row for section in SECTIONS.values() for code, row in section.items()}


def explained_by(code: str) -> str:
    """The command that explains the code: the page is not where the package is installed."""
    return f"dovetail help {code}"
