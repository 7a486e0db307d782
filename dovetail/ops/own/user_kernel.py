"""`dovetail::user_kernel`: a launch of a Triton kernel of the program's, as one operator of a graph.

    add_kernel[grid](x, y, out, n, BLOCK=64)     user_kernel([out], [x, y], [n], [], code)

`written` are the tensors that the kernel may write to, `read` the other ones. Everything else that it is given stands
in `code`, which is JSON (`Launch`). Triton launches the kernel as in eager mode, with its own tuning and hooks.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import torch

from dovetail.ir.records import dataclass
from dovetail.ops.own.library import library


@dataclass(frozen=True)
class Launch:
    """`kernel` and OBJECT arguments are numbers of `OBJECTS`. An argument is a pair of its kind and where it is, or of
    VALUE and itself. `grids` has a grid for each of the kernel's configurations, or one with nothing for all."""

    kernel: int
    args: list
    kwargs: dict[str, Any]
    grids: list

    def text(self) -> str:
        return json.dumps(asdict(self))


WRITTEN, READ, SIZE, NUMBER, VALUE, OBJECT = "written", "read", "size", "number", "value", "object"

#: Kernels and other objects of the program's that launches name by their place here, for as long as the process lives.
OBJECTS: list[Any] = []
_places: dict[int, int] = {}
_launches: dict[str, Launch] = {}


def place_of(obj: Any) -> int:
    """The object's number."""
    if id(obj) not in _places:
        _places[id(obj)] = len(OBJECTS)
        OBJECTS.append(obj)
    return _places[id(obj)]


def _launch(
    written: Sequence[torch.Tensor], read: Sequence[torch.Tensor], sizes: Sequence[int], numbers: Sequence[float],
    code: str,
) -> None:  # fmt: skip
    launch = _launches.get(code)
    if launch is None:
        launch = _launches[code] = Launch(**json.loads(code))
    given = {WRITTEN: written, READ: read, SIZE: sizes, NUMBER: numbers, OBJECT: OBJECTS}

    def value(pair: Any) -> Any:
        kind, what = pair
        return what if kind == VALUE else given[kind][what]

    args = [value(pair) for pair in launch.args]
    kwargs = {name: value(pair) for name, pair in launch.kwargs.items()}
    grids = [(chosen, tuple(value(pair) for pair in grid)) for chosen, grid in launch.grids]
    OBJECTS[launch.kernel][_grid_of(grids)](*args, **kwargs)


def _grid_of(grids: list) -> Any:
    """What Triton takes as a grid: it asks by the configuration that it has chosen."""
    if len(grids) == 1:
        return grids[0][1]

    def grid(meta: Any) -> tuple[int, ...]:
        return next(found for chosen, found in grids if all(meta.get(k) == v for k, v in chosen.items()))

    return grid


def _nothing(*given: object) -> None:
    """Tensors without values pass."""


LIBRARY = library(__name__)
LIBRARY.define(
    "user_kernel(Tensor(a!)[] written, Tensor[] read, SymInt[] sizes, float[] numbers, str code) -> ()"
)
LIBRARY.impl("user_kernel", _launch, "CompositeExplicitAutograd")
LIBRARY.impl("user_kernel", _nothing, "Meta")
user_kernel: Any = torch.ops.dovetail.user_kernel.default
