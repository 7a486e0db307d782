"""`dovetail::template`: a launch of a kernel that a template has written, as one operator of a graph."""

from __future__ import annotations

from typing import Any

import torch

from dovetail.ir.template import template_of
from dovetail.loading import loaded
from dovetail.ops.fake.result_spec import Spec
from dovetail.ops.lowering.registry import Rows
from dovetail.ops.own.library import library

ROWS = Rows()
LIBRARY = library(__name__)
LIBRARY.define("template(Tensor[] given, str code) -> Tensor[]")
template: Any = torch.ops.dovetail.template.default


def launched(given: list[torch.Tensor], code: str) -> list[torch.Tensor]:
    """Results of the kernel on tensors of a GPU."""
    found: list[torch.Tensor] = loaded("dovetail.runtime.gpu.templates").run(given, code)
    return found


def begin(code: str, device: torch.device) -> None:
    """Let the kernel be compiled before it is launched."""
    loaded("dovetail.runtime.gpu.templates").begin(code, device)


def _specs(given: list[torch.Tensor], code: str) -> tuple[Spec, ...]:
    return tuple(Spec(r.sizes, r.strides, r.type, given[0].device) for r in template_of(code).results)


def _shapes(given: list[torch.Tensor], code: str) -> list[torch.Tensor]:
    made = template_of(code).results
    return [given[0].new_empty_strided(r.sizes, r.strides, dtype=r.type) for r in made]


ROWS.library("dovetail::template", shape=_specs, callee=launched, fresh=True)
LIBRARY.impl("template", launched, "CompositeExplicitAutograd")
LIBRARY.impl("template", _shapes, "Meta")
