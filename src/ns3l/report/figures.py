"""Draw a report's figures as SVG that stands on light and dark ground and speaks to screen readers."""

import io
import re
import textwrap
import warnings
from html import escape
from typing import TYPE_CHECKING, Any

from ns3l.report.shapes import Curve, Figure, HeatMap, LineChart

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

PALETTE = ("#3b82c4", "#d55e00", "#00946b", "#a06cd5", "#b07d12", "#c2609a", "#5f8a1e", "#0f8fa3", "#8a7a72", "#7a78e8")
"""Colors that differ for color-blind readers and keep a contrast of 3 on white and on near-black."""

_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", "h")
_DASHES: tuple[Any, ...] = (
    "-",
    (0, (5, 1.5)),
    (0, (1.5, 1.2)),
    (0, (6, 1.5, 1.5, 1.5)),
    (0, (3, 1)),
    (0, (8, 2)),
    (0, (1, 1)),
    (0, (4, 1, 1, 1, 1, 1)),
    (0, (2, 2)),
    (0, (10, 1, 2, 1)),
)
_INK = "#010203"
_ANNOTATED = 12
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 10.5,
    "text.parse_math": False,
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "axes.edgecolor": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.unicode_minus": False,
}


def draw(figure: Figure, identity: str = "figure") -> str:
    """A figure as one `<svg>` element; `identity` keeps its ids apart from those of others on a page."""
    import matplotlib

    with matplotlib.rc_context({**_STYLE, "svg.hashsalt": identity}), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        canvas = _lines(figure) if isinstance(figure, LineChart) else _heat(figure)
        out = io.StringIO()
        canvas.savefig(
            out, format="svg", transparent=True, bbox_inches="tight", pad_inches=0.05, metadata={"Date": None}
        )
    return _inline(out.getvalue(), figure, identity)


def _canvas(width: float, height: float) -> "tuple[Canvas, Axes]":
    from matplotlib.figure import Figure as Canvas

    canvas = Canvas(figsize=(width, height))
    return canvas, canvas.add_subplot()


def _lines(chart: LineChart) -> "Canvas":
    canvas, axes = _canvas(5.0, 3.1)
    axes.grid(True, color=_INK, alpha=0.13, linewidth=0.7)
    if chart.diagonal:
        axes.plot((0, 1), (0, 1), color=_INK, linestyle=":", linewidth=1)
    for curve in chart.curves:
        _line(axes, curve)
    if chart.range_of != "all":
        axes.set_ylim(*_range(chart))
    if not chart.diagonal:
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_xlabel(chart.x_label)
    axes.set_ylabel(chart.y_label)
    columns = 1 if max(len(curve.name) for curve in chart.curves) > 24 else 2
    legend = axes.legend(
        loc="upper left",
        bbox_to_anchor=(0, -0.2),
        ncols=columns,
        frameon=False,
        fontsize=9.5,
        handlelength=3.4,
        borderaxespad=0,
    )
    legend.set_in_layout(True)
    return canvas


def _range(chart: LineChart) -> tuple[float, float]:
    """The y axis from zero, or without the first third of the steps, which would dwarf the rest."""
    start = max(curve.x[-1] for curve in chart.curves) / 3 if chart.range_of == "late" else 0
    points = [
        (mean - std, mean + std)
        for curve in chart.curves
        for x, mean, std in zip(curve.x, curve.mean, curve.std, strict=True)
        if x >= min(start, curve.x[-1])
    ]
    top = max(high for _, high in points)
    if chart.range_of == "zero":
        return 0, 1.08 * top or 1
    bottom = min(low for low, _ in points)
    margin = 0.06 * (top - bottom) or 0.5
    return bottom - margin, top + margin


def _line(axes: "Axes", curve: Curve) -> None:
    index = curve.look
    color, name = PALETTE[index % len(PALETTE)], textwrap.shorten(curve.name, 60, placeholder=" …")
    every = max(1, len(curve.x) // 8)
    axes.plot(
        curve.x,
        curve.mean,
        color=color,
        linestyle=_DASHES[index % len(_DASHES)],
        linewidth=1.8,
        marker=_MARKERS[index % len(_MARKERS)],
        markersize=4.5,
        markevery=every,
        label=f"{name} (n = {curve.n})",
    )
    if any(curve.std):
        low = [mean - std for mean, std in zip(curve.mean, curve.std, strict=True)]
        high = [mean + std for mean, std in zip(curve.mean, curve.std, strict=True)]
        axes.fill_between(curve.x, low, high, color=color, alpha=0.16, linewidth=0)


def _heat(chart: HeatMap) -> "Canvas":
    import matplotlib
    import numpy as np

    rows, columns = len(chart.rows), len(chart.columns)
    canvas, axes = _canvas(max(3.6, min(5.6, 0.62 * columns + 1.6)), max(2.2, min(5.2, 0.5 * rows + 1.2)))
    values = np.array([[np.nan if value is None else value for value in row] for row in chart.values], dtype=float)
    colors = matplotlib.colormaps["cividis"]
    image = axes.imshow(values, cmap=colors, aspect="auto", interpolation="nearest")
    bar = canvas.colorbar(image, ax=axes, fraction=0.05, pad=0.03)
    bar.outline.set_visible(False)
    axes.spines[:].set_visible(False)
    _ticks(axes, chart)
    if max(rows, columns) <= _ANNOTATED:
        _annotate(axes, chart, image)
    if chart.marked is not None:
        _mark(axes, *chart.marked)
    return canvas


def _ticks(axes: "Axes", chart: HeatMap) -> None:
    """Name every class or value; of many only every few."""
    column_step, row_step = (max(1, len(names) // 20) for names in (chart.columns, chart.rows))
    long = max(map(len, chart.columns)) > 4
    axes.set_xticks(
        range(0, len(chart.columns), column_step),
        [_short(name) for name in chart.columns[::column_step]],
        rotation=45 if long else 0,
        ha="right" if long else "center",
        rotation_mode="anchor",
    )
    axes.set_yticks(range(0, len(chart.rows), row_step), [_short(name) for name in chart.rows[::row_step]])
    axes.tick_params(length=0)
    axes.set_xlabel(chart.x_label)
    axes.set_ylabel(chart.y_label)


def _short(name: str) -> str:
    return (
        textwrap.shorten(name, 18, placeholder="…") if " " in name else (name if len(name) <= 18 else name[:17] + "…")
    )


def _annotate(axes: "Axes", chart: HeatMap, image: Any) -> None:
    """Write each value into its cell, light on dark and dark on light."""
    crowded = max(len(chart.columns), len(chart.rows)) > 6
    for row, values in enumerate(chart.values):
        for column, value in enumerate(values):
            if value is None:
                axes.text(column, row, "–", ha="center", va="center")
                continue
            red, green, blue, _ = image.cmap(image.norm(value))
            ink = "#111111" if 0.3 * red + 0.59 * green + 0.11 * blue > 0.5 else "#ffffff"
            star = "★ " if chart.marked == (row, column) else ""
            axes.text(
                column,
                row,
                star + (f"{value:.0f}" if crowded else f"{value:.2f}"),
                ha="center",
                va="center",
                color=ink,
                fontsize=8.5 if crowded else 10,
                fontweight="bold" if star else "normal",
            )


def _mark(axes: "Axes", row: int, column: int) -> None:
    """A frame of two lines around the optimum, seen on any color."""
    from matplotlib.patches import Rectangle

    for inset, color, width in ((0.03, "#ffffff", 3.5), (0.03, "#111111", 1.5)):
        corner = (column - 0.5 + inset, row - 0.5 + inset)
        axes.add_patch(Rectangle(corner, 1 - 2 * inset, 1 - 2 * inset, fill=False, edgecolor=color, linewidth=width))


def _inline(svg: str, figure: Figure, identity: str) -> str:
    """Strip what an inline SVG must not have, take the page's ink and font, and add title and description."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<style[^>]*>.*?</style>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\b(id=")', rf"\1{identity}-", svg)
    svg = re.sub(r'(xlink:href="#|url\(#)', rf"\1{identity}-", svg)
    svg = svg.replace(_INK, "currentColor").replace("'DejaVu Sans'", "system-ui, 'DejaVu Sans'")
    width, height = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg).groups()  # type: ignore[union-attr]
    spoken = (
        f'<title id="{identity}-title">{escape(figure.title)}</title>'
        f'<desc id="{identity}-desc">{escape(describe(figure))}</desc>'
    )
    opening = (
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'viewBox="0 0 {width} {height}"'
        f' width="{width}" height="{height}" role="img" aria-labelledby="{identity}-title {identity}-desc" '
        'stroke-linejoin="round" stroke-linecap="butt">'
    )
    return opening + spoken + svg[svg.index(">") + 1 :].strip()


def describe(figure: Figure) -> str:
    """What the figure shows, in words."""
    if isinstance(figure, LineChart):
        ends = "; ".join(
            f"{curve.name}: {curve.mean[-1]:.4g} at {curve.x[-1]:.4g} (n = {curve.n})" for curve in figure.curves
        )
        return f"{figure.y_label} over {figure.x_label}. At the end, {ends}."
    size = f"{figure.y_label} in {len(figure.rows)} rows, {figure.x_label} in {len(figure.columns)} columns."
    if figure.marked is None:
        return f"Heat map: {size} {figure.caption}"
    row, column = figure.marked
    value = figure.values[row][column]
    shown = "unknown" if value is None else f"{value:.4g}"
    where = f"{figure.y_label} {figure.rows[row]} and {figure.x_label} {figure.columns[column]}"
    return f"Heat map: {size} The optimum is at {where}, with the value {shown}."
