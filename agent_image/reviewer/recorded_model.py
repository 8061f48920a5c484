"""Recorded model that plays a file of turns, for a first look without a key.

The tool calls are really made and the facts of the real change are filled in, but nothing looks at
the code, and everything it says says so. The turns are data (`recorded/first_look.json`): this
module only substitutes `{{name}}`.
"""

import contextlib
import itertools
import json
import re
from collections.abc import Callable, Container, Iterator, Sequence
from pathlib import Path
from typing import Any

from agent_image.reviewer.model import Block, ModelError, Reply, Request
from agent_image.reviewer.repository import Change, GitError, GivenChange, Repository
from agent_image.reviewer.text import plain
from agent_image.reviewer.workspace import PathError, Workspace

type Facts = dict[str, str | int | None]

FIRST_LOOK = Path(__file__).with_name("recorded") / "first_look.json"
DOCS_DRIFT = FIRST_LOOK.with_name("docs_drift.json")
MAINTENANCE = FIRST_LOOK.with_name("maintenance.json")
MENDING = FIRST_LOOK.with_name("mending.json")
PROMPT = FIRST_LOOK.with_name("prompt.json")
PULL_REQUEST = FIRST_LOOK.with_name("pull_request.json")
RIGHT = "{path} says what {code} does: there is nothing to change."
NOTE = "RECORDED_MAINTENANCE.md"
NOTE_TEXT = "Written by Gatehouse's recorded model, to show what comes of a job. Delete it.\n"
_NAME = re.compile(r"\{\{(\w+)\}\}")
_HUNK = re.compile(rb"^@@ -\S+ \+(\d+)", re.MULTILINE)
_HUNK_OF_TEXT = re.compile(r"@@ -\S+ \+(\d+)")
_NAMED = 20
_READING = frozenset(
    ("git_diff", "list_files", "find_files", "read_file", "search", "read", "grep", "glob")
)


class RecordedModel:
    """A `Model` that plays `script` with `facts` filled in."""

    name = "recorded"

    def __init__(
        self, facts: Facts, script: Path = FIRST_LOOK, offered: Container[str] | None = None
    ) -> None:
        """`offered`: calls of other tools are left out of the script, and turns of nothing else."""
        self._facts = facts
        self._turns: list[dict[str, Any]] = json.loads(script.read_text("utf-8"))["turns"]
        if offered is not None:
            self._turns = [_narrowed(turn, offered) for turn in self._turns]
            self._turns = [
                one for one in self._turns if one.get("calls") or {"answer", "review"} & one.keys()
            ]
        self._numbers = itertools.count(1)

    def reply(self, request: Request, say: Callable[[str], None]) -> Reply:
        """Return the script's next turn: the one after as many as the conversation already
        holds."""
        position = sum(message["role"] == "assistant" for message in request.messages)
        if position >= len(self._turns):
            raise ModelError(
                "the recorded model has no further turn; this is a mistake in its script"
            )
        facts = self._facts | {"answers": _answers(request)}
        turn = fill(self._turns[position], facts)
        content: list[Block] = [{"type": "text", "text": turn["say"]}] if turn.get("say") else []
        for call in turn.get("calls", []):
            number = f"toolu_recorded{next(self._numbers):03d}"
            content.append(
                {"type": "tool_use", "id": number, "name": call["tool"], "input": call["input"]}
            )
        if "answer" in turn:
            said = json.dumps(turn["answer"])
            content.append({"type": "text", "text": f"<review>\n{said}\n</review>"})
        if "review" in turn:
            known = self._facts.get("known_findings")
            if known:
                turn["review"]["findings"] = json.loads(str(known))
            content.append(
                {"type": "text", "text": f"<review>\n{json.dumps(turn['review'])}\n</review>"}
            )
        return Reply(tuple(content), "tool_use" if turn.get("calls") else "end_turn")


def _narrowed(turn: dict[str, Any], offered: Container[str]) -> dict[str, Any]:
    """Return a turn with the calls of tools that are offered only."""
    return turn | {"calls": [one for one in turn.get("calls", []) if one["tool"] in offered]}


def fill(value: Any, facts: Facts) -> Any:
    """`value` with each `{{name}}` replaced; a string that is nothing but one name becomes the
    fact itself."""
    if isinstance(value, dict):
        return {key: fill(item, facts) for key, item in value.items()}
    if isinstance(value, list):
        return [fill(item, facts) for item in value]
    if not isinstance(value, str):
        return value
    whole = _NAME.fullmatch(value)
    # One pass: what was filled in is not looked at again, so a file's name can't name a fact.
    return facts[whole[1]] if whole else _NAME.sub(lambda found: str(facts[found[1]]), value)


def facts_of(change: Change, repository: Repository | GivenChange, workspace: Workspace) -> Facts:
    """Return the facts of the real change, for the script."""
    names = [*change.files, *change.untracked] or list(
        itertools.islice(workspace.walk("."), _NAMED)
    )
    first = next((name for name in names if _is_readable(workspace, name)), None)
    more = [f"... and {len(names) - _NAMED} more"] if len(names) > _NAMED else []
    return {
        "base": change.base[:12] if change.base else "nothing",
        "change_summary": plain(change.summary),
        "file_count": len(names),
        "file_list": "\n".join(f"- {plain(name)}" for name in names[:_NAMED])
        + "\n".join(["", *more]),
        "first_file": first or ".",
        "first_line": _first_line(change, repository, first),
        **_additions(change, repository),
    }


def prompt_facts(name: str, change: Change, repository: Repository, workspace: Workspace) -> Facts:
    """Return the facts of a prompt: those of the change, and where its one remark stands."""
    facts = facts_of(change, repository, workspace)
    path, line = facts["added_path"], facts["added_line"]
    return facts | {"prompt": name, "location": path if line is None else f"{path}:{line}"}


def maintenance(scope: Sequence[str], workspace: Workspace) -> tuple[Facts, Path]:
    """Return the facts and the script of a maintenance job: of a drift that is known, or else of a
    note within the scope. `old` is "" if the drift is corrected already."""
    facts = note_within(scope, workspace)
    known: list[dict[str, str]] = json.loads(DOCS_DRIFT.read_text("utf-8"))["known"]
    for one in known:
        with contextlib.suppress(PathError):
            data, _ = workspace.read(one["path"], 1_000_000)
            folder = str(facts["note"]).rpartition("/")[0]
            if not one["path"].startswith(folder):
                continue
            if one["old"].encode() in data:
                return {**one}, DOCS_DRIFT
            if one["new"].encode() in data:
                return {**one, "old": "", "said": RIGHT.format(**one)}, DOCS_DRIFT
    return facts, MAINTENANCE


def note_within(scope: Sequence[str], workspace: Workspace) -> Facts:
    """Return a path within a scope, and what is to be written there."""
    glob = next((one for one in scope if not one.startswith("!")), "")
    plain_names = list(
        itertools.takewhile(lambda name: not set(name) & set("*?["), glob.split("/"))
    )
    path = "/".join(filter(None, plain_names))
    if not glob or path != glob:
        return {"note": f"{path}/{NOTE}".lstrip("/"), "note_text": NOTE_TEXT}
    try:
        data, _ = workspace.read(path, 1_000_000)
    except PathError:
        data = b""
    return {"note": path, "note_text": f"{data.decode('utf-8', 'replace')}\n{NOTE_TEXT}"}


def known_mend(workspace: Workspace) -> Facts:
    """Return the place of the first text that the script has a mend for; "." where there is
    none."""
    known = json.loads(MENDING.read_text("utf-8"))["known"]
    for name in workspace.walk(".", deepest=4):
        if name.split("/")[0] in ("node_modules", ".venv") or not _is_readable(workspace, name):
            continue
        data, _ = workspace.read(name, 100_000)
        for one in known:
            if one["old"].encode() in data:
                return {"path": name, "old": one["old"], "new": one["new"]}
    return {"path": ".", "old": "?", "new": ""}


def _is_readable(workspace: Workspace, name: str) -> bool:
    try:
        data, _ = workspace.read(name, 8192)
    except PathError:
        return False
    return b"\0" not in data and name.isprintable()


def _first_line(
    change: Change, repository: Repository | GivenChange, name: str | None
) -> int | None:
    if name is None or name not in change.files:
        return None
    try:
        found = _HUNK.search(repository.diff(change, [name], 100_000).data)
    except GitError:
        return None
    return max(1, int(found[1])) if found else None


def _additions(change: Change, repository: Repository | GivenChange) -> Facts:
    """Return the first line that the change adds, and the recorded findings about lines that it
    adds."""
    known = {one["quote"]: one for one in json.loads(PULL_REQUEST.read_text("utf-8"))["known"]}
    first: Facts = {}
    found = []
    for path, line, text in _added_lines(change, repository):
        if not first:
            first = {"added_path": path, "added_line": line, "added_text": text}
        if text in known:
            found.append({**known[text], "path": path, "line": line})
    nothing: Facts = {"added_path": ".", "added_line": None, "added_text": ""}
    return {**(first or nothing), "known_findings": json.dumps(found) if found else ""}


def _added_lines(
    change: Change, repository: Repository | GivenChange
) -> Iterator[tuple[str, int, str]]:
    """Yield path, number and text of each line with text that the change adds."""
    path, line = ".", 0
    try:
        diff = repository.diff(change, [], 1_000_000).data.decode("utf-8", "replace")
    except GitError:
        return
    for text in diff.split("\n"):
        if text.startswith("+++ b/"):
            path = text.removeprefix("+++ b/").rstrip("\t")
        elif found := _HUNK_OF_TEXT.match(text):
            line = int(found[1])
        elif text[:1] in ("+", " ") and line:
            if text[0] == "+" and text[1:].strip():
                yield path, line, text[1:].strip()
            line += 1


def _answers(request: Request) -> str:
    """Return one line for each ask so far: the tool, and whether it was done."""
    names: dict[str, str] = {}
    lines: list[str] = []
    for message in request.messages:
        for block in message["content"]:
            if block["type"] == "tool_use":
                names[block["id"]] = block["name"]
            if block["type"] == "tool_result" and names.get(block["tool_use_id"]) not in _READING:
                said = "done" if not block["is_error"] else plain(block["content"], 120)
                lines.append(f"- {names.get(block['tool_use_id'], 'tool')}: {said}")
    return "\n".join(lines)
