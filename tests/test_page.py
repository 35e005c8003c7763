"""The front page: whole, self-contained, right about what deviates, and usable in a browser."""

import dataclasses
import html.parser
import itertools
import re
import shutil
import subprocess

import pytest

from reproduce import page, results
from reproduce.aggregate import read_rows
from reproduce.evidence import PARTS
from reproduce.paths import REFERENCE, Output
from reproduce.record import Record, Records
from reproduce.registry import REGISTRY

pytestmark = pytest.mark.once

BROWSER = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), ""
)
EMPTY = {"meta", "img", "input", "br", "link"}


class Reader(html.parser.HTMLParser):
    """Reads a page: what it loads and links to, its ids, and whether every tag is closed."""

    def __init__(self, content):
        super().__init__()
        self.open, self.loads, self.links, self.ids, self.rows = [], [], [], [], []
        self.feed(content)
        self.close()

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        if tag not in EMPTY:
            self.open.append(tag)
        if tag in ("img", "script", "link", "iframe", "source"):
            self.loads += [value for name, value in attrs if name in ("src", "href", "srcset")]
        if tag == "a":
            self.links.append(found["href"])
        if "id" in found:
            self.ids.append(found["id"])
        if "data-verdict" in found:
            self.rows.append((found["data-artifact"], found["data-verdict"], "hidden" in found))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def accepted(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "index.html"
    path.write_text(page.accepted_page(REFERENCE), encoding="utf-8")
    return path


@pytest.fixture
def records(tmp_path):
    """Records of Theorem 1 whose rows are the accepted ones, but for one number within the tolerance and one beyond."""
    found = Records(Output(root=tmp_path, tier="smoke"))
    rows = read_rows(REFERENCE / "smoke" / "thm1.csv")
    rows[0] = {**rows[0], "exact": rows[0]["exact"] + 5e-6}
    rows[1] = {**rows[1], "exact": rows[1]["exact"] + 0.5}
    by_unit = {unit: list(own) for unit, own in itertools.groupby(rows, key=lambda row: row["unit"])}
    for job in found.jobs(REGISTRY["thm1"]):
        mine = [{name: value for name, value in row.items() if name != "unit"} for row in by_unit[job.unit]]
        found.add(
            Record(
                artifact=job.folder,
                unit=job.unit,
                hash=job.hash,
                version="",
                config=dataclasses.asdict(job.config),
                seed=0,
                rows=mine,
                provenance={"seconds": 30.0, "versions": {"jax": "1.2.3"}},
            )
        )
    results.collect(REGISTRY["thm1"], found)
    return found


def written(records):
    path = page.write_page(records, {"thm1": results.settle([REGISTRY["thm1"]], records.output)}, REFERENCE)
    return path, path.read_text(encoding="utf-8")


def test_the_page_of_accepted_numbers_is_whole_and_loads_nothing(accepted):
    read = Reader(accepted.read_text(encoding="utf-8"))
    assert read.open == []
    assert len(read.loads) > 20 and all(source.startswith("data:image/png;base64,") for source in read.loads)
    assert len(read.ids) == len(set(read.ids))
    anchors = {link[1:] for link in read.links if link.startswith("#") and "=" not in link}
    assert anchors <= set(read.ids)
    assert not any("//" in link for link in read.links)
    shown = {artifact for artifact, _, _ in read.rows}
    assert shown == {name for name in read.ids if name in REGISTRY and REGISTRY[name].claims}


def test_kinds_of_evidence_are_counted_apart(accepted):
    content = accepted.read_text(encoding="utf-8")
    table = re.search(r'<table id="evidence">(.*?)</table>', content, re.DOTALL)[1]
    cells = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in table.split("<tr>")]
    rows = {name: [int(count) for count in counts] for name, *counts in filter(None, cells)}
    assert list(rows) == [name for name in PARTS.values() if name in rows] and len(rows) >= 4
    verdicts = [verdict for _, verdict, _ in Reader(content).rows]
    for at, name in enumerate(("holds", "fails", "equal", "undecided")):
        assert sum(row[at] + row[at + 4] for row in rows.values()) == verdicts.count(name)


def test_numbers_that_deviate_are_in_color_beside_the_accepted_ones(records):
    path, content = written(records)
    assert path == records.output.folder / "index.html"
    assert "Numbers that deviate from the accepted ones by more than is allowed: 1." in content
    assert '1 of 1 artifacts deviate from the accepted numbers: <a href="#thm1">thm1</a>.' in content
    (beyond,) = re.findall(r'<td class="beyond">([^<]+)<span class="was">accepted: ([^<]+)<', content)
    (within,) = re.findall(r'<td class="within">([^<]+)<span class="was">accepted: ([^<]+)<', content)
    assert float(beyond[0]) - float(beyond[1]) == pytest.approx(0.5)
    assert float(within[0]) - float(within[1]) == pytest.approx(5e-6, rel=0.1)


def test_cost_links_and_what_is_not_computed_are_told(records):
    path, content = written(records)
    read = Reader(content)
    assert read.open == [] and read.loads == []
    relative = [link for link in read.links if not link.startswith("#") and not link.startswith("claims.")]
    assert relative == ["csv/thm1.csv", "records/thm1"]
    assert all((path.parent / link).exists() for link in relative)
    assert f"<td class='amount'>{len(records.jobs(REGISTRY['thm1']))}</td><td class='amount'>60 s</td>" in content
    assert "jax 1.2.3" in content
    assert "Not computed: fig01," in content


def test_what_is_from_elsewhere_is_text_not_tags(records):
    lines = results.settle([REGISTRY["thm1"]], records.output)
    claim = dataclasses.replace(lines[0].claim, statement="a < b & <script>alert(1)</script>")
    lines[0] = dataclasses.replace(lines[0], claim=claim)
    path = page.write_page(records, {"thm1": lines}, REFERENCE)
    assert "a &lt; b &amp; &lt;script&gt;alert(1)&lt;/script&gt;" in path.read_text(encoding="utf-8")


def visible_in_a_browser(address, folder):
    """Return the claims that a browser shows, all claims, and what it says how many they are."""
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--dump-dom"]
    command = [BROWSER, *options, f"--user-data-dir={folder}", address]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    rows = Reader(shown).rows
    visible = [(artifact, verdict) for artifact, verdict, hidden in rows if not hidden]
    return visible, [row[:2] for row in rows], re.search(r"<output>(.*?)</output>", shown)[1]


@pytest.mark.skipif(not BROWSER, reason="no browser is installed")
@pytest.mark.parametrize(
    ("filters", "keeps"),
    [
        ("", lambda artifact, verdict: True),
        ("#verdict=fails", lambda artifact, verdict: verdict == "fails"),
        ("#artifact=thm1", lambda artifact, verdict: artifact == "thm1"),
        ("#verdict=holds&artifact=fig05", lambda artifact, verdict: (artifact, verdict) == ("fig05", "holds")),
    ],
)
def test_links_to_filters_work_in_a_browser(accepted, tmp_path, filters, keeps):
    visible, rows, told = visible_in_a_browser(accepted.as_uri() + filters, tmp_path)
    assert visible == [row for row in rows if keeps(*row)]
    assert len(visible) > 0 and (not filters or len(visible) < len(rows))
    assert told == f"{len(visible)} of {len(rows)} claims"


@pytest.mark.skipif(not BROWSER, reason="no browser is installed")
def test_filters_follow_clicks_in_a_browser(accepted, tmp_path):
    # A choice from a list is told by `change`; not every browser says `input`, too.
    clicks = """<script>
      document.querySelector("input[value=holds]").click();
      const list = document.querySelector("select[name=artifact]");
      list.value = "fig05";
      list.dispatchEvent(new Event("change", {bubbles: true}));
    </script></body>"""
    clicked = tmp_path / "clicked.html"
    clicked.write_text(accepted.read_text(encoding="utf-8").replace("</body>", clicks), encoding="utf-8")
    visible, rows, told = visible_in_a_browser(clicked.as_uri(), tmp_path / "profile")
    assert visible == [row for row in rows if row == ("fig05", "holds")] and visible
    assert told == f"{len(visible)} of {len(rows)} claims"
