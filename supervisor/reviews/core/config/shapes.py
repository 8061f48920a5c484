"""Shapes of `.reviewerc` version 1: the allowed contents of a file, key by key.

The reader and the JSON Schema are both made from these structs, so a key is written once. `FORMATS`
names the format of a text beyond its length; the reader checks it. There are two shapes of the same
content: the first (`review.prompts`, `schedule.jobs`) and a later one (`review.run`,
`schedule.runs`); `reader` maps the later one onto the first.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

MOST_PROMPT_CHARS = 20_000
MOST_ENTRIES = 100
# Built-in commands of mentions: no configured command may have such an id.
MENTIONS = frozenset({"review", "pause", "resume", "stop", "ignore", "why"})
# The formats that a text may have, as in the `format` of its schema.
GLOB, CRON, ZONE = "glob", "cron", "timezone"

Category = Literal[
    "filesystem", "git.read", "git.history", "github.read", "github.write", "repo.write"
]
CATEGORIES: tuple[Category, ...] = (
    *("filesystem", "git.read", "git.history"),
    *("github.read", "github.write", "repo.write"),
)
# Other spellings, including those of the later shape; "": a tool that no reader has.
OTHER_CATEGORIES: dict[str, Category | Literal[""]] = {
    "forge.read": "github.read",
    "forge.write": "github.write",
    "github.pr.read": "github.read",
    "github.pr.feedback": "github.write",
    "github.pr.manage": "",
    "agent.subagent": "",
}
LATER_CATEGORIES = frozenset(
    {"github.pr.read", "github.pr.feedback", "github.pr.manage", "agent.subagent"}
)
SpelledCategory = Literal[
    "filesystem",
    "git.read",
    "git.history",
    "github.read",
    "github.write",
    "repo.write",
    "forge.read",
    "forge.write",
    "github.pr.read",
    "github.pr.feedback",
    "github.pr.manage",
    "agent.subagent",
]
OutputFormat = Literal["findings", "narrative", "checklist"]
SeverityFloor = Literal["low", "medium", "high"]
PromptMode = Literal["feed_main", "separate_comment", "both"]
CommentType = Literal["issue", "review"]
Reasoning = Literal["off", "minimal", "low", "medium", "high", "xhigh"]
Strictness = Literal["lenient", "balanced", "strict"]
JobMode = Literal["pr_create", "issue"]

# As `core.packages.updates.parse_updates` reads it.
_MANAGER = "(npm|pnpm|pip|uv|cargo|go)"
UPDATES = rf"^(all|{_MANAGER}(,{_MANAGER})*|{_MANAGER}:[A-Za-z0-9@._/,-]+)$"
_Id = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9-]{0,63}$")]
_Name = Annotated[str, Meta(min_length=1, max_length=200)]
_Text = Annotated[str, Meta(min_length=1, max_length=MOST_PROMPT_CHARS)]
_Prompt = Annotated[str, Meta(min_length=1, max_length=MOST_PROMPT_CHARS)]
_Glob = Annotated[str, Meta(min_length=1, max_length=500, extra_json_schema={"format": GLOB})]
_Globs = Annotated[tuple[_Glob, ...], Meta(max_length=MOST_ENTRIES)]
_SomeGlobs = Annotated[tuple[_Glob, ...], Meta(min_length=1, max_length=MOST_ENTRIES)]
_Names = Annotated[tuple[_Name, ...], Meta(min_length=1, max_length=MOST_ENTRIES)]
_Ids = Annotated[tuple[_Id, ...], Meta(min_length=1, max_length=MOST_ENTRIES)]
_Points = Annotated[
    tuple[Annotated[str, Meta(min_length=1, max_length=1_000)], ...], Meta(max_length=MOST_ENTRIES)
]
_Count = Annotated[int, Meta(ge=1, le=1_000_000)]
_Temperature = Annotated[float, Meta(ge=0, le=2)]
_Categories = Annotated[tuple[SpelledCategory, ...], Meta(max_length=20)]


class _Shape(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename="camel",
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """The common base of all shapes."""


class ToolsCeiling(_Shape, frozen=True, kw_only=True):
    """The ceiling for everything that the file names."""

    allowlist: _Categories | None = None


class ToolsAllowed(_Shape, frozen=True, kw_only=True):
    allow: _Categories | None = None


class PromptLimits(_Shape, frozen=True, kw_only=True):
    """Limits of a prompt. Above `maxFiles` or `maxDiffLines` a prompt isn't started, and a job has
    no result; `maxFindings` keeps the gravest."""

    max_files: _Count | None = None
    max_findings: _Count | None = None
    max_diff_lines: _Count | None = None


class PromptOutput(_Shape, frozen=True, kw_only=True):
    format: OutputFormat | None = None
    severity_floor: SeverityFloor | None = None


class CommentSpec(_Shape, frozen=True, kw_only=True):
    type: Literal["issue", "review", "both"] | None = None


class GlobSet(_Shape, frozen=True, kw_only=True):
    """Globs. Without `include`, everything except `exclude`."""

    include: _SomeGlobs | None = None
    exclude: _SomeGlobs | None = None


class NameSet(_Shape, frozen=True, kw_only=True):
    """Names. A value must be in `include`, if given, and not in `exclude`."""

    include: _Names | None = None
    exclude: _Names | None = None


class ChangedPaths(_Shape, frozen=True, kw_only=True):
    """A condition on changed files. `true`: some file that the prompt looks at changed; `false`:
    none did; globs: a matching file changed."""

    changed: bool | _SomeGlobs | None = None


class PromptConditions(_Shape, frozen=True, kw_only=True):
    draft: bool | None = None
    labels: NameSet | None = None
    authors: NameSet | None = None
    paths: ChangedPaths | None = None


class JobConditions(_Shape, frozen=True, kw_only=True):
    paths: GlobSet | None = None
    branch: GlobSet | None = None


class CommandSpec(_Shape, frozen=True, kw_only=True):
    """A prompt that mentions call, and to which prompts and jobs refer."""

    id: _Id
    prompt: _Prompt
    title: _Name | None = None
    tools: ToolsAllowed | None = None
    limits: PromptLimits | None = None
    output: PromptOutput | None = None
    comment: CommentSpec | None = None
    files: GlobSet | None = None


class PromptSpec(_Shape, frozen=True, kw_only=True):
    """A prompt that runs with a review: a command's, or its own."""

    id: _Id
    command_ref: _Id | None = None
    prompt: _Prompt | None = None
    mode: PromptMode | None = None
    title: _Name | None = None
    tools: ToolsAllowed | None = None
    limits: PromptLimits | None = None
    output: PromptOutput | None = None
    comment: CommentSpec | None = None
    files: GlobSet | None = None
    conditions: PromptConditions | None = None
    provider: _Name | None = None
    model: _Name | None = None
    reasoning: Reasoning | None = None
    temperature: _Temperature | None = None


class PullOutput(_Shape, frozen=True, kw_only=True):
    title: _Name
    base: _Name | None = None
    body: _Text | None = None


class IssueOutput(_Shape, frozen=True, kw_only=True):
    title: _Name | None = None
    body: _Text | None = None


class JobOutput(_Shape, frozen=True, kw_only=True):
    """The output of a job: `pr` if the mode is `pr_create`, `issue` if it is `issue`."""

    mode: JobMode
    pr: PullOutput | None = None
    issue: IssueOutput | None = None


class JobSpec(_Shape, frozen=True, kw_only=True):
    """A scheduled job: a command's, or its own. `tests`: a command that is run on the result.
    `updates`: which dependencies it updates, with `minAge` for how long releases wait."""

    id: _Id
    output: JobOutput
    command_ref: _Id | None = None
    prompt: _Prompt | None = None
    title: _Name | None = None
    tools: ToolsAllowed | None = None
    limits: PromptLimits | None = None
    conditions: JobConditions | None = None
    write_scope: GlobSet | None = None
    tests: Annotated[str, Meta(min_length=1, max_length=4096)] | None = None
    updates: Annotated[str, Meta(pattern=UPDATES, max_length=4096)] | None = None
    min_age: Annotated[str, Meta(pattern=r"^\d{1,3}d$|^\d{1,4}h$")] | None = None


class ModelDefaults(_Shape, frozen=True, kw_only=True):
    provider: _Name | None = None
    model: _Name | None = None
    reasoning: Reasoning | None = None
    temperature: _Temperature | None = None


_Commands = Annotated[tuple[CommandSpec, ...], Meta(max_length=MOST_ENTRIES)]
_Prompts = Annotated[tuple[PromptSpec, ...], Meta(max_length=MOST_ENTRIES)]
_Jobs = Annotated[tuple[JobSpec, ...], Meta(max_length=MOST_ENTRIES)]
_Cron = Annotated[str, Meta(min_length=1, max_length=200, extra_json_schema={"format": CRON})]
_Zone = Annotated[str, Meta(min_length=1, max_length=100, extra_json_schema={"format": ZONE})]


class ReviewSection(_Shape, frozen=True, kw_only=True):
    defaults: ModelDefaults | None = None
    strictness: Strictness | None = None
    ignore: _Globs = ()
    checklist: _Points = ()
    prompts: _Prompts = ()


class ScheduleSection(_Shape, frozen=True, kw_only=True):
    enabled: bool = True
    cron: _Cron | None = None
    timezone: _Zone | None = None
    jobs: _Jobs = ()


class Reviewerc(_Shape, frozen=True, kw_only=True):
    """A `.reviewerc`, in the first shape."""

    version: Literal[1]
    tools: ToolsCeiling | None = None
    commands: _Commands = ()
    review: ReviewSection | None = None
    schedule: ScheduleSection | None = None


class LaterReviewSection(_Shape, frozen=True, kw_only=True):
    defaults: ModelDefaults | None = None
    strictness: Strictness | None = None
    ignore: _Globs = ()
    checklist: _Points = ()
    run: _Ids | None = None


class LaterScheduleSection(_Shape, frozen=True, kw_only=True):
    """A schedule. `runs`: names, and the commands of each job."""

    enabled: bool = True
    cron: _Cron | None = None
    timezone: _Zone | None = None
    runs: Annotated[dict[_Id, _Ids], Meta(max_length=MOST_ENTRIES)] = {}
    output: JobOutput | None = None
    limits: PromptLimits | None = None
    conditions: JobConditions | None = None
    write_scope: GlobSet | None = None


class DefaultOutput(_Shape, frozen=True, kw_only=True):
    comment_type: Literal["issue", "review", "both"] | None = None


class LaterReviewerc(_Shape, frozen=True, kw_only=True):
    """A `.reviewerc`, in the later shape."""

    version: Literal[1]
    tools: ToolsCeiling | None = None
    commands: _Commands = ()
    review: LaterReviewSection | None = None
    schedule: LaterScheduleSection | None = None
    output: DefaultOutput | None = None


class RefineryFile(_Shape, frozen=True, kw_only=True):
    """A `.code-refinery.yml`."""

    strictness: Strictness | None = None
    ignore: _Globs = ()
    checklist: _Points = ()


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a `.reviewerc`, in either shape."""
    roots = [Reviewerc, LaterReviewerc]
    references, components = msgspec.json.schema_components(roots)
    schema: dict[str, Any] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": ".reviewerc, version 1",
        "anyOf": [dict(one) for one in references],
        "$defs": dict(sorted(components.items())),
    }
    for name in ("PromptSpec", "JobSpec"):
        one_of_both = [{"required": ["commandRef"]}, {"required": ["prompt"]}]
        schema["$defs"][name]["oneOf"] = one_of_both
    modes = [
        {"properties": {"mode": {"const": mode}, other: False}, "required": [key]}
        for mode, key, other in (("pr_create", "pr", "issue"), ("issue", "issue", "pr"))
    ]
    schema["$defs"]["JobOutput"]["oneOf"] = modes
    without_nothing: dict[str, Any] = _without_nothing(schema)
    return without_nothing


def _without_nothing(schema: Any) -> Any:
    """Return a schema in which optional keys may be left out, but may not be null."""
    if isinstance(schema, list):
        return [_without_nothing(one) for one in schema if one != {"type": "null"}]
    if not isinstance(schema, dict):
        return schema
    kept = {
        key: _without_nothing(value)
        for key, value in schema.items()
        if not (key == "default" and value is None)
    }
    choices = kept.get("anyOf", [])
    return kept.pop("anyOf")[0] | kept if len(choices) == 1 else kept
