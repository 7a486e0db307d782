"""The Python code of an exported graph: it takes arguments apart, gives buffers their tensors and builds the result.

    def forward(self, x):
        x, = fx_pytree.tree_flatten_spec(([x], {}), self._in_spec)
        ...
        setattr(self._modules['inner'], 'last', sum_1)
        return pytree.tree_unflatten((mul,), self._out_spec)
"""

from __future__ import annotations

import keyword
from collections.abc import Callable, Sequence
from typing import Any

from torch.fx.graph import _custom_builtins, _PyTreeCodeGen, _PyTreeInfo

from dovetail.exporting.signature import ExportSignature

#: Names that mean something in such code.
TAKEN = {*_custom_builtins, "self", "getattr", "setattr", "slice", "range", "round", "Ellipsis"}


def is_free(name: str) -> bool:
    """Can an argument be called so in generated code?"""
    return name.isidentifier() and not keyword.iskeyword(name) and name not in TAKEN


class ExportedCode(_PyTreeCodeGen):
    """`exchanged` are the names of each buffer that one of the graph's last outputs is for."""

    def __init__(self, signature: ExportSignature) -> None:
        super().__init__(_PyTreeInfo([*signature.names], signature.takes, signature.gives))
        self.exchanged = signature.exchanged
        self.named = all(map(is_free, signature.names))

    def _gen_python_code(self, nodes: Any, root_module: str, namespace: Any, **settings: Any) -> Any:
        if self.named:  # what the code calls must not be called as an argument is
            for name in {*self.pytree_info.orig_args} - {node.name for node in nodes}:
                namespace.create_name(name, object())
        return super()._gen_python_code(nodes, root_module, namespace, **settings)

    def gen_fn_def(self, free_vars: list[str], *rest: Any, **settings: Any) -> str:
        if self.named:
            return super().gen_fn_def(free_vars, *rest, **settings)
        taken = [f"    {', '.join(free_vars)}, = self._leaves(args, kwargs)"] if free_vars else []
        return "\n".join(["def forward(self, *args, **kwargs):", *taken])

    def generate_output(
        self, output_args: Any, *, descs: Sequence[str] | None = None, repr_fn: Callable[[Any], str] | None = None
    ) -> str:
        results = len(output_args) - len(self.exchanged)
        lines = [
            f"setattr(self{''.join(f'._modules[{part!r}]' for part in path)}, {last!r}, {(repr_fn or repr)(value)})"
            for names, value in zip(self.exchanged, output_args[results:], strict=True)
            for *path, last in (name.split(".") for name in names)
        ]
        more: dict[str, Any] = {"descs": descs and descs[:results], "repr_fn": repr_fn}  # some versions have neither
        given = {name: value for name, value in more.items() if value is not None}
        return "\n".join([*lines, super().generate_output(output_args[:results], **given)])

    def process_outputs(self, out: Any) -> Any:
        return super().process_outputs(out[: len(out) - len(self.exchanged)])
