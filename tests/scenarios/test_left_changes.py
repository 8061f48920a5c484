"""What a session left of changes is shown as a live one is, by page, API and command line, after
its end and after a restart; what is applied is what was shown."""

import contextlib
import re
import sqlite3
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fakes.supervised import git, make_repository
from tests.scenarios.process import Gatehouse, until

pytestmark = pytest.mark.timeout(300)

POLICY = "version: 1\nmodes: {filesystem: ask, exec: contained}\n"
WORK = (
    "printf 'one\\nnew\\n' > a.txt; echo 'of b' > b.txt; echo 'of c' > c.txt; echo mine > README.md"
    "; sleep 600"
)


class Door:
    """The operator's door as a browser and as a program of the operator's has it."""

    def __init__(self, product: Gatehouse) -> None:
        url = product.ok("url").split()[-1]
        origin = url.split("/login")[0]
        self.page = httpx.Client(base_url=origin, headers={"Origin": origin})
        self.page.get(url)
        csrf = re.search(r'X-Gatehouse-CSRF": "([^"]+)"', self.page.get("/").text)
        assert csrf is not None
        self.page.headers["X-Gatehouse-CSRF"] = csrf[1]

    def __enter__(self) -> httpx.Client:
        return self.page

    def __exit__(self, *error: object) -> None:
        self.page.close()


@pytest.fixture
def product(gatehouse: Path, tmp_path: Path) -> Iterator[Gatehouse]:
    workspace = make_repository(tmp_path / "workspace")
    (workspace / "a.txt").write_text("one\n")
    git(workspace, "add", ".")
    made = Gatehouse(gatehouse, tmp_path, POLICY)
    yield made
    made.end()


def up(product: Gatehouse, folder: Path) -> None:
    log = folder / f"up-{len(product.started)}.log"
    product.launch("up", log=log)
    until(lambda: "open http://127.0.0.1:" in log.read_text(), "the page's URL")


def approve_on_the_page(page: httpx.Client, request_id: str) -> None:
    """The diff of `a.txt` is there, and Approve answers."""
    change = page.get(f"/parts/change/{request_id}")
    assert (change.status_code, "can't be shown" in change.text) == (200, False)
    assert re.search(r'"sign">\+</td><td class="code"[^>]*>new</td>', change.text)
    card = page.get(f"/requests/{request_id}").text
    fingerprint = re.search(rf'data-request="{request_id}"[^>]*data-fingerprint="(\w+)"', card)
    assert fingerprint is not None
    form = {"fingerprint": fingerprint[1]}
    assert page.post(f"/requests/{request_id}/approved", data=form).status_code == 200


def test_what_comes_to_nothing_waits_again_though_nothing_watches_the_copy(
    product: Gatehouse, tmp_path: Path
) -> None:
    """The rest of a file whose changes were approved in part, and all of an answer that one
    changed path kept from being carried out."""
    workspace = tmp_path / "workspace"
    lines = [f"line {number}\n" for number in range(40)]
    (workspace / "long.txt").write_text("".join(lines))
    up(product, tmp_path)
    work = (
        "sed -i 's/line 5$/LINE 5/; s/line 30$/LINE 30/' long.txt; echo mine > README.md;"
        " for i in $(seq 12); do echo $i > f$i.txt; done; sleep 600"
    )
    run = ("run", "--workspace", str(workspace), "--", "sh", "-c", work)
    product.launch(*run, log=tmp_path / "run.log")
    session = product.until_event("session_started")[0]["session"]
    product.until_event("request_asked", 14)
    product.ok("stop", session)
    product.until_event("session_ended")
    (workspace / "README.md").write_text("the person's\n")
    product.end()
    up(product, tmp_path)

    asked = {one["action"]["path"]: one["id"] for one in requests(product)}
    shown = product.ok("approve", asked["long.txt"], "--hunks", "1")
    assert shown.endswith("1 of 2 changes of long.txt; the rest waits\n")
    assert (workspace / "long.txt").read_text() == "".join([*lines[:5], "LINE 5\n", *lines[6:]])
    assert {one["action"]["path"] for one in requests(product)} == asked.keys()

    with Door(product) as page:
        card = page.get(f"/parts/change_set/{session}").text
    assert ("the session has ended" in card, "session ends in" in card) == (True, False)
    failed = product.run("approve", session, "--changes")
    assert failed.returncode == 2
    assert "`README.md` changed on the host since; nothing was overwritten" in failed.stdout
    assert not (workspace / "f1.txt").exists()
    waiting = {one["action"]["path"]: one for one in requests(product)}
    assert waiting.keys() == asked.keys()
    assert "conflict" in waiting["README.md"]["action"]["hazards"]
    assert "approved; applied: 13" in product.ok("approve", session, "--changes")
    assert (workspace / "long.txt").read_text().count("LINE") == 2
    assert (workspace / "f12.txt").read_text() == "12\n"
    assert (workspace / "README.md").read_text() == "the person's\n"
    product.ok("approve", waiting["README.md"]["id"])
    assert (workspace / "README.md").read_text() == "mine\n"
    assert "nothing waits" in product.ok("approvals")


def requests(product: Gatehouse) -> list[dict[str, Any]]:
    """What waits, by the API."""
    with Door(product) as page:
        found: list[dict[str, Any]] = page.get("/api/requests").json()
    return found


@pytest.mark.many
def test_what_cant_be_shown_cant_be_approved(product: Gatehouse, tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    up(product, tmp_path)
    run = ("run", "--workspace", str(workspace), "--", "sh", "-c", WORK)
    product.launch(*run, log=tmp_path / "run.log")
    left = product.until_all_wait("write b.txt")
    session = product.events("session_started")[0]["session"]
    product.ok("stop", session)
    product.until_event("session_ended")
    (product.data / "sessions" / session / "merged").rename(tmp_path / "gone")
    product.end()
    up(product, tmp_path)
    request_id = left["write b.txt"]
    with Door(product) as page:
        assert "so it can&#39;t be approved" in page.get(f"/requests/{request_id}").text
        fingerprint = page.get(f"/api/requests/{request_id}").json()["request"]["fingerprint"]
        form = {"fingerprint": fingerprint}
        refused = page.post(f"/api/requests/{request_id}/approve", json=form)
        assert (refused.status_code, "can't be shown" in refused.text) == (400, True)
        refused = page.post(f"/requests/{request_id}/approved", data=form)
        assert "can&#39;t be shown" in refused.text
    assert product.run("approve", left["write b.txt"]).returncode == 1
    assert not (workspace / "b.txt").exists()
    product.ok("deny", left["write b.txt"])


def test_a_copy_that_is_gone_hides_nothing_of_other_sessions(
    product: Gatehouse, tmp_path: Path
) -> None:
    """Of many changes, which are one card: none can be shown, so none is approved."""
    up(product, tmp_path)
    sessions = []
    for number, folder in enumerate((tmp_path / "workspace", make_repository(tmp_path / "two")), 1):
        work = f"for i in $(seq 12); do echo $i of {number} > n$i.txt; done; sleep 600"
        run = ("run", "--workspace", str(folder), "--", "sh", "-c", work)
        product.launch(*run, log=tmp_path / f"run-{number}.log")
        sessions.append(product.until_event("session_started", number)[-1]["session"])
        product.until_event("request_asked", 12 * number)
        product.ok("stop", sessions[-1])
        product.until_event("session_ended", number)
    gone, kept = sessions
    product.end()
    (product.data / "sessions" / gone / "merged").rename(tmp_path / "gone")
    up(product, tmp_path)
    told = product.ok("approvals")
    assert f"{gone}  filesystem  12 changed files" in told
    assert "12 of them are not approved with the rest" in told
    assert f"{kept}  filesystem  12 changed files" in told
    with Door(product) as page:
        assert len(page.get("/api/changes").json()) == 2
        card = page.get(f"/parts/change_set/{gone}")
        assert (card.status_code, "12 to look at one by one" in card.text) == (200, True)
        leaf = page.get(f"/api/sessions/{gone}/changes").json()["careful"][0]
        shown = page.get(f"/api/sessions/{gone}/changes").json()["level"]["folder"]["shown"]
        ticked = {leaf["id"]: leaf["fingerprint"]}
        body = {"answer": "approved", "shown": shown, "ticked": ticked}
        refused = page.post(f"/api/sessions/{gone}/changes", json=body)
        assert (refused.status_code, "is gone" in refused.text) == (404, True)
    assert "approved; applied: 12" in product.ok("approve", kept, "--changes")
    assert (tmp_path / "two/n12.txt").read_text() == "12 of 2\n"
    product.ok("deny", gone, "--changes")
    assert "nothing waits" in product.ok("approvals")
    assert not (tmp_path / "workspace/n1.txt").exists()


@pytest.mark.many
def test_what_a_version_before_left_is_shown_and_answered(
    product: Gatehouse, tmp_path: Path
) -> None:
    """The data folder of the version before, whose session ended with three files changed: made
    by that version, with the workspace at another place and the end at another time."""
    workspace = tmp_path / "workspace"
    product.data.mkdir()
    with tarfile.open(Path(__file__).parent / "data/left_before.tar.xz") as packed:
        packed.extractall(product.data, filter="data")
    with contextlib.closing(sqlite3.connect(product.data / "gatehouse.db")) as database:
        facts = (str(workspace), time.time() - 60)
        database.execute("UPDATE sessions SET workspace = ?, ended_at = ?", facts)
        database.commit()
    up(product, tmp_path)
    left = product.until_all_wait("write a.txt", "write b.txt", "write .envrc")
    assert "+of b" in product.ok("show", left["write b.txt"])
    with Door(product) as page:
        approve_on_the_page(page, left["write a.txt"])
        shown = {}
        for title in ("write b.txt", "write .envrc"):
            asked = page.get(f"/api/requests/{left[title]}").json()["request"]
            shown[asked["id"]] = asked["fingerprint"]
        body = {"category": "filesystem", "answer": "approved", "shown": shown}
        assert len(page.post("/api/requests/bulk", json=body).json()) == 1
    until(lambda: (workspace / "a.txt").read_text() == "one\nnew\n", "the change on the host")
    until(lambda: (workspace / "b.txt").exists(), "the other")
    assert not (workspace / ".envrc").exists()
    assert "approved; applied" in product.ok("approve", left["write .envrc"])
    assert (workspace / ".envrc").read_text() == "E=1\n"
