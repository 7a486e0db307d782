"""Line charts side by side as one SVG file, in colours that can be read on light and on dark pages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 300, 190, 52, 26, 20


@dataclass(frozen=True)
class Line:
    """Values at x = 0, 1, 2, ...; what a logarithmic axis cannot show lies on its lower edge."""

    values: Sequence[float]
    colour: str
    width: float = 1.2


@dataclass(frozen=True)
class Panel:
    """`low` to `high` are shown; powers of ten on a logarithmic axis, else multiples of a half."""

    title: str
    lines: Sequence[Line]
    low: float
    high: float
    log: bool = False


def svg(rows: Sequence[Sequence[Panel]], legend: Sequence[tuple[str, str]]) -> str:
    """The panels in rows, under a legend of `(text, colour)`."""
    width, height = WIDTH * max(len(row) for row in rows), HEIGHT * len(rows) + 24
    box = f'viewBox="0 0 {width} {height}"'
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" {box} font-family="sans-serif" font-size="11">']
    x = LEFT
    for text, colour in legend:
        parts.append(f'<path d="M{x} 12h22" stroke="{colour}" stroke-width="3"/>')
        parts.append(_text(x + 28, 16, text, "start"))
        x += 60 + 6 * len(text)
    for i, row in enumerate(rows):
        for j, panel in enumerate(row):
            parts.append(f'<g transform="translate({WIDTH * j} {HEIGHT * i + 24})">{_panel(panel)}</g>')
    return "\n".join([*parts, "</svg>\n"])


def _panel(panel: Panel) -> str:
    inner, depth = WIDTH - LEFT - 14, HEIGHT - TOP - BOTTOM
    place = math.log10 if panel.log else float
    low, high = place(panel.low), place(panel.high)

    def y(value: float) -> float:
        shown = place(min(max(value, panel.low), panel.high))
        return TOP + depth * (high - shown) / (high - low)

    parts = [_text(LEFT, TOP - 8, panel.title, "start")]
    for tick in _ticks(panel):
        parts.append(f'<path d="M{LEFT} {y(tick):.1f}h{inner}" stroke="#888" stroke-opacity=".3"/>')
        parts.append(_text(LEFT - 5, y(tick) + 4, f"{tick:.0e}" if panel.log else f"{tick:.1f}", "end"))
    steps = max(len(line.values) for line in panel.lines)
    for line in panel.lines:
        points = " ".join(f"{LEFT + inner * i / (steps - 1):.1f},{y(v):.1f}" for i, v in enumerate(line.values))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{line.colour}" stroke-width="{line.width}"/>')
    parts.append(_text(LEFT, HEIGHT - 4, "0", "start"))
    parts.append(_text(LEFT + inner, HEIGHT - 4, f"{steps} steps", "end"))
    return "".join(parts)


def _ticks(panel: Panel) -> list[float]:
    if panel.log:
        return [10.0**e for e in range(round(math.log10(panel.low)), round(math.log10(panel.high)) + 1, 2)]
    return [panel.low + i / 2 for i in range(round(2 * (panel.high - panel.low)) + 1)]


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" fill="#888" text-anchor="{anchor}">{escape(text)}</text>'
