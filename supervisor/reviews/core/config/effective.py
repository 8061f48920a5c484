"""The effective configuration of several sources, and the source of each value.

Layers come strongest first: operator, inputs, dashboard, the repository's files, its owner's,
built-in. Lists add up, the first scalar counts, and a ceiling only narrows: no layer and no entry
ever gives a tool that a layer above it doesn't give.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from supervisor.core.text.providers import PROVIDERS
from supervisor.reviews.core.config import built_in, shapes
from supervisor.reviews.core.config.shapes import (
    CATEGORIES,
    OTHER_CATEGORIES,
    Category,
    CommentType,
    OutputFormat,
    PromptMode,
    Reviewerc,
    SeverityFloor,
    Strictness,
)

_KNOWN = ", ".join(PROVIDERS)
BUILT_IN = "built-in"
DEFAULT_TOOLS: tuple[Category, ...] = tuple(one for one in CATEGORIES if one != "repo.write")
_NO_PROVIDER = (
    "provider {0.value} ({0.source}): those known are {1}, so the review asks the model of the"
    " service, and prompts that want that provider are skipped"
)
# Categories that a run has no use for, and why.
_NOT_ON_PULLS: dict[str, str] = {"repo.write": "a review changes nothing"}
_NOT_IN_JOBS: dict[str, str] = {
    "git.read": "a job has no pull request",
    "github.read": "a job has no pull request",
}


class ConfigLayer(NamedTuple):
    """The values of one source. `name` is its name for people: `dashboard`, or a file and its
    revision. `lines` are a file's lines, by the path of the value."""

    name: str
    config: Reviewerc
    lines: Mapping[str, int] = {}

    def source(self, path: str) -> str:
        """Return the source of the value at a path."""
        line = self.lines.get(path)
        return self.name if line is None else f"{self.name}, line {line}"


class Sourced[T](NamedTuple):
    """A value, and its source."""

    value: T
    source: str


class ModelChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The model, and how to call it; None for what no source gives."""

    provider: str | None = None
    model: str | None = None
    reasoning: shapes.Reasoning | None = None
    temperature: float | None = None


class PromptPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt with all values that its command, the defaults and the ceiling give. `command` is
    the id of its command, empty if the prompt is its own."""

    id: str
    prompt: str
    title: str
    command: str = ""
    mode: PromptMode = "separate_comment"
    comment: CommentType = "issue"
    format: OutputFormat = "findings"
    severity_floor: SeverityFloor = "low"
    tools: tuple[Category, ...]
    limits: shapes.PromptLimits = shapes.PromptLimits()
    files: shapes.GlobSet = shapes.GlobSet()
    conditions: shapes.PromptConditions = shapes.PromptConditions()
    asked: ModelChoice = ModelChoice()


class JobPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A job with all values that its command, the defaults and the ceiling give. `updates`: which
    dependencies it updates, "" for another task."""

    id: str
    prompt: str
    title: str
    output: shapes.JobOutput
    tools: tuple[Category, ...]
    limits: shapes.PromptLimits = shapes.PromptLimits()
    conditions: shapes.JobConditions = shapes.JobConditions()
    write_scope: shapes.GlobSet | None = None
    tests: str = ""
    updates: str = ""
    min_age: str = ""
    asked: ModelChoice = ModelChoice()


class EffectiveConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A repository's merged configuration. `scheduled`: its jobs run by `cron` in `timezone`.
    `notes` say what was narrowed, or which file wasn't used."""

    tools: Sourced[tuple[Category, ...]]
    provider: Sourced[str | None]
    model: Sourced[str | None]
    reasoning: Sourced[shapes.Reasoning | None]
    temperature: Sourced[float | None]
    strictness: Sourced[Strictness]
    ignore: tuple[Sourced[str], ...] = ()
    checklist: tuple[Sourced[str], ...] = ()
    commands: tuple[Sourced[PromptPlan], ...] = ()
    prompts: tuple[Sourced[PromptPlan], ...] = ()
    scheduled: Sourced[bool]
    cron: Sourced[str | None]
    timezone: Sourced[str]
    jobs: tuple[Sourced[JobPlan], ...] = ()
    notes: tuple[str, ...] = ()


def combine(layers: Sequence[ConfigLayer], notes: Sequence[str] = ()) -> EffectiveConfig:
    """Merge the layers. `layers` are strongest first; `notes` are kept."""
    tools = _ceiling(layers)
    provider = _first(layers, "review.defaults.provider", None)
    model = _first(layers, "review.defaults.model", None)
    reasoning = _first(layers, "review.defaults.reasoning", None)
    temperature = _first(layers, "review.defaults.temperature", None)
    asked = ModelChoice(
        provider=provider.value,
        model=model.value,
        reasoning=reasoning.value,
        temperature=temperature.value,
    )
    plans = _Plans(tools.value, asked)
    own = [] if is_offered(asked.provider) else [_NO_PROVIDER.format(provider, _KNOWN)]
    return EffectiveConfig(
        tools=tools,
        provider=provider,
        model=model,
        reasoning=reasoning,
        temperature=temperature,
        strictness=_first(layers, "review.strictness", "balanced"),
        ignore=_added(layers, "review.ignore"),
        checklist=_added(layers, "review.checklist"),
        commands=_entries(layers, "commands", plans.command),
        prompts=_entries(layers, "review.prompts", plans.prompt),
        scheduled=_first(layers, "schedule.enabled", False),
        cron=_first(layers, "schedule.cron", None),
        timezone=_first(layers, "schedule.timezone", "UTC"),
        jobs=_entries(layers, "schedule.jobs", plans.job),
        notes=tuple(dict.fromkeys([*notes, *own, *plans.notes])),
    )


def is_offered(provider: str | None) -> bool:
    """Return whether a reader can use a provider; None is the service's own."""
    return provider is None or provider in PROVIDERS


def review_model(config: EffectiveConfig) -> str:
    """Return the model for the review itself; "" for the service's own."""
    return model_of(config.provider.value, config.model.value)


def model_of(provider: str | None, model: str | None) -> str:
    """Return a model as the service's own setting names it; "" for the service's own. INVARIANT: it
    is one model, of this provider: a file of a repository names no other by a prefix or a comma."""
    name = (model or "").partition(",")[0].strip()
    return f"{provider or 'anthropic'}:{name}" if name and is_offered(provider) else ""


def config_digest(config: EffectiveConfig) -> str:
    """Return a digest of the configuration: equal values give equal digests, whatever their sources
    and places."""
    values = {
        field: _values(getattr(config, field))
        for field in config.__struct_fields__
        if field != "notes"
    }
    return hashlib.sha256(msgspec.json.encode(values, order="deterministic")).hexdigest()


class ConfigRow(msgspec.Struct, frozen=True, kw_only=True):
    """A value as a person sees it."""

    key: str
    value: str
    source: str


def config_rows(config: EffectiveConfig) -> list[ConfigRow]:
    """Return every effective value, in words, and its source."""
    names = {
        "tools": "tools",
        "provider": "provider",
        "model": "model",
        "reasoning": "reasoning",
        "temperature": "temperature",
        "strictness": "strictness",
        "ignore": "ignore",
        "checklist": "checklist",
        "commands": "command",
        "prompts": "prompt",
        "scheduled": "schedule",
        "cron": "cron",
        "timezone": "timezone",
        "jobs": "job",
    }
    return [
        ConfigRow(key=name, value=_words(one.value), source=one.source)
        for field, name in names.items()
        for one in _each(getattr(config, field))
    ]


def _each(said: Any) -> Sequence[Sourced[Any]]:
    return (said,) if isinstance(said, Sourced) else said


def _values(said: Any) -> Any:
    values = [msgspec.to_builtins(one.value) for one in _each(said)]
    return values[0] if isinstance(said, Sourced) else values


def _words(value: Any) -> str:
    match value:
        case None:
            return "not set"
        case bool():
            return "on" if value else "off"
        case tuple():
            return ", ".join(value) or "none"
        case PromptPlan():
            return f"{value.id}: {value.mode}, {value.comment}; tools {_words(value.tools)}"
        case JobPlan():
            return f"{value.id}: {value.output.mode}; tools {_words(value.tools)}"
    return str(value)


# -- layers ---------------------------------------------------------------------------------------


def _at(config: Any, path: str) -> Any:
    """Return the value at a path; None if there is none."""
    for name in path.split("."):
        config = getattr(config, name) if config is not None else None
    return config


def _first(layers: Sequence[ConfigLayer], path: str, built_in: Any) -> Sourced[Any]:
    for layer in layers:
        value = _at(layer.config, path)
        if value is not None:
            return Sourced(value, layer.source(path))
    return Sourced(built_in, BUILT_IN)


def _added(layers: Sequence[ConfigLayer], path: str) -> tuple[Sourced[str], ...]:
    found: dict[str, Sourced[str]] = {}
    for layer in layers:
        for number, value in enumerate(_at(layer.config, path) or ()):
            found.setdefault(value, Sourced(value, layer.source(f"{path}[{number}]")))
    return tuple(found.values())


def _ceiling(layers: Sequence[ConfigLayer]) -> Sourced[tuple[Category, ...]]:
    """Return the categories that are given by every layer which names any."""
    named = [(layer, _at(layer.config, "tools.allowlist")) for layer in layers]
    said = [(layer, canonical(found)) for layer, found in named if found is not None]
    if not said:
        return Sourced(DEFAULT_TOOLS, BUILT_IN)
    kept = tuple(one for one in CATEGORIES if all(one in found for _, found in said))
    return Sourced(kept, " and ".join(layer.source("tools.allowlist") for layer, _ in said))


def canonical(spelled: Sequence[str]) -> tuple[Category, ...]:
    """Return categories in their canonical spelling, without duplicates; those without any tool of
    a reader are left out."""
    found = {OTHER_CATEGORIES.get(one, one) for one in spelled}
    return tuple(one for one in CATEGORIES if one in found)


def _entries[Plan](
    layers: Sequence[ConfigLayer],
    path: str,
    plan: Callable[[Any, Reviewerc, str], Plan],
) -> tuple[Sourced[Plan], ...]:
    """Return the plans of a list of entries; of two with the same id, the stronger layer's."""
    found: dict[str, Sourced[Plan]] = {}
    for layer in layers:
        for number, entry in enumerate(_at(layer.config, path) or ()):
            if entry.id not in found:
                source = layer.source(f"{path}[{number}]")
                found[entry.id] = Sourced(plan(entry, layer.config, source), source)
    return tuple(found.values())


# -- plans ----------------------------------------------------------------------------------------


class _Plans:
    """Builds the plans of entries under one ceiling. `notes` say what was narrowed."""

    def __init__(self, ceiling: Sequence[Category], asked: ModelChoice) -> None:
        self.notes: list[str] = []
        self._ceiling = ceiling
        self._asked = asked

    def command(self, entry: shapes.CommandSpec, file: Reviewerc, source: str) -> PromptPlan:
        """Return the plan that a mention of a command runs."""
        spec = shapes.PromptSpec(id=entry.id, command_ref=entry.id)
        return self._plan(f"command `{entry.id}` ({source})", spec, entry)

    def prompt(self, entry: shapes.PromptSpec, file: Reviewerc, source: str) -> PromptPlan:
        """Return the plan that a review runs for an entry of its prompts."""
        return self._plan(f"prompt `{entry.id}` ({source})", entry, _command(entry, file))

    def job(self, entry: shapes.JobSpec, file: Reviewerc, source: str) -> JobPlan:
        """Return the plan that a schedule runs for one of its jobs."""
        command = _command(entry, file)
        is_built_in = command is built_in.COMMANDS.get(entry.command_ref or "")
        scope = built_in.SCOPES.get(command.id) if is_built_in else None
        every = "all" if is_built_in and command.id == built_in.UPDATES else ""
        return JobPlan(
            id=entry.id,
            prompt=entry.prompt or command.prompt,
            title=entry.title or command.title or entry.id,
            output=entry.output,
            tools=self._tools(f"job `{entry.id}` ({source})", (command, entry), _NOT_IN_JOBS),
            limits=_joined(entry.limits, command.limits, shapes.PromptLimits()),
            conditions=entry.conditions or shapes.JobConditions(),
            write_scope=entry.write_scope or scope,
            tests=entry.tests or "",
            updates=entry.updates or every,
            min_age=entry.min_age or "",
            asked=self._asked,
        )

    def _plan(self, what: str, entry: shapes.PromptSpec, command: shapes.CommandSpec) -> PromptPlan:
        output = _joined(entry.output, command.output, shapes.PromptOutput())
        comment = _joined(entry.comment, command.comment, shapes.CommentSpec())
        if comment.type == "both":
            self.notes.append(f"{what}: comments of both types become one of the type review")
        return PromptPlan(
            id=entry.id,
            prompt=entry.prompt or command.prompt,
            title=entry.title or command.title or entry.id,
            command=entry.command_ref or "",
            mode=entry.mode or "separate_comment",
            comment="review" if comment.type in ("review", "both") else "issue",
            format=output.format or "findings",
            severity_floor=output.severity_floor or "low",
            tools=self._tools(what, (command, entry), _NOT_ON_PULLS),
            limits=_joined(entry.limits, command.limits, shapes.PromptLimits()),
            files=_joined(entry.files, command.files, shapes.GlobSet()),
            conditions=entry.conditions or shapes.PromptConditions(),
            asked=_joined(
                ModelChoice(
                    provider=entry.provider,
                    model=entry.model,
                    reasoning=entry.reasoning,
                    temperature=entry.temperature,
                ),
                self._asked,
                ModelChoice(),
            ),
        )

    def _tools(
        self,
        what: str,
        named: Sequence[shapes.CommandSpec | shapes.PromptSpec | shapes.JobSpec],
        never: Mapping[str, str],
    ) -> tuple[Category, ...]:
        """Return the tools that the ceiling and each of these give. If one of them names a tool
        that the run can't have, a note says so."""
        kept = [one for one in self._ceiling if one not in never]
        for one in named:
            allowed = one.tools.allow if one.tools is not None else None
            if allowed is None:
                continue
            for category in canonical(allowed):
                if category in never:
                    self.notes.append(f"{what}: no `{category}`, since {never[category]}")
                elif category not in self._ceiling:
                    self.notes.append(f"{what}: no `{category}`, since the ceiling has none")
            self.notes += [
                f"{what}: `{word}` gives nothing here"
                for word in allowed
                if OTHER_CATEGORIES.get(word) == ""
            ]
            kept = [category for category in kept if category in canonical(allowed)]
        return tuple(kept)


def _command(entry: shapes.PromptSpec | shapes.JobSpec, file: Reviewerc) -> shapes.CommandSpec:
    """Return the command of an entry; an empty one if the prompt is its own."""
    own = shapes.CommandSpec(id=entry.id, prompt=entry.prompt or "")
    if isinstance(entry, shapes.JobSpec):
        own = built_in.COMMANDS.get(entry.command_ref or "", own)
    return next((one for one in file.commands if one.id == entry.command_ref), own)


def _joined[Shape: msgspec.Struct](own: Shape | None, other: Shape | None, nothing: Shape) -> Shape:
    """Return an entry's values key by key, with the other's values for missing keys."""
    said = {
        key: value
        for one in (other, own)
        if one is not None
        for key in one.__struct_fields__
        if (value := getattr(one, key)) is not None
    }
    return msgspec.structs.replace(nothing, **said)
