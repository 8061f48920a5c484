"""`gatehouse action`: one event of a GitHub workflow from start to end, in one process.

A review service with the workflow's token in place of an App's, in a temporary folder. Nobody is
there to answer: what the policy would ask about is refused, and listed in the job's summary.
"""

import asyncio
import secrets
import shutil
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from supervisor.core.actions import title
from supervisor.core.approvals import Request, failure, status
from supervisor.core.jobs import OURS
from supervisor.core.secrets.token_shapes import without_tokens
from supervisor.errors import GatehouseError, UserError
from supervisor.parts import Parts
from supervisor.reviews.app.reviewing import review_service, review_settings
from supervisor.reviews.core import workflows
from supervisor.reviews.core.config.effective import ConfigLayer
from supervisor.reviews.core.config.reader import read_settings
from supervisor.reviews.core.deliveries import Webhook, is_full_name, is_sha, read_body
from supervisor.reviews.core.job_posts import branch_of, is_our_commit, job_mark
from supervisor.reviews.core.kept_rounds import KeptRounds, read_kept, with_posted
from supervisor.reviews.core.mentions import shown_finding
from supervisor.reviews.core.posts import reviewed_by
from supervisor.reviews.core.receipts import CHECK_NAME, HEAD_MOVED, check_id, receipt_facts
from supervisor.reviews.core.workflows import DoneJob, DoneJobs, DoneReview, WorkflowEvent
from supervisor.reviews.forges.base import Forges
from supervisor.reviews.forges.workflow_github import WorkflowGitHub
from supervisor.reviews.reconcile import facts_of
from supervisor.reviews.restoring import EARLIER, restore
from supervisor.reviews.service import MOST_ACTS, ReviewService
from supervisor.reviews.store import findings, jobs, queries
from supervisor.sessions.standing import standing
from supervisor.settings import ROOT, Settings

ACTION_POLICY = ROOT / "policy/examples/action.yaml"
# The variables of a runner, and the inputs that are no settings (action.yml).
VARIABLES = (
    *("GITHUB_EVENT_NAME", "GITHUB_EVENT_PATH", "GITHUB_REPOSITORY", "GITHUB_API_URL"),
    *("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY", "RUNNER_TEMP", "GITHUB_WORKSPACE"),
    *("INPUT_JOBS", "INPUT_POLICY", "INPUT_STRICTNESS", "INPUT_IGNORE", "INPUT_CHECKLIST"),
)
RECORDED = "recorded"
NO_WORKFLOWS = "No workflow runs for this by itself: a workflow's token opened it."
REFUSED = "nobody answers in a workflow: a rule of its policy has to allow it"
LOOK_EVERY_S = 0.2


class WorkflowJob(NamedTuple):
    """One job of a workflow. `folder` holds its state, and afterwards `record`, what it leaves."""

    event: WorkflowEvent | None
    payload: bytes
    repository: str
    folder: Path
    variables: Mapping[str, str]
    inputs: ConfigLayer | None

    @property
    def record(self) -> Path:
        return self.folder / "record"


class JobEnd(NamedTuple):
    """How a job ends: its exit code, and the lines that show annotations beside it."""

    code: int
    lines: Sequence[str]


def read_job(variables: Mapping[str, str], folder: Path) -> WorkflowJob:
    """Return the job that a runner describes. Raise `UserError` if it can't be one of ours."""
    missing = [name for name in VARIABLES[:3] if not variables.get(name)]
    if missing:
        raise UserError(
            f"{missing[0]} is not set", "this verb is for a job of a workflow: see docs/action.md"
        )
    repository, file = variables["GITHUB_REPOSITORY"], Path(variables["GITHUB_EVENT_PATH"])
    if not is_full_name(repository):
        raise UserError("GITHUB_REPOSITORY is no OWNER/REPO", "run it in a job of a workflow")
    try:
        payload = file.read_bytes()
    except OSError as error:
        raise UserError(f"{file}: {error.strerror}", "run it in a job of a workflow") from error
    event = workflows.read_event(variables["GITHUB_EVENT_NAME"], read_body(payload), repository)
    said: dict[str, Any] = {
        name: [line.strip() for line in text.splitlines() if line.strip()]
        for name in ("ignore", "checklist")
        if (text := variables.get(f"INPUT_{name.upper()}", "")).strip()
    }
    if strictness := variables.get("INPUT_STRICTNESS"):
        said["strictness"] = strictness
    inputs = ConfigLayer("inputs", read_settings(said)) if said else None
    return WorkflowJob(event, payload, repository, folder, variables, inputs)


def settings_for(settings: Settings, job: WorkflowJob) -> Settings:
    """Return the settings of a supervisor for a job: its own folder, any free port, no waiting."""
    policy = settings.policy_file if "GATEHOUSE_POLICY" in settings.given else ACTION_POLICY
    if text := job.variables.get("INPUT_POLICY", "").strip():
        policy = job.folder / "policy.yaml"
        policy.write_text(text)
    api = settings.github_api
    if "GATEHOUSE_GITHUB_API" not in settings.given:
        api = job.variables.get("GITHUB_API_URL") or api
    workspace = Path(job.variables.get("GITHUB_WORKSPACE") or "/nowhere")
    return settings._replace(
        checkouts=(workspace,) if workspace.is_dir() and any(workspace.iterdir()) else (),
        data_dir=job.folder / "data",
        port=0,
        policy_file=policy,
        github_api=api,
        review_debounce_s=(0.0, 0.0),
    )


def why_not(settings: Settings, job: WorkflowJob) -> str:
    """Return why a job does nothing, and that is no failure; "" if it has something to do. Raise
    `UserError` if it lacks something that its workflow could give it."""
    if job.event is None:
        return "the event is about no pull request"
    if not settings.anthropic_api_key and settings.review_model != RECORDED:
        if job.event.is_without_secrets:
            return (
                "GitHub gives a workflow no secrets for a pull request from a fork or of Dependabot"
            )
        raise UserError(
            "there is no key of a model",
            "give the input anthropic-api-key a secret, docs/action.md",
        )
    if not settings.github_token:
        raise UserError("there is no token", "give the input github-token `${{ github.token }}`")
    return ""


async def carry_out(
    parts: Parts, job: WorkflowJob, stopped: Callable[[], Coroutine[Any, Any, None]]
) -> JobEnd:
    """Do what a job's event asks for. `stopped` returns once the runner ends the job."""
    event, settings = job.event, parts.settings
    assert event is not None
    parts.redactor.add(settings.github_token)
    forge = WorkflowGitHub(
        api=settings.github_api,
        token=settings.github_token,
        repository=job.repository,
        now=parts.clock.now,
        may_push=not event.webhook,
    )
    made = review_settings(settings, secrets={forge.name: b""})
    made = made._replace(
        poll_s=0.0,
        look_every_s=LOOK_EVERY_S,
        takes_bang=True,
        keeps_in_checks=True,
        inputs=job.inputs,
        jobs=made.jobs._replace(note=NO_WORKFLOWS),
    )
    async with review_service(parts, made, Forges(forge)) as service:
        await service.reconcile.repositories()
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(service.run(standing(parts.engine)), name="reviews")
            doing = tasks.create_task(_do(parts, service, forge, job), name="workflow")
            stopping = tasks.create_task(stopped(), name="workflow-stop")
            await asyncio.wait((doing, stopping), return_when=asyncio.FIRST_COMPLETED)
            for task in (doing, stopping, running):
                task.cancel()
        if doing.cancelled():
            raise GatehouseError("the job was ended before its work was done", "run it again")
        done = doing.result()
        _leave(parts, service, job, done)
    return _say(job, done)


async def _do(
    parts: Parts, service: ReviewService, forge: WorkflowGitHub, job: WorkflowJob
) -> DoneReview | DoneJobs:
    """Handle the event as a webhook's, or have the repository's jobs done."""
    assert job.event is not None
    if not job.event.webhook:
        return await _do_jobs(parts, service, forge, job)
    await _restore(parts, service, forge, job)
    service.intakes[forge.name].take(Webhook(secrets.token_hex(16), job.event.webhook), job.payload)
    return _done(parts, service, job, await _until_over(parts, service))


async def _do_jobs(
    parts: Parts, service: ReviewService, forge: WorkflowGitHub, job: WorkflowJob
) -> DoneJobs:
    """Have the jobs of the repository's `.reviewerc` done, those that the workflow names or all."""
    repository = service.repository_named(job.repository)
    wanted = job.variables.get("INPUT_JOBS", "").split()
    names = [one for one in await service.schedule.adopt(repository) if not wanted or one in wanted]
    # What earlier jobs pushed stands in the newest pull request of each branch.
    facts, own = facts_of(repository), await forge.own_login()
    author = parts.settings.job_author or OURS
    for name in names:
        pulls = await forge.pulls_of_branch(facts, branch_of(repository.full_name, name))
        said = job_mark(pulls[0].body) if pulls and pulls[0].author == own else None
        pushed = said.commit if said else ""
        head = await forge.branch_head(facts, branch_of(repository.full_name, name))
        # A runner that died after the push left no other word of it than the commit.
        if head not in ("", pushed) and is_our_commit(name, author, *await forge.commit(head)):
            pushed = head
        service.schedule.know_pushed(repository, name, pushed)
    await service.job_pulls.tidy()
    refused = await _until_over(parts, service)
    for name in names:
        service.schedule.run_now(repository, name, by="its workflow")
    refused += await _until_over(parts, service)
    return _done_jobs(parts, service, repository, names, refused)


async def _restore(
    parts: Parts, service: ReviewService, forge: WorkflowGitHub, job: WorkflowJob
) -> None:
    """Read what earlier jobs knew of the pull request, from our checks and remarks on it."""
    assert job.event is not None
    repository, number = service.repository_named(job.repository), job.event.number
    facts = facts_of(repository)
    pull = await forge.pull(facts, number)
    # Other workflows post by the same name.
    own = [one for one in await forge.own_reviews(facts, number) if reviewed_by(one.body)]
    reviews = {one.id for one in own}
    shown = [
        found
        for one in (await forge.comments(facts, number) if own else ())
        if one.review_id in reviews
        and one.in_reply_to is None
        and (found := shown_finding(one.body, one.path, one.line or 0))
    ]
    heads = [pull.head_sha, job.event.before, *(one.commit for one in reversed(own))]
    kept = None
    for head in filter(is_sha, dict.fromkeys(heads)):
        kept = read_kept(await forge.check_text(head, CHECK_NAME, check_id(number, head)))
        if kept is not None:
            break
    if kept is not None or shown:
        kept = with_posted(kept or KeptRounds(rounds=1), shown)
        restore(service.engine, parts.clock, repository, pull, kept)


async def _until_over(parts: Parts, service: ReviewService) -> list[str]:
    """Return once nothing is left to do: what would have waited for a person and was refused."""
    refused: list[str] = []
    while True:
        if waiting := parts.queue.pending_ids():
            refused += [title(one.action) for one in parts.queue.get_all(waiting)]
            parts.gate.answers.close(REFUSED, *waiting)
        elif not service.is_busy():
            service.set_missing_checks()
            if not service.is_busy():
                return refused
        await asyncio.sleep(LOOK_EVERY_S)


def _done(
    parts: Parts, service: ReviewService, job: WorkflowJob, refused: Sequence[str]
) -> DoneReview:
    assert job.event is not None
    repository = service.repository_named(job.repository)
    with service.engine.connect() as connection:
        pull = queries.pull_numbered(connection, repository.id, job.event.number)
        receipts = queries.receipts_of(connection, [pull.id]) if pull else []
        runs = queries.runs_of(connection, pull.id) if pull else []
        known = findings.history(connection, pull.id) if pull else []
    said = (runs[-1].review if runs else None) or {}
    facts = receipt_facts(receipts[-1].body) if receipts else None
    is_earlier = bool(receipts) and receipts[-1].run_id == EARLIER
    refused, failed = _not_done(parts, repository, refused)
    return DoneReview(
        facts=facts,
        is_earlier=is_earlier,
        verdict=str(said.get("verdict", "")),
        summary=str(said.get("summary", "")),
        findings=[one for one in known if one["state"] in ("new", "open")],
        refused=refused,
        failed=[] if facts and facts.reason == HEAD_MOVED else failed,
        url=service.pull_page("github", job.repository, job.event.number),
    )


def _done_jobs(
    parts: Parts,
    service: ReviewService,
    repository: queries.Repository,
    names: Sequence[str],
    refused: Sequence[str],
) -> DoneJobs:
    service.budgets.settle_over()
    by_run = service.job_requests(repository.session_id)
    with service.engine.connect() as connection:
        known = jobs.jobs_of(connection, repository.id)
        runs = [(name, jobs.runs_of(connection, known[name].id, 1)[0]) for name in names]
    done = [_done_job(name, run, by_run.get(run.id)) for name, run in runs]
    return DoneJobs(done, *_not_done(parts, repository, refused))


def _done_job(name: str, run: jobs.JobRun, act: Request | None) -> DoneJob:
    outcome, reason, url = run.outcome or "held", run.reason, ""
    if act is not None:
        url = str((act.outcome or {}).get("url", ""))
        if why := failure(act):
            outcome, reason = "failed", why
        elif status(act) != "used":
            outcome, reason = "held", REFUSED
    return DoneJob(name, outcome, reason, run.cost, url)


def _not_done(
    parts: Parts, repository: queries.Repository, refused: Sequence[str]
) -> tuple[list[str], list[tuple[str, str]]]:
    """Return what rules didn't allow, and what the forge didn't take, and why."""
    acts = parts.queue.of_session(repository.session_id, MOST_ACTS)[::-1]
    denied = [title(one.action) for one in acts if one.decision == "deny"]
    failed = [(title(one.action), why) for one in acts if (why := failure(one))]
    return [*refused, *denied], failed


def _leave(
    parts: Parts, service: ReviewService, job: WorkflowJob, done: DoneReview | DoneJobs
) -> None:
    """Write what stays after the job: the record, the receipts, the findings, the summary."""
    job.record.mkdir()
    shutil.copyfile(parts.settings.audit_log, job.record / "record.jsonl")
    with service.engine.connect() as connection:
        known = queries.receipts_of_heads(
            connection, service.repository_named(job.repository).session_id
        )
    receipts = {
        "public_key": service.receipts.public_key(),
        "receipts": [
            {"body": one.body, "signature": one.signature} for one, _, _ in known if one.signature
        ],
    }
    (job.record / "receipts.json").write_bytes(msgspec.json.format(msgspec.json.encode(receipts)))
    if isinstance(done, DoneReview):
        (job.record / "findings.json").write_text(workflows.findings_json(done.findings))
    (job.record / "summary.md").write_text(workflows.summary(done))


def _say(job: WorkflowJob, done: DoneReview | DoneJobs) -> JobEnd:
    """Set the outputs and the summary."""
    _tell(job, workflows.outputs(done) | {"record": str(job.record)}, workflows.summary(done))
    return JobEnd(int(done.has_failed), workflows.annotations(done))


def _tell(job: WorkflowJob, outputs: Mapping[str, str], summary: str) -> None:
    """Set the job's outputs and its summary, where the runner takes them."""
    boundary = f"gatehouse-{secrets.token_hex(16)}"
    for name, text in (
        ("GITHUB_OUTPUT", workflows.output_lines(outputs, boundary)),
        ("GITHUB_STEP_SUMMARY", summary),
    ):
        if file := job.variables.get(name):
            with Path(file).open("a", encoding="utf-8") as opened:
                opened.write(text)


def not_reviewed(job: WorkflowJob, why: str) -> JobEnd:
    """End a job that has nothing to do, or can't; that is no failure."""
    _tell(job, {"outcome": "ignored"}, f"## Gatehouse review\n\nNot reviewed: {why}.\n")
    return JobEnd(0, [workflows.command("warning", "Gatehouse: not reviewed", why)])


def error_line(error: GatehouseError) -> str:
    """Return the line that shows an error beside the job."""
    return workflows.command("error", "Gatehouse", without_tokens(str(error)))
