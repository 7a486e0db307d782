"""The table of backends by name.

A user's backend is any callable `(gm: torch.fx.GraphModule, example_inputs: list) -> callable`; what it returns is
called with the graph's inputs and returns the tuple of its outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dovetail.config import listed
from dovetail.errors import BackendError, DovetailError, InvalidArgument
from dovetail.interop.peer import peer_backend, peer_names

Backend = Callable[..., Callable[..., Any]]

#: Backends that the pipeline itself provides.
BUILT_IN: dict[str, str] = {
    "eager": "run the captured graph as it is",
    "aot_eager": "run the functional ATen graph operator by operator",
    "aot_eager_decomp_partition": "the same, with forward and backward partitioned",
    "dovetail": "compile to fused kernels",
}


class Backends:
    """Names of backends, and which is the default."""

    def __init__(self) -> None:
        self.registered: dict[str, Backend] = {}
        self.default: str | Backend = "dovetail"

    def resolve(self, backend: Any) -> Any:
        """A built-in name or a callable; raises InvalidArgument listing what there is."""
        if backend is None:
            return self.default
        if callable(backend) or isinstance(backend, str) and backend in BUILT_IN:
            return backend
        if not isinstance(backend, str):
            raise InvalidArgument(f"backend must be a name or a callable, not {backend!r}")
        found = self.registered.get(backend) or peer_backend(backend)
        if found is None:
            raise InvalidArgument(
                f"unknown backend {backend!r}; the backends are {listed(self.names())}, those registered for "
                f"torch.compile ({listed(peer_names())}), or a callable (gm, example_inputs)"
            )
        return found

    def names(self) -> list[str]:
        return sorted({*BUILT_IN, *self.registered})


BACKENDS = Backends()


def register_backend(compiler_fn: Backend | None = None, name: str | None = None) -> Any:
    """Make a backend known by name; a call or a decorator. The name defaults to the function's own.

    Raises InvalidArgument if the name is taken by another backend, or the backend is not callable.
    """
    if compiler_fn is None:
        return lambda fn: register_backend(fn, name)
    if not callable(compiler_fn):
        raise InvalidArgument(f"a backend is a callable (gm, example_inputs), not {compiler_fn!r}")
    key = name or getattr(compiler_fn, "__name__", "")
    if not key or key in BUILT_IN or BACKENDS.registered.get(key, compiler_fn) is not compiler_fn:
        raise InvalidArgument(f"the backend name {key!r} is taken or empty; give another `name`")
    BACKENDS.registered[key] = compiler_fn
    return compiler_fn


def call_backend(backend: Backend, graph: Any, inputs: list) -> Callable[..., Any]:
    """What `backend` makes of the graph; raises BackendError from whatever it raises."""
    name = getattr(backend, "__name__", repr(backend))
    try:
        made = backend(graph, inputs)
    except DovetailError:
        raise
    except Exception as error:
        raise BackendError(f"the backend {name} raised {type(error).__name__}: {error}") from error
    if not callable(made):
        raise BackendError(f"the backend {name} returned {type(made).__name__}, not a callable")
    return made


def list_backends() -> list[str]:
    """The names of the built-in and the registered backends."""
    return BACKENDS.names()


def set_default_backend(backend: str | Backend) -> None:
    """The backend of `dovetail.compile` calls that name none. Raises InvalidArgument for an unknown one."""
    BACKENDS.resolve(backend)
    BACKENDS.default = backend


def get_default_backend() -> str | Backend:
    """The backend of `dovetail.compile` calls that name none."""
    return BACKENDS.default
