"""The Python code of an exported graph: it takes arguments apart, gives buffers their tensors and builds the result.

    def forward(self, x):
        x, = fx_pytree.tree_flatten_spec(([x], {}), self._in_spec)
        ...
        setattr(self._modules['inner'], 'last', sum_1)
        return pytree.tree_unflatten((mul,), self._out_spec)
"""

from __future__ import annotations

import enum
import keyword
from collections.abc import Callable, Sequence
from functools import partial
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
        classes: dict[str, type] = {}
        self._written = partial(_written, namespace, classes)
        code = super()._gen_python_code(nodes, root_module, namespace, **settings)
        del self._written  # a graph is copied and kept with this
        code.globals.update(classes)
        return code

    def gen_fn_def(self, free_vars: list[str], *rest: Any, **settings: Any) -> str:
        if self.named:
            return super().gen_fn_def(free_vars, *rest, **settings)
        taken = [f"    {', '.join(free_vars)}, = self._leaves(args, kwargs)"] if free_vars else []
        return "\n".join(["def forward(self, *args, **kwargs):", *taken])

    def generate_output(
        self, output_args: Any, *, descs: Sequence[str] | None = None, repr_fn: Callable[[Any], str] | None = None
    ) -> str:
        results = len(output_args) - len(self.exchanged)
        written = [Written((repr_fn or self._written)(value)) for value in output_args]
        lines = [
            f"setattr(self{''.join(f'._modules[{part!r}]' for part in path)}, {last!r}, {value})"
            for names, value in zip(self.exchanged, written[results:], strict=True)
            for *path, last in (name.split(".") for name in names)
        ]
        return "\n".join([*lines, super().generate_output(tuple(written[:results]), descs=descs and descs[:results])])

    def process_outputs(self, out: Any) -> Any:
        return super().process_outputs(out[: len(out) - len(self.exchanged)])


class Written(str):
    """Code of a result; results are written as repr() gives them."""

    __slots__ = ()
    __repr__ = str.__str__


def _written(namespace: Any, classes: dict[str, type], value: Any) -> str:
    """A result as code, for versions of torch.fx that write any as repr() does; the code gets `classes` as globals."""
    kind = type(value)
    if not isinstance(value, enum.Enum) and not hasattr(value, "_fields"):
        return repr(value)
    name = namespace.create_name(kind.__name__, kind)
    classes[name] = kind
    return f"{name}.{value.name}" if isinstance(value, enum.Enum) else f"{name}{tuple(value)!r}"
