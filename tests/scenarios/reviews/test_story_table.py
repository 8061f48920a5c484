"""docs/reviews.md has the table of stories: which run on both forges, and what one can't do."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.conftest import ROOT
from tests.scenarios.reviews.conftest import FORGES

HERE = Path(__file__).parent
# The kinds of stories, by the files that tell them.
KINDS = {
    "reviews": ("test_reviews", "test_reviews_force_push", "test_reviews_hard_changes"),
    "rounds": ("test_reviews_rounds",),
    "mentions": ("test_reviews_mentions",),
    "`.reviewerc`": ("test_reviews_prompts",),
    "money": ("test_budgets",),
    "hold and stop": ("test_reviews_held", "test_reviews_operated"),
    "jobs": ("test_jobs",),
    "polls and trust": ("test_reviews_polled",),
    "`kill -9` at each step": ("test_reviews_killed", "test_jobs_killed"),
    "outages": ("failures/test_f5_tool_or_forge_fails", "failures/test_f9_provider_limit"),
    "a silent backlog": ("failures/test_f8_silent_backlog",),
}
NAMES = {"github": "GitHub", "bitbucket": "Bitbucket"}
START, END = "<!-- stories -->", "<!-- end of stories -->"


def stories(file: str) -> Iterator[tuple[str, str, str]]:
    """Each story of a file in words, and which forge alone tells it, and why."""
    for node in ast.parse((HERE / f"{file}.py").read_text()).body:
        if not isinstance(node, ast.AsyncFunctionDef | ast.FunctionDef):
            continue
        if "forge" not in (one.arg for one in node.args.args) or node.name[:5] != "test_":
            continue
        alone = why = ""
        for mark in node.decorator_list:
            if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.only_on":
                alone, why = (ast.literal_eval(one) for one in mark.args)
        yield node.name[5:].replace("_", " "), alone, why


def table() -> str:
    rows = ["| stories of | GitHub | Bitbucket |", "|---|---|---|"]
    for kind, files in KINDS.items():
        told = [one for file in files for one in stories(file)]
        assert any(not alone for _, alone, _ in told), f"no story of {kind} runs on both"
        rows.append(f"| {kind} | yes | yes |")
        for words, alone, why in told:
            if alone:
                cells = ("yes" if one == alone else f"no: {why}" for one in FORGES)
                rows.append(f"| … {words} | {' | '.join(cells)} |")
    return "\n".join(rows)


def test_the_table_is_in_the_docs() -> None:
    text = (ROOT / "docs" / "reviews.md").read_text()
    found = re.search(f"{START}\n(.*)\n{END}", text, re.DOTALL)
    assert found, f"{START} and {END} are missing"
    assert found[1] == table(), f"write this between {START} and {END}:\n{table()}"


def test_every_story_of_both_is_of_a_kind() -> None:
    told = {file for files in KINDS.values() for file in files}
    there = {
        str(file.relative_to(HERE))[:-3]
        for file in HERE.rglob("test_*.py")
        if next(stories(str(file.relative_to(HERE))[:-3]), None)
    }
    assert there == told
