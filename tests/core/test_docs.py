# SPDX-License-Identifier: Apache-2.0
"""Docs that quote the tree: a fence that names a file must be a piece of that file; links must lead somewhere."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
SNIPPETS = [
    (page, file, text)
    for page in PAGES
    for file, text in re.findall(r"^```\w+ (\S+/\S+)\n(.*?)^```", page.read_text(), re.M | re.S)
]
LINKS = [(p, link) for p in PAGES for link in re.findall(r"\]\((?!https?:|#)([^)#\s]+)[)#]", p.read_text())]


@pytest.mark.parametrize(
    "page, file, text", SNIPPETS, ids=[f"{p.name}-{f}-{i}" for i, (p, f, _) in enumerate(SNIPPETS)]
)
def test_snippet_is_in_its_file(page, file, text):
    assert text.rstrip("\n") in (ROOT / file).read_text(), f"{page.name} quotes {file} as it no longer is"


@pytest.mark.parametrize("page, link", LINKS, ids=[f"{p.name}-{link}" for p, link in LINKS])
def test_link_leads_somewhere(page, link):
    assert (page.parent / link).exists()


def test_there_are_snippets():
    assert len(SNIPPETS) >= 4


def test_every_family_is_named():
    for file in (ROOT / "schema").glob("*.toml"):
        for page in ("README.md", "CHANGELOG.md"):
            assert file.stem in (ROOT / page).read_text(), f"{page} does not say that there is {file.stem}"
