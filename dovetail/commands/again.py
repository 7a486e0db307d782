"""Why functions were compiled again, as a report says it: what changes, the line that relies on it, what to do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from dovetail.commands.overview import Cause
from dovetail.commands.recorded import RESUMED, Process, RecordedCompilation
from dovetail.ir.records import dataclass

SIZE = (
    "This compilation serves every size from now on; dovetail.mark_dynamic({what}, {more}) before the first call "
    "would have saved it."
)
AFTER = "This compilation serves every size from now on. Without the graph break there would be none."
SIZES = "Something relies on the size, so it is compiled for each: DOVETAIL_LOGS=dynamic names the line."
FIXED = "dynamic=False compiles for each size anew: leave it out, and one more compilation serves every size."
VALUE = (
    "Numbers that change become inputs after one recompilation, unless something relies on their values: pass {what} "
    "as a tensor, or keep it out of conditions."
)
TEXT = "Texts that change become inputs after one recompilation: keep them out of conditions and of what is computed."
CASES = "Each case has a graph of its own. Few need nothing; else decide it outside of the compiled function."
KEYS = "Pass the same keys in every call, None for those without a value."
LENGTH = "Each length has a graph of its own: pad to a few lengths, or put what it holds into a tensor."
OBJECT = "It is compiled for one object: make that once, outside, and pass what changes as tensors and numbers."
LAYOUT = "Give it one layout in every call, with .contiguous() for instance."
OTHER = "The compiled code relies on this: keep what changes out of conditions, or pass it as a tensor."
STATE = "Nothing to do: the first step of a training makes gradients and an optimizer's state, which the second finds."
LIMIT = "recompile_limit ({}) is reached: calls that no entry fits run eagerly, or raise under fullgraph"


@dataclass(frozen=True)
class FailedGuard:
    """Guards of one kind: how their text begins, what has changed in the user's words, and what to do about it."""

    pattern: re.Pattern[str]
    title: str
    remedy: str


_TENSOR = r"tensor (?P<quote>['\"])(?P<what>.+?)(?P=quote) "
KINDS = tuple(
    FailedGuard(re.compile(pattern, re.DOTALL), title, remedy)
    for pattern, title, remedy in (
        (_TENSOR + r"size mismatch at index (?P<more>\d+)\.", "{what}.shape[{more}] changes", SIZE),
        (_TENSOR + r"(?P<more>dtype|device|layout|rank|requires_grad) mismatch\.", "{what} has another {more}", CASES),
        (_TENSOR, "{what} is laid out otherwise in memory", LAYOUT),
        (r"keys of (?P<what>.+?) are ", "{what} has other keys", KEYS),
        (r"len\((?P<what>.+?)\) == ", "{what} has another length", LENGTH),
        (r"type\((?P<what>.+?)\) is ", "{what} has another type", CASES),
        (r"(?P<what>.+?) is (?P<more>None|True|False) \(actual ", "{what} is {more} in some calls only", CASES),
        (r"(?P<what>.+?) is .+ \(now another object", "{what} is another object", OBJECT),
        (r"(?P<what>.+?) == ['\"]", "{what} changes", TEXT),
        (r"(?P<what>.+?) == .* \(actual ", "{what} changes", VALUE),
        (r"(?P<what>\w+) changed\. expected ", "{what} changes", CASES),
    )
)
_OPTIMIZERS = re.compile(r"[\\/]torch[\\/]optim[\\/]")
_STOPPED = re.compile(r"dovetail reached recompile_limit \((\d+)\) for (.+?); it runs eagerly", re.DOTALL)


def recompilations(compilations: Sequence[RecordedCompilation]) -> list[Cause]:
    """By function and the line that relies on what has changed; those at the limit first, then by what they cost."""
    found: dict[object, Cause] = {}
    processes = list({id(compilation.process): compilation.process for compilation in compilations}.values())
    stopped = dict(_stopped(processes))
    for compilation in compilations:
        if not compilation.reasons or not compilation.reasons[0]:
            continue
        guard, _, line = compilation.reasons[0][0].partition("  # ")
        what, title, remedy = _words(guard)
        key = compilation.function, compilation.place, line or title
        cause = found.setdefault(key, Cause(f"{compilation.function}: {title}"))
        cause.at(line or compilation.place, "\n".join(underlined(compilation.source(line), what)))
        cause.notes[guard] = None
        cause.seconds += compilation.seconds
        cause.remedy = _remedy(remedy, cause.count > len(processes), compilation, line)
        limit = stopped.get(f"{compilation.function} ({compilation.place})")
        cause.verdict = LIMIT.format(limit) if limit else ""
    return sorted(found.values(), key=lambda c: (not c.verdict, -c.seconds, -c.count))


def _remedy(remedy: str, often: bool, compilation: RecordedCompilation, line: str) -> str:
    """`often`: more than once in a process."""
    if _OPTIMIZERS.search(line) and not often:
        return STATE
    if "mark_dynamic" not in remedy:
        return remedy
    if compilation.dynamic is False:
        return FIXED
    return SIZES if often else AFTER if compilation.function.endswith(RESUMED) else remedy


def _stopped(processes: Iterable[Process]) -> Iterator[tuple[str, str]]:
    """Functions with their places, and the limit that each has reached."""
    messages = (warning["message"] for process in processes for warning in process.warnings)
    return ((found[2], found[1]) for found in map(_STOPPED.match, messages) if found)


def _words(guard: str) -> tuple[str, str, str]:
    """What a guard looks at, what has changed, and what to do."""
    for kind in KINDS:
        if found := kind.pattern.match(guard):
            named = {"more": "", **found.groupdict()}
            return named["what"], kind.title.format(**named), kind.remedy.format(**named)
    return guard, without_values(guard), OTHER


def without_values(guard: str) -> str:
    """Guards that differ only in values, or in where objects are, have one cause."""
    head = re.sub(r" \((actual|now another object)\b.*\)$|, actual .*$", "", guard, flags=re.DOTALL)
    return re.sub(r"(==|expected) \S+$", r"\1 ...", re.sub(r" at 0x[0-9a-f]+", "", head))


def underlined(source: str, what: str) -> list[str]:
    """A line of the program, and carets under the longest part of the path `what` that it mentions."""
    text = source.strip()
    parts = re.findall(r"^\w+|\.\w+|\[[^\[\]]*\]|\([^()]*\)", what)
    for path in (what, *reversed(list(accumulate(parts)))):
        if found := re.search(rf"(?<![\w.]){re.escape(path)}(?!\w)", text):
            return [text, " " * found.start() + "^" * len(path)]
    return [text] if text else []
