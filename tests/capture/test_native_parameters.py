import importlib
import inspect

import pytest

from dovetail.capture.cpython.native_arguments import MODULES, NATIVE, _parameters


def natives(module):
    """The native callables of a module, and of its classes, whether bound or not."""
    values = list(vars(importlib.import_module(module)).values())
    classes = [v for v in values if isinstance(v, type)]
    found = [m for c in classes for m in vars(c).values()] + [getattr(c, n, None) for c in classes for n in dir(c)]
    return [value for value in values + found if isinstance(value, NATIVE)]


def inspected(real):
    try:
        found = inspect.signature(real).parameters.values()
    except (ValueError, TypeError):
        return None
    return None if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in found) else found


def shape(parameters):
    return None if parameters is None else [(p.name, p.kind, p.default is p.empty) for p in parameters]


@pytest.mark.parametrize("module", sorted(MODULES))
def test_as_inspect_finds_them(module):
    for real in natives(module):
        assert shape(_parameters(real)) == shape(inspected(real)), real


@pytest.mark.parametrize("real", [len, {}.get, dict.get, dict.pop, list, [].sort, IndexError.__init__])
def test_from_the_text_alone(real, monkeypatch):
    monkeypatch.setattr(inspect, "signature", None)
    _parameters(real)
