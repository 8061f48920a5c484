"""Deny and ask rules for every program that a sandbox starts, where a session enforces them.

A program is judged as the command that a person would type for it. The mode doesn't apply: it
judged the command that started the program. It runs where it is started, so this only says yes or
no.

INVARIANT: a program without an answer isn't executed (law 3).
"""

import posixpath
import shlex
from collections.abc import Callable

from supervisor.core.actions import WORKSPACE, Exec
from supervisor.core.policy.rules import InForce, Verdict
from supervisor.core.shell.exec_rules import spelled_commands
from supervisor.core.verdicts import combine
from supervisor.errors import RefusedError
from supervisor.gate.gate import Gate, Refused
from supervisor.sandbox.program_listener import StartedProgram

# A build starts the same few thousand programs again and again.
MOST_REMEMBERED = 4096

type _Command = tuple[tuple[str, ...], str]


class StartedPrograms:
    """The programs of one session. `search_path` are the folders where its shells look for one.
    `hold_s`: how long a program waits for an answer, where its policy doesn't say."""

    def __init__(
        self, gate: Gate, session_id: str, search_path: frozenset[str], hold_s: float
    ) -> None:
        self._gate = gate
        self._session_id = session_id
        self._search_path = search_path
        self._hold_s = hold_s
        self._in_force: InForce | None = None
        self._verdicts: dict[StartedProgram, Verdict] = {}
        self._approved: set[_Command] = set()

    def judge(self, program: StartedProgram, answer: Callable[[bool], None]) -> None:
        """Return whether the program may be executed, at once where no person has to be asked."""
        commands = self._commands(program)
        decision = self._verdict(program, commands).decision
        if self._gate.rulings.why_stopped() is not None or decision == "deny":
            answer(False)
        elif decision == "allow":
            answer(True)
        else:
            self._gate.handlers.run(self._ask(commands, answer), f"program-{self._session_id}")

    def _commands(self, program: StartedProgram) -> list[_Command]:
        """Return the commands that it may be: by its path, and by the name that it is given, which
        some programs go by."""
        path = self._short(program.path)
        called = posixpath.basename(program.words[0]).removeprefix("-")
        names = [path] if called in ("", posixpath.basename(path)) else [path, called]
        return [((one, *program.words[1:]), program.folder) for one in names]

    def _short(self, path: str) -> str:
        folder, name = posixpath.split(path)
        return name if folder in self._search_path else path

    def _verdict(self, program: StartedProgram, commands: list[_Command]) -> Verdict:
        in_force = self._gate.rulings.in_force(self._session_id)
        if not in_force.is_same(self._in_force) or len(self._verdicts) >= MOST_REMEMBERED:
            self._verdicts.clear()
            self._in_force = in_force
        known = self._verdicts.get(program)
        if known is None:
            known = self._verdicts[program] = combine(map(self._says, commands))
            for one in commands:
                if known.decision == "deny" and self._says(one).decision == "deny":
                    # For the record, and for the count of the rule's uses. The same again, as a
                    # build may try a thousand times, is on record once.
                    self._gate.decide_by_rules(_action(one), self._session_id)
        return known

    def _says(self, command: _Command) -> Verdict:
        return self._gate.rulings.of_program(_action(command), self._session_id)

    async def _ask(self, commands: list[_Command], answer: Callable[[bool], None]) -> None:
        is_allowed = False
        try:
            asked = [one for one in commands if self._says(one).decision == "ask"]
            is_allowed = all([await self._is_approved(one) for one in asked])
        finally:
            answer(is_allowed)

    async def _is_approved(self, command: _Command) -> bool:
        """Return whether a person approved it, now or before: a shell's text and what it then
        starts are one question, and so are a tool's call and its command."""
        if self._was_approved(command):
            return True
        gate, action = self._gate, _action(command)
        proof = await gate.decide(
            action,
            session_id=self._session_id,
            origin="agent_tool",
            hold_s=gate.rulings.hold_s(self._session_id, self._hold_s),
        )
        if isinstance(proof, Refused):
            # Another process may have waited for the same answer.
            return self._was_approved(command)
        try:
            proof.use(action)
        except RefusedError as error:
            gate.settle(proof, "failed", {"error": error.message})
            return False
        gate.settle(proof, "done", {"run_by": "the program that started it"})
        self._approved.add(command)
        return True

    def _was_approved(self, command: _Command) -> bool:
        if self._is_open(command):
            self._approved |= self._approved_commands()
        return not self._is_open(command)

    def _is_open(self, command: _Command) -> bool:
        """Return whether something in it is asked that nobody approved: the command itself where a
        rule is about it, else what it runs in turn."""
        said = self._says(command)
        if said.decision != "ask" or command in self._approved:
            return said.decision == "deny"
        text, folder = shlex.join(command[0]), command[1]
        inside = [(words, folder) for words in spelled_commands(text) if words != command[0]]
        about_those = {rule for one in inside for rule in self._says(one).rules}
        return not about_those.issuperset(said.rules) or any(map(self._is_open, inside))

    def _approved_commands(self) -> set[_Command]:
        found: set[_Command] = set()
        for request in self._gate.queue.of_session(self._session_id):
            action = self._gate.queue.action_of(request)
            if isinstance(action, Exec) and request.answer == "approved":
                folder = posixpath.normpath(posixpath.join(WORKSPACE, action.cwd))
                found.update(
                    ((self._short(name), *rest), folder)
                    for name, *rest in spelled_commands(action.command)
                )
        return found


def _action(command: _Command) -> Exec:
    words, folder = command
    inside = posixpath.relpath(folder, WORKSPACE)
    cwd = folder if inside.startswith("..") else inside
    return Exec(command=shlex.join(words), cwd=cwd, by_agent=True)
