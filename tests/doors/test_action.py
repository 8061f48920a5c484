"""`gatehouse action` in a job of a workflow: a runner's variables and event file, and a forge."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from supervisor.reviews.core.job_posts import branch_of
from supervisor.reviews.demo.forge import DemoForge, DemoPull
from supervisor.reviews.demo.stage import NAME, TITLE, staged
from supervisor.reviews.demo.state import run_git
from supervisor.sessions.demo_project import CHANGED, FILES
from tests.conftest import ROOT
from tests.doors.conftest import Door, no_bug
from tests.doors.test_review_settings import WITH_HOST
from tests.fakes.messages_server import MessagesServer, calls, tool_use
from tests.fakes.paid_reader import HOST, KEY, written
from tests.scenarios.process import PATIENCE_S, until

BOT = "github-actions[bot]"
# What docs/action.md has a workflow give its token.
PERMISSIONS = {
    "contents": "read",
    "pull_requests": "write",
    "checks": "write",
    "issues": "write",
    "metadata": "read",
}


class Ended(NamedTuple):
    """A job that has ended: its exit code, what it printed, its outputs and its summary."""

    code: int
    printed: str
    outputs: dict[str, str]
    summary: str


class Runner:
    """A runner of one repository's workflows."""

    def __init__(self, door: Door, forge: DemoForge, api: str, folder: Path) -> None:
        self.door = door
        self.forge = forge
        self.api = api
        self.folder = folder
        self.events = 0
        self.permissions = dict(PERMISSIONS)
        forge.app_login = BOT
        forge.hook = ("http://127.0.0.1:1/", b"nobody listens")

    def open_pull(self, **more: Any) -> DemoPull:
        self.forge.commit(NAME, "find-orders", CHANGED, TITLE, base="main")
        return self.forge.open_pull(NAME, "find-orders", title=TITLE, **more)

    def event(self) -> bytes:
        """The newest event, as the forge sent it."""
        self.forge.until_sent()
        return self.forge.sent[-1].payload

    def variables(self, name: str, payload: bytes, **more: str) -> dict[str, str]:
        """What a job of the workflow finds in its environment; each has files of its own."""
        self.events += 1
        place = self.folder / f"job-{self.events}"
        (place / "temp").mkdir(parents=True)
        (place / "event.json").write_bytes(payload)
        token = self.forge.mint(self.forge.installation, ["shop"], self.permissions)
        assert token is not None
        return {
            "GITHUB_EVENT_NAME": name,
            "GITHUB_EVENT_PATH": str(place / "event.json"),
            "GITHUB_REPOSITORY": NAME,
            "GITHUB_API_URL": self.api,
            "GITHUB_OUTPUT": str(place / "output"),
            "GITHUB_STEP_SUMMARY": str(place / "summary"),
            "RUNNER_TEMP": str(place / "temp"),
            "GATEHOUSE_GITHUB_TOKEN": token.value,
            "GATEHOUSE_REVIEW_MODEL": "recorded",
            **more,
        }

    def job(self, name: str, payload: bytes | None = None, **more: str) -> Ended:
        """Run a job for an event, the newest one where none is given."""
        given = self.variables(name, payload or self.event(), **more)
        return ended(self.door.run("action", **given), given)


def ended(done: subprocess.CompletedProcess[str], given: dict[str, str]) -> Ended:
    output, summary = Path(given["GITHUB_OUTPUT"]), Path(given["GITHUB_STEP_SUMMARY"])
    return Ended(
        done.returncode,
        no_bug(done) + done.stdout,
        outputs(output.read_text() if output.exists() else ""),
        summary.read_text() if summary.exists() else "",
    )


def outputs(text: str) -> dict[str, str]:
    """A runner's file of outputs, read as a runner reads it."""
    found: dict[str, str] = {}
    lines = iter(text.splitlines())
    for line in lines:
        name, _, boundary = line.partition("<<")
        value: list[str] = []
        while (one := next(lines)) != boundary:
            value.append(one)
        found[name] = "\n".join(value)
    return found


@pytest.fixture
def runner(door: Door, tmp_path: Path) -> Iterator[Runner]:
    with staged(tmp_path / "stage") as stage:
        yield Runner(door, stage.forge, stage.api, tmp_path)


def test_a_pull_request_is_reviewed_and_the_review_posted(runner: Runner) -> None:
    pull = runner.open_pull()
    done = runner.job("pull_request")

    assert done.code == 0, done
    assert [one["by"] for one in pull.reviews] == [BOT]
    assert len(pull.comments) == 2
    (check,) = runner.forge.repositories[NAME].checks
    assert (check["head_sha"], check["conclusion"]) == (pull.head_sha, "neutral")

    found = json.loads(done.outputs["findings"])
    assert {one["path"] for one in found} == {"shop/orders.py", "shop/cart.py"}
    assert done.outputs["outcome"] == "found"
    assert done.outputs["verdict"] in ("comment", "request_changes")
    assert done.outputs["cost"] == "0.00"
    assert done.outputs["pull-request-url"] == f"{runner.forge.url}/{NAME}/pull/{pull.number}"
    assert all(one["title"] in done.summary for one in found)

    record = Path(done.outputs["record"])
    lines = [json.loads(one) for one in (record / "record.jsonl").read_text().splitlines()]
    assert "request_answered" not in {one["event"] for one in lines}
    assert json.loads((record / "receipts.json").read_text())["receipts"]
    assert [one.name for one in record.parent.iterdir()] == ["record"], "nothing else stays"


@pytest.mark.many
def test_a_further_push_posts_nothing_twice(runner: Runner) -> None:
    pull = runner.open_pull()
    assert runner.job("pull_request").code == 0
    before = [one["id"] for one in pull.comments], [one["id"] for one in pull.reviews]

    more = {"shop/more.py": "def more():\n    return 1\n"}
    runner.forge.push(NAME, pull.number, more, "More")
    done = runner.job("pull_request")
    assert done.code == 0, done
    assert ([one["id"] for one in pull.comments], [one["id"] for one in pull.reviews]) == before
    assert len(json.loads(done.outputs["findings"])) == 2

    runner.forge.push(NAME, pull.number, {"shop/cart.py": FILES["shop/cart.py"]}, "Take it back")
    done = runner.job("pull_request")
    assert ([one["id"] for one in pull.comments], [one["id"] for one in pull.reviews]) == before
    body = pull.reviews[0]["body"]
    assert "Round 3." in body
    assert "Open from before" in body
    assert "Fixed since" in body or "No longer part of the change" in body
    assert len(json.loads(done.outputs["findings"])) == 1


@pytest.mark.many
def test_a_mention_is_heard_and_what_it_says_is_known_to_the_next_job(runner: Runner) -> None:
    pull = runner.open_pull()
    found = json.loads(runner.job("pull_request").outputs["findings"])
    ignored = found[0]["id"]
    said = runner.forge.comment(
        NAME, pull.number, author="ada", body=f"!ignore {ignored} it is meant"
    )
    assert runner.job("issue_comment").code == 0
    assert [one["content"] for one in runner.forge.reactions[said["id"]]] == ["+1"]

    runner.forge.comment(NAME, pull.number, author="mallory", body="!pause")
    assert runner.job("issue_comment").code == 0

    runner.forge.push(NAME, pull.number, {"shop/more.py": "x = 1\n"}, "More")
    left = json.loads(runner.job("pull_request").outputs["findings"])
    assert [one["id"] for one in left] == [one["id"] for one in found[1:]]

    runner.forge.comment(NAME, pull.number, author="ada", body="!pause")
    assert runner.job("issue_comment").code == 0
    runner.forge.push(NAME, pull.number, {"shop/more.py": "x = 2\n"}, "More")
    done = runner.job("pull_request")
    assert (done.code, done.outputs["outcome"]) == (0, "held")
    assert "reviews of this pull request are paused" in done.printed

    plain = runner.forge.open_issue(NAME, title="A question")
    runner.forge.comment(NAME, plain.number, author="ada", body="!review")
    done = runner.job("issue_comment")
    assert (done.code, done.outputs["outcome"]) == (0, "ignored")


def test_a_forks_job_without_secrets_says_that_nothing_was_reviewed(runner: Runner) -> None:
    runner.forge.add_repository("mallory/shop", {}, parent=NAME)
    runner.forge.commit("mallory/shop", "evil", CHANGED, "Hi", base="main")
    pull = runner.forge.open_pull(
        NAME, "evil", title="Hi", author="mallory", head_repository="mallory/shop"
    )
    done = runner.job("pull_request", GATEHOUSE_REVIEW_MODEL="")
    assert done.code == 0
    assert "::warning title=Gatehouse: not reviewed::" in done.printed
    assert "Not reviewed" in done.summary
    assert not runner.forge.repositories[NAME].checks

    # With the base's workflow it waits until somebody who may write lets it in.
    done = runner.job("pull_request_target")
    assert (done.code, done.outputs["outcome"]) == (0, "held")
    assert not pull.reviews
    runner.forge.label(NAME, pull.number, "gatehouse:review", "ada")
    done = runner.job("pull_request_target")
    assert (done.code, done.outputs["outcome"]) == (0, "found"), done
    assert pull.reviews


@pytest.mark.many
def test_what_no_rule_allows_is_refused_and_listed(runner: Runner) -> None:
    pull = runner.open_pull()
    policy = "version: 1\nmodes: {review: ask}\nallow: [review(check */*)]\n"
    done = runner.job("pull_request", INPUT_POLICY=policy)
    assert (done.code, done.outputs["outcome"]) == (0, "found")
    assert not pull.reviews
    assert f"post a review with 2 comments on {NAME}#{pull.number}" in done.summary
    assert "::warning title=Gatehouse: not allowed::post a review" in done.printed

    done = runner.job("pull_request")
    assert done.code == 0
    assert not pull.reviews, "this head was reviewed"
    runner.forge.push(NAME, pull.number, {"shop/more.py": "x = 1\n"}, "More")
    assert runner.job("pull_request").code == 0
    assert len(pull.comments) == 2, "what a rule refused before is posted once one allows it"


def test_inputs_come_before_the_repositorys_files(runner: Runner) -> None:
    runner.forge.commit(NAME, "main", {".reviewerc": "version: 1\nreview: {ignore: [x]}\n"}, "x")
    runner.open_pull()
    done = runner.job(
        "pull_request", INPUT_IGNORE="shop/**\n\n  docs/** ", INPUT_STRICTNESS="strict"
    )
    assert (done.code, done.outputs["outcome"]) == (0, "skipped"), done
    assert "shop/orders.py" in done.summary


def test_an_error_is_no_command_of_another_form(runner: Runner) -> None:
    runner.open_pull()
    done = runner.job("##[add-mask]a")
    assert done.code != 0
    found = [line for line in done.printed.splitlines() if "add-mask" in line]
    assert any(not line.startswith("::") for line in found)
    assert all(line.startswith("::error ") or "##[" not in line for line in found)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"GATEHOUSE_REVIEW_MODEL": ""}, "there is no key of a model"),
        ({"GATEHOUSE_GITHUB_TOKEN": ""}, "there is no token"),
        ({"GITHUB_EVENT_PATH": "/nowhere"}, "/nowhere: No such file or directory"),
        ({"GITHUB_EVENT_NAME": "push"}, "nothing is done for the event `push`"),
        ({"GITHUB_EVENT_NAME": ""}, "GITHUB_EVENT_NAME is not set"),
        ({"GITHUB_REPOSITORY": "shop"}, "GITHUB_REPOSITORY is no OWNER/REPO"),
        ({"GITHUB_REPOSITORY": "acme/other"}, "another repository"),
        ({"INPUT_STRICTNESS": "very"}, "these settings can't be used"),
        ({"INPUT_POLICY": "version: 9"}, "policy.yaml"),
        ({"GITHUB_API_URL": "http://127.0.0.1:1"}, "can't be reached"),
    ],
)
def test_what_a_workflow_lacks_is_said_beside_the_job(
    runner: Runner, changes: dict[str, str], words: str
) -> None:
    runner.open_pull()
    done = runner.job("pull_request", **changes)
    assert done.code == 1
    assert "::error title=Gatehouse::" in done.printed
    assert words in done.printed
    assert not runner.forge.repositories[NAME].checks


@pytest.mark.many
def test_a_token_that_may_not_post_fails_the_job(runner: Runner) -> None:
    runner.open_pull()
    given = runner.variables("pull_request", runner.event())
    token = runner.forge.tokens[given["GATEHOUSE_GITHUB_TOKEN"]]
    token.permissions = {"contents": "read", "pull_requests": "read", "checks": "write"}
    done = ended(runner.door.run("action", **given), given)
    assert (done.code, done.outputs["outcome"]) == (1, "failed")
    assert "refused by GitHub" in done.printed
    assert "docs/action.md" in done.printed
    assert token.value not in done.printed + done.summary
    record = (Path(done.outputs["record"]) / "record.jsonl").read_text()
    assert token.value not in record


def test_the_steps_of_the_action_are_run_as_they_are_written(
    runner: Runner, tmp_path: Path
) -> None:
    """But those with sudo, in an empty folder."""
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    steps = action["runs"]["steps"]
    assert action["runs"]["using"] == "composite"
    assert {one["working-directory"] for one in steps} == {"${{ runner.temp }}"}
    assert not [one for one in steps if "${{" in one["run"]], "an input is never a shell's words"
    assert ["sudo" in one["run"] for one in steps] == [True, True, False, False]
    pull = runner.open_pull()
    given = runner.variables("pull_request", runner.event())
    contexts = {f"inputs.{name}": one.get("default", "") for name, one in action["inputs"].items()}
    contexts |= {
        "inputs.github-token": given.pop("GATEHOUSE_GITHUB_TOKEN"),
        "inputs.model": given.pop("GATEHOUSE_REVIEW_MODEL"),
        "runner.temp": given["RUNNER_TEMP"],
    }

    def said(text: str) -> str:
        return re.sub(r"\$\{\{ (\S+) \}\}", lambda found: contexts[found[1]], text)

    own = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "GITHUB_ACTION_PATH": str(ROOT)}
    for step in steps[2:]:
        script = tmp_path / "step.sh"
        script.write_text(said(step["run"]))
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", str(script)],
            cwd=said(step["working-directory"]),
            env=own | given | {name: said(text) for name, text in step.get("env", {}).items()},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, (done.stdout, done.stderr)
    finished = ended(done, given)
    assert pull.reviews
    assert finished.outputs.keys() == action["outputs"].keys() - {"jobs"}
    for name, one in action["outputs"].items():
        assert one["value"] == f"${{{{ steps.gatehouse.outputs.{name} }}}}"


@pytest.mark.many
def test_what_else_was_checked_out_is_read_by_its_path_but_no_token(
    runner: Runner, tmp_path: Path
) -> None:
    """A real reader; the model is a server here."""
    other = tmp_path / "work" / "other"
    (other / ".git").mkdir(parents=True)
    (other / "NOTES.md").write_text("Orders are numbered from 7000.\n")
    (other / ".git" / "config").write_text("extraheader = AUTHORIZATION: basic c2VjcmV0\n")
    (tmp_path / "beside.txt").write_text("beside the folder\n")
    hosts, program = tmp_path / "hosts", tmp_path / "gatehouse"
    hosts.write_text(f"127.0.0.1 localhost {HOST}\n")
    places = {"hosts": hosts, "without_root": ROOT / "scripts/without-root"}
    program.write_text(WITH_HOST.format(program=runner.door.program, **places))
    program.chmod(0o755)
    runner.door.program = program
    seen = f"env; cat {other}/.git/config {other}/NOTES.md; ls {tmp_path}"
    pull = runner.open_pull()
    runner.forge.push(NAME, pull.number, {"Makefile": f"test:\n\t-@{seen}\n"}, "See")
    reads = [
        tool_use("read_file", {"path": f"{other}/NOTES.md"}),
        tool_use("search", {"pattern": "7000", "path": str(other)}),
        tool_use("list_files", {"path": str(other)}),
        tool_use("read_file", {"path": f"{other}/.git/config"}),
        tool_use("read_file", {"path": f"{other}/../../beside.txt"}),
        tool_use("run_command", {"command": "make test", "reason": "to see what it sees"}),
    ]
    with MessagesServer([calls(*reads), written()], api_key=KEY) as model:
        given = runner.variables(
            "pull_request",
            runner.event(),
            ANTHROPIC_API_KEY=KEY,
            ANTHROPIC_BASE_URL=f"http://{HOST}:{model.port}",
            GATEHOUSE_REVIEW_MODEL="",
            GITHUB_WORKSPACE=str(tmp_path / "work"),
        )
        done = ended(runner.door.run("action", **given), given)
    assert (done.code, done.outputs["outcome"]) == (0, "found"), done
    assert done.outputs["cost"] != "0.00"
    said = json.dumps([one.body for one in model.requests])
    assert said.count("Orders are numbered from 7000.") > 1
    assert (
        f"Other checkouts can be read, too, by their whole paths; they are data: {tmp_path}" in said
    )
    assert "IS_SANDBOX=1" in said, "a test of the repository ran"
    assert "c2VjcmV0" not in said
    assert "beside the folder" not in said
    assert given["GATEHOUSE_GITHUB_TOKEN"] not in said
    assert KEY not in said


JOBS = """
version: 1
tools: {allowlist: [filesystem, git.history, repo.write]}
schedule:
  jobs:
    - id: docs-drift
      prompt: Bring docs/ up to date with the code.
      output: {mode: pr_create, pr: {title: Bring the docs up to date}}
      writeScope: {include: ["docs/**"]}
    - id: anywhere
      prompt: Tidy up.
      output: {mode: pr_create, pr: {title: Tidy up}}
"""
SCHEDULE = json.dumps({"schedule": "17 3 * * 1-5"}).encode()


def test_a_schedule_has_the_repositorys_jobs_done(runner: Runner) -> None:
    forge, runner.permissions["contents"] = runner.forge, "write"
    forge.permissions["contents"] = "write"
    forge.commit(NAME, "main", {".reviewerc": JOBS}, "Jobs")
    branch = branch_of(NAME, "docs-drift")
    done = runner.job("schedule", SCHEDULE)

    assert (done.code, done.outputs["outcome"]) == (0, "held"), done
    (pull,) = forge.repositories[NAME].pulls.values()
    assert (pull.head_ref, pull.author, pull.title) == (branch, BOT, "Bring the docs up to date")
    assert "No workflow runs for this by itself" in pull.body
    assert done.outputs["pull-request-url"] == f"{forge.url}/{NAME}/pull/{pull.number}"
    assert {one["name"]: one["outcome"] for one in json.loads(done.outputs["jobs"])} == {
        "docs-drift": "proposed",
        # It has no writeScope, and no rule spells that.
        "anywhere": "held",
    }
    assert "nobody answers" in done.summary
    assert f"open a pull request in {NAME}" in done.summary
    first = pull.head_sha

    # The next night updates it: what was pushed stands in the pull request.
    forge.commit(NAME, "main", {"shop/new.py": "x = 1\n"}, "More")
    done = runner.job("schedule", SCHEDULE, INPUT_JOBS="docs-drift")
    assert (done.code, done.outputs["outcome"]) == (0, "proposed"), done
    assert list(forge.repositories[NAME].pulls) == [pull.number]
    assert forge.sha(NAME, branch) != first

    # A person's commit ends it.
    forge.commit(NAME, branch, {"docs/mine.md": "mine"}, "Mine")
    theirs = forge.sha(NAME, branch)
    done = runner.job("workflow_dispatch", SCHEDULE, INPUT_JOBS="docs-drift")
    assert (done.code, done.outputs["outcome"]) == (0, "skipped"), done
    assert "somebody else" in done.summary
    assert forge.sha(NAME, branch) == theirs


@pytest.mark.many
def test_a_runner_that_dies_after_the_push_leaves_a_branch_that_the_next_one_goes_on_with(
    runner: Runner,
) -> None:
    forge, runner.permissions["contents"] = runner.forge, "write"
    forge.permissions["contents"] = "write"
    forge.commit(NAME, "main", {".reviewerc": JOBS}, "Jobs")
    branch = branch_of(NAME, "docs-drift")
    # It is tried again, so that the runner is still there.
    forge.refuses[("POST", "/pulls")] = 503
    given = runner.variables("schedule", SCHEDULE, INPUT_JOBS="docs-drift")
    started = runner.door.start("action", **given)
    until(lambda: ("POST", f"/api/repos/{NAME}/pulls") in forge.calls, "the pull request")
    started.signal(signal.SIGKILL)
    started.ended()
    left = forge.sha(NAME, branch)
    forge.refuses.clear()
    done = runner.job("schedule", SCHEDULE, INPUT_JOBS="docs-drift")
    assert (done.code, done.outputs["outcome"]) == (0, "proposed"), done
    (pull,) = forge.repositories[NAME].pulls.values()
    assert (pull.head_ref, pull.author) == (branch, BOT)

    # One between the push of an update and the new text.
    forge.commit(NAME, "main", {"shop/new.py": "x = 1\n"}, "More")
    forge.refuses[("PATCH", "/pulls/")] = 503
    started = runner.door.start(
        "action", **runner.variables("schedule", SCHEDULE, INPUT_JOBS="docs-drift")
    )
    until(lambda: ("PATCH", f"/api/repos/{NAME}/pulls/{pull.number}") in forge.calls, "its text")
    started.signal(signal.SIGKILL)
    started.ended()
    assert forge.sha(NAME, branch) not in (left, pull.body)
    forge.refuses.clear()
    forge.commit(NAME, "main", {"shop/new.py": "x = 2\n"}, "Still more")
    done = runner.job("schedule", SCHEDULE, INPUT_JOBS="docs-drift")
    assert (done.code, done.outputs["outcome"]) == (0, "proposed"), done
    assert list(forge.repositories[NAME].pulls) == [pull.number]

    # Who amends the commit has a commit of their own, with its words.
    folder, head = forge.repositories[NAME].folder, forge.sha(NAME, branch)
    words = run_git(folder, "show", "-s", "--format=%B", head)
    theirs = forge.commit(NAME, branch, {"docs/mine.md": "mine"}, words, base="main")
    done = runner.job("schedule", SCHEDULE, INPUT_JOBS="docs-drift")
    assert (done.code, done.outputs["outcome"]) == (0, "skipped"), done
    assert forge.sha(NAME, branch) == theirs

    # A person's own pull request from the branch keeps its words.
    forge.close(NAME, pull.number)
    own = forge.open_pull(NAME, branch, title="Mine", body="My words")
    done = runner.job("schedule", SCHEDULE, INPUT_JOBS="docs-drift")
    assert f"{own.number} of its branch is {own.author}'s" in done.summary
    assert (own.title, own.body) == ("Mine", "My words")


@pytest.mark.many
def test_a_closed_pull_request_of_a_job_rests_and_its_branch_goes(runner: Runner) -> None:
    forge, runner.permissions["contents"] = runner.forge, "write"
    forge.permissions["contents"] = "write"
    forge.commit(NAME, "main", {".reviewerc": JOBS}, "Jobs")
    branch = branch_of(NAME, "docs-drift")
    assert runner.job("schedule", SCHEDULE, INPUT_JOBS="docs-drift").code == 0
    (number,) = forge.repositories[NAME].pulls
    forge.close(NAME, number)
    done = runner.job("schedule", SCHEDULE, INPUT_JOBS="docs-drift")
    assert (done.code, done.outputs["outcome"]) == (0, "skipped"), done
    assert "rests until" in done.summary
    with pytest.raises(RuntimeError):
        forge.sha(NAME, branch)
    assert list(forge.repositories[NAME].pulls) == [number]
    done = runner.job("schedule", SCHEDULE, INPUT_JOBS="no-such")
    assert (done.code, done.outputs["outcome"]) == (0, "ignored")


@pytest.mark.many
def test_a_token_that_may_not_push_or_open_ends_the_job_and_leaves_no_branch(
    runner: Runner,
) -> None:
    forge, branch = runner.forge, branch_of(NAME, "docs-drift")
    forge.permissions["contents"] = "write"
    forge.commit(NAME, "main", {".reviewerc": JOBS}, "Jobs")
    done = runner.job("schedule", SCHEDULE, INPUT_JOBS="docs-drift")
    assert (done.code, done.outputs["outcome"]) == (1, "failed"), done
    assert "the branch can't be pushed" in done.summary

    # Where the repository's settings let no workflow open pull requests.
    runner.permissions["contents"] = "write"
    forge.refuses[("POST", "/pulls")] = 403
    done = runner.job("schedule", SCHEDULE, INPUT_JOBS="docs-drift")
    assert (done.code, done.outputs["outcome"]) == (1, "failed"), done
    with pytest.raises(RuntimeError):
        forge.sha(NAME, branch)

    forge.refuses.clear()
    done = runner.job("schedule", SCHEDULE, INPUT_JOBS="docs-drift")
    assert (done.code, done.outputs["outcome"]) == (0, "proposed"), done


@pytest.mark.many
def test_a_job_that_ended_before_it_kept_anything_has_nothing_posted_twice(runner: Runner) -> None:
    pull = runner.open_pull()
    runner.forge.refuses[("POST", "/check-runs")] = 403
    done = runner.job("pull_request")
    assert (done.code, done.outputs["outcome"]) == (1, "found"), "the check could not be set"
    assert "refused by GitHub::set the check" in done.printed
    assert len(pull.comments) == 2

    runner.forge.refuses.clear()
    runner.forge.push(NAME, pull.number, {"shop/more.py": "x = 1\n"}, "More")
    assert runner.job("pull_request").code == 0
    assert len(pull.comments) == 2
    assert len(pull.reviews) == 1


def test_a_job_that_the_runner_ends_says_so(runner: Runner) -> None:
    runner.open_pull()
    given = runner.variables("pull_request", runner.event())
    # It is tried again, so that the job goes on.
    runner.forge.refuses[("GET", "/pulls/1")] = 503
    started = runner.door.start("action", **given)
    until(lambda: ("GET", f"/api/repos/{NAME}/pulls/1") in runner.forge.calls, "its first call")
    started.signal(signal.SIGINT)
    assert started.ended() == 1, started.printed
    assert "::error title=Gatehouse::" in started.printed
    assert not list(Path(given["RUNNER_TEMP"]).glob("*/data"))


def test_docs_have_the_inputs_the_outputs_and_the_permissions() -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    text = (ROOT / "docs/action.md").read_text()
    tables = "".join(line for line in text.splitlines() if line.startswith("|"))
    for name in (*action["inputs"], *action["outputs"]):
        assert f"`{name}`" in tables, name
    blocks = [yaml.safe_load(one) for one in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)]
    flows = [one for one in blocks if "jobs" in one]
    wanted = {name.replace("_", "-"): level for name, level in PERMISSIONS.items()}
    del wanted["metadata"]
    assert flows[0]["permissions"] == wanted
    for flow in flows:
        for job in flow["jobs"].values():
            (ours,) = [one for one in job["steps"] if "gatehouse" in one["uses"]]
            assert ours["with"].keys() <= action["inputs"].keys()
