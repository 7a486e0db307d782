"""The named exceptions to the size rules; each carries its number and its reason."""

from __future__ import annotations

FILE_LINES = 500
FUNCTION_LINES = 50
COMPLEXITY = 20  # ways through a function: its branches, loops, handlers and conditions
RETURN_LADDER = 5  # statements `if ...: return` in a row
DENSITY = 8.5  # syntax nodes a line, the average of a file
AVERAGE_DENSITY = 5.6  # of all files

# path: (lines, reason)
LONG_FILES: dict[str, tuple[int, str]] = {}

# "path:function": (lines, reason)
LONG_FUNCTIONS: dict[str, tuple[int, str]] = {}

# "path:function": its number. Lower it, or remove the row; add none.
COMPLEX_FUNCTIONS: dict[str, int] = {
    "dovetail/autograd/cut.py:choose": 22,
    "dovetail/capture/interpreter/exception_groups.py:to_raise": 22,
    "dovetail/capture/library/python/stdlib.py:_copy_tensor": 26,
    "dovetail/capture/protocols/attribute_stores.py:object_set_attr": 22,
    "dovetail/capture/tensors/membership.py:held": 21,
    "dovetail/capture/tensors/tensor_attributes.py:_plain_attribute": 21,
    "dovetail/codegen/cpu/axis.py:_multiple": 23,
    "dovetail/commands/ladder.py:_loaded": 26,
    "dovetail/exporting/ranges.py:settle": 24,
    "dovetail/ir/dims.py:_cases": 21,
    "dovetail/kept/entry.py:pack_entry": 22,
    "dovetail/lower/stages.py:part": 21,
    "dovetail/normalize/wrapper_tensors.py:apart": 25,
    "dovetail/ops/fake/errors/eager_errors.py:_check_places": 22,
    "dovetail/ops/fake/symbolic/sizes.py:_simpler": 32,
    "dovetail/ops/lowering/emit.py:reduce": 22,
    "dovetail/schedule/fusion/arrange.py:_rows": 22,
    "dovetail/schedule/fusion/fuse.py:_common_outer": 21,
    "dovetail/schedule/fusion/one_hot.py:_one": 21,
    "dovetail/schedule/memory/in_place.py:_ordered": 21,
}

# "path:function": its number. Lower it, or remove the row; add none.
LONG_LADDERS: dict[str, int] = {
    "dovetail/codegen/host/program.py:argument": 6,
    "dovetail/ir/graphtext.py:argument": 6,
    "dovetail/ir/literals.py:_words": 7,
    "dovetail/kept/objects.py:making": 6,
    "dovetail/normalize/text.py:argument": 6,
}

# "path:function": why swallowing any exception is right there
BROAD_HANDLERS: dict[str, str] = {
    "dovetail/minify/search.py:fails": "what is left of a program may fail in PyTorch in any way: it is no candidate",
    "dovetail/commands/rung.py:in_float64": "whatever a program cannot do in float64, it is compared without",
    "dovetail/ops/own/kernel_writes.py:written": "Triton may refuse a kernel in any way: its launch will say so",
    "dovetail/kept/routes.py:_leads": "properties of the program's own may raise anything: the path leads nowhere",
    "dovetail/kept/holds.py:_shown": "reading a path may raise anything: the entry's own text decides",
    "dovetail/guards/explain.py:_all_hold": "reading a path may raise anything: each guard is asked for then",
    "dovetail/exporting/trees.py:_parts": "a program's class may refuse placeholders: its parts have numbers",
    "dovetail/capture/calling/lazy_modules.py:initialize": "the user's hook may raise anything: eager raises it again",
}
