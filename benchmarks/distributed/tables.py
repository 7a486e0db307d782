"""What was measured, for people."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from ..contenders import CONTENDERS
from ..tables import ABSENT
from .cases import Part

#: By contender and way, joined by a slash: figures, or {"failed": why}.
Rows = dict[str, dict[str, Any]]


def name_of(contender: str, way: str) -> str:
    return f"{contender}/{way}" if way else contender


def _title(name: str) -> str:
    contender, _, way = name.partition("/")
    return f"{CONTENDERS[contender].title}, {way}" if way else CONTENDERS[contender].title


def combined(ranks: list[dict[str, Any]]) -> dict[str, Any]:
    """One figure for all processes: the slowest one's times, the largest memory, the mean of the losses."""
    figures: dict[str, Any] = {key: max(r[key] for r in ranks) for key in ranks[0] if key != "losses"}
    return figures | {"losses": [sum(some) / len(some) for some in zip(*(r["losses"] for r in ranks), strict=True)]}


def drift(losses: list[float], eager: list[float]) -> float:
    """The largest relative difference from eager's losses."""
    return max(abs(a - b) / abs(b) for a, b in zip(losses, eager, strict=True))


def table(part: Part, ranks: int, rows: Rows) -> Table:
    """Losses' differences are told beside those that eager's have when its weights are changed in the last place."""
    made = Table(title=f"{part.title}: {part.sizes.text}, {ranks} processes", title_justify="left")
    made.add_column("contender", no_wrap=True)
    times = ("step ms", "speed-up", "host ms", "first step s")
    for head in (*times, "MiB held", "MiB at most", "last loss", "losses from eager's"):
        made.add_column(head, justify="right")
    eager = rows.get("eager", {})
    for name, found in rows.items():
        made.add_row(_title(name), *_cells(found, eager))
    return made


def _cells(found: dict[str, Any], eager: dict[str, Any]) -> list[str]:
    if "failed" in found:
        return ["[red]failed[/red]"]
    compared = "losses" in eager
    return [
        f"{found['ms']:.2f}",
        f"{eager['ms'] / found['ms']:.2f}x" if compared else ABSENT,
        f"{found['host']:.2f}",
        f"{found['first']:.1f}",
        *(f"{found[key]:.0f}" if key in found else ABSENT for key in ("held", "peak")),
        f"{found['losses'][-1]:.4f}",
        f"{drift(found['losses'], eager['losses']):.1e}" if compared else ABSENT,
    ]
