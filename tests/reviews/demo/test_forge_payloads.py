"""The demo's webhooks beside recorded ones of GitHub's: no field that the real one hasn't, none of
another type; and every recorded one is read."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from supervisor.reviews.core import deliveries
from supervisor.reviews.demo.stage import NAME, staged
from supervisor.reviews.forges.github_facts import comment_facts, posted_comment, pull_facts

# In docs.github.com/webhooks, and in no recorded one: none is about a comment on a pull request,
# or an answer.
DOCUMENTED = {
    (".issue.pull_request", "dict"),
    (".issue.pull_request.html_url", "str"),
    (".comment.in_reply_to_id", "int"),
}
PACKAGE = "@octokit/webhooks-examples@7.6.1"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """The recorded payloads of each event."""
    if shutil.which("npm") is None:
        pytest.skip("there is no npm")
    folder = tmp_path_factory.mktemp("examples")
    subprocess.run(
        ["npm", "pack", "--silent", PACKAGE], cwd=folder, check=True, capture_output=True
    )
    (archive,) = folder.glob("*.tgz")
    subprocess.run(["tar", "xzf", archive.name], cwd=folder, check=True)
    text = (folder / "package/api.github.com/index.json").read_text()
    return {one["name"]: one["examples"] for one in json.loads(text)}


def fields(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Every field with its type, by path."""
    yield path, type(value).__name__
    if isinstance(value, dict):
        for key, one in value.items():
            yield from fields(one, f"{path}.{key}")
    elif isinstance(value, list) and value:
        yield from fields(value[0], f"{path}[]")


def test_ours_have_nothing_that_the_real_ones_have_not(
    recorded: dict[str, list[Any]], tmp_path: Path
) -> None:
    with staged(tmp_path) as stage:
        forge = stage.forge
        forge.commit(NAME, "x", {"a.py": "x\n"}, "x", base="main")
        forge.hook = ("http://127.0.0.1:1/", b"nobody")
        pull = forge.open_pull(NAME, "x", title="X", body="Why")
        forge.push(NAME, pull.number, {"b.py": "y\n"}, "more")
        forge.label(NAME, pull.number, "gatehouse:review", by="ada")
        forge.close(NAME, pull.number)
        forge.until_sent()
        ours = [json.loads(one.payload) for one in forge.sent]
    assert [one["action"] for one in ours] == ["opened", "synchronize", "labeled", "closed"]
    for payload in ours:
        assert set(fields(payload)) - known_fields(recorded, "pull_request") == set()


def test_what_people_say_has_nothing_that_the_real_ones_have_not(
    recorded: dict[str, list[Any]], tmp_path: Path
) -> None:
    with staged(tmp_path) as stage:
        forge = stage.forge
        forge.commit(NAME, "x", {"a.py": "x\n"}, "x", base="main")
        pull = forge.open_pull(NAME, "x", title="X", body="Why")
        forge.until_sent()
        forge.hook = ("http://127.0.0.1:1/", b"nobody")
        said = forge.comment(NAME, pull.number, author="ada", body="Hm")
        forge.edit_comment(NAME, said["id"], "Ha")
        forge.comment(NAME, forge.open_issue(NAME, "Slow").number, author="ada", body="Hm")
        repository = forge.repositories[NAME]
        review = forge.add_review(repository, pull, "ada", "", "COMMENTED", pull.head_sha)
        forge.add_beside(repository, pull, "ada", {"path": "a.py", "line": 1, "body": "No"}, review)
        forge.reply(NAME, pull.number, to=pull.comments[0]["id"], author="bob", body="Yes")
        forge.until_sent()
        ours = [(one.event, json.loads(one.payload)) for one in forge.sent]
    assert [(event, one["action"]) for event, one in ours] == [
        ("issue_comment", "created"),
        ("issue_comment", "edited"),
        ("issue_comment", "created"),
        ("pull_request_review_comment", "created"),
        ("pull_request_review_comment", "created"),
    ]
    for event, payload in ours:
        assert set(fields(payload)) - known_fields(recorded, event) == set(), event


def known_fields(recorded: dict[str, list[Any]], event: str) -> set[tuple[str, str]]:
    """Every field of the recorded ones, and what only an App's webhooks have."""
    found = {one for example in recorded[event] for one in fields(example)}
    found |= {(".installation", "dict"), (".installation.id", "int")}
    found |= {one for example in recorded["pull_request"] for one in fields(example)}
    return found | DOCUMENTED


def test_every_recorded_one_is_read(recorded: dict[str, list[Any]]) -> None:
    for event, examples in recorded.items():
        for example in examples:
            body = deliveries.read_body(msgspec.json.encode(example))
            name = deliveries.repository_name(body)
            assert name == (example.get("repository") or {}).get("full_name", ""), event
    for example in recorded["pull_request"]:
        assert deliveries.pull_number(example) == example["pull_request"]["number"]
        facts = pull_facts(example["pull_request"])
        assert facts.head_sha == example["pull_request"]["head"]["sha"]
        assert deliveries.is_sha(facts.base_sha)
        assert deliveries.is_branch(facts.base_ref)
    for example in recorded["issue_comment"]:
        number = example["issue"]["number"] if "pull_request" in example["issue"] else None
        assert posted_comment(example["comment"]).number == number
    for example in recorded["pull_request_review_comment"]:
        said = example["comment"]
        assert posted_comment(said).number == example["pull_request"]["number"]
        facts = comment_facts(said)
        assert (facts.id, facts.review_id) == (said["id"], said["pull_request_review_id"])
        assert deliveries.is_sha(facts.commit)
