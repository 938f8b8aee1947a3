"""A report as one self-contained HTML file: no network, light and dark, printable, sortable by keyboard."""

import base64
import hashlib
import re
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from ns3l.record.files import write_bytes, writing
from ns3l.report.figures import draw
from ns3l.report.shapes import Report, compact

if TYPE_CHECKING:
    from jinja2 import Template

_SECTIONS = (
    ("curves", "Learning curves"),
    ("grids", "Sensitivity"),
    ("negatives", "Negative labels over time"),
    ("reliability", "Reliability"),
    ("confusion", "Confusion"),
)

_WHOLE = 32
"""Characters of a word that a narrow screen has room for."""


def to_html(report: Report, *, poll: str | None = None) -> str:
    """The report as HTML; `poll` is the version that a served page compares with the server's to reload itself."""
    from markupsafe import Markup

    sections = []
    for key, title in _SECTIONS:
        drawn = [
            (figure, Markup(draw(figure, f"f{index}")))
            for index, figure in enumerate(report.figures)
            if figure.section == key
        ]
        if drawn:
            sections.append((key, title, drawn))
    script = _asset("page.js") + (_asset("reload.js") if poll else "")
    style = _asset("page.css")
    return _template().render(
        report=report,
        tables=[compact(table) for table in report.tables],
        sections=sections,
        script=Markup(script),
        script_hash=_hash(script),
        style=Markup(style),
        poll=poll,
    )


@lru_cache(maxsize=1)
def _template() -> "Template":
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"breakable": breakable, "unbroken": unbroken}
    return environment.from_string(_asset("page.html.j2"))


def breakable(text: str) -> str:
    """A name with places where a narrow column may break it."""
    from markupsafe import Markup, escape

    return Markup("<wbr>").join(escape(part) for part in re.split(r"(?<=[_/+,])", text))


def unbroken(text: str, longest: int = _WHOLE) -> str:
    """A command, path or name whose words up to so many characters stay whole: no line ends at a hyphen of theirs."""
    from markupsafe import Markup

    whole = Markup('<span class="word">{}</span>')
    words = text.split(" ")
    return Markup(" ").join(whole.format(word) if len(word) <= longest else breakable(word) for word in words)


@lru_cache(maxsize=8)
def _asset(name: str) -> str:
    return (resources.files("ns3l.report") / name).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    """The script's hash for the page's content security policy: no other script can run."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def write_html(report: Report, path: str | Path) -> Path:
    """Write the report as one HTML file, whole or not at all."""
    target = Path(path)
    page = to_html(report)
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(target, page.encode(errors="replace"))
    return target
