"""The Python code of an exported graph: it takes arguments apart, gives buffers their tensors and builds the result.

    def forward(self, x):
        ...
        setattr(self.get_submodule('inner'), 'last', sum_1)
        return pytree.tree_unflatten((mul,), self._out_spec)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch.fx.graph import _PyTreeCodeGen, _PyTreeInfo

from dovetail.exporting.signature import Signature


class Code(_PyTreeCodeGen):
    """`exchanged` are the names of each buffer that one of the graph's last outputs is for."""

    def __init__(self, signature: Signature) -> None:
        super().__init__(_PyTreeInfo([*signature.names], signature.takes, signature.gives))
        self.exchanged = signature.exchanged

    def generate_output(
        self, output_args: Any, *, descs: Sequence[str] | None = None, repr_fn: Callable[[Any], str] | None = None
    ) -> str:
        results = len(output_args) - len(self.exchanged)
        lines = [
            f"setattr(self.get_submodule({path!r}), {last!r}, {(repr_fn or repr)(value)})"
            for names, value in zip(self.exchanged, output_args[results:], strict=True)
            for path, _, last in (name.rpartition(".") for name in names)
        ]
        more: dict[str, Any] = {"descs": descs and descs[:results], "repr_fn": repr_fn}  # some versions have neither
        given = {name: value for name, value in more.items() if value is not None}
        return "\n".join([*lines, super().generate_output(output_args[:results], **given)])

    def process_outputs(self, out: Any) -> Any:
        return super().process_outputs(out[: len(out) - len(self.exchanged)])
