"""What is read off code that runs on tensors without memory: does it do more than to compute?"""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import random
import threading
import warnings
import weakref
from dataclasses import dataclass, field

import pytest
import torch

from dovetail.capture.outside.code_values import Fresh
from dovetail.capture.outside.hidden_effects import what_code_does
from tests.capture.whole import breaks, whole
from tests.capture.wrapper_classes import Counted, Twice

LOG: list = []
COUNTS: dict = {}
NUMBERS = itertools.count()
LOGGER = logging.getLogger(__name__)
SEEN: weakref.WeakSet = weakref.WeakSet()
LOCK = threading.Lock()
KEEP = LOG.append
TOTAL = 0


class Register:
    def __init__(self):
        self.items = []

    def keep(self, item):
        self.items.append(item)


REGISTER = Register()


@dataclass
class Settings:
    size: int = 1
    names: list = field(default_factory=list)


@contextlib.contextmanager
def noted():
    LOG.append(1)
    yield


def kept(item):
    LOG.append(item)


@functools.lru_cache
def larger(n):
    return n + 1


def listed(items):
    found = []
    for item in items:
        found.append(item)
    return found


def conditional(self, a):
    if a.shape[0] > 2:
        for k in range(3):
            LOG.append(k)


def handled(self, a):
    try:
        self.a = a
    finally:
        LOG.append(1)


def entered(self, a):
    with noted():
        self.a = a


def locked(self, a):
    with LOCK:
        self.a = a


def counted_item(self, a):
    COUNTS["made"] += 1


def counted_class(self, a):
    type(self).made += 1


def counted_global(self, a):
    global TOTAL
    TOTAL += 1


def through_another_name(self, a):
    log = LOG
    log.append(1)


def by_default(self, a, seen=[]):
    seen.append(1)


def inside(self, a):
    def inner():
        LOG.append(1)

    inner()


def any_arguments(self, *args):
    kept(*args)


def changed_argument(self, a):
    a.count += 1


EFFECTS = [
    conditional, handled, entered, locked, counted_item, counted_class, counted_global, through_another_name,
    by_default, inside, any_arguments, changed_argument,
    lambda self, a: kept(a),
    lambda self, a: KEEP(a),
    lambda self, a: REGISTER.keep(a),
    lambda self, a: SEEN.add(self),
    lambda self, a: next(NUMBERS),
    lambda self, a: setattr(type(self), "made", 1),
    lambda self, a: [LOG.append(k) for k in range(3)],
    lambda self, a: sum(kept(k) or 0 for k in range(3)),
    lambda self, a: list(map(kept, a)),
    lambda self, a: print("made"),
    lambda self, a: LOGGER.info("made"),
    lambda self, a: warnings.warn("made", stacklevel=2),
    lambda self, a: random.random(),
    lambda self, a: torch.manual_seed(0),
    lambda self, a: a.report(self),
]  # fmt: skip


def containers(self, a):
    self.items = []
    self.items.append(a)
    self.table = {}
    self.table.update(a=1)
    self.names = listed(a)
    self.squares = [x * x for x in a.shape if x]
    self.squares.append(1)


def computing(self, a):
    with torch.no_grad():
        self.a = a.detach().to(torch.float32).contiguous() * 2
    if not isinstance(a, torch.Tensor):
        raise TypeError(f"expected a tensor, not {a!r}")
    first = next(n for n in a.shape if n > 1)
    n = a.shape[0] + first
    for k in range(n):
        n -= k
    self.sizes = tuple(x * 2 for x in a.shape)
    self.by_name = {k: v + n for k, v in zip("ab", (1, 2))}


def keywords(self, a, **kwargs):
    kwargs["device"] = kwargs.get("device") if kwargs.get("device", False) else a.device
    kwargs.pop("layout", None)
    self.settings = Settings(larger(2), [])
    self.settings.size = 3


@pytest.mark.parametrize("function", EFFECTS)
def test_effects_are_seen(function):
    assert what_code_does(function, Fresh(Settings), strict=True).effect is not None


@pytest.mark.parametrize("function", (containers, computing, keywords))
def test_what_only_computes_has_none(function):
    assert what_code_does(function, Fresh(Settings), strict=True).effect is None


SCALE = 2.0


class ByGlobal(Twice):
    @staticmethod
    def __tensor_unflatten__(inner, context, size, stride):
        return ByGlobal(inner["inside"])

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return cls(func(*[a.inside if isinstance(a, cls) else a for a in args], **(kwargs or {})) * SCALE)


def made_inside(x):
    made = Counted(x)
    return made.inside + 1, Counted.made


@pytest.mark.parametrize("program", (made_inside, lambda x: (Counted(x) * 2, Counted.made)))
def test_a_class_that_counts_what_it_makes_breaks(program):
    Counted.made = 0

    def counting(x):
        before = Counted.made
        made, after = program(x)
        return made, after - before

    breaks("tensor-subclass", counting, lambda: torch.ones(3))


def test_an_argument_of_a_class_that_counts_breaks():
    def counting(t):
        before = Counted.made
        return (t * 2).inside, Counted.made - before

    breaks("tensor-subclass", counting, lambda: Counted(torch.ones(3)))


def test_what_the_class_reads_is_relied_on(monkeypatch):
    for scale in (2.0, 3.0):
        monkeypatch.setitem(globals(), "SCALE", scale)
        whole(lambda t: t + 1, lambda: ByGlobal(torch.ones(3)))
