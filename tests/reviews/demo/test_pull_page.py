"""The demo forge's page of a pull request: what a forge would make live is live on it, so that what
stays text elsewhere is seen to be text here, too."""

import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from supervisor.reviews.demo.forge import DemoPull
from supervisor.reviews.demo.pull_page import anchor, rendered
from supervisor.reviews.demo.stage import NAME, Stage, staged
from tests.tables import each_row


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with staged(tmp_path / "stage") as found:
        yield found


class _Rows(HTMLParser):
    """The text of each row of the diffs on a page."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag == "tr":
            self.rows.append("")
        elif tag == "td" and self.rows:
            self.rows[-1] += " "

    def handle_data(self, data: str) -> None:
        if self.rows:
            self.rows[-1] += data


def rows(html: str) -> list[str]:
    reader = _Rows()
    reader.feed(html)
    return [re.sub(r"\s+", " ", one).strip() for one in reader.rows]


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()


def reviewed(stage: Stage, line: int = 5, body: str = "Why **this**?") -> DemoPull:
    pull = stage.open_pull("http://127.0.0.1:9")
    stage.forge.hook = None
    repository = stage.forge.repositories[NAME]
    review = stage.forge.add_review(
        repository, pull, "bob", "All in all.", "CHANGES_REQUESTED", pull.head_sha
    )
    wanted = {"path": "shop/cart.py", "line": line, "body": body}
    stage.forge.add_beside(repository, pull, "bob", wanted, review)
    return pull


def test_a_comment_stands_below_its_line(stage: Stage) -> None:
    pull = reviewed(stage)
    stage.forge.comment(NAME, 1, author="ada", body="Thanks!")
    html = get(f"{stage.forge.url}/{NAME}/pull/1")
    found = rows(html)
    at = next(number for number, one in enumerate(found) if "Why this?" in one)
    assert found[at - 1] == "5 + def average(items):"
    assert "Why <strong>this</strong>?" in html
    for text in (pull.title, "requested changes", "All in all.", "Thanks!", "+ return total"):
        assert text in re.sub(r"\s+", " ", html) or text in " ".join(found), text
    for one in (*pull.reviews, *pull.comments, *pull.issue_comments):
        assert f'id="{anchor(one)}"' in html


def test_a_comment_whose_line_is_gone_is_outdated(stage: Stage) -> None:
    reviewed(stage)
    stage.forge.push(NAME, 1, {"shop/cart.py": "def total(items):\n    return 1\n"}, "Less")
    html = get(f"{stage.forge.url}/{NAME}/pull/1")
    assert "Why" not in html.partition("Outdated")[0]
    assert "on line 5 of shop/cart.py" in html.partition("Outdated")[2]


def test_what_there_is_not_is_not_found(stage: Stage) -> None:
    reviewed(stage)
    for path in (f"/{NAME}/pull/2", "/no/such/pull/1", "/-/other.css"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            get(f"{stage.forge.url}{path}")
        refused.value.close()
        assert refused.value.code == 404
    assert "--accent" in get(f"{stage.forge.url}/-/tokens.css")


LIVE = {
    "a link": ("[a](https://e.test)", "<a "),
    "a bare address": ("see https://e.test/x", '<a href="https://e.test/x" rel="'),
    "www": ("see www.e.test", '<a href="www.e.test" rel="'),
    "an escaped mention": ("ask \\@ada", '<a class="mention" href="/ada">@ada</a>'),
    "an image": ("![a](https://e.test/a.png)", "<img "),
    "a mention": ("ask @ada, @acme/all", '<a class="mention" href="/ada">@ada</a>'),
    "an issue": ("as in #12", '<a class="issue" href="12">#12</a>'),
    "HTML": ("a <b>c</b>", "<b>c</b>"),
    "a heading": ("# a", "<h1>a</h1>"),
}
DEAD = {
    "code": ("`@ada #1 https://e.test`", "<code>@ada #1 https://e.test</code>"),
    "an escaped address": (r"see https\://e.test", "<p>see https://e.test</p>"),
    "a script": ("a<script>alert(1)</script>", "<p>a</p>"),
    "an address of script": ("[a](javascript:alert(1))", "[a](javascript:alert(1))"),
}


@each_row(("markdown", "html"), [*LIVE.values(), *DEAD.values()], ids=[*LIVE, *DEAD])
def test_markdown_is_what_a_forge_makes_of_it(markdown: str, html: str) -> None:
    assert html in rendered(markdown)


def test_as_on_bitbucket_html_is_text_and_what_is_resolved_and_approved_is_said(
    tmp_path: Path,
) -> None:
    with staged(tmp_path / "stage", "bitbucket") as stage:
        pull = reviewed(stage, body="Why <b>this</b>?\n\n`gatehouse:1`")
        pull.resolved[pull.comments[0]["id"]] = "ada"
        pull.verdicts["ada"] = "approved"
        html = get(f"{stage.forge.url}/{NAME}/pull-requests/1")
        assert "Why &lt;b&gt;this&lt;/b&gt;?" in html
        assert "<code>gatehouse:1</code>" in html
        assert ", resolved by ada" in html
        assert '<strong>ada</strong><span class="badge">approved</span>' in html
        assert f'id="comment-{pull.comments[0]["id"]}"' in html
