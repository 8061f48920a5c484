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

from supervisor.core.reviews import deliveries
from supervisor.demo.stage import NAME, staged
from supervisor.forges.github import pull_facts

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
    known = {one for example in recorded["pull_request"] for one in fields(example)}
    # What only an App's webhooks have.
    known |= {(".installation", "dict"), (".installation.id", "int")}
    for payload in ours:
        assert set(fields(payload)) - known == set()


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
