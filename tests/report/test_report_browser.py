"""The HTML report in a real browser: no console error, no horizontal scroll, tables sorted by the keyboard."""

import shutil
from pathlib import Path

import pytest

from ns3l.report import report, write_html

pytestmark = pytest.mark.browser
STORED = Path(__file__).parent / "stored"
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A browser that shows the report of the stored runs."""
    webdriver = pytest.importorskip("selenium.webdriver")
    service = webdriver.ChromeService(shutil.which("chromedriver"))  # else Selenium asks the network for one
    folder = tmp_path_factory.mktemp("browser")
    path = write_html(report(STORED), folder / "report.html")
    options = webdriver.ChromeOptions()
    for flag in (*FLAGS, f"--user-data-dir={folder / 'profile'}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=service)
    try:
        driver.get(path.as_uri())
        yield driver
    finally:
        driver.quit()


def sized(page, width: int, scheme: str = "light", media: str = "") -> None:
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    feature = {"name": "prefers-color-scheme", "value": scheme}
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": [feature]})


@pytest.mark.parametrize("width", [375, 1440])
def test_nothing_scrolls_sideways(page, width):
    sized(page, width)
    assert page.execute_script("return window.innerWidth") == width
    assert page.execute_script("return document.documentElement.scrollWidth") <= width


_PAPER = 718
"""Pixels of an A4 page between the margins of a print."""

_BROKEN = """
const broken = [], range = document.createRange(), words = /[\\p{L}\\p{N}.±]+|(?<!\\S)--[a-z]+/gu;
const walker = document.createTreeWalker(document.querySelector("body"), NodeFilter.SHOW_TEXT);
for (let node = walker.nextNode(); node; node = walker.nextNode()) {
  if (node.parentElement.closest("script, style, svg, .quiet, .skip, pre")) continue;
  for (const found of node.data.matchAll(words)) {
    range.setStart(node, found.index);
    range.setEnd(node, found.index + found[0].length);
    if (new Set([...range.getClientRects()].map((box) => Math.round(box.top))).size > 1) broken.push(found[0]);
  }
}
return broken;
"""


@pytest.mark.parametrize(("width", "media"), [(375, "screen"), (1440, "screen"), (_PAPER, "print")])
def test_no_word_is_broken(page, width, media):
    sized(page, width, media=media)
    assert page.execute_script(_BROKEN) == []


def test_nothing_is_cut_on_paper(page):
    sized(page, _PAPER, media="print")
    assert page.execute_script("return document.documentElement.scrollWidth") <= _PAPER
    hidden = (
        "return [...document.querySelectorAll('.scroll')].filter((box) => box.clientHeight < box.scrollHeight).length"
    )
    assert page.execute_script(hidden) == 0


_LOOK = """
const box = document.querySelector(`table.${arguments[0]}`).closest(".scroll");
box.scrollIntoView({block: "center", behavior: "instant"});
box.scrollTo(arguments[1], arguments[2]);
const within = box.getBoundingClientRect(), cell = box.querySelector(arguments[3]), at = cell.getBoundingClientRect();
const there = document.elementFromPoint(at.left + 8, at.top + at.height / 2);
return [box.scrollLeft, box.scrollTop, at.left - within.left, at.top - within.top, cell.contains(there)];
"""


@pytest.mark.parametrize("width", [375, 1440])
def test_header_rows_stay_in_sight(page, width):
    sized(page, width)
    _, moved, _, top, seen = page.execute_script(_LOOK, "commands", 0, 10_000, "thead th.head")
    assert moved > 100
    assert abs(top) <= 1
    assert seen


def test_the_method_stays_in_sight_beside_numbers_far_right(page):
    sized(page, 375)
    moved, _, left, _, seen = page.execute_script(_LOOK, "differences", 10_000, 0, "tbody tr:nth-child(2) th")
    assert moved > 100
    assert abs(left) <= 1
    assert seen


def test_the_console_is_silent(page):
    assert page.get_log("browser") == []


@pytest.mark.parametrize("key", ["ENTER", "SPACE"])
def test_tables_are_sorted_by_keyboard(page, key):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    sized(page, 1440)
    table = page.find_element(By.CSS_SELECTOR, "table.results")
    names = [head.text.strip() for head in table.find_elements(By.CSS_SELECTOR, "thead th")]
    place = next(index for index, name in enumerate(names) if name.startswith("Test error"))
    seen = []
    for _ in range(2):
        button = table.find_elements(By.CSS_SELECTOR, "thead button")[place]
        page.execute_script("arguments[0].focus()", button)
        page.switch_to.active_element.send_keys(getattr(Keys, key))
        rows = table.find_elements(By.CSS_SELECTOR, "tbody tr")
        values = [
            float(row.find_elements(By.CSS_SELECTOR, "td, th")[place].get_attribute("data-value")) for row in rows
        ]
        state = table.find_elements(By.CSS_SELECTOR, "thead th")[place].get_attribute("aria-sort")
        assert values == sorted(values, reverse=state == "descending")
        assert state in page.find_element(By.ID, "said").get_attribute("textContent")
        seen.append(state)
    assert sorted(seen) == ["ascending", "descending"]


def test_the_first_tab_leads_to_the_tables(page):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    page.refresh()
    page.find_element(By.TAG_NAME, "body").send_keys(Keys.TAB)
    assert page.switch_to.active_element.get_attribute("href").endswith("#main")


def contrast(first: str, second: str) -> float:
    """The contrast of two colors as `rgb(r, g, b)`, by WCAG."""

    def luminance(color: str) -> float:
        channels = [int(part) / 255 for part in color[color.index("(") + 1 : -1].split(",")[:3]]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    dark, light = sorted((luminance(first), luminance(second)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_on_its_ground(page, scheme):
    sized(page, 1440, scheme)
    ground = page.execute_script("return getComputedStyle(document.body).backgroundColor")
    for where in ("body", "caption", ".statements", "td", "figcaption"):
        ink = page.execute_script(f"return getComputedStyle(document.querySelector('{where}')).color")
        assert contrast(ink, ground) >= 4.5, (where, ink, ground)
