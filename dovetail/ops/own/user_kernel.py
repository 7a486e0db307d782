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
from dovetail.ops.fake.result_spec import Spec
from dovetail.ops.lowering.registry import Rows
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


# ---------------------------------------------------------------- in graphs without writes


def functional(written: Sequence[torch.Tensor], unset: Sequence[int]) -> tuple[list[int], list[str]]:
    """How `user_kernel_functional` is told what it makes: sizes and strides one after the other, and of each tensor
    its rank and type, and whether its elements are unset."""
    layout = [n for t in written for n in (*t.shape, *t.stride())]
    kinds = [f"{t.dim()} {str(t.dtype).removeprefix('torch.')} {int(k in unset)}" for k, t in enumerate(written)]
    return layout, kinds


def _made(layout: Sequence[int], kinds: Sequence[str]) -> list[tuple[Sequence[int], Sequence[int], torch.dtype, bool]]:
    found, place = [], 0
    for kind in kinds:
        rank, dtype, unset = kind.split()
        middle, end = place + int(rank), place + 2 * int(rank)
        found.append((layout[place:middle], layout[middle:end], getattr(torch, dtype), unset == "1"))
        place = end
    return found


def _on_copies(
    given: Sequence[torch.Tensor], read: Sequence[torch.Tensor], sizes: Sequence[int], numbers: Sequence[float],
    code: str, layout: Sequence[int], kinds: Sequence[str], device: torch.device,
) -> list[torch.Tensor]:  # fmt: skip
    """`given` are the values of what is written to, but for tensors whose elements are unset."""
    written, values = [], iter(given)
    for shape, strides, dtype, unset in _made(layout, kinds):
        written.append(torch.empty_strided(shape, strides, dtype=dtype, device=device))
        if not unset:
            written[-1].copy_(next(values))
    _launch(written, read, sizes, numbers, code)
    return written


def _specs(
    given: list, read: list, sizes: list, numbers: list, code: str, layout: list, kinds: list, device: torch.device
) -> tuple[Spec, ...]:  # fmt: skip
    return tuple(Spec(tuple(n), tuple(m), dtype, device) for n, m, dtype, _ in _made(layout, kinds))


def _shapes(
    given: list, read: list, sizes: list, numbers: list, code: str, layout: list, kinds: list, device: torch.device
) -> list[torch.Tensor]:  # fmt: skip
    return [torch.empty_strided(n, m, dtype=dtype, device="meta") for n, m, dtype, _ in _made(layout, kinds)]


ROWS = Rows()
LIBRARY = library(__name__)
_GIVEN = "Tensor[] read, SymInt[] sizes, float[] numbers, str code"
LIBRARY.define(f"user_kernel(Tensor(a!)[] written, {_GIVEN}) -> ()")
LIBRARY.define(
    f"user_kernel_functional(Tensor[] given, {_GIVEN}, SymInt[] layout, str[] kinds, Device device) -> Tensor[]"
)
LIBRARY.impl("user_kernel", _launch, "CompositeExplicitAutograd")
LIBRARY.impl("user_kernel", _nothing, "Meta")
LIBRARY.impl("user_kernel_functional", _on_copies, "CompositeExplicitAutograd")
LIBRARY.impl("user_kernel_functional", _shapes, "Meta")
user_kernel: Any = torch.ops.dovetail.user_kernel.default
user_kernel_functional: Any = torch.ops.dovetail.user_kernel_functional.default
ROWS.library("dovetail::user_kernel_functional", shape=_specs, symbolic_shape=_specs, callee=_on_copies, fresh=True)
