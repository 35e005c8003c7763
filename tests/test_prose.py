"""Sentences of the README, the documentation and the paper say nothing about results that the accepted numbers deny."""

import pathlib
import re

import pytest

from reproduce.accepted import best_accepted
from reproduce.aggregate import read_rows
from reproduce.claims import Verdict, judge
from reproduce.paths import REFERENCE
from reproduce.registry import CLAIMS, JUDGED_BY, REGISTRY

pytestmark = pytest.mark.once

ROOT = pathlib.Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "paper").rglob("*.typ")]
TEXTS = {page.relative_to(ROOT).as_posix(): page.read_text() for page in PAGES}

# A substitute is called by what it is, "digits instead of ImageNet": it stands for nothing else.
SUBSTITUTE = re.compile(r"\bstands?[ -]in\s+for\b|\bstand-ins?\b", re.IGNORECASE)

NAMED = re.compile(r"`((?:fig|tab|thm|rep_|dec_|testbed_)\w*-[\w-]+)`|\b(Figure|Table|Theorem) (\d+)\b")
SAID = {
    Verdict.HOLDS: re.compile(r"(?<!not )\bholds?\b"),
    Verdict.FAILS: re.compile(r"\b(?:does|do) not hold\b"),
    Verdict.UNDECIDED: re.compile(r"\b(?:is|are|stays?) undecided\b"),
}


def verdicts_of(claims):
    """Return the verdicts on claims, each by the best accepted numbers."""
    found = set()
    for claim in claims:
        accepted = best_accepted(JUDGED_BY[claim.id].id, REFERENCE)
        found |= {judge(claim, read_rows(accepted.path)).verdict} if accepted else set()
    return found


def denied(text):
    """Return the sentences that give a claim, figure or theorem a verdict that no accepted number has."""
    wrong = []
    for sentence in re.split(r"(?<=[.:;!?])\s+|\n\n|^[-|] ", text, flags=re.MULTILINE):
        for verdict, words in SAID.items():
            if not words.search(sentence):
                continue
            for name, kind, number in NAMED.findall(sentence):
                prefix = {"Figure": "fig", "Table": "tab", "Theorem": "thm"}.get(kind, "") + number
                own = f"{prefix[:3]}{int(number):02d}" if kind in ("Figure", "Table") else prefix
                claims = [CLAIMS[name]] if name in CLAIMS else REGISTRY[own].claims if own in REGISTRY else ()
                if claims and verdict not in verdicts_of(claims):
                    wrong.append(" ".join(sentence.split()))
    return wrong


@pytest.mark.parametrize("page", TEXTS)
def test_nothing_is_said_to_stand_for_something_else(page):
    assert not SUBSTITUTE.findall(TEXTS[page])


@pytest.mark.parametrize("page", TEXTS)
def test_verdicts_in_sentences_are_those_of_the_accepted_numbers(page):
    assert not denied(TEXTS[page])


@pytest.mark.parametrize("text", ["Digits stand in for ImageNet.", "what stands in\nfor what", "a stand-in for CIFAR"])
def test_substitutes_are_found(text):
    assert SUBSTITUTE.search(text)


def test_wrong_verdicts_are_found_and_right_ones_are_not():
    assert denied("At tier laptop one claim of Theorem 1 does not hold: by chance.")
    assert denied("We note that `thm1-optimum` is undecided.")
    (failed, *_) = (claim for claim in CLAIMS.values() if verdicts_of([claim]) == {Verdict.FAILS})
    assert denied(f"On all networks `{failed.id}` holds.")
    assert not denied(f"Here `{failed.id}` does not hold. All of Theorem 1 holds.")
