"""What an act would say on a forge, as its card shows it: the change, each finding at its line.

The words are those of the act itself, so what is judged, shown and posted is one value (law 13); an
edited post is another act. Code that stands around them comes from the clone that was reviewed.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence

import msgspec
from markupsafe import Markup

from supervisor.core.approvals import Request
from supervisor.core.files.patch_text import read_patch
from supervisor.core.forge_acts import SEVERITIES, Act, InlineComment, Severity, spelled
from supervisor.core.jobs import Job, JobResult, scope_words
from supervisor.core.money import dollars
from supervisor.core.text.display import visible
from supervisor.errors import NotFoundError
from supervisor.parts import Parts
from supervisor.reviews.core import posts
from supervisor.reviews.core.diffs import FilePatch
from supervisor.reviews.core.forge_people import person_name
from supervisor.reviews.pages import review_views
from supervisor.reviews.service import ReviewService
from supervisor.reviews.store import queries
from supervisor.server.common.diff_views import NO_TEXTS, DiffView, Texts, texts_of, view_of

# Rows of a file's diff that are shown, if it has findings; a finding below stands by itself.
MOST_ROWS = 2_000
# Other changed files of the pull request that are shown, closed, and their rows.
MOST_OTHERS, OTHER_ROWS = 20, 200
# Small print of our own: a model's `<` is escaped.
_SMALL = re.compile(r"^<sub>(.*)</sub>$", re.MULTILINE)
_NO_BREAK = "\u00a0"
# The code around each finding: number, text, and whether it is about that line.
type CodeAround = Mapping[str, list[tuple[int, str, bool]]]
# The first line of our own words about a finding.
_HEAD = re.compile(r"\*\*(?:critical|high|medium|low): (.+)\*\* `([0-9a-f]{8})`(?:\n\n|\Z)")


class PostFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One finding. `text` is the Markdown that would be posted; `title`, `html` and `suggestion`
    are parts of it as the forge shows them, `replaced` the code that the suggestion replaces."""

    id: str
    severity: Severity
    path: str
    line: int
    start_line: int
    text: str
    title: str = ""
    short_id: str = ""
    html: str = ""
    suggestion: list[str] | None = None
    replaced: list[str] = []


class PostFile(msgspec.Struct, frozen=True, kw_only=True):
    """A changed file. `loose`: findings whose line the diff doesn't show; `note`: why nobody is
    shown its content."""

    path: str
    diff: DiffView = DiffView()
    note: str = ""
    loose: tuple[PostFinding, ...] = ()


class PostView(msgspec.Struct, frozen=True, kw_only=True):
    """A post. `text` is its own text, without our invisible mark, and `html` that as the forge
    shows it; `files` have the findings, `others` are the rest of the change. `commit_message`: of
    the commit that is pushed."""

    id: str
    operation: str
    repository: str
    number: int
    title: str
    url: str
    facts: list[tuple[str, str]]
    text: str
    html: str
    severities: list[tuple[Severity, int]]
    files: list[PostFile]
    others: list[PostFile]
    others_left: int
    commit_message: str = ""


async def post_view(parts: Parts, request: Request) -> PostView:
    """Return the post of a request. Raise `NotFoundError` if it isn't an act."""
    act, service = act_of(request), parts.reviews
    if act.is_of_job and service is not None:
        return await _job_view(parts, service, request.id, act)
    run, pull = _about(service, act)
    code = service.code_of(act) if service is not None else {}
    found = [await finding_view(parts, one, one.body, code) for one in act.comments]
    changed: dict[str, FilePatch] = {}
    if run is not None and service is not None and found:
        changed = {one.facts.path: one for one in await service.diff_of(act, run)}
    files = []
    for path in dict.fromkeys(one.path for one in found):
        own = [one for one in found if one.path == path]
        if service is None or run is None or path not in changed:
            files.append(PostFile(path=path, loose=tuple(own)))
            continue
        old, new = await service.both_sides(act, run, changed[path].facts)
        texts = await texts_of(parts.renderer, path, old, new)
        files.append(await _file(parts, changed[path], own, texts))
    others = [one for path, one in changed.items() if path not in {file.path for file in files}]
    shown = [await _file(parts, one, (), most_rows=OTHER_ROWS) for one in others[:MOST_OTHERS]]
    text = shown_text(posts.without_mark(act.body))
    return PostView(
        id=request.id,
        operation=act.operation,
        repository=spelled(act.forge, act.repository),
        number=act.number,
        title=pull.title if pull is not None else "",
        url=service.pull_page(act.forge, act.repository, act.number) if service else "",
        facts=_facts(service, act, run, pull),
        text=text,
        html=await rendered(parts, text),
        severities=[
            (one, count)
            for one in SEVERITIES
            if (count := sum(each.severity == one for each in found))
        ],
        files=files,
        others=shown,
        others_left=len(others) - len(shown),
    )


async def _job_view(parts: Parts, service: ReviewService, request_id: str, act: Act) -> PostView:
    """Return the pull request of a job: what its commit changes, and what is known of it."""
    run, text = service.job_pulls.run_of(act), shown_text(posts.without_mark(act.body))
    facts = [("Branch", f"{act.branch} onto {act.base}, at {act.head[:7]}")]
    if run is not None and run.task is not None and run.result is not None:
        task, result = msgspec.convert(run.task, Job), msgspec.convert(run.result, JobResult)
        tests = f"{result.tests}{f': {result.tests_why}' if result.tests_why else ''}"
        facts += [
            ("Job", task.name),
            ("Scope", scope_words(task, result.proof)),
            ("Tests", tests),
            ("Spent", dollars(run.cost)),
        ]
    changed = await service.job_pulls.diff_of(act)
    shown = [await _file(parts, one, ()) for one in changed[:MOST_OTHERS]]
    return PostView(
        id=request_id,
        operation=act.operation,
        repository=spelled(act.forge, act.repository),
        number=act.number,
        title=act.title,
        url=service.pull_page(act.forge, act.repository, act.number) if act.number else "",
        facts=facts,
        text=text,
        html=await rendered(parts, text),
        severities=[],
        files=shown,
        others=[],
        others_left=len(changed) - len(shown),
        commit_message=await service.job_pulls.message_of(act),
    )


def act_of(request: Request) -> Act:
    """Return the act that a request asks for. Raise `NotFoundError` if it is another action."""
    if not isinstance(request.action, Act):
        raise NotFoundError("the request is no act on a forge", "its own card shows it")
    return request.action


async def finding_view(
    parts: Parts, comment: InlineComment, text: str, code: CodeAround
) -> PostFinding:
    """Return a finding in these words."""
    shown = shown_text(text)
    head = _HEAD.match(shown)
    body = shown[head.end() :] if head else shown
    body, suggestion = _suggested(body)
    return PostFinding(
        id=comment.finding,
        severity=comment.severity,
        path=comment.path,
        line=comment.line,
        start_line=comment.start_line or comment.line,
        text=shown,
        title=_inner(await rendered(parts, head[1])) if head else "",
        short_id=head[2] if head else "",
        html=await rendered(parts, body),
        suggestion=suggestion,
        replaced=[line for _, line, is_it in code.get(comment.finding, ()) if is_it],
    )


def _suggested(text: str) -> tuple[str, list[str] | None]:
    """Return a text without the suggestion at its end, and the lines of that; None for none."""
    head, _, fence = text.rpartition("\n")
    before, found, code = f"\n\n{head}\n".rpartition(f"\n\n{fence}suggestion\n")
    if not found or len(fence) < 3 or fence.strip("`"):
        return text, None
    return before.removeprefix("\n\n"), code.split("\n")[:-1]


def shown_text(text: str) -> str:
    """Return Markdown as the field shows it. No-break spaces are ours: they keep indentation."""
    return " ".join(visible(part) for part in text.split(_NO_BREAK))


def changed_texts(act: Act, sent: Mapping[str, str]) -> dict[str, str]:
    """Return the texts of a form that a person changed, by finding, or `body`."""
    was = {one.finding: one.body for one in act.comments}
    was["body"] = posts.without_mark(act.body)
    return {
        name: text for name, text in sent.items() if name in was and shown_text(was[name]) != text
    }


async def rendered(parts: Parts, text: str) -> Markup:
    """Return Markdown as harmless HTML, as a forge shows it but for links, which stay as they are
    written."""
    found = await parts.renderer.prose(_SMALL.sub(r"\1", text))
    return Markup(found) if found is not None else Markup("<p>{}</p>").format(text)  # noqa: S704


def _inner(html: Markup) -> Markup:
    """Return the content of the one paragraph that a line is rendered as."""
    return Markup(html.strip().removeprefix("<p>").removesuffix("</p>"))  # noqa: S704


def _about(
    service: ReviewService | None, act: Act
) -> tuple[queries.ReviewRun | None, queries.PullRequest | None]:
    """Return the run that composed an act, if one did, and its pull request."""
    if service is None:
        return None, None
    run = service.run_of(act)
    with service.engine.connect() as connection:
        if run is not None:
            return run, queries.pull(connection, run.pull_id)
        repository = queries.repository(connection, act.forge, act.repository)
        pull = repository and queries.pull_numbered(connection, repository.id, act.number)
    return None, pull or None


def _facts(
    service: ReviewService | None,
    act: Act,
    run: queries.ReviewRun | None,
    pull: queries.PullRequest | None,
) -> list[tuple[str, str]]:
    found = []
    if pull is not None:
        onto = f", {act.head[:7]} onto {pull.base_ref}" if act.head and pull.base_ref else ""
        found.append(("Pull request", f"by {person_name(pull.author)}{onto}"))
    if act.verdict:
        found.append(("Verdict", act.verdict.replace("_", " ")))
    if run is not None and service is not None:
        rounds = review_views.rounds(service, run)
        here = next((one for one in rounds.rounds if one.id == run.id), None)
        if here is not None and here.number > 1:
            gone = f"{here.gone} finding{'' if here.gone == 1 else 's'} gone"
            found.append((f"Round {here.number}", f"{gone} since, {here.open} open"))
        found.append(("Spent", dollars(run.cost)))
    return found


async def _file(
    parts: Parts,
    file: FilePatch,
    found: Sequence[PostFinding],
    texts: Texts = NO_TEXTS,
    *,
    most_rows: int = MOST_ROWS,
) -> PostFile:
    """Return a file with its findings, each at its line."""
    if file.facts.skipped:
        return PostFile(path=file.facts.path, note=file.facts.skipped, loose=tuple(found))
    return await asyncio.to_thread(_shown, parts, file, found, texts, most_rows)


def _shown(
    parts: Parts, file: FilePatch, found: Sequence[PostFinding], texts: Texts, most_rows: int
) -> PostFile:
    at: dict[int, list[PostFinding]] = {}
    for one in found:
        at.setdefault(one.line, []).append(one)
    patch = read_patch(file.patch.decode("utf-8", "replace"))
    view = view_of(patch, parts.redactor.text, texts, most_rows=most_rows, at=at)
    placed = {one.id for hunk in view.hunks for row in hunk.rows for one in row.things}
    loose = tuple(one for one in found if one.id not in placed)
    return PostFile(path=file.facts.path, diff=view, loose=loose)
