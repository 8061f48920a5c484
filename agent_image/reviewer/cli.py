"""The review agent's command: settings in, progress lines out, one exit code.

0 the review was handed over · 1 started wrongly · 2 refused by the gate · 3 no usable review.
All output is one plain line at a time, because it is shown live to a person and comes out of a
sandbox.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from agent_image.reviewer import orders, prompt_run, prompts, providers
from agent_image.reviewer.findings import Report, extract
from agent_image.reviewer.gatehouse import ApiError, Gatehouse, Refused
from agent_image.reviewer.loop import Conversation
from agent_image.reviewer.model import Model, ModelError
from agent_image.reviewer.recorded_model import (
    FIRST_LOOK,
    MENDING,
    PROMPT,
    PULL_REQUEST,
    RecordedModel,
    facts_of,
    known_mend,
    maintenance,
    prompt_facts,
)
from agent_image.reviewer.repository import (
    Change,
    GitError,
    GivenChange,
    Repository,
    not_shown,
)
from agent_image.reviewer.runtime import NoReviewError, Outcome, Runtime
from agent_image.reviewer.settings import Settings, UsageError, hide_from_siblings, parse
from agent_image.reviewer.text import Quarantine, plain
from agent_image.reviewer.tool_inputs import (
    PULL_TOOLS,
    QUARANTINE_TOOLS,
    READING_TOOLS,
    RECORDED_TOOLS,
    TOOLS,
    Input,
    maintenance_tools,
)
from agent_image.reviewer.tools import Tools
from agent_image.reviewer.updates import Remembering, Updates
from agent_image.reviewer.workspace import Workspace

DONE, USER_MISTAKE, REFUSED, NO_REVIEW = 0, 1, 2, 3


def main(argv: list[str]) -> int:
    """Run one review. Return the exit code."""
    hide_from_siblings()
    signal.signal(signal.SIGTERM, _stop)
    try:
        settings = parse(argv, os.environ)
        review(settings, say)
    except (UsageError, GitError) as error:
        return _fail(str(error), USER_MISTAKE)
    except Refused as error:
        return _fail(str(error), REFUSED)
    except ModelError as error:
        return _fail(str(error), REFUSED if error.is_refusal else NO_REVIEW)
    except (NoReviewError, ApiError) as error:
        return _fail(str(error), NO_REVIEW)
    except KeyboardInterrupt:
        return _fail("stopped before the review was done", 130)
    return DONE


def review(settings: Settings, say: Callable[[str], None]) -> Report:
    """Review the workspace, or carry out a task, and hand the result over. Raise the errors that
    `main` turns into exit codes."""
    if not settings.models:
        say(
            "model: recorded; no API key is set, so a script is played and no model looks at the"
            " code"
        )
    else:
        say(f"model: {', or '.join(one.name for one in settings.models)}")
        if not _is_own(settings):
            say(f"runtime: {settings.runtime}, so Claude Code conducts the review")
    gatehouse = Gatehouse(
        settings.gatehouse_url, settings.gatehouse_token, outage_s=settings.limits.outage_s
    )
    workspace = Remembering(settings.workspace, settings.also)
    given = _given(settings.change) if settings.change else None
    repository = given or Repository(settings.workspace)
    change = repository.change(settings.base)
    if not settings.task:
        say(f"base: {change.base or 'none, all files are reviewed'}; {change.summary}")
    quarantine = Quarantine()
    tools = Tools(
        gatehouse,
        workspace,
        repository,
        change,
        limits=settings.limits,
        quarantine=quarantine,
        say=say,
        offered=_offered(settings),
        in_quarantine=given is not None,
        since=settings.order.since,
        files=settings.order.files if settings.order.prompt else (),
    )
    model = _model(settings, change, repository, workspace) if _is_own(settings) else None

    def converse(opening: str) -> Outcome:
        return _runtime(
            settings,
            model,
            tools,
            system=_system(settings, change, quarantine),
            say=say,
            read=prompt_run.extract if settings.order.prompt else extract,
            must_conclude=gatehouse.must_conclude,
        ).run(opening)

    if settings.updates is not None:
        outcome = Updates(settings, gatehouse, workspace, converse, quarantine, say).run()
    else:
        outcome = converse(settings.task or _opening(settings, repository, change, tools))
    asked = settings.models[0].name if model is None else model.name
    report = _report(asked, change, outcome, sorted(tools.unseen))
    gatehouse.report(report)
    if settings.output:
        settings.output.write_bytes(msgspec.json.format(msgspec.json.encode(report)))
    say(
        f"review handed over: {report.verdict}, {len(report.findings)} findings,"
        f" {report.usage.turns} turns"
    )
    return report


def _is_own(settings: Settings) -> bool:
    """Return whether our own loop conducts it: always where nothing but a script is played."""
    return not settings.models or settings.runtime == "loop"


def _runtime(settings: Settings, model: Model | None, tools: Tools, **how: Any) -> Runtime:
    """Return what conducts the conversation."""
    if model is not None:
        return Conversation(model, tools, limits=settings.limits, **how)
    # They take long to import.
    if settings.runtime == "cli":
        from agent_image.reviewer.cli_runtime import CliRuntime

        return CliRuntime(settings, tools, **how)
    from agent_image.reviewer.sdk_runtime import SdkRuntime

    return SdkRuntime(settings, tools, **how)


def _system(settings: Settings, change: Change, quarantine: Quarantine) -> str:
    if settings.order.prompt is not None:
        return prompt_run.system(quarantine, settings.limits.turns)
    return prompts.system(
        quarantine,
        settings.limits.turns,
        maintains=bool(settings.task),
        pull_files=change.files if settings.is_pull else None,
        in_quarantine=settings.change is not None,
    )


def _opening(
    settings: Settings,
    repository: Repository | GivenChange,
    change: Change,
    tools: Tools,
) -> str:
    order, quarantine = settings.order, tools.quarantine
    diff = _opening_diff(settings, repository, change, tools)
    told = [*prompts.further(settings.also), *orders.told(order, quarantine)]
    references = repository.references if isinstance(repository, GivenChange) else None
    if order.prompt is not None:
        told += prompts.referring(change, quarantine, references or {})
        return prompt_run.opening(order, change, diff, quarantine, told)
    return prompts.opening(change, diff, quarantine, told, since=order.since, references=references)


def _offered(settings: Settings) -> dict[str, tuple[type[Input], str]]:
    if settings.task:
        return maintenance_tools(settings.categories)
    if settings.order.prompt is not None:
        return prompt_run.offered(settings.order.prompt, in_quarantine=settings.change is not None)
    if settings.change:
        return QUARANTINE_TOOLS
    if settings.is_pull:
        return READING_TOOLS if settings.reads_only else PULL_TOOLS
    return TOOLS | RECORDED_TOOLS if not settings.models else TOOLS


def _given(file: Path) -> GivenChange:
    try:
        return msgspec.json.decode(file.read_bytes(), type=GivenChange)
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(f"the change `{file}` can't be read: {error}") from error


def _model(
    settings: Settings,
    change: Change,
    repository: Repository | GivenChange,
    workspace: Workspace,
) -> Model:
    if not settings.models and settings.updates is not None:
        return RecordedModel(known_mend(workspace), MENDING)
    if not settings.models and settings.task:
        facts, script = maintenance(settings.scope, workspace)
        done = ("edit_file",) if facts.get("old") == "" else ()
        return RecordedModel(facts, script, offered=_offered(settings).keys() - done)
    if not settings.models:
        script = PULL_REQUEST if settings.is_pull else FIRST_LOOK
        if settings.order.prompt is not None:
            facts = prompt_facts(settings.order.prompt.id, change, repository, workspace)
            return RecordedModel(facts, PROMPT, offered=_offered(settings))
        look = "glob" if settings.change else "git_diff"
        return RecordedModel(facts_of(change, repository, workspace) | {"look": look}, script)
    return providers.model_of(
        settings.models,
        retries=settings.limits.retries,
        reasoning=settings.order.reasoning,
        temperature=settings.order.temperature,
    )


def _opening_diff(
    settings: Settings, repository: Repository | GivenChange, change: Change, tools: Tools
) -> str:
    order = settings.order
    if change.base is None or (order.prompt is not None and "git.read" not in order.prompt.tools):
        return ""
    paths = list(order.files)
    output = repository.diff(change, paths, settings.limits.first_diff_bytes, since=order.since)
    if output.code != 0:
        names = repository.diff_names(change, paths, since=order.since)
        tools.unseen.update(not_shown(output, names))
    more = "read the files" if settings.change else "use git_diff with paths"
    note = f"\n[cut: git {output.ended}; {more}]" if output.ended else ""
    return output.data.decode("utf-8", "replace") + note


def _report(model: str, change: Change, outcome: Outcome, unseen: list[str]) -> Report:
    partial = outcome.partial or (prompts.CUT if unseen else "")
    left_out = dict.fromkeys([*unseen, *outcome.review.left_out])
    return Report(
        model=model,
        base=change.base,
        head=change.head,
        summary=outcome.review.summary,
        verdict=outcome.review.verdict,
        findings=outcome.review.findings,
        usage=outcome.usage,
        turns=outcome.turns,
        notes=outcome.review.notes,
        confidence=outcome.review.confidence,
        partial=partial,
        left_out=tuple(one for one in left_out if len(one) <= 1000)[:500] if partial else (),
    )


_printing = threading.Lock()


def say(line: str) -> None:
    """Print one progress line on standard output, plain and complete from any thread."""
    with _printing:
        print(plain(line), flush=True)


def _fail(message: str, code: int) -> int:
    print(f"gatehouse review: {plain(message, 1000)}", file=sys.stderr, flush=True)
    return code


def _stop(_signal: int, _frame: FrameType | None) -> None:
    """Exit at once, since the session ends: the supervisor closes all open requests."""
    os.write(2, b"gatehouse review: stopped because the session ends\n")
    os._exit(128 + signal.SIGTERM)
