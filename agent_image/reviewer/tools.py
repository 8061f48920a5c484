"""Tools of the review agent: read in the sandbox, ask for every effect.

The calls of one turn are made together. First all asks are submitted, in order, so that a person
sees all of them at once; then the answers are awaited in parallel. No tool raises: a failure is a
result that the model can read.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from agent_image.reviewer import process
from agent_image.reviewer.egress import FetchError, fetch
from agent_image.reviewer.gatehouse import ApiError, Ask, Gatehouse, refusal_text
from agent_image.reviewer.model import Block
from agent_image.reviewer.repository import (
    Change,
    GitError,
    GivenChange,
    Repository,
    not_shown,
)
from agent_image.reviewer.settings import Limits
from agent_image.reviewer.text import Quarantine, capped, plain
from agent_image.reviewer.tool_inputs import (
    QUARANTINE_TOOLS,
    TOOLS,
    DeleteFile,
    EditFile,
    EditHere,
    Fetch,
    FindFiles,
    GitDiff,
    GitDiffRange,
    GitLog,
    Input,
    ListFiles,
    ProposeRule,
    ReadFile,
    RequestGit,
    RequestPackages,
    RunCommand,
    Search,
    WriteFile,
    WriteHere,
)
from agent_image.reviewer.workspace import PathError, Workspace

_LISTED = 1000
_READ_BYTES = 8 * 1024 * 1024


class Result(msgspec.Struct, frozen=True):
    """A tool call's result, as the model reads it."""

    text: str
    is_error: bool = False


class Tools:
    """The tools of one review. `say` prints one progress line for the person and may be called
    from any thread. `unseen`: the changed files whose whole diff nobody was shown yet."""

    def __init__(
        self,
        gatehouse: Gatehouse,
        workspace: Workspace,
        repository: Repository | GivenChange,
        change: Change,
        *,
        limits: Limits,
        quarantine: Quarantine,
        say: Callable[[str], None],
        offered: dict[str, tuple[type[Input], str]] = TOOLS,
        in_quarantine: bool = False,
        since: str = "",
        files: Sequence[str] = (),
    ) -> None:
        self._in_quarantine = in_quarantine
        self._gatehouse = gatehouse
        self._workspace = workspace
        self._repository = repository
        self._change = change
        self._limits = limits
        self.quarantine = quarantine
        self._say = say
        self.offered = offered
        self._since = since
        self._files = list(files)
        self.unseen: set[str] = set()
        # What conducts a review may make the calls of a turn at the same time.
        self._changing = threading.Lock()
        self._local: dict[type[Input], Callable[[Any], Result]] = {
            ReadFile: self._read_file,
            ListFiles: self._list_files,
            FindFiles: self._find_files,
            Search: self._search,
            GitDiff: self._git_diff,
            GitLog: self._git_log,
            GitDiffRange: self._git_diff_range,
            WriteHere: self._write_here,
            EditHere: self._edit_here,
            DeleteFile: self._delete_file,
        }

    def run(self, calls: Sequence[Block]) -> list[Result]:
        """Return the results of one turn's calls, in their order."""
        results: list[Result | None] = [None] * len(calls)
        waiting: list[threading.Thread] = []

        def later(position: int, work: Callable[[], Result]) -> None:
            def body() -> None:
                results[position] = _guarded(work)

            # Daemons: an ending session must not wait for an answer that won't come.
            waiting.append(threading.Thread(target=body, daemon=True))
            waiting[-1].start()

        local: list[tuple[int, Callable[[], Result]]] = []
        for position, call in enumerate(calls):
            if position >= self._limits.calls_per_turn:
                results[position] = Result(
                    f"not done: at most {self._limits.calls_per_turn} calls per turn", is_error=True
                )
                continue
            work = self._prepare(call)
            if isinstance(work, Result):
                results[position] = work
            elif work[0] == "here":
                local.append((position, work[1]))
            else:
                later(position, work[1])
        for position, job in local:
            results[position] = _guarded(job)
        for thread in waiting:
            thread.join()
        return [result or Result("the tool gave no result", is_error=True) for result in results]

    def _prepare(self, call: Block) -> Result | tuple[str, Callable[[], Result]]:
        """Check a call and submit its ask. Return its result if there is one already, else where
        and how to do the rest."""
        name = str(call.get("name"))
        if self._in_quarantine and (name in self.offered or name not in QUARANTINE_TOOLS):
            self._say(f"{plain(name, 60)} in quarantine")
            return "here", lambda: self._quarantined(name, call.get("input"))
        if name not in self.offered:
            return Result(
                f"there is no tool `{plain(name, 60)}`; use one of {', '.join(self.offered)}",
                is_error=True,
            )
        try:
            wish = msgspec.convert(call.get("input"), type=self.offered[name][0])
        except msgspec.ValidationError as error:
            return Result(f"the input of {name} is not valid: {error}", is_error=True)
        if local := self._local.get(type(wish)):
            self._say(f"{name} {_about(wish)}")
            return "here", lambda: local(wish)
        if isinstance(wish, Fetch):
            self._say(f"fetch {wish.url}")
            return "thread", lambda: self._fetch(wish)
        self._say(f"asks: {name} {_about(wish)}")
        try:
            ask = self._ask(wish)
        except ApiError as error:
            self._say(f"{name}: {error}")
            return Result(f"{name}: {error}", is_error=True)
        settle_s = wish.timeout_s + 60.0 if isinstance(wish, RunCommand) else 120.0
        return "thread", lambda: self._answer(name, ask, settle_s)

    def _quarantined(self, name: str, given: object) -> Result:
        """Have the supervisor answer a call of any tool: it records what it denies."""
        arguments = given if name in self.offered and isinstance(given, dict) else {}
        allowed, text = self._gatehouse.quarantined(name[:200], arguments)
        if not allowed:
            return Result(plain(text, 1000), is_error=True)
        return Result(self._data(f"answer of {name}", text.encode()))

    def _ask(self, wish: Input) -> Ask:
        match wish:
            case RunCommand():
                return self._gatehouse.execute(
                    wish.command, cwd=wish.cwd, reason=wish.reason, timeout_s=wish.timeout_s
                )
            case WriteFile():
                return self._gatehouse.write(wish.path, wish.content, reason=wish.reason)
            case EditFile():
                return self._gatehouse.edit(
                    wish.path, wish.old, wish.new, replace_all=wish.replace_all, reason=wish.reason
                )
            case RequestPackages():
                return self._gatehouse.packages(wish.command, reason=wish.reason)
            case RequestGit():
                return self._gatehouse.git(wish.command, reason=wish.reason)
            case ProposeRule():
                return self._gatehouse.propose(wish.effect, wish.rule, wish.why)
            case _:
                raise ApiError(
                    f"the tool {type(wish).__name__} asks for nothing; this is a mistake in the"
                    " review agent"
                )

    def _answer(self, name: str, ask: Ask, settle_s: float) -> Result:
        """Wait for the answer to an ask and put it into words."""
        if not ask.is_over:
            ask = self._gatehouse.wait(ask.id, self._limits.answer_wait_s, settle_s=settle_s)
        rule = f" by {ask.rule}" if ask.rule else ""
        if ask.status == "pending":
            self._say(f"{name}: no answer yet, it stays in the inbox; going on without it")
            return Result(
                "no answer yet; the request stays in the inbox, go on without it", is_error=True
            )
        if not ask.is_granted:
            words = refusal_text({"why": ask.why, "rule": ask.rule, "remedy": ask.remedy})
            self._say(f"{name}: {ask.status}; {ask.why or 'no reason was given'}")
            return Result(f"{ask.status}; {words}", is_error=True)
        granted = "approved" if ask.status == "used" else ask.status
        if not ask.is_over:
            self._say(f"{name}: {granted}{rule}, not carried out yet")
            return Result(f"{granted}, but it has not been carried out yet")
        outcome, good = _outcome_text(ask.outcome)
        self._say(f"{name}: granted{rule}, {_came_to(ask.outcome, good)}")
        return Result(self._data(f"outcome of {name}", outcome.encode()), is_error=not good)

    def _fetch(self, wish: Fetch) -> Result:
        try:
            answer = fetch(wish.url, self._limits.tool_output_bytes + 1)
        except FetchError as error:
            self._say(f"fetch: {error}")
            return Result(str(error), is_error=True)
        if answer.refusal is not None:
            words = refusal_text(answer.refusal)
            self._say(f"fetch: {words}")
            return Result(words, is_error=True)
        self._say(f"fetch: answered {answer.status}")
        return Result(self._data(wish.url, f"status {answer.status}\n".encode() + answer.body))

    def _read_file(self, wish: ReadFile) -> Result:
        data, size = self._workspace.read(wish.path, _READ_BYTES)
        if b"\0" in data[:8192]:
            return Result(f"`{wish.path}` is binary, {size} bytes; it is not shown", is_error=True)
        lines = data.decode("utf-8", "replace").splitlines()
        chosen = list(enumerate(lines, 1))[wish.first_line - 1 : wish.last_line]
        numbered = "\n".join(f"{number}\t{line}" for number, line in chosen)
        note = (
            f"\n[cut: only the first {_READ_BYTES} of {size} bytes were read]"
            if size > len(data)
            else ""
        )
        return Result(
            self._data(wish.path, (numbered + note).encode(), "give first_line and last_line")
        )

    def _list_files(self, wish: ListFiles) -> Result:
        return self._names(
            f"files below {wish.path}", self._workspace.walk(wish.path, wish.pattern)
        )

    def _find_files(self, wish: FindFiles) -> Result:
        found = self._workspace.walk(wish.path, wish.pattern, wish.max_depth)
        return self._names(f"files below {wish.path}, {wish.max_depth} folders deep", found)

    def _names(self, source: str, found: Iterable[str]) -> Result:
        names: list[str] = []
        for name in found:
            if len(names) == _LISTED:
                names.append(
                    f"[cut: only the first {_LISTED} files are listed; give a folder or a pattern]"
                )
                break
            names.append(name)
        return Result(self._data(source, "\n".join(names).encode("utf-8", "replace")))

    def _search(self, wish: Search) -> Result:
        where = self._workspace.relative(wish.path)
        argv = [
            "rg",
            "--no-config",
            "--no-follow",
            "--color=never",
            "--line-number",
            "--with-filename",
            "--sort=path",
        ]
        argv += ["--max-columns=400", "--max-columns-preview", "--hidden", "--glob=!.git"]
        argv += [f"--glob={wish.glob}"] if wish.glob else []
        argv += ["--ignore-case"] if wish.ignore_case else []
        argv += [f"--regexp={wish.pattern}", "--", where]
        output = process.run(
            argv, cwd=self._workspace.root, limit_bytes=self._limits.tool_output_bytes
        )
        if output.code == 1:
            return Result("nothing was found")
        return self._program("search", output)

    def _git_diff(self, wish: GitDiff) -> Result:
        since = self._since if wish.since_last else ""
        paths = list(wish.paths or self._files)
        output = self._repository.diff(self._change, paths, self._limits.diff_bytes, since=since)
        if self.unseen:
            names = self._repository.diff_names(self._change, paths, since=since)
            self.unseen -= {*names} - {*not_shown(output, names)}
        if output.code == 0 and not output.data:
            return Result("no difference")
        return self._program("git diff", output)

    def _git_log(self, wish: GitLog) -> Result:
        output = self._repository.log(
            wish.since_hours, wish.paths or self._files, self._limits.tool_output_bytes
        )
        if output.code == 0 and not output.data:
            return Result("no commit")
        return self._program("git log", output)

    def _git_diff_range(self, wish: GitDiffRange) -> Result:
        output = self._repository.diff_range(
            wish.start, wish.end, wish.paths, self._limits.diff_bytes
        )
        if output.code == 0 and not output.data:
            return Result("no difference")
        return self._program("git diff", output)

    def _write_here(self, wish: WriteHere) -> Result:
        with self._changing:
            self._workspace.write(wish.path, wish.content.encode())
        return Result(f"written: {wish.path}")

    def _edit_here(self, wish: EditHere) -> Result:
        with self._changing:
            return self._edited(wish)

    def _edited(self, wish: EditHere) -> Result:
        data, size = self._workspace.read(wish.path, _READ_BYTES)
        old = wish.old.encode()
        found = data.count(old)
        if size > len(data) or not found or (found > 1 and not wish.replace_all):
            why = "it is too long" if size > len(data) else f"the text occurs {found} times in it"
            return Result(f"`{wish.path}` was not changed: {why}", is_error=True)
        self._workspace.write(wish.path, data.replace(old, wish.new.encode()))
        return Result(f"changed: {wish.path}")

    def _delete_file(self, wish: DeleteFile) -> Result:
        with self._changing:
            self._workspace.delete(wish.path)
        return Result(f"deleted: {wish.path}")

    def _program(self, source: str, output: process.Output) -> Result:
        note = f"\n[cut: the program {output.ended}; ask for less]" if output.ended else ""
        text = self.quarantine.wrap(source, output.data.decode("utf-8", "replace") + note)
        return Result(text, is_error=output.code not in (0, None))

    def _data(self, source: str, data: bytes, remedy: str = "ask for a smaller part") -> str:
        return self.quarantine.wrap(source, capped(data, self._limits.tool_output_bytes, remedy))


def _guarded(work: Callable[[], Result]) -> Result:
    try:
        return work()
    except (PathError, GitError, ApiError) as error:
        return Result(str(error), is_error=True)
    except OSError as error:
        return Result(f"the tool failed: {error.strerror or type(error).__name__}", is_error=True)
    except Exception as error:
        return Result(f"the tool failed: {type(error).__name__}", is_error=True)


def _about(wish: Input) -> str:
    """Return a tool call in a few words, for the progress line."""
    for name in ("command", "rule", "pattern", "path", "paths"):
        if value := getattr(wish, name, None):
            effect = f"{getattr(wish, 'effect', '')} ".lstrip()
            return effect + (" ".join(value) if isinstance(value, list) else str(value))
    return ""


def _came_to(outcome: Any, good: bool) -> str:
    """Describe an action's outcome in a few words."""
    known = outcome if isinstance(outcome, dict) else {}
    if not good and known.get("exit_code") is None:
        return f"not done: {known.get('error') or known.get('why') or 'no reason was given'}"
    return f"exit code {known['exit_code']}" if known.get("exit_code") is not None else "done"


def _outcome_text(outcome: Any) -> tuple[str, bool]:
    """Describe an action's outcome in words, and say whether it went well."""
    if not isinstance(outcome, dict):
        return "done" if outcome is None else str(outcome), True
    good = bool(outcome.get("ok", True))
    if "exit_code" not in outcome:
        return msgspec.json.encode(outcome).decode(), good
    streams = [str(outcome[name]) for name in ("output", "stdout", "stderr") if outcome.get(name)]
    rest = {
        key: value for key, value in outcome.items() if key not in ("output", "stdout", "stderr")
    }
    return "\n".join([msgspec.json.encode(rest).decode(), *streams]), good
