"""Numbers and arrays from Python's and NumPy's random generators: drawn before the graph runs, in the program's order.

    return x + random.random()      ->      _drawn0 = K[0].random(); _o = graph(x, _drawn0)

They are inputs of the graph. Nothing may rely on their values: what would, ends the graph. While capturing they are
drawn from a copy of the generator.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
import torch
from torch.utils._python_dispatch import _disable_current_modes

from dovetail.capture.numbers.input_numbers import InputNumber
from dovetail.capture.numbers.size_table import placeholder_of
from dovetail.capture.numbers.unit_interval import DRAWING
from dovetail.capture.tensors.numpy_arrays import DTYPES, array_of
from dovetail.capture.values.base import MISSING, NONE, Args, Kwargs, NotNative, Session, Value
from dovetail.capture.values.containers import TupleValue
from dovetail.capture.values.objects import ObjectValue
from dovetail.capture.values.tensor import TensorValue
from dovetail.errors import Location
from dovetail.ir.captured import GraphInput
from dovetail.ir.devices import HOST
from dovetail.ir.records import dataclass
from dovetail.ir.source import Drawn, FromArray
from dovetail.ops.fake import to_fake

LARGEST = 2**62  # of integers that say where a drawn one lies: it is then a number that a graph can have


@dataclass
class Draw:
    """The text for the generator, if it is from outside, that for the call, what it gave while capturing, and where the
    program is then. `unit`: is it a number of [0, 1) in each call?"""

    generator: str
    call: str
    result: Any
    stack: tuple[Location, ...]
    unit: bool = False


# ---------------------------------------------------------------- generators


class RandomState:
    """What a generator will draw from now on, to be put back."""

    def __init__(self, generator: Any) -> None:
        self.generator = generator
        self.state = READ[type(generator)](generator)

    def put_back(self) -> None:
        """Give the generator the state that it had before."""
        WRITE[type(self.generator)](self.generator, self.state)


READ: dict[type, Callable[[Any], Any]] = {
    random.Random: random.Random.getstate,
    np.random.RandomState: np.random.RandomState.get_state,
    np.random.Generator: lambda generator: copy.deepcopy(generator.bit_generator.state),
}
WRITE: dict[type, Callable[[Any, Any], Any]] = {
    random.Random: random.Random.setstate,
    np.random.RandomState: np.random.RandomState.set_state,
    np.random.Generator: lambda generator, state: setattr(generator.bit_generator, "state", state),
}


# ---------------------------------------------------------------- while capturing


def draw(s: Session, owner: Any, name: str, args: Args, kwargs: Kwargs) -> Value:
    """`owner.name(*args)`; `owner` is a value, or a generator that everybody has."""
    inside = getattr(owner, "made_by", None)
    real = s.random.generators.get(id(owner)) if inside else getattr(owner, "real", MISSING)
    real = real if isinstance(owner, Value) else owner
    if type(real) not in READ or s.graph is not s.root or torch.get_default_device() != HOST:
        return refuse(s, "is drawn where it cannot be drawn before the graph runs")
    source = inside or (owner.source if isinstance(owner, Value) else None)
    given, named = tuple(_plain(s, a) for a in args), {k: _plain(s, v) for k, v in kwargs.items()}
    twin = real if inside else s.random.generators.setdefault(id(real), copy.deepcopy(real))
    try:
        with _disable_current_modes():
            result = getattr(twin, name)(*given, **named)
    except Exception as error:  # the program's own
        return s.throw_native(error)
    text = (source or s.bind(real)).expr()
    source = _drawn(s, "" if inside else text, f"{text}.{name}", given, named, result)
    s.random.draws[-1].unit = type(result) is float and not named and given == DRAWING.get(name)
    return _value(s, result, source)


def make(s: Session, maker: Any, args: Args, kwargs: Kwargs) -> Value:
    """`random.Random(5)`: a generator that each call makes anew, before what it draws."""
    if s.graph is not s.root:
        return refuse(s, "is drawn where it cannot be drawn before the graph runs")
    given, named = tuple(_plain(s, a) for a in args), {k: _plain(s, v) for k, v in kwargs.items()}
    try:
        made = maker(*given, **named)
    except Exception as error:  # the program's own
        return s.throw_native(error)
    found = ObjectValue(type(made))
    found.made_by = _drawn(s, "", s.bind(maker).expr(), given, named, made)
    s.random.generators[id(found)] = made
    s.objects.keep.append(found)
    return found


def _drawn(s: Session, generator: str, function: str, given: tuple, named: dict[str, Any], result: Any) -> Drawn:
    """Where what the function gives in each call is found."""
    call = f"{function}(*{s.bind(given).expr()}, **dict({s.bind(tuple(named.items())).expr()}))"
    s.random.draws.append(Draw(generator, call, result, s.stack()))
    return Drawn(len(s.random.draws) - 1)


def _plain(s: Session, value: Value) -> Any:
    """What an argument is; the call made later gets the same object."""
    if isinstance(value, TupleValue):
        return tuple(_plain(s, item) for item in value.all(s))
    try:
        found = value.native()
    except NotNative:
        found = refuse
    if not isinstance(found, (int, float, str, type, np.dtype, type(None))) or isinstance(found, int) and (
        abs(found) > LARGEST
    ):
        refuse(s, f"is drawn by {value.describe()}")
    return found


def _value(s: Session, result: Any, source: Drawn) -> Value:
    if result is None:  # a seed
        return NONE
    if type(result) in (int, float) and (type(result) is float or abs(result) <= LARGEST):
        return InputNumber(s, result, source, True)
    if type(result) is not np.ndarray or result.dtype not in DTYPES or not s.options.trace_numpy:
        return refuse(s, f"is a {type(result).__name__}")
    loaded = FromArray(source)
    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
        fake = to_fake(torch.from_numpy(result))
    node = placeholder_of(s, loaded)
    node.meta["fake"] = fake
    s.taken.inputs.append((node, GraphInput(loaded, fake)))
    value = s.objects.by_fake[id(fake)] = TensorValue(node, fake, source=loaded)
    return array_of(s, value)


def refuse_reliance(s: Session, text: str) -> None:
    """Would the entry rely on this text, which tells of a number that each call draws anew?"""
    if Drawn.PREFIX in text:
        refuse(s, "decides what the code does next, or is a size")


def refuse(s: Session, what: str) -> NoReturn:
    """Never returns."""
    s.unsupported("random-number", f"a random number of Python's or NumPy's {what}")


# ---------------------------------------------------------------- the residual


def lines(s: Session, repeated: bool) -> tuple[list[str], list[str]]:
    """What the residual begins with, and what comes before the program is repeated in plain Python."""
    calls = [f"{Drawn(k).expr()} = {d.call}" for k, d in enumerate(s.random.draws)]
    if not repeated:
        return calls, []
    texts = list(dict.fromkeys(d.generator for d in s.random.draws if d.generator))
    kept = [f"_before{k} = _State({text})" for k, text in enumerate(texts)]
    return [*kept, *calls], [f"_before{k}.put_back()" for k in range(len(texts))]


def names(s: Session) -> dict[str, Any]:
    """Global names: the examples are for who asks what the graph's inputs are."""
    examples = {Drawn(k).expr(): d.result for k, d in enumerate(s.random.draws)}
    return {"_State": RandomState, **examples} if s.random.draws else {}
