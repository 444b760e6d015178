"""Pictures as SVG text that stands alone: no script, font, file or address. Pure; colours are readable on light and dark."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence

Points = Sequence[tuple[float, float]]

_COLOURS = ("#3b82c4", "#d9822b", "#4a9c5d", "#b65fb0", "#8a8a2e")
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 460, 190, 52, 12, 26, 30
_FONT = 'font-family="sans-serif" font-size="11" fill="currentColor"'


def number(value: float) -> str:
    return f"{value:.4g}"


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """At most `most` + 1 round numbers that lie in [low, high]."""
    if not high > low:
        return [low]
    raw = (high - low) / most
    step = 10.0 ** math.floor(math.log10(raw))
    step *= next(times for times in (1, 2, 5, 10) if step * times >= raw * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    return [round(index * step, 12) for index in range(first, math.floor(high / step + 1e-9) + 1)]


def thinned(points: Points, most: int = 600) -> list[tuple[float, float]]:
    """At most about `most` of the points: of each stretch its lowest and highest, so that no peak is lost."""
    points = list(points)
    if len(points) <= most:
        return points
    size = math.ceil(len(points) / (most / 2))
    kept = []
    for start in range(0, len(points), size):
        part = points[start:start + size]
        kept += sorted({min(part, key=lambda p: p[1]), max(part, key=lambda p: p[1])})
    return kept


def line_chart(title: str, series: Mapping[str, Points]) -> str:
    """Lines over steps; a series without points is left out, a chart without any is "". Titles are escaped."""
    drawn = {name: thinned(points) for name, points in series.items() if points}
    if not drawn:
        return ""
    xs = [x for points in drawn.values() for x, _ in points]
    ys = [y for points in drawn.values() for _, y in points]
    left, right, low, high = min(xs), max(xs), min(ys), max(ys)
    if high == low:
        low, high = low - (abs(low) or 1) * 0.05, high + (abs(high) or 1) * 0.05

    def at(x: float, y: float) -> tuple[float, float]:
        across = (x - left) / (right - left) if right > left else 0.5
        return (_LEFT + across * (_WIDTH - _LEFT - _RIGHT), _TOP + (high - y) / (high - low) * (_HEIGHT - _TOP - _BOTTOM))

    said = "; ".join(f"{name} {number(points[0][1])} to {number(points[-1][1])}" for name, points in drawn.items())
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}" '
           f'role="img" aria-label="{html.escape(title)}: {html.escape(said)}">',
           f'<text x="{_LEFT}" y="14" {_FONT} font-weight="bold">{html.escape(title)}</text>']
    for y in ticks(low, high, 4):
        height = at(left, y)[1]
        out.append(f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{height:.1f}" y2="{height:.1f}" stroke="currentColor" '
                   f'stroke-opacity="0.15"/><text x="{_LEFT - 5}" y="{height + 4:.1f}" text-anchor="end" {_FONT}>'
                   f'{number(y)}</text>')
    for x in ticks(left, right):
        out.append(f'<text x="{at(x, low)[0]:.1f}" y="{_HEIGHT - 10}" text-anchor="middle" {_FONT}>{number(x)}</text>')
    for index, (name, points) in enumerate(drawn.items()):
        colour = _COLOURS[index % len(_COLOURS)]
        places = [at(x, y) for x, y in points]
        out.append(f'<polyline fill="none" stroke="{colour}" stroke-width="1.5" points="' +
                   " ".join(f"{x:.1f},{y:.1f}" for x, y in places) + '"/>')
        if len(places) < 30:
            out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.2" fill="{colour}"/>' for x, y in places]
        out.append(f'<text x="{_WIDTH - _RIGHT - 110 * (len(drawn) - 1 - index)}" y="14" text-anchor="end" {_FONT}>'
                   f'<tspan fill="{colour}">■</tspan> {html.escape(name)}</text>')
    return "".join(out) + "</svg>"


def head_grid(layers: Sequence[tuple[Sequence[float], set[int]]]) -> str:
    """Layers downwards, heads across: the darker, the higher a head's entropy in nats; chosen heads have a frame and a dot."""
    heads = max((max([len(scores), *(head + 1 for head in chosen)]) for scores, chosen in layers), default=0)
    if heads == 0:
        return ""
    cell, left, top = 14, 34, 34
    width, height = left + heads * cell + 10, top + len(layers) * cell + 6
    known = [score for scores, _ in layers for score in scores]
    low, high = min(known, default=0.0), max(known, default=0.0)
    total = sum(len(chosen) for _, chosen in layers)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {max(width, 220)} {height}" width="{max(width, 220)}" '
           f'height="{height}" role="img" aria-label="{total} of {heads * len(layers)} heads selected">',
           f'<text x="{left}" y="14" {_FONT} font-weight="bold">Heads: {total} of {heads * len(layers)} selected</text>']
    for layer, (scores, chosen) in enumerate(layers):
        y = top + layer * cell
        if layer % 5 == 0 or layer == len(layers) - 1:
            out.append(f'<text x="{left - 6}" y="{y + 11}" text-anchor="end" {_FONT}>{layer}</text>')
        for head in range(heads):
            strength = (scores[head] - low) / (high - low) if head < len(scores) and high > low else 0.0
            score = f", entropy {number(scores[head])}" if head < len(scores) else ""
            x, is_chosen = left + head * cell, head in chosen
            out.append(f'<rect x="{x}" y="{y}" width="{cell - 2}" height="{cell - 2}" fill="#3b82c4" '
                       f'fill-opacity="{0.08 + 0.8 * strength:.2f}" stroke="{"#d9822b" if is_chosen else "none"}" '
                       f'stroke-width="2"><title>layer {layer}, head {head}{score}{", selected" if is_chosen else ""}'
                       '</title></rect>')
            if is_chosen:
                out.append(f'<circle cx="{x + 6}" cy="{y + 6}" r="2.2" fill="#d9822b"/>')
    for head in range(0, heads, 4):
        out.append(f'<text x="{left + head * cell + 6}" y="{top - 6}" text-anchor="middle" {_FONT}>{head}</text>')
    return "".join(out) + "</svg>"
