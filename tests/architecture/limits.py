"""The named exceptions to the size rules; each carries its number and its reason."""

from __future__ import annotations

FILE_LINES = 600
FUNCTION_LINES = 60

# path: (lines, reason)
LONG_FILES: dict[str, tuple[int, str]] = {
    "dovetail/errors/codes.py": (1200, "one table: a row of text for each reason why a graph ends"),
    "dovetail/ir/dims.py": (715, "one algebra: operators simplify by what is proved, and proofs use the operators"),
}

# "path:function": (lines, reason)
LONG_FUNCTIONS: dict[str, tuple[int, str]] = {}

# "path:function": why swallowing any exception is right there
BROAD_HANDLERS: dict[str, str] = {
    "dovetail/minify/search.py:fails": "what is left of a program may fail in PyTorch in any way: it is no candidate",
    "dovetail/commands/rung.py:in_float64": "whatever a program cannot do in float64, it is compared without",
    "dovetail/kept/entry.py:_leads": "properties of the program's own may raise anything: the path leads nowhere",
    "dovetail/kept/holds.py:_shown": "reading a path may raise anything: the entry's own text decides",
    "dovetail/exporting/trees.py:_parts": "a program's class may refuse placeholders: its parts have numbers",
    "dovetail/capture/calling/lazy_modules.py:initialize": "the user's hook may raise anything: eager raises it again",
}
