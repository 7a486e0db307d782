"""What capture takes from the process without a guard, noted for other processes (`ir.asked`).

    ask         the answer to a question, which other processes will be asked too
    alone       there is no such question: what is captured is of no use to them
"""

from __future__ import annotations

import enum
import os
import pathlib
import re
from types import BuiltinFunctionType, CodeType, GenericAlias, UnionType
from typing import TYPE_CHECKING, Any

import torch

from dovetail.capture.process.trusted_code import trusted, trusted_class
from dovetail.ir import asked
from dovetail.ir.asked import Asked

if TYPE_CHECKING:
    from dovetail.capture.session import Session

#: Which every process has alike, or which `kept` compares as a whole.
PLAIN = (type(None), bool, int, float, complex, str, bytes, range, slice, type(...), type(NotImplemented), CodeType,
         torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size, BuiltinFunctionType, enum.Enum,
         pathlib.PurePath, re.Pattern, GenericAlias, UnionType)  # fmt: skip


def ask(s: Session, question: Any, *args: Any) -> Any:
    """What the question gives now; the compilation is for processes where it gives the same."""
    key = _key(question, args)
    if key not in s.relied.asked:
        s.relied.asked[key] = Asked(question, args, question(*args))
    return s.relied.asked[key].answer


def note(s: Session, question: Any, args: tuple, answer: Any) -> None:
    """The question has been answered already."""
    s.relied.asked.setdefault(_key(question, args), Asked(question, args, answer))


def _key(question: Any, args: tuple) -> Any:
    """The objects are kept with the answer."""
    return question, *(arg if type(arg) is str else id(arg) for arg in args)


def alone(s: Session, reason: str) -> None:
    """No other process may use this."""
    s.relied.alone = s.relied.alone or reason


def is_plain(obj: Any) -> bool:
    """Is it something that every process has alike?"""
    if type(obj) in (tuple, frozenset):
        return all(map(is_plain, obj))
    return isinstance(obj, PLAIN) or type(obj).__module__ == "typing"


def datum(s: Session, question: Any, owner: Any, name: str, found: Any) -> None:
    """Plain data that the library's modules and classes have, which programs may set."""
    if is_plain(found):
        note(s, question, (owner, name), found)


def folded(s: Session, real: Any, args: list, kwargs: dict[str, Any], result: Any) -> None:
    """`real` gave `result` for these arguments, while capturing."""
    if real not in QUESTIONS and all(is_plain(a) or id(a) in s.relied.derived for a in (*args, *kwargs.values())):
        s.relied.derived.add(id(result))
        s.objects.keep.append(result)
        return
    question = QUESTIONS.get(real)
    if question is not None and not kwargs:
        ask(s, question, *args)
    else:
        note(s, asked.call, (real, tuple(args), tuple(kwargs.items())), result)


#: Functions that tell of the process, whatever they are asked, and a question whose answer can be compared.
QUESTIONS: dict = {}


def subclass(s: Session, cls: Any, other: Any, answer: bool) -> None:
    """A metaclass other than Python's own has decided, as that of abstract classes does."""
    if not (isinstance(cls, type) and isinstance(other, type)) or trusted_class(cls) and trusted_class(other):
        return
    if type(other).__subclasscheck__ is not type.__subclasscheck__ and cls not in s.classes.made:
        note(s, issubclass, (cls, other), answer)


def text_order(s: Session, keys: Any) -> None:
    """Texts are walked in the order of their hashes, or hashed."""
    if not any(isinstance(part, (str, bytes)) for key in keys for part in (key if type(key) is tuple else (key,))):
        return
    if os.environ.get("PYTHONHASHSEED", "random") == "random":
        alone(s, "it depends on the hashes of texts, which are others in each process")
    else:
        ask(s, hash, "text")


def function_part(s: Session, real: Any, name: str, found: Any) -> None:
    """An attribute that every function has."""
    if trusted(getattr(real, "__module__", None) or ""):
        return
    if name == "__code__":
        ask(s, asked.files_of, real)
    elif name == "__annotations__":
        ask(s, asked.annotated, real)
    else:
        datum(s, getattr, real, name, found)
