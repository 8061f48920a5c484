"""Builds the review service from the parts of a supervisor, and opens its webhook port.

`gatehouse up --reviews` and `gatehouse demo` open it.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from supervisor.core.jobs import Job, author_of
from supervisor.core.models.model_calls import is_model_host
from supervisor.core.sessions import QUARANTINED, Session
from supervisor.core.text.providers import NamedModel, read_models
from supervisor.errors import UserError
from supervisor.network.model_hosts import check_is_elsewhere, model_hosts_of
from supervisor.parts import Parts
from supervisor.reviews.app.agent_tools import tools_for_agents
from supervisor.reviews.budgets import read_caps
from supervisor.reviews.core.retries import ProviderTrouble, provider_trouble
from supervisor.reviews.forges.base import Forge, Forges
from supervisor.reviews.forges.bitbucket import Bitbucket
from supervisor.reviews.forges.bitbucket_checks import is_data_center
from supervisor.reviews.forges.bitbucket_login import (
    CLOUD_ALONE,
    DATA_CENTER,
    bitbucket_of,
    is_bitbucket_set_up,
    read_bitbucket,
)
from supervisor.reviews.forges.github import GitHub
from supervisor.reviews.forges.given_files import read_given, read_secret
from supervisor.reviews.job_runs import JobSettings
from supervisor.reviews.queue.embedded import EmbeddedQueue
from supervisor.reviews.service import ReviewService, ReviewSettings
from supervisor.reviews.webhooks import WebhookApp
from supervisor.server.common.listening import listen
from supervisor.server.common.serve import Serving
from supervisor.sessions.session_plans import UPDATES_POLICY
from supervisor.sessions.standing import open_standing, standing
from supervisor.sessions.start_session import StartSession
from supervisor.settings import DEFAULT_POLICY, ROOT, Settings, review_runtime_of
from supervisor.workspace.quarantines import NoRoomError

SERVICE_POLICY = ROOT / "policy/examples/review-service.yaml"
# What a reader may do in its sandbox: for an author who may write, and for anybody else.
READER_POLICY = ROOT / "policy/examples/reviewer.yaml"
STRANGER_POLICY = ROOT / "policy/examples/reader.yaml"


class Reviewing:
    """A running review service. `port` is that of its webhooks, which come in at `paths`."""

    def __init__(self, service: ReviewService, door: Serving) -> None:
        self.service = service
        self.port = door.port
        self.paths = [f"/{name}" for name in service.intakes]


@contextlib.asynccontextmanager
async def reviewing(parts: Parts, *, look_every_s: float = 1.0) -> AsyncIterator[Reviewing]:
    """Run a review service until the block ends. Raise `UserError` if a setting is missing."""
    settings = parts.settings
    if settings.backend == "compose":
        raise UserError("compose doesn't offer reviews yet", "use `gatehouse up --reviews`")
    asked = read_models(settings.review_model, "GATEHOUSE_REVIEW_MODEL") or (NamedModel(),)
    for provider in dict.fromkeys(one.provider for one in asked):
        if any(settings.model_keys.values()) and (url := settings.model_urls.get(provider)):
            check_is_elsewhere(url, provider)
    forges, secrets = read_forges(parts)
    if "bitbucket" in secrets and await is_data_center(settings.bitbucket_api):
        raise UserError(DATA_CENTER, CLOUD_ALONE)
    made = review_settings(settings, secrets=secrets)._replace(
        poll_s=settings.review_poll_s, look_every_s=look_every_s
    )
    async with review_service(parts, made, forges) as service:
        doors = {name: one.door for name, one in service.intakes.items()}
        door = Serving(listen(settings.forge_port), WebhookApp(doors), ws="none")
        parts.own_port(door.port)
        async with asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(door.run(), name="webhook-door")
            running = tasks.create_task(service.run(standing(parts.engine)), name="reviews")
            await door.started.wait()
            try:
                yield Reviewing(service, door)
            finally:
                running.cancel()
                await door.stop()
                await serving


def read_forges(parts: Parts) -> tuple[Forges, dict[str, bytes]]:
    """Return the forges that the settings name, and the secrets of their webhooks. Raise
    `UserError` if there is none, or one can't be used."""
    settings, forges, secrets = parts.settings, list[Forge](), dict[str, bytes]()
    if is_bitbucket_set_up(settings):
        login = read_bitbucket(settings)
        parts.redactor.add(login.token.token)
        forges.append(bitbucket_of(settings, login, parts.clock))
        secrets["bitbucket"] = login.secret
    if has_app(settings) or not forges:
        app = read_app(settings)
        forges.append(
            GitHub(api=settings.github_api, app_id=app.id, private_key=app.key, now=parts.clock.now)
        )
        secrets["github"] = app.secret
    return Forges(*forges), secrets


def review_settings(settings: Settings, *, secrets: Mapping[str, bytes]) -> ReviewSettings:
    """Return the service's settings. `secrets`: those of its webhooks, by forge. Raise `UserError`
    if a limit can't be used."""
    caps, limits = read_caps(
        review=settings.review_cost,
        pull=settings.pr_cost,
        repository_day=settings.repo_day_cost,
        owner_month=settings.owner_month_cost,
        all_day=settings.all_day_cost,
    )
    return ReviewSettings(
        database=settings.data_dir / "reviews.db",
        clones=settings.clones_dir,
        receipt_key=settings.data_dir / "receipts.key",
        secrets=secrets,
        debounce_s=settings.review_debounce_s[0],
        longest_wait_s=settings.review_debounce_s[1],
        neutral=settings.check,
        concurrency=settings.review_concurrency,
        caps=caps,
        limits=limits,
        jobs=job_settings(settings),
    )


@contextlib.asynccontextmanager
async def review_service(
    parts: Parts, made: ReviewSettings, forges: Forges
) -> AsyncIterator[ReviewService]:
    """Yield a review service that doesn't run yet; it is closed, and its forges, when the block
    ends."""
    service = ReviewService(
        made,
        clock=parts.clock,
        gate=parts.gate,
        forges=forges,
        queue=EmbeddedQueue(),
        sessions=ReaderSessions(parts),
        standing=lambda name: _standing(parts, name),
        stopped=parts.kill_switch.reason,
    )
    service.schedule.on_change = lambda: parts.status_changed()  # set once there are pages
    parts.reviews = service
    client = forges.named("bitbucket")
    if isinstance(client, Bitbucket):
        parts.mcp_servers.own["bitbucket"] = tools_for_agents(parts, service, client)
    try:
        yield service
    finally:
        parts.mcp_servers.own.clear()
        parts.reviews = None
        await service.close()


def job_settings(settings: Settings) -> JobSettings:
    """Return the settings of jobs. Raise `UserError` if the author can't be one."""
    author_of(Job(prompt="-", author=settings.job_author))
    return JobSettings(settings.job_pulls, settings.job_author, settings.job_sign_off)


class ReaderSessions:
    """Implements `service.ServiceSessions`: a session of kind `review` or `maintenance` over a
    checkout."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def start(
        self,
        folder: Path,
        base: str,
        *,
        name: str,
        may_run: bool,
        quarantined: bool,
        order: str,
        model: str = "",
        runtime: str = "",
        budget: str,
    ) -> str:
        session = await self._started(
            StartSession(
                workspace=folder,
                name=name,
                kind="review",
                base=base,
                command=(
                    "--pull",
                    *(() if may_run else ("--read-only",)),
                    *((QUARANTINED,) if quarantined else ()),
                ),
                copy="auto",
                policy=READER_POLICY if may_run else STRANGER_POLICY,
                budget=budget,
                review_model=model or None,
                review_runtime=review_runtime_of(runtime, "the runtime") if runtime else None,
                order=order,
            )
        )
        # The money is reserved under the caps of reviews: nobody is asked for more.
        self._parts.spending.fix(session.id)
        return session.id

    async def _started(self, wanted: StartSession) -> Session:
        while True:
            try:
                return await self._parts.sessions.start(wanted)
            except NoRoomError:
                await self._parts.quarantines.wait_for_room()

    async def wait(self, session_id: str) -> Session:
        session = await self._parts.sessions.wait_ended(session_id)
        # Its folder is a checkout that the next run moves to another commit.
        await self._parts.kept_copies.drop(session_id)
        return session

    async def maintain(
        self, folder: Path, job: Job, *, name: str, budget: str, model: str = "", runtime: str = ""
    ) -> str:
        session = await self._parts.sessions.start(
            StartSession(
                workspace=folder,
                name=name,
                kind="maintenance",
                job=job,
                copy="auto",
                policy=READER_POLICY if job.updates is None else UPDATES_POLICY,
                budget=budget,
                review_model=model or None,
                review_runtime=review_runtime_of(runtime, "the runtime") if runtime else None,
            )
        )
        self._parts.spending.fix(session.id)
        return session.id

    async def maintained(self, session_id: str) -> Session:
        return await self._parts.sessions.wait_ended(session_id)

    async def commit_of(self, session: Session) -> bytes:
        assert session.job_result is not None
        staging = await self._parts.commits.staging(session.id, ".")
        return await staging.pack([session.job_result.commit], [session.base or ""])

    async def dropped(self, session_id: str) -> None:
        self._parts.sessions.close_branch(session_id, "taken for a pull request")
        await self._parts.kept_copies.drop(session_id)

    def stop(self, session_id: str) -> None:
        stopping = self._parts.sessions.stop(
            session_id, reason="its review was ended", by="gatehouse"
        )
        self._parts.gate.handlers.run(stopping, f"stop-{session_id}")

    def cost(self, session_id: str) -> int:
        session = self._parts.sessions.get(session_id)
        return self._parts.spending.summary(session).used["session"].cost

    def spent(self, session_id: str) -> int | None:
        is_over = self._parts.sessions.get(session_id).ended_at is not None
        return self._parts.spending.spent(session_id) if is_over else None

    def refusal(self, session_id: str) -> str:
        return self._parts.spending.refusals.get(session_id, "")

    def trouble(self, session_id: str) -> ProviderTrouble | None:
        """Return the error that egress, not the reader, reports."""
        hosts = frozenset(model_hosts_of(self._parts.settings))
        for one in self._parts.network_log.of_session(session_id):
            if not is_model_host(one.action.host, hosts):
                continue
            if one.action.operation == "request" and one.status is not None:
                headers = {name.lower(): value for name, value in one.response_headers}
                return provider_trouble(one.status, headers, self._parts.clock.now())
            if why := one.error if one.verdict == "allow" else one.why:
                return ProviderTrouble(None, f"the model's provider can't be reached: {why}")
        return None


def _standing(parts: Parts, name: str) -> str:
    """Open the standing session of a repository; return its id."""
    settings = parts.settings
    folder = settings.data_dir / "reviews"
    for one in standing(parts.engine):
        if one.command[1:] == (name,):
            return one.id
    is_default = settings.policy_file == DEFAULT_POLICY
    policy = {"policy_file": str(settings.policy_file)}
    if is_default:
        saved = settings.data_dir / f"saved-{SERVICE_POLICY.name}"
        policy = {"policy_file": str(SERVICE_POLICY), "saved_rules_file": str(saved)}
    session = open_standing(
        parts.engine, parts.audit, name, folder=folder, now=parts.clock.now(), policy=policy
    )
    parts.gate.rulings.open_session(session)
    return session.id


class GitHubApp(NamedTuple):
    """The App's id, its private key, and the secret of its webhook."""

    id: str
    key: RSAPrivateKey
    secret: bytes


def has_app(settings: Settings) -> bool:
    """Return whether there is a GitHub App to review with."""
    return bool(settings.github_app_id) or (settings.github_app_dir / "app.json").is_file()


def read_app(settings: Settings) -> GitHubApp:
    """Return the App that the settings name, or that `gatehouse app create` made. Raise `UserError`
    if there is none: without its secret the webhook port can't open."""
    app_id, folder = settings.github_app_id, settings.github_app_dir
    key_file, secret_file = settings.github_key_file, settings.github_secret_file
    if not app_id and (folder / "app.json").is_file():
        app_id = _made_app(folder / "app.json")
        key_file, secret_file = folder / "key.pem", folder / "webhook.secret"
    if not app_id:
        raise UserError(
            "reviews need a GitHub App, and GATEHOUSE_GITHUB_APP_ID names none",
            "run `gatehouse app create` (Bitbucket: `gatehouse bitbucket setup`), see"
            " docs/reviews.md, or try `gatehouse demo`",
        )
    secret = read_secret(secret_file, "GATEHOUSE_GITHUB_SECRET_FILE", "GitHub")
    return GitHubApp(app_id, _private_key(key_file), secret)


def _made_app(file: Path) -> str:
    try:
        return str(msgspec.json.decode(file.read_bytes(), type=dict[str, Any])["id"])
    except (msgspec.MsgspecError, KeyError) as error:
        raise UserError(
            f"{file} is not what `gatehouse app create` wrote",
            "put it back, or create the App anew",
        ) from error


def _private_key(file: Path | None) -> RSAPrivateKey:
    """Return the App's key. Raise `UserError` if it can't sign. It is read once, because each
    reading checks it, which takes longer than a call."""
    data = read_given(file, "GATEHOUSE_GITHUB_KEY_FILE")
    try:
        key = load_pem_private_key(data, None)
        if not isinstance(key, RSAPrivateKey):
            raise TypeError
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise UserError(
            f"GATEHOUSE_GITHUB_KEY_FILE: {file} holds no private key as PEM, or not all of one",
            "name the file that GitHub gave (`-----BEGIN RSA PRIVATE KEY-----` at its start)",
        ) from error
    return key
