"""The results in one picture: a bar for each ratio to the official client, a tick for its floor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from .figures import KINDS, outcomes
from .peers import OFFICIAL, OURS
from .report import Results
from .rows import Case

# In pixels of the picture, which is 800 wide.
WIDTH = 800
LABELS = 296
RIGHT = 64
BAR, PITCH, HEADING = 14, 24, 30
TOP, BOTTOM = 62, 34

# With its own background, because a page may be dark while the system is light, or the reverse.
STYLE = """
.ground{fill:#ffffff}
text{font:13px system-ui,sans-serif;fill:#1f2937}
.title{font-size:16px;font-weight:600}
.group{font-weight:600}
.label{text-anchor:end}
.value{font-weight:600}
.axis,.note{font-size:12px;fill:#5b6472}
.axis{text-anchor:middle}
.grid{stroke:#8b95a5;stroke-opacity:.35}
.one{stroke:#8b95a5}
.bar{fill:#2f7ed8}
.missed{fill:#d9822b}
.floor{stroke:#111827;stroke-width:2.5}
@media (prefers-color-scheme:dark){
.ground{fill:#0d1117}
text{fill:#e5e7eb}
.axis,.note{fill:#a3adbb}
.floor{stroke:#f9fafb}
}
"""


@dataclass(frozen=True)
class Bar:
    label: str
    group: str
    ratio: float
    floor: float
    met: bool


def bars(cases: Sequence[Case], results: Results) -> list[Bar]:
    """Return a bar for each floor that is a ratio to the official client."""
    found = []
    for case in cases:
        for outcome in outcomes(case, results[case.name]):
            row = outcome.row
            if row.run != OURS or not (row.against or "").startswith(OFFICIAL):
                continue
            if row.at_least is None or outcome.ratio is None:
                continue
            kind = KINDS[row.figure]
            # A label without a kind means a rate.
            label = f"{case.name}: {kind.label[:3]}" if kind.less_is_better else case.name
            met = bool(outcome.met)
            found.append(Bar(label, case.group, outcome.ratio.median, row.at_least, met))
    return found


@dataclass(frozen=True)
class Scale:
    """A logarithmic axis. 1 is at the left edge, unless a bar is below it."""

    low: float
    high: float

    @classmethod
    def over(cls, bars: Sequence[Bar]) -> Scale:
        values = [value for bar in bars for value in (bar.ratio, bar.floor) if value > 0]
        low = 10 ** math.floor(math.log10(min(values))) if min(values) < 1 else 1.0
        return cls(low, max(10.0, max(values)) * 1.1)

    def x(self, value: float) -> float:
        """Return the position of a ratio. A ratio outside the axis is at its edge."""
        part = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        return LABELS + min(part, 1.0) * (WIDTH - LABELS - RIGHT)

    def ticks(self) -> list[float]:
        powers = range(round(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        steps = (digit * 10.0**power for power in powers for digit in (1, 2, 5))
        return [step for step in steps if self.low <= step <= self.high]


def draw(cases: Sequence[Case], results: Results) -> str:
    """Return the picture as SVG.

    Raises:
        ValueError: There is nothing to draw.
    """
    shown = bars(cases, results)
    if not shown:
        raise ValueError("no ratio to the official client was measured")
    scale = Scale.over(shown)
    body, y = [], float(TOP)
    for index, bar in enumerate(shown):
        if index == 0 or shown[index - 1].group != bar.group:
            y += HEADING
            body.append(f'<text class="group" x="8" y="{y - 8:g}">{escape(bar.group)}</text>')
        body.append(_bar(bar, y, scale))
        y += PITCH
    title = "How many times faster than the official client (log scale)"
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + BOTTOM:g}"'
            f' width="{WIDTH}" height="{y + BOTTOM:g}" role="img">',
            f"<title>{title}</title>",
            f"<style>{STYLE}</style>",
            '<rect class="ground" width="100%" height="100%"/>',
            f'<text class="title" x="8" y="24">{title}</text>',
            *_legend(),
            *_grid(scale, y),
            *body,
            "</svg>\n",
        )
    )


def _bar(bar: Bar, y: float, scale: Scale) -> str:
    middle, start = y + PITCH / 2, scale.x(1)
    # Not dominant-baseline, which some programs do not know.
    baseline = middle + 4.5
    end, floor = scale.x(bar.ratio), scale.x(bar.floor)
    left, width = min(start, end), abs(end - start)
    value = f"{bar.ratio:.1f}" if bar.ratio < 100 else f"{bar.ratio:.0f}"
    # The value is to the right of its bar and never on its tick.
    right = left + width
    right_end = floor if right <= floor < right + 48 else right
    return (
        f'<text class="label" x="{LABELS - 10}" y="{baseline:g}">{escape(bar.label)}</text>'
        f'<rect class="bar{"" if bar.met else " missed"}" x="{left:.1f}" y="{middle - BAR / 2:g}"'
        f' width="{max(width, 1):.1f}" height="{BAR}" rx="2"/>'
        f'<path class="floor" d="M{floor:.1f},{middle - BAR / 2 - 3:g}v{BAR + 6}"/>'
        f'<text class="value" x="{right_end + 7:.1f}" y="{baseline:g}">{value}</text>'
    )


def _legend() -> list[str]:
    y = 44
    return [
        f'<rect class="bar" x="8" y="{y - 10}" width="22" height="10" rx="2"/>',
        f'<text class="note" x="36" y="{y}">pullstream</text>',
        f'<rect class="bar missed" x="118" y="{y - 10}" width="22" height="10" rx="2"/>',
        f'<text class="note" x="146" y="{y}">below its floor</text>',
        f'<path class="floor" d="M256,{y - 13}v16"/>',
        f'<text class="note" x="264" y="{y}">floor: what it must reach</text>',
    ]


def _grid(scale: Scale, bottom: float) -> list[str]:
    lines = []
    for tick in scale.ticks():
        x, kind = scale.x(tick), "one" if tick == 1 else "grid"
        lines.append(f'<path class="{kind}" d="M{x:.1f},{TOP + 6}V{bottom + 4:g}"/>')
        lines.append(f'<text class="axis" x="{x:.1f}" y="{bottom + 22:g}">{tick:g} x</text>')
    return lines
