"""Objects whose classes compute what is read of them: guards look at what lies beneath, and run no user code."""

from __future__ import annotations

from collections import OrderedDict
from types import SimpleNamespace

import pytest
import torch

import dovetail

X = torch.linspace(-2, 2, 6)


class Making(OrderedDict):
    """Each item read is a new object, as in a registry of activation classes."""

    def __getitem__(self, key):
        return super().__getitem__(key)()


class Counting(dict):
    def __iter__(self):
        return iter(())

    def __len__(self):
        return 7


class Reversed(list):
    def __getitem__(self, index):
        return super().__getitem__(-1 - index)

    def __len__(self):
        return 1


class Mapped:
    """Attributes under other names, as configurations have them."""

    names = {"width": "hidden_size"}

    def __init__(self, **values):
        self.__dict__.update(values)

    def __getattribute__(self, name):
        names = super().__getattribute__("names")
        return super().__getattribute__(names.get(name, name))


class Guarded:
    def __init__(self, scale):
        self.__dict__["scale"] = scale

    @property
    def scale(self):
        return self.__dict__["scale"] * 2


class Falling:
    def __getattr__(self, name):
        return 5


def compiled(function, *args):
    """The result, checked against eager, from a function that may compile once for each change."""
    result = function(*args)
    torch.testing.assert_close(result, function._dovetail_original(*args), rtol=0, atol=0)
    return result


@pytest.mark.parametrize(
    "read, make, change",
    [
        (lambda x, o: o["a"](x), lambda: Making(a=torch.nn.ReLU), lambda o: o.update(a=torch.nn.Tanh)),
        (lambda x, o: x * o["a"], lambda: Counting(a=3, b=4), lambda o: o.update(a=9)),
        (lambda x, o: x * o[0] + o[1], lambda: Reversed([1, 2, 3]), lambda o: o.append(8)),
        (lambda x, o: x * o.width, lambda: Mapped(hidden_size=4), lambda o: setattr(o, "hidden_size", 6)),
        (lambda x, o: x * o.scale, lambda: Guarded(3), lambda o: o.__dict__.update(scale=4)),
        (lambda x, o: x * o.scale, Falling, lambda o: setattr(o, "scale", 2)),
        (lambda x, o: x * getattr(o, "scale", 1), lambda: Mapped(other=4), lambda o: setattr(o, "scale", 6)),
    ],
    ids=["registry", "dict", "list", "attribute map", "property over the dictionary", "getattr", "absent"],
)
def test_reads_and_notices_changes(read, make, change):
    holder = SimpleNamespace(it=make())
    function = dovetail.compile(lambda x: read(x, holder.it), backend="eager", fullgraph=True)
    compiled(function, X)
    with dovetail.set_stance("fail_on_recompile"):
        compiled(function, X)
    change(holder.it)
    compiled(function, X)


def test_arguments_with_names_of_built_in_types():
    function = dovetail.compile(lambda x, object, dict: x * object.width + dict, backend="eager", fullgraph=True)
    compiled(function, X, Mapped(hidden_size=3), 2)
