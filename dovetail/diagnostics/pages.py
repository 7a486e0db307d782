"""Documents made from tables: `python -m dovetail.diagnostics.pages` writes docs/graph-breaks.md."""

from __future__ import annotations

from pathlib import Path

from dovetail.errors.codes import SECTIONS

PAGE = "docs/graph-breaks.md"
HEAD = """# Graph breaks

Dovetail makes graphs of tensor operations from a Python program. What cannot be part of a graph ends it: the graph so
far is run, plain Python does the one step, and the rest becomes another graph. With `fullgraph=True`, or inside
`dovetail.error_on_graph_break(True)`, that is an error instead. Where the program cannot be resumed after the step
either, the function runs eagerly as a whole, and a warning says so once.

Results are the same either way; each break costs a little time and keeps operations on its two sides from being fused.

    DOVETAIL_LOGS=graph_breaks python program.py      # each distinct break once, and counts at the end
    print(dovetail.explain(fn)(*args))                # graphs and breaks of one call

A message begins with a code. These are all of them. The code ...
"""


def graph_breaks() -> str:
    """The text of docs/graph-breaks.md."""
    parts = [HEAD]
    for section, rows in SECTIONS.items():
        parts.append(f"## {section}\n")
        for code, row in rows.items():
            example = "\n".join(f"    {line}" for line in row.example.splitlines())
            parts.append(
                f'<a id="{code}"></a>\n### {code}\n... {row.title}.\n\n{row.explanation}\n\n{example}\n\n'
                f"What to do: {row.remedy}\n"
            )
    return "\n".join(parts)


def main() -> None:
    Path(PAGE).write_text(graph_breaks(), encoding="utf-8")


if __name__ == "__main__":
    main()
