"""`dovetail::template`: a launch of a kernel that a template has written, as one operator of a graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dovetail.ir.checks import CHECKING
from dovetail.ir.template import Template, template_of
from dovetail.loading import loaded
from dovetail.ops.fake.result_spec import Spec
from dovetail.ops.fake.symbolic.size_questions import sizes_behind
from dovetail.ops.fake.symbolic.symint import dim_of, symint
from dovetail.ops.lowering.registry import Rows
from dovetail.ops.own.library import library

ROWS = Rows()
LIBRARY = library(__name__)
_NAMES = ("template", CHECKING)
for _name in _NAMES:
    LIBRARY.define(f"{_name}(Tensor[] given, str code, SymInt[] sizes=[]) -> Tensor[]")
template: Any = torch.ops.dovetail.template.default
#: The same of a kernel that may find out that an index is out of bounds.
checking_template: Any = torch.ops.dovetail.checking_template.default


def launched(given: list[torch.Tensor], code: str, sizes: Sequence[int] = ()) -> list[torch.Tensor]:
    """Results of the kernel; `sizes` are values of the template's symbols. Raises CheckFailed."""
    values = tuple(sizes)
    found: list[torch.Tensor] = loaded(template_of(code, values).runner).run(given, code, values)
    return found


def begin(made: Template, device: torch.device) -> None:
    """Let the kernel be compiled before it is launched."""
    loaded(made.runner).begin(made, device)


def _specs(given: list[torch.Tensor], code: str, sizes: Sequence[Any] = ()) -> tuple[Spec, ...]:
    made = template_of(code, tuple(map(dim_of, sizes))).results
    behind: Any = sizes_behind(sizes)

    def plain(numbers: Sequence[Any]) -> tuple:
        return tuple(symint(behind, n) for n in numbers)

    return tuple(Spec(plain(r.sizes), plain(r.strides), r.type, given[0].device) for r in made)


def _shapes(given: list[torch.Tensor], code: str, sizes: Sequence[int] = ()) -> list[torch.Tensor]:
    made: list[Any] = list(template_of(code, tuple(sizes)).results)
    return [given[0].new_empty_strided(r.sizes, r.strides, dtype=r.type) for r in made]


for _name in _NAMES:
    ROWS.library(
        f"dovetail::{_name}", shape=_specs, symbolic_shape=_specs, callee=launched, fresh=True,
        may_raise=_name == CHECKING,
    )  # fmt: skip
    LIBRARY.impl(_name, launched, "CompositeExplicitAutograd")
    LIBRARY.impl(_name, _shapes, "Meta")
