"""Every page and part of the operator's site answers under every shipped policy, in each state that
a user's Gatehouse has: as a browser loads it, by following what the pages name."""

import base64
import json
import re
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import ROOT
from tests.doors.conftest import House, until

POLICIES = (ROOT / "policy/default.yaml", *sorted((ROOT / "policy/examples").glob("*.yaml")))
# Tried by `make test`; the others by `make test-many`.
_SHARE = {"default"}
_GET = re.compile(r"^@get\(\s*\"([^\"]+)\"", re.MULTILINE)
# Requests and sessions in a path. Of pages that differ in these alone a few are loaded.
_HEX = re.compile(r"[0-9a-f]{32}")
_MOST_ALIKE = 4
# Pages of what isn't on here: each says so.
_OFF = {"/reviews", "/metrics"}
# What the walk doesn't come to, and which test does.
_ELSEWHERE = {
    "/login": "tests/doors/conftest.py signs in by it",
    "/health": "tests/scenarios/test_command_line.py",
    "/reviews/{run_id:str}": "tests/doors/test_demo.py",
    "/repos/{repository_id:str}": "tests/doors/test_demo.py",
    "/job-runs/{run_id:str}": "tests/doors/test_jobs.py",
    "/parts/told": "tests/browser/test_told.py",
    "/parts/printed/{request_id:str}": "tests/browser/test_told.py",
    "/parts/progress/{session_id:str}": "tests/browser/test_told.py",
    "/parts/act/{request_id:str}": "tests/doors/test_demo.py",
    "/parts/sessions/{session_id:str}/screen": "tests/doors/test_session_page.py",
}

# An agent that asks for changed files, a push, an install and a connection.
_ASKS = """
mkdir -p deep/er
for n in $(seq {files}); do seq 300 > deep/er/new-$n.txt; done
seq 1000 | sed "s/^500$/{files}/" > long.txt
seq 1000 >> README.md
git add -A; git -c user.name=A -c user.email=a@b.example commit -qm work
ask() { curl -s -m 3 "$GATEHOUSE_URL/v1/exec" -H "Authorization: Bearer $GATEHOUSE_TOKEN" \
  -H "Content-Type: application/json" -d '{"command": "'"$1"'"}'; echo; }
ask "git push origin HEAD:refs/heads/feature/x" &
curl -s -m 9 http://169.254.169.254/
wait
"""


class _Named(HTMLParser):
    """What a page names to be loaded: links, and what htmx gets by itself or at a press."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        have = {name: value or "" for name, value in attrs}
        values = have.get("hx-vals", "{}")
        for name in ("href", "src", "hx-get"):
            path = have.get(name, "").partition("#")[0]
            if path.startswith("/") and not path.startswith("//"):
                more = json.loads(values) if name == "hx-get" and values.startswith("{") else {}
                self.found.append(str(httpx.URL(path).copy_merge_params(more)))


def walked(house: House, *scripted: str) -> set[str]:
    """Load all that the inbox leads to, and what its script asks for, and check each answer; their
    paths."""
    found: dict[str, int] = {}
    alike: Counter[str] = Counter()
    waiting = ["/", *_OFF, *scripted]
    while waiting:
        path = waiting.pop()
        kind = _HEX.sub("*", path)
        if path in found or (alike[kind] >= _MOST_ALIKE and path not in scripted):
            continue
        alike[kind] += 1
        answer = house.page.get(path)
        found[path] = answer.status_code
        if answer.headers.get("content-type", "").startswith("text/html"):
            assert "Undefined" not in answer.text, path
            waiting += _Named(answer.text).found
    assert not {path: code for path, code in found.items() if code >= 400 and path not in _OFF}
    return {path.partition("?")[0] for path in found}


def _pending(house: House) -> list[dict[str, Any]]:
    return [one for one in house.requests() if one["status"] == "pending"]


def lived(house: House, session: str) -> set[str]:
    """The same after the person answered some, and changed a file that waits."""
    waiting = _pending(house)
    if not any(one["category"] == "filesystem" for one in waiting):
        return walked(house)  # a policy that denies changed files
    for one in waiting:
        if one["category"] == "network":
            house.ok("deny", one["id"])
        elif one["title"].endswith("long.txt"):
            seen = house.page.get(f"/api/requests/{one['id']}").json()["seen"]
            house.ok("approve", one["id"], *(("--seen", seen) if seen else ()))
    (house.workspace / "README.md").write_text("# Shop of mine\n")
    network = f"/api/sessions/{session}/network"
    until(lambda: house.page.get(network).json()["exchanges"], "the connection")
    until(lambda: any("conflict" in str(one["flags"]) for one in _pending(house)), "the conflict")
    return walked(
        house,
        *(f"/parts/card/{one['id']}" for one in _pending(house)),
        f"/parts/card/changes:{session}",
        f"/parts/change_set/{session}",
        f"/parts/changes/{session}/files?start=0",
        f"/parts/changes/{session}/folder?below={base64.b64encode(b'deep').decode()}",
        *(f"/parts/inbox?show={one}&find=a" for one in ("network", "flagged")),
        f"/parts/network?session={session}&opened=169.254.169.254",
        f"/parts/network/{session}/1",
        "/parts/history?before=9",
    )


@pytest.mark.parametrize(
    "policy",
    [
        pytest.param(one, id=one.stem, marks=() if one.stem in _SHARE else pytest.mark.many)
        for one in POLICIES
    ],
)
def test_every_page_answers_in_every_state(policy: Path, gatehouse: Path, tmp_path: Path) -> None:
    house = House(gatehouse, tmp_path, policy)
    seen: set[str] = set()
    try:
        house.up()
        seen |= walked(house)
        for files in (3, 30):
            session = house.agent(_ASKS.replace("{files}", str(files)))
            seen |= walked(house)
            assert f"/sessions/{session}" in seen
            seen |= lived(house, session)
            house.stop(session)
        seen |= walked(house)
        house.end()
        house.up()
        seen |= walked(house)
    finally:
        house.end()
    if policy.stem == "default":
        unseen = {route for route in _routes() if not any(map(_pattern(route).fullmatch, seen))}
        assert unseen ^ _ELSEWHERE.keys() == set()


def _routes() -> Iterator[str]:
    for place in ("server/operator", "reviews/pages"):
        for path in sorted((ROOT / "supervisor" / place).rglob("*.py")):
            for route in _GET.findall(path.read_text()):
                if not route.startswith("/api/"):
                    yield route


def _pattern(route: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\{[^}]*\}", "[^/]+", route))
