"""Values that contain symbolic sizes, computed from a call's inputs.

    (permute, [s0, 4*s1])    ->    def now(inputs, results): s0 = inputs[0].size(0); ...; return (c0, [s0, 4*s1, ])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dovetail.ops.fake.symbolic.symbols_in_graph import sizes_in, told_by
from dovetail.ops.fake.symbolic.symint import dim_of, is_size


def at_call(
    value: Any, fakes: Sequence[Any], results: Sequence[Any] = ()
) -> Callable[[Sequence[Any], Sequence[Any]], Any] | None:
    """What gives `value` for the inputs and results of a call, which look like these; None where it is always the
    same."""
    if next(sizes_in(value), None) is None:
        return None
    names: dict[str, Any] = {}
    given = [(f"inputs[{k}]", f) for k, f in enumerate(fakes)] + [(f"results[{k}]", r) for k, r in enumerate(results)]
    body = [f"    {s.name} = {text}" for s, text in told_by(given).items()]
    source = "\n".join(["def now(inputs, results):", *body, f"    return {_text(value, names)}"])
    exec(compile(source, "<sizes>", "exec"), names)
    return names["now"]


def _text(value: Any, names: dict[str, Any]) -> str:
    """`value` as Python; `names` gets what has no text."""
    if is_size(value):
        return f"({dim_of(value)})"
    if isinstance(value, (tuple, list)):
        inside = "".join(f"{_text(v, names)}, " for v in value)
        return f"[{inside}]" if isinstance(value, list) else f"({inside})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {_text(v, names)}" for key, v in value.items()) + "}"
    name = f"c{len(names)}"
    names[name] = value
    return name
