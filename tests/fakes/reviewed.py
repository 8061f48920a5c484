"""A supervisor with the review service on, beside a forge on loopback, for scenario tests.

All of it is real: HTTP, git over it, the sandbox, the database. Pushes are waited for shortly.
"""

import contextlib
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from supervisor.core.approvals import Request
from supervisor.reviews.app.reviewing import Reviewing, reviewing
from supervisor.reviews.demo.bitbucket_json import uuid_of
from supervisor.reviews.demo.forge import DemoForge, DemoPull
from supervisor.reviews.demo.stage import NAME, Stage, staged
from supervisor.reviews.demo.state import Json, Tongue
from supervisor.reviews.store import queries
from supervisor.sessions.demo_project import FILES
from supervisor.settings import Settings
from tests.fakes.messages_server import MessagesServer, Step
from tests.fakes.supervised import Supervised, settings_in, supervised

LOOK_EVERY_S = 0.1
# How Bitbucket's build statuses are called that stand for GitHub's conclusions.
STATES = {"success": "SUCCESSFUL", "failure": "FAILED", "neutral": "STOPPED"}
# Which call posts a review or edits one, and which sets its check.
POSTING = {"github": ("POST", "/reviews"), "bitbucket": ("POST", "/comments")}
EDITING = {"github": ("PUT", "/reviews/"), "bitbucket": ("PUT", "/comments/")}
CHECKING = {"github": ("POST", "/check-runs"), "bitbucket": ("POST", "/statuses/build")}
_MARK = re.compile(r"\n\n`gatehouse:[^`]*`\s*\Z")
_REVIEW_MARK = re.compile(r"`gatehouse:(?!act:|prompt:|job:|at:)[^`]*`\s*\Z")
CHANGE = {"shop/cart.py": FILES["shop/cart.py"] + "\n\ndef count(items):\n    return len(items)\n"}
POLICY = Path("policy/default.yaml").absolute()
VERDICTS = ("approved", "changes_requested")


class Reviewed:
    """The forge, the supervisor, and the service between them."""

    def __init__(self, forge: DemoForge, running: Supervised, on: Reviewing) -> None:
        self.forge = forge
        self.running = running
        self.service = on.service
        self.port = on.port
        # The service's own client of the forge.
        self.client = next(iter(on.service.forges))

    def open_pull(self, files: dict[str, Any] | None = None, **more: Any) -> DemoPull:
        """A pull request by somebody who may write, and its webhook."""
        branch = more.pop("branch", "feature")
        self.forge.commit(NAME, branch, files or CHANGE, "A change", base="main")
        return self.forge.open_pull(NAME, branch, title="Add the average", **more)

    async def posts(self, count: int = 1) -> list[Request]:
        """The requests to post a review, once there are so many."""

        def found() -> list[Request] | None:
            wanted = [one for one in self.acts() if one.action.operation == "post"]  # type: ignore[union-attr]
            return wanted if len(wanted) >= count else None

        return await self.running.until(found, f"{count} reviews to post")

    def acts(self) -> list[Request]:
        """Every act that was asked for, oldest first."""
        with self.service.engine.connect() as connection:
            known = queries.all_repositories(connection)
        queue = self.running.parts.queue
        found = [one for each in known for one in queue.of_session(each.session_id)]
        return sorted(found, key=lambda one: one.asked_at)

    def receipts(self, number: int = 1) -> list[queries.Receipt]:
        """The receipts of a pull request, oldest first."""
        with self.service.engine.connect() as connection:
            repository = queries.repository(connection, self.forge.tongue, NAME)
            pull = repository and queries.pull_numbered(connection, repository.id, number)
            return queries.receipts_of(connection, [pull.id]) if pull else []

    def reviews(self, pull: DemoPull) -> list[Json]:
        """Our reviews that stand on a pull request, oldest first."""
        return our_reviews(self.forge, pull)

    def all_said(self, pull: DemoPull) -> list[Json]:
        """All that we said of a pull request as a whole: reviews, and other comments."""
        said = [*pull.reviews, *pull.issue_comments]
        return [one for one in said if one["by"] == self.forge.app_login and one["body"]]

    def person(self, login: str) -> str:
        """A person's name in our database; at Bitbucket a nickname is anybody's."""
        return login if self.forge.tongue == "github" else f"{login} {uuid_of(login)}"

    def name(self, repository: str = NAME) -> str:
        """A repository's name as the operator writes it."""
        return repository if self.forge.tongue == "github" else f"bitbucket:{repository}"

    def let_in(self, pull: DemoPull, by: str = "ada") -> None:
        """Somebody lets the first review of a stranger's code begin. Bitbucket has no labels."""
        if self.forge.tongue == "github":
            self.forge.label(NAME, pull.number, "gatehouse:review", by=by)
        else:
            self.forge.comment(NAME, pull.number, author=by, body="@gatehouse review")

    def words(self, check: dict[str, Any]) -> str:
        """What a check says: a build status has room for its first words alone."""
        said = str(check["output"]["summary"])
        if self.forge.tongue == "github":
            return said
        with self.service.engine.connect() as connection:
            query = "select body from receipts where head_sha = ? order by at desc"
            found = connection.exec_driver_sql(query, (check["head_sha"],)).scalars().all()
        return "\n".join((said, *found))

    def verdict(self, pull: DemoPull) -> str:
        """What we say of all of it: `approved`, `changes_requested` or ""."""
        if self.forge.tongue == "bitbucket":
            return pull.verdicts.get(self.forge.app_login, "")
        states = [one["state"].lower() for one in self.reviews(pull)]
        return next((one for one in reversed(states) if one in VERDICTS), "")

    async def receipt(self, *outcomes: str, number: int = 1) -> queries.Receipt:
        """The newest receipt, once it has one of these outcomes."""

        def found() -> queries.Receipt | None:
            known = self.receipts(number)
            return known[-1] if known and known[-1].outcome in outcomes else None

        return await self.running.until_soon(found, f"a receipt that says {outcomes}")

    async def check(self, head: str, conclusion: str) -> dict[str, Any]:
        """The check or build status on a head, once it says this in GitHub's words."""
        repository = self.forge.repositories[NAME]
        if self.forge.tongue == "bitbucket":
            conclusion = STATES[conclusion]

        def found() -> dict[str, Any] | None:
            for one in repository.checks:
                if (one["head_sha"], one["conclusion"]) == (head, conclusion):
                    return one
            return None

        return await self.running.until_soon(found, f"the check {conclusion} on {head}")


def bare(said: Json) -> str:
    """The text of one of our comments, without the mark that Bitbucket shows."""
    return _MARK.sub("", said["body"])


def our_reviews(forge: DemoForge, pull: DemoPull) -> list[Json]:
    """Our reviews that stand on a pull request, oldest first: at Bitbucket each is a comment."""
    if forge.tongue == "github":
        return [one for one in pull.reviews if one["by"] == forge.app_login and one["body"]]
    said = [one for one in pull.issue_comments if one["by"] == forge.app_login]
    return [one for one in said if _REVIEW_MARK.search(one["body"])]


def settings_of(stage: Stage, folder: Path, **changes: Any) -> Settings:
    more = {
        "forge_port": 0,
        **stage.settings(),
        "review_debounce_s": (0.2, 2.0),
        "review_poll_s": 3600.0,
        "policy_file": POLICY,
    }
    return settings_in(folder)._replace(**more | changes)


@contextlib.contextmanager
def forge_with_people(folder: Path, forge: Tongue = "github") -> Iterator[Stage]:
    """The demo's forge, with one who may write and one who may not."""
    with staged(folder, forge) as stage:
        stage.forge.repositories[NAME].collaborators = {"ada": "write", "bob": "read"}
        yield stage


@contextlib.asynccontextmanager
async def reviewing_at(
    stage: Stage, folder: Path, names: dict[str, tuple[str, ...]] | None = None, **changes: Any
) -> AsyncIterator[Reviewed]:
    """A supervisor on a forge that is served. `names` stands in for DNS; `clock` is the
    machine's."""
    parts = {"clock": changes.pop("clock")} if "clock" in changes else {}
    async with (
        supervised(settings_of(stage, folder, **changes), names=names, **parts) as running,
        reviewing(running.parts, look_every_s=LOOK_EVERY_S) as on,
    ):
        stage.tell(f"http://127.0.0.1:{on.port}")
        yield Reviewed(stage.forge, running, on)


@contextlib.asynccontextmanager
async def reviewed(
    folder: Path, forge: Tongue = "github", **changes: Any
) -> AsyncIterator[Reviewed]:
    """All of it, running. `others`: further repositories."""
    with forge_with_people(folder / "stage", forge) as stage:
        for name, files in changes.pop("others", {}).items():
            stage.forge.add_repository(name, files)
        async with reviewing_at(stage, folder, **changes) as on:
            yield on


MODEL_KEY = "sk-ant-test-0b1f6d0c3e7a42f58d"
MODEL_HOST = "model.test"
CLEAN = '<review>{"verdict": "approve", "summary": "Fine.", "findings": [], "notes": []}</review>'


@contextlib.asynccontextmanager
async def reviewed_by_model(
    folder: Path, forge: Tongue, script: list[Step], **changes: Any
) -> AsyncIterator[Reviewed]:
    """All of it, with a model over HTTP in place of the recorded one; every act is allowed."""
    acts = folder / "acts.yaml"
    with MessagesServer(script, api_key=MODEL_KEY) as model:
        acts.write_text("version: 1\nallow: [review(* */*)]\n")
        more: dict[str, Any] = {
            "policy_file": acts,
            "anthropic_api_key": MODEL_KEY,
            "anthropic_base_url": f"http://{MODEL_HOST}:{model.port}",
            "names": {MODEL_HOST: ("127.0.0.1",)},
        }
        with forge_with_people(folder / "stage", forge) as stage:
            async with reviewing_at(stage, folder, **more | changes) as on:
                yield on
