"""`gatehouse bitbucket setup` at the command line, and what `doctor` and `up` make of it."""

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from supervisor.reviews.demo.stage import NAME, Stage, staged
from tests.doors.conftest import House
from tests.doors.terminal import Terminal
from tests.fakes.reviewed import CHANGE
from tests.scenarios.process import Gatehouse, until

pytestmark = [pytest.mark.xdist_group("bitbucket-doors"), pytest.mark.timeout(300)]
POLICY = "version: 1\nallow: [review(* bitbucket:acme/*)]\n"


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with staged(tmp_path / "stage", "bitbucket") as found:
        yield found


def setup(product: Gatehouse, stage: Stage, *more: str, **env: str) -> Any:
    named = {"GATEHOUSE_BITBUCKET_API": stage.api} | env
    words = ("bitbucket", "setup", "--token-file", str(stage.token_file), "--repos", NAME)
    return product.run(*words, *more, **named)


def test_from_the_setup_to_a_review(
    gatehouse: Path, tmp_path: Path, free_tcp_port: int, stage: Stage
) -> None:
    product = Gatehouse(gatehouse, tmp_path, POLICY)
    forge, door = stage.forge, f"http://127.0.0.1:{free_tcp_port}"
    done = setup(product, stage, "--url", door)
    assert done.returncode == 0, done
    (hook,) = forge.repositories[NAME].hooks
    assert (hook.url, len(hook.secret) > 20) == (f"{door}/bitbucket", True)
    kept = sorted((product.data / "bitbucket").iterdir())
    assert [one.name for one in kept] == ["repositories", "token", "webhook.secret"]
    assert {one.stat().st_mode & 0o777 for one in kept} == {0o600}
    token = stage.token_file.read_text()
    assert token not in done.stdout + done.stderr
    # Once more: the same webhook, the same secret.
    assert setup(product, stage, "--url", door).returncode == 0
    assert [one.secret for one in forge.repositories[NAME].hooks] == [hook.secret]

    env = {"GATEHOUSE_BITBUCKET_API": stage.api, "GATEHOUSE_FORGE_PORT": str(free_tcp_port)}
    found = product.run("doctor", **env).stdout
    assert f"{NAME}: its pull requests are read" in found
    log = tmp_path / "log.txt"
    product.launch("up", "--reviews", log=log, **env, GATEHOUSE_REVIEW_DEBOUNCE="1s/3s")
    until(lambda: f"{door}/bitbucket" in log.read_text() or None, "the door for webhooks")
    forge.commit(NAME, "feature", CHANGE, "A change", base="main")
    pull = forge.open_pull(NAME, "feature", title="Count")
    until(lambda: pull.issue_comments or None, "the review")
    assert f"bitbucket:{NAME}  on" in product.ok("repos", "list")
    assert f"bitbucket:{NAME}#1" in product.ok("reviews", "list")
    url = f"{forge.url}/{NAME}/pull-requests/1"
    assert product.ok("hold", "--pr", url) == f"bitbucket:{NAME}#1  held by operator (cli)\n"
    assert product.ok("release", "--pr", url) == "nothing is held\n"
    assert "held by" in product.ok("hold", "--forge", "bitbucket")
    product.ok("release", "--forge", "bitbucket")
    assert product.ok("review-pr", url) == "wanted\n"
    assert token not in log.read_text()
    product.end()


def test_a_person_is_asked_at_a_terminal(house: House, stage: Stage) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GATEHOUSE_BITBUCKET_API", stage.api)
        terminal = Terminal(house, "bitbucket", "setup")
        terminal.answers("token: ", f"{stage.token_file.read_text()}\n")
        terminal.answers("day: ", "2031-02-03\n")
        terminal.answers("repositories: ", f"{NAME}\n")
        terminal.answers("address: ", "\n")
        shown = terminal.ended()
    assert stage.token_file.read_text() not in shown
    assert f"{NAME}: its pull requests are read" in shown
    assert "set a webhook in each repository" in shown
    kept = (house.data / "bitbucket" / "token").read_text()
    assert kept == f"{stage.token_file.read_text()}\nexpires: 2031-02-03\n"


def test_what_cannot_be_used_is_one_line(gatehouse: Path, tmp_path: Path, stage: Stage) -> None:
    product = Gatehouse(gatehouse, tmp_path, POLICY)

    def said(text: str = "", **env: str) -> str:
        if text:
            stage.token_file.write_text(text)
        done = setup(product, stage, "--url", "", **env)
        assert done.returncode == 1
        assert not (product.data / "bitbucket").exists()
        return (done.stdout + done.stderr).strip()

    good = stage.token_file.read_text()
    assert "app password" in said("ATBB" + "x" * 32)
    assert "has no token" in said("short")
    assert "address" in said("ATATT" + "x" * 32)
    assert "Token is invalid, expired" in said("ATCTT3" + "x" * 40)
    assert "is no day" in said(f"{good}\nexpires: soon")
    stage.token_file.write_text(good)
    done = product.run("bitbucket", "setup", "--token-file", str(stage.token_file))
    assert "nobody can be asked for the repositories" in done.stderr
    rest = {"GATEHOUSE_BITBUCKET_API": "https://git.example.org/rest/api/1.0"}
    assert said(**rest).count("\n") == 0
    assert "Data Center" in said(**rest)
    with data_center() as other:
        assert "Data Center" in said(GATEHOUSE_BITBUCKET_API=f"{other}/2.0")
        env = {
            "GATEHOUSE_BITBUCKET_API": f"{other}/2.0",
            "GATEHOUSE_BITBUCKET_REPOS": NAME,
            "GATEHOUSE_BITBUCKET_TOKEN_FILE": str(stage.token_file),
            "GATEHOUSE_BITBUCKET_SECRET_FILE": str(stage.secret_file),
        }
        assert "Data Center" in product.run("up", "--reviews", **env).stderr
        assert "Data Center" in product.run("doctor", **env).stdout


def test_doctor_says_what_a_token_lacks_and_when_it_ends(
    gatehouse: Path, tmp_path: Path, stage: Stage
) -> None:
    product = Gatehouse(gatehouse, tmp_path, POLICY)
    env = {
        "GATEHOUSE_BITBUCKET_API": stage.api,
        "GATEHOUSE_BITBUCKET_REPOS": f"{NAME},acme/gone",
        "GATEHOUSE_BITBUCKET_TOKEN_FILE": str(stage.token_file),
        "GATEHOUSE_BITBUCKET_SECRET_FILE": str(stage.secret_file),
    }
    good = stage.token_file.read_text()
    stage.token_file.write_text(f"{good}\nexpires: 2020-01-01")
    found = product.run("doctor", **env).stdout
    assert "token expired on 2020-01-01" in found
    assert "acme/gone not found" in found
    stage.token_file.write_text(stage.forge.bitbucket_token(NAME, scopes=("pullrequest",)))
    found = product.run("doctor", **env).stdout
    assert "who may write is read" in found
    assert "You must be an admin" in found


class data_center:  # noqa: N801
    """A Data Center: it answers what only such a one does."""

    def __enter__(self) -> str:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                data = json.dumps({"version": "9.4.0", "displayName": "Bitbucket"}).encode()
                is_it = self.path == "/rest/api/1.0/application-properties"
                self.send_response(200 if is_it else 404)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *facts: Any) -> None:
                """Log nothing."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __exit__(self, *failure: object) -> None:
        self._server.shutdown()
        self._server.server_close()
