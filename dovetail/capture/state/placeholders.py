"""The inputs of the graph, in the order in which capture comes to need them."""

from __future__ import annotations

import keyword
import re

import torch.fx

from dovetail.capture.values.base import Session
from dovetail.ir.source import Source


def placeholder_of(s: Session, source: Source) -> torch.fx.Node:
    """A new input for what the source leads to, after all others."""
    name = re.sub(r"\W+", "_", source.name()).strip("_").lower()[:40] or "arg"
    name = f"arg_{name}" if name[0].isdigit() or keyword.iskeyword(name) or name == "self" else name
    name = name if name not in s.taken.names else f"{name}_{len(s.taken.names)}"
    s.taken.names.add(name)
    first = next(iter(s.root.nodes), None)
    anchor = s.taken.last
    if anchor is not None:
        with s.root.inserting_after(anchor):
            node = s.root.placeholder(name)
    elif first is not None:
        with s.root.inserting_before(first):
            node = s.root.placeholder(name)
    else:
        node = s.root.placeholder(name)
    s.taken.last = node
    return node
