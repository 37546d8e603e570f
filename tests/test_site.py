"""The site of `make docs`: pages and an API reference, without warnings, that has every public name."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import headrace
from headrace import log, storm, testing
from headrace.dialects import dstreams, millwheel, naiad
from headrace.dialects.sql import sqlsession
from tests.scale import only_full

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return folder


@only_full("docstrings of all public names are run")
@pytest.mark.slow("builds the site")
def test_the_reference_has_every_public_name(site: Path) -> None:
    reference = "".join(page.read_text("utf-8") for page in site.glob("reference/*.html"))
    found = set(re.findall(r'<h[2-6] id="([\w.]+)"', reference))
    elsewhere = {"dstreams", "millwheel", "naiad", "storm", "Log", "SqlSession"}  # with the packages that they are of
    names = {f"headrace.{name}" for name in headrace.__all__ if name not in elsewhere}
    for package in (dstreams, millwheel, naiad, storm, sqlsession, log, testing):
        names |= {f"{package.__name__}.{name}" for name in package.__all__}
    assert len(names) > 150
    assert names - found == set()


@only_full("docstrings of all public names are run")
@pytest.mark.slow("builds the site")
def test_the_reference_has_signatures_and_examples(site: Path) -> None:
    page = (site / "reference/windows.html").read_text("utf-8")
    text = re.sub(r"<[^>]+>", "", page)
    assert re.search(r"SlidingWindows\(\s*size", text)
    assert "&gt;&gt;&gt; " in text
    assert not re.search("<p>[^<]*&gt;&gt;&gt;", page)  # as code, not as text


def test_pages_link_to_no_file_that_the_site_lacks(site: Path) -> None:
    links = {
        (page.parent / link).resolve()
        for page in site.rglob("*.html")
        for link in re.findall(r'<a [^>]*href="([^"#:]+)[#"]', page.read_text("utf-8"))
        if page.name != "404.html"
    }
    assert {link for link in links if not link.exists()} == set()
