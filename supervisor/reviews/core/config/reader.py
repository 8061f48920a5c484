"""Reader of `.reviewerc` and `.code-refinery.yml`: the configuration, or every fault.

Checks what the shapes can't express: references, exclusions, and that a file uses only one shape. A
file in the later shape is converted to the first.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec
from cronsim import CronSim, CronSimError
from msgspec import inspect

from supervisor.core.text import globs
from supervisor.core.text.mistyped import nearest
from supervisor.core.text.strict_yaml import Fields, Items, Node, Text, YamlFault, read_nodes
from supervisor.errors import PolicyError, UserError
from supervisor.reviews.core.config import built_in, shapes
from supervisor.reviews.core.config.node_reader import NodeReader
from supervisor.reviews.core.config.shapes import RefineryFile, Reviewerc

# By section, the keys that only one of the shapes has. All other keys are in both.
_FIRST_KEYS = {"review": ("prompts",), "schedule": ("jobs",)}
_LATER_KEYS = {
    "": ("output",),
    "review": ("run",),
    "schedule": ("runs", "output", "limits", "conditions", "writeScope"),
}


class ReadConfig(NamedTuple):
    """The result of reading a file: `config`, or the faults, by line. `lines` are those of its
    values, by path."""

    config: Reviewerc | None
    faults: tuple[YamlFault, ...] = ()
    lines: Mapping[str, int] = {}


def read_reviewerc(data: bytes, zones: Collection[str]) -> ReadConfig:
    """Read a `.reviewerc`. `zones` are the names of all time zones."""
    root, faults = read_nodes(data)
    if root is None:
        missing = YamlFault(1, "`the file` has no `version`", "add `version: 1`")
        return ReadConfig(None, tuple(faults or [missing]))
    reader = NodeReader(_FormatCheck(zones))
    reader.faults += faults
    is_later, mixed = _later(root)
    found = reader.struct(root, _struct(shapes.LaterReviewerc if is_later else Reviewerc), "")
    _check_entries(found, reader)
    # A key of the other shape is unknown in this one, and is reported as what it is.
    told = {one.line for one in mixed}
    wrong = {*mixed, *(one for one in reader.faults if one.line not in told)}
    if wrong:
        return ReadConfig(None, tuple(sorted(wrong)))
    if is_later:
        config = _first(msgspec.convert(found, shapes.LaterReviewerc))
    else:
        config = msgspec.convert(found, Reviewerc)
    return ReadConfig(config, lines=reader.lines)


def read_refinery(data: bytes) -> ReadConfig:
    """Read a `.code-refinery.yml`: only strictness, ignore and checklist."""
    root, faults = read_nodes(data)
    if root is None:
        return ReadConfig(None if faults else Reviewerc(version=1), tuple(faults))
    reader = NodeReader(_FormatCheck(()))
    reader.faults += faults
    found = reader.struct(root, _struct(RefineryFile), "")
    if reader.faults:
        return ReadConfig(None, tuple(sorted(set(reader.faults))))
    lines = {f"review.{path}": line for path, line in reader.lines.items()}
    return ReadConfig(_of_refinery(msgspec.convert(found, RefineryFile)), lines=lines)


def read_settings(settings: Mapping[str, Any]) -> Reviewerc:
    """Return the operator's settings for a repository: only strictness, ignore and checklist. Raise
    `UserError` if they can't be used."""
    try:
        file = msgspec.convert(settings, RefineryFile)
    except msgspec.ValidationError as error:
        raise UserError(f"these settings can't be used: {error}", "mend them") from error
    for glob in file.ignore:
        problem = glob_problem(glob)
        if problem is not None:
            raise UserError(f"ignore: `{glob}` {problem[0]}", problem[1])
    return _of_refinery(file)


def _of_refinery(file: RefineryFile) -> Reviewerc:
    section = shapes.ReviewSection(
        strictness=file.strictness, ignore=file.ignore, checklist=file.checklist
    )
    return Reviewerc(version=1, review=section)


def fault_words(name: str, fault: YamlFault) -> str:
    """Return a fault in one line: `FILE:LINE: what; what to do`."""
    return f"{name}:{fault.line}: {fault.message}; {fault.remedy}"


def _struct(shape: type[msgspec.Struct]) -> inspect.StructType:
    found = inspect.type_info(shape)
    assert isinstance(found, inspect.StructType)
    return found


class _FormatCheck:
    """Says why a glob, cron line or time zone isn't valid."""

    def __init__(self, zones: Collection[str]) -> None:
        self._zones = zones

    def __call__(self, kind: str, text: str) -> tuple[str, str] | None:
        if kind == shapes.GLOB:
            return glob_problem(text)
        if kind == shapes.ZONE:
            is_known = text in self._zones
            return None if is_known else ("is no time zone", "write e.g. `Europe/Berlin` or `UTC`")
        try:
            CronSim(text, datetime.fromtimestamp(0, UTC))
        except CronSimError as error:
            return f"is no cron line: {error}", "write it like `17 3 * * 1-5`"
        return None


def glob_problem(text: str) -> tuple[str, str] | None:
    """Return what is wrong with a glob, and the remedy; None if nothing is."""
    if text.startswith(("/", "~", "!")):
        remedy = "name a path from the repository's root; `exclude` leaves files out"
        return f"starts with `{text[0]}`", remedy
    if text.endswith("/"):
        return "ends in a slash", f"write `{text[:100]}**` for all below it"
    if {"", ".", ".."} & set(text.split("/")):
        return "holds an empty part, `.` or `..`", "write it without"
    try:
        globs.check(text, text)
    except PolicyError as error:
        return error.message.replace("`", "'"), error.remedy
    return None


# -- what refers to what, and what excludes what --------------------------------------------------


def _check_entries(found: Mapping[str, Any], reader: NodeReader) -> None:
    review, schedule = found.get("review", {}), found.get("schedule", {})
    commands = [one["id"] for one in found.get("commands", ()) if "id" in one]
    lists = {
        "commands": found.get("commands", ()),
        "review.prompts": review.get("prompts", ()),
        "schedule.jobs": schedule.get("jobs", ()),
    }
    for path, entries in lists.items():
        _check_ids(path, entries, reader, taken=shapes.MENTIONS if path == "commands" else ())
        if path != "commands":
            named = [*commands, *built_in.COMMANDS] if path == "schedule.jobs" else commands
            for number, entry in enumerate(entries):
                _check_source(f"{path}[{number}]", entry, named, reader)
    for number, job in enumerate(lists["schedule.jobs"]):
        _check_output(f"schedule.jobs[{number}].output", job.get("output"), reader)
    _check_output("schedule.output", schedule.get("output"), reader)
    runs = schedule.get("runs", {})
    counts = Counter(one for one, _ in job_ids(runs))
    for run in runs:
        if any(counts[one] > 1 for one, _ in job_ids({run: runs[run]})):
            line, message = reader.lines[f"schedule.runs.{run}"], f"two jobs of `{run}` are one"
            reader.fault(line, message, "give the run another name")
    called = {"review.run": review.get("run", ())}
    called |= {f"schedule.runs.{name}": ids for name, ids in runs.items()}
    for path, ids in called.items():
        for number, name in enumerate(ids):
            _check_reference(f"{path}[{number}]", name, commands, reader)


def _check_ids(
    path: str,
    entries: Sequence[Mapping[str, Any]],
    reader: NodeReader,
    *,
    taken: Collection[str] = (),
) -> None:
    """Report ids that occur twice, or are `taken` by built-in commands."""
    counts = Counter(one.get("id") for one in entries)
    for number, one in enumerate(entries):
        name = one.get("id")
        if name in taken:
            line = reader.lines[f"{path}[{number}].id"]
            reader.fault(line, f"the mention `{name}` is built in", "give the command another id")
        if name is not None and counts[name] > 1 and number > _first_of(entries, name):
            line = reader.lines[f"{path}[{number}].id"]
            reader.fault(line, f"the id `{name}` is taken already in `{path}`", "give it another")


def _first_of(entries: Sequence[Mapping[str, Any]], name: str) -> int:
    return next(number for number, one in enumerate(entries) if one.get("id") == name)


def _check_source(
    path: str, entry: Mapping[str, Any], commands: Sequence[str], reader: NodeReader
) -> None:
    """Check that a prompt has exactly one source: a command, or its own text."""
    is_own, is_named = (f"{path}.{key}" in reader.lines for key in ("prompt", "commandRef"))
    if is_own and is_named:
        line = reader.lines[f"{path}.commandRef"]
        reader.fault(line, f"`{path}` has both `prompt` and `commandRef`", "leave one of them out")
    elif not is_own and not is_named:
        remedy = "add `commandRef:` with the id of a command, or `prompt:`"
        reader.fault(reader.lines[path], f"`{path}` has neither `commandRef` nor `prompt`", remedy)
    elif "commandRef" in entry:
        _check_reference(f"{path}.commandRef", entry["commandRef"], commands, reader)


def _check_reference(path: str, name: str, commands: Sequence[str], reader: NodeReader) -> None:
    if name not in commands:
        remedy = nearest(name, commands) if commands else "define it below `commands:`"
        reader.fault(reader.lines[path], f"`{path}: {name}` is no command", remedy)


def _check_output(path: str, output: Mapping[str, Any] | None, reader: NodeReader) -> None:
    if output is None or "mode" not in output:
        return
    wanted, other = ("pr", "issue") if output["mode"] == "pr_create" else ("issue", "pr")
    if f"{path}.{wanted}" not in reader.lines:
        message = f"`{path}` has no `{wanted}`, and its mode is {output['mode']}"
        reader.fault(reader.lines[path], message, f"add `{wanted}:`")
    if f"{path}.{other}" in reader.lines:
        message = f"`{path}` has `{other}`, and its mode is {output['mode']}"
        reader.fault(reader.lines[f"{path}.{other}"], message, "leave it out")


# -- the two shapes -------------------------------------------------------------------------------


def _later(root: Node) -> tuple[bool, list[YamlFault]]:
    """Return whether a file is in the later shape. If it mixes the two, it is read in the first
    shape, and keys of the later one are faults."""
    first, later = _marks(root, _FIRST_KEYS), _marks(root, _LATER_KEYS)
    words = _words(root)
    later |= {word: line for word, line in words.items() if word in shapes.LATER_CATEGORIES}
    later |= {"comment.type: both": words["both"]} if "both" in words else {}
    if not first:
        return bool(later), []
    known, line = next(iter(first.items()))
    return False, [
        YamlFault(
            at,
            f"`{word}` is of the later shape, and `{known}` in line {line} of the first",
            "write the whole file in one of them",
        )
        for word, at in later.items()
    ]


def _marks(root: Node, keys: Mapping[str, Sequence[str]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for section, names in keys.items():
        fields = root.get(section) if section and isinstance(root, Fields) else root
        if isinstance(fields, Fields):
            for key in fields:
                if key in names:
                    found[f"{section}.{key}" if section else str(key)] = key.line
    return found


def _words(root: Node) -> dict[str, int]:
    """Return the categories of tools and the types of comments in a file, and their lines."""
    found: dict[str, int] = {}
    waiting: list[tuple[str, Any]] = [("", root)]
    while waiting:
        key, node = waiting.pop()
        if isinstance(node, Fields):
            waiting += node.items()
        elif isinstance(node, Items):
            waiting += [(key, one) for one in node]
        elif isinstance(node, Text) and key in ("allow", "allowlist", "type", "commentType"):
            found.setdefault(str(node), node.line)
    return found


def _first(file: shapes.LaterReviewerc) -> Reviewerc:
    """Return a file of the later shape in the first one."""
    kind = file.output.comment_type if file.output else None
    commands = [
        msgspec.structs.replace(one, comment=shapes.CommentSpec(type=kind))
        if kind and (one.comment is None or one.comment.type is None)
        else one
        for one in file.commands
    ]
    return Reviewerc(
        version=1,
        tools=file.tools,
        commands=tuple(commands),
        review=None if file.review is None else _first_review(file.review),
        schedule=None if file.schedule is None else _first_schedule(file.schedule, commands),
    )


def _first_review(review: shapes.LaterReviewSection) -> shapes.ReviewSection:
    return shapes.ReviewSection(
        defaults=review.defaults,
        strictness=review.strictness,
        ignore=review.ignore,
        checklist=review.checklist,
        prompts=tuple(
            shapes.PromptSpec(id=one, command_ref=one) for one in dict.fromkeys(review.run or ())
        ),
    )


def _first_schedule(
    schedule: shapes.LaterScheduleSection, commands: Sequence[shapes.CommandSpec]
) -> shapes.ScheduleSection:
    jobs = [
        _job(job_id, next(one for one in commands if one.id == name), schedule)
        for job_id, name in job_ids(schedule.runs)
    ]
    return shapes.ScheduleSection(
        enabled=schedule.enabled,
        cron=schedule.cron,
        timezone=schedule.timezone,
        jobs=tuple(jobs),
    )


def job_ids(runs: Mapping[str, Sequence[str]]) -> list[tuple[str, str]]:
    """Return the id of each job that `schedule.runs` makes, and its command. The id is the run's
    own name if it has one command."""
    return [
        (run if len(names) == 1 else f"{run}-{name}", name)
        for run, names in runs.items()
        for name in names
    ]


def _job(
    job_id: str, command: shapes.CommandSpec, schedule: shapes.LaterScheduleSection
) -> shapes.JobSpec:
    """Return the job of a command. If no output is given, its tools say which outputs it can
    make."""
    output = schedule.output
    if output is None:
        title = command.title or command.id
        is_writing = command.tools and "repo.write" in (command.tools.allow or ())
        output = (
            shapes.JobOutput(mode="pr_create", pr=shapes.PullOutput(title=title))
            if is_writing
            else shapes.JobOutput(mode="issue", issue=shapes.IssueOutput(title=title))
        )
    return shapes.JobSpec(
        id=job_id,
        command_ref=command.id,
        output=output,
        limits=schedule.limits,
        conditions=schedule.conditions,
        write_scope=schedule.write_scope,
    )
