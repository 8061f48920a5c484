"""The supervisor in a terminal: `gatehouse up`, `run` and `review`.

`run` and `review` use the supervisor of the data folder if one runs; otherwise they act as one for
as long as their session lasts. An agent's output is escaped before it reaches this terminal, except
where a terminal is given to the program, as each verb does that starts one at a terminal.
"""

import asyncio
import codecs
import contextlib
import os
import resource
import shutil
import sys
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

from supervisor import settings as environment
from supervisor.base.clock import RealClock
from supervisor.cli import following
from supervisor.cli.common import client as running
from supervisor.cli.common.telling import CopyTeller, ShownOutput, print_answer, say, say_url
from supervisor.core.agents.agents import AgentName
from supervisor.core.jobs import Job, result_words
from supervisor.core.sessions import Kind, Session, remaining_s
from supervisor.core.text.display import visible
from supervisor.core.text.duration import format_duration
from supervisor.errors import GatehouseError, RefusedError, UserError
from supervisor.settings import Settings, keep_absolute_path

# Keys that are kept for an agent that isn't there yet.
MOST_TYPED_AHEAD = 64 * 1024

# What the demo's forge speaks, where that isn't GitHub's language.
AS = {"github": "", "bitbucket": ", as on Bitbucket Cloud"}

type CopyProgress = Callable[[str], dict[str, int] | None]


def keep_running(settings: Settings, *, open_browser: bool, reviews: bool = False) -> int:
    """Run `gatehouse up`."""
    from supervisor.records.policy_files import check_policy

    check_policy(settings.policy_file)
    return _in_loop(_keep_running(settings, open_browser=open_browser, reviews=reviews))


def demo(settings: Settings, *, open_browser: bool, forge: Any = "github") -> int:
    """Run `gatehouse demo`, entirely in a temporary folder."""
    from supervisor.reviews.demo.stage import JOB, NAME, staged

    with tempfile.TemporaryDirectory(prefix="gatehouse-demo-") as name:
        folder = Path(name)
        with staged(folder, forge) as stage:
            own = settings._replace(
                data_dir=folder / "data",
                # It may run beside another Gatehouse: any free port, unless one is named.
                port=settings.port if "GATEHOUSE_PORT" in settings.given else 0,
                # A recorded model plays the review: nothing is spent, and nothing leaves this
                # machine.
                anthropic_api_key="",
                forge_port=0,
                review_debounce_s=(1.0, 10.0),
                **stage.settings(),
            )
            say(f"a forge of this machine's own, with one repository: acme/shop{AS[forge]}")
            say(f"in another terminal: export GATEHOUSE_DATA={own.data_dir}")

            stage.plan_night()

            async def began(on: Any) -> None:
                pull = stage.open_pull(f"http://127.0.0.1:{on.port}")
                say(f"pull request #{pull.number} was opened; its review comes to the inbox soon")
                await on.service.schedule.run_once_known(NAME, JOB, by="the demo")
                say(f"the nightly job {JOB} runs; its pull request comes to the inbox, too")

            try:
                return _in_loop(
                    _keep_running(own, open_browser=open_browser, reviews=True, began=began)
                )
            finally:
                for cache in (own.clones_dir, own.demos_dir):
                    shutil.rmtree(cache, ignore_errors=True)


def act(settings: Settings) -> int:
    """Run `gatehouse action`, entirely in a temporary folder; what it leaves lies in a part of that
    folder."""
    from supervisor.records.policy_files import check_policy
    from supervisor.reviews.app import acting

    variables = environment.inherited(*acting.VARIABLES)
    folder = Path(tempfile.mkdtemp(prefix="gatehouse-", dir=variables.get("RUNNER_TEMP") or None))
    try:
        job = acting.read_job(variables, folder)
        if why := acting.why_not(settings, job):
            return _say_end(acting.not_reviewed(job, why))
        own = acting.settings_for(settings, job)
        check_policy(own.policy_file)
        return _in_loop(_act(own, job))
    except GatehouseError as error:
        print(acting.error_line(error))
        raise
    finally:
        for place in (folder / "data", settings._replace(data_dir=folder / "data").clones_dir):
            shutil.rmtree(place, ignore_errors=True)


def _say_end(end: Any) -> int:
    for line in end.lines:
        print(line)
    code: int = end.code
    return code


async def _act(settings: Settings, job: Any) -> int:
    from supervisor.app.app import Supervisor, handle_signals
    from supervisor.reviews.app.acting import carry_out

    async with Supervisor(settings) as supervisor:
        handle_signals(supervisor)
        return _say_end(await carry_out(supervisor.parts, job, supervisor.wait_for_stop))


def alone(settings: Settings, work: Callable[[running.Client], int]) -> int:
    """Run a supervisor just long enough for a verb to ask it."""
    return _in_loop(_alone(settings._replace(port=0), work))


def supervise(
    settings: Settings,
    *,
    workspace: Path,
    open_browser: bool,
    kind: Kind,
    command: tuple[str, ...] = (),
    agent: AgentName | None = None,
    job: Job | None = None,
    base: str | None = None,
    tty: bool = False,
    stay: bool = False,
) -> int:
    """Run `gatehouse run`, `gatehouse review` and the verbs with an agent's name (installing the
    agent if needed). Return the CLI's exit code.

    `stay` keeps the page open after the agent is done, until ^C or MAX_UPTIME, so that its results
    can be viewed there.
    """
    from supervisor.records.policy_files import check_policy
    from supervisor.sessions.start_session import StartSession, checked_workspace

    workspace = checked_workspace(workspace)
    client = running.find(settings.data_dir)
    if agent is not None:
        _make_ready(agent, settings, has_supervisor=client is not None)
    if client is not None:
        asked_there = following.wanted(
            settings,
            client,
            workspace=workspace,
            kind=kind,
            command=command,
            agent=agent,
            job=job,
            base=base,
            tty=tty,
        )
        open_from = settings.data_dir if open_browser else None
        return following.follow(client, asked_there, open_from=open_from)
    check_policy(settings.policy_file)
    asked = StartSession(
        workspace=workspace,
        kind=kind,
        command=command,
        agent=agent,
        job=job,
        base=base,
        max_uptime_s=settings.max_uptime_s,
        include_ignored=settings.include_ignored,
        tty=tty,
    )
    return _in_loop(_supervise(settings, asked, open_browser=open_browser, stay=stay))


def _make_ready(name: AgentName, settings: Settings, *, has_supervisor: bool) -> None:
    """Install an agent's program if there is none. Raise `UserError` where it would lack a key."""
    from supervisor.core.agents.agents import AGENTS
    from supervisor.sessions import agent_programs

    agent = AGENTS[name]
    if not has_supervisor and not any(settings.model_keys[key] for key in agent.keys):
        raise UserError(agent_programs.no_key(name), f"{agent.advice}, and start again")
    if agent_programs.find(name, environment.search_path(), settings) is None:
        say(f"installing {agent.title} into {agent_programs.folder(name)}")
        asyncio.run(agent_programs.install(name))


# -- a supervisor of our own ----------------------------------------------------------------------


async def _keep_running(
    settings: Settings,
    *,
    open_browser: bool,
    reviews: bool = False,
    began: Callable[[Any], Coroutine[Any, Any, None]] | None = None,
) -> int:
    """Run the supervisor. `began` goes on beside it, with the running review service."""
    from supervisor.app.app import Supervisor, handle_signals

    async with Supervisor(settings) as supervisor:
        handle_signals(supervisor)
        for line in supervisor.findings:
            say(f"found at start: {line}")
        say_url(supervisor.login_url(), settings.data_dir if open_browser else None)
        async with contextlib.AsyncExitStack() as stack:
            if reviews:
                from supervisor.reviews.app.reviewing import reviewing

                on = await stack.enter_async_context(reviewing(supervisor.parts))
                for path in on.paths:
                    say(f"webhooks come in at http://127.0.0.1:{on.port}{path}")
            tasks = await stack.enter_async_context(asyncio.TaskGroup())
            beside = [tasks.create_task(began(on))] if began is not None else []
            beside.append(tasks.create_task(_schedule(supervisor).run()))
            await supervisor.wait_for_stop()
            for task in beside:
                task.cancel()
            if reviews:
                await _drain(supervisor, on.service)
        say("stopping")
    return 0


async def _alone(settings: Settings, work: Callable[[running.Client], int]) -> int:
    from supervisor.app.app import Supervisor

    async with Supervisor(settings) as supervisor:
        for line in supervisor.findings:
            say(f"found at start: {line}")
        client = running.Client(supervisor.port, supervisor.auth.cli_token)
        return await asyncio.to_thread(work, client)


async def _drain(supervisor: Any, service: Any) -> None:
    """Let running reviews finish, for a minute at most; ^C, or a second signal, ends that."""
    if (count := len(service.runs.under_way)) and not supervisor.hurry.is_set():
        say(f"{count} reviews are under way; waiting a minute for them at most, ^C ends them now")
    async with asyncio.TaskGroup() as tasks:
        draining = tasks.create_task(service.drain())
        hurrying = tasks.create_task(supervisor.hurry.wait())
        await asyncio.wait((draining, hurrying), return_when=asyncio.FIRST_COMPLETED)
        draining.cancel()
        hurrying.cancel()


def _schedule(supervisor: Any) -> Any:
    """Run the named jobs for as long as this supervisor runs."""
    from supervisor.sessions.scheduled_jobs import JobSchedule

    parts = supervisor.parts

    def said(name: str, why: str) -> None:
        parts.audit.record("job_not_started", job=name, why=why)
        say(f"the job `{name}` was not started: {why}" if name else f"no job is started: {why}")

    file, sessions = parts.settings.jobs_file, parts.sessions
    return JobSchedule(file, parts.clock, sessions.last_of_job, sessions.start, said)


async def _supervise(settings: Settings, wanted: Any, *, open_browser: bool, stay: bool) -> int:
    from supervisor.app.app import Supervisor, handle_signals, run_session

    async with Supervisor(settings) as supervisor:
        handle_signals(supervisor)
        for line in supervisor.findings:
            say(f"found at start: {line}")
        sessions = supervisor.parts.sessions
        teller = _Teller(settings.sessions_dir, sessions.progress, raw=wanted.tty)
        if wanted.kind != "quarantine":
            sessions.on_output(teller.output)
        sessions.on_change(teller.session)

        def started(session_id: str) -> None:
            teller.session_id = session_id
            say_url(
                supervisor.login_url(),
                settings.data_dir if open_browser and not wanted.tty else None,
            )

        with _terminal_of(supervisor, teller) if wanted.tty else contextlib.nullcontext():
            code = await run_session(supervisor, wanted, started)
        teller.say_the_rest()
        for left in supervisor.parts.left.all():
            if left.session_id == teller.session_id:
                kept = format_duration(left.until - supervisor.parts.clock.now())
                say(f"left to answer: {left.counts}, kept for {kept}; see `gatehouse approvals`")
        session = sessions.get(teller.session_id or "")
        left_s = remaining_s(session, supervisor.parts.clock.now())
        if stay and left_s > 0 and session.agent_exited_at is not None and not supervisor.stopping:
            say(f"the page stays open for another {format_duration(left_s)}; ^C ends it")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await supervisor.wait_for_stop()
        if session.job_result is not None and session.job_result.refused:
            return RefusedError.exit_code
        return print_answer(session.review, code) if wanted.kind == "quarantine" else code


class _Teller:
    """Prints the events of one session: its output on standard output, the rest on standard
    error."""

    def __init__(self, folder: Path, progress: CopyProgress, *, raw: bool) -> None:
        self.session_id: str | None = None
        self._folder = folder
        self._progress = progress
        self._raw = raw
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._told: dict[str, None] = {}
        self._copying = CopyTeller(RealClock())
        self._output = ShownOutput()

    def output(self, session_id: str, data: bytes) -> None:
        if session_id != self.session_id:
            return
        if self._raw:
            self._output.write_bytes(data)
        else:
            self._output.write(visible(self._decoder.decode(data).replace("\r\n", "\n")))

    def session(self, session: Session) -> None:
        """Print news of the session. While a full-screen program owns the terminal, they are kept
        for later."""
        if self.session_id is not None and session.id != self.session_id:
            return
        if not self._raw:
            self._copying.tell(self._progress(session.id))
        for line in self._lines(session):
            if line not in self._told:
                self._told[line] = None
                if not self._raw:
                    say(line)

    def say_the_rest(self) -> None:
        """Print the news kept while the agent had the terminal."""
        if self._raw:
            for line in self._told:
                say(line)

    def _lines(self, session: Session) -> list[str]:
        lines = list(session.notices)
        if session.review is not None:
            found = len(session.review.get("findings", ()))
            lines.append(
                f"the review has {found} findings: on the page, and in"
                f" {self._folder / session.id / 'review.md'}"
            )
        if session.job is not None and session.job_result is not None:
            lines.append(f"the job: {result_words(session.job, session.job_result)}")
            if session.job_result.branch:
                lines.append(f"take it with: gatehouse take {session.id}")
        if session.agent_exited_at is not None and session.ended_at is None:
            lines.append(f"the agent has exited with {session.exit_code}")
        if session.ended_at is not None:
            lines.append(f"the session has ended: {session.end_reason}")
        return lines


@contextlib.contextmanager
def _terminal_of(supervisor: Any, teller: _Teller) -> Iterator[None]:
    """Give this terminal to the agent: keys are passed on as typed, and its size is kept up to
    date. It is restored in any case."""
    import signal
    import termios
    import tty

    stdin = sys.stdin.fileno()
    loop = asyncio.get_running_loop()

    def sandbox() -> Any:
        return supervisor.parts.sessions.running(teller.session_id) if teller.session_id else None

    def resize() -> None:
        if teller.session_id:
            size = os.get_terminal_size(stdin)  # not shutil's, which believes COLUMNS
            supervisor.parts.sessions.resize(teller.session_id, size.lines, size.columns)

    typed_ahead = bytearray()

    def typed() -> None:
        data = os.read(stdin, 4096)
        if sandbox() is None and b"\x03" in data:  # ^C, before there is an agent to take it
            supervisor.request_stop(is_hurried=True)
        typed_ahead.extend(data[: MOST_TYPED_AHEAD - len(typed_ahead)])
        pass_on()

    def pass_on() -> None:
        resize()
        inside = sandbox()
        if inside is not None and inside.master_fd is not None and typed_ahead:
            keys = bytes(typed_ahead)
            typed_ahead.clear()
            with contextlib.suppress(OSError):
                os.write(inside.master_fd, keys)

    before = termios.tcgetattr(stdin)
    supervisor.parts.sessions.on_change(lambda session: pass_on())
    tty.setraw(stdin, termios.TCSADRAIN)
    loop.add_reader(stdin, typed)
    loop.add_signal_handler(signal.SIGWINCH, resize)
    try:
        yield
    finally:
        loop.remove_reader(stdin)
        loop.remove_signal_handler(signal.SIGWINCH)
        termios.tcsetattr(stdin, termios.TCSADRAIN, before)


# -- small ----------------------------------------------------------------------------------------


def _leave_no_core_dump() -> None:
    """Prevent core dumps, as egress does: this process has the named secrets in memory."""
    # If possible not 0: a program that cores are piped to still gets one then, but not at 1
    # (core(5), and the kernel's `do_coredump`).
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    bytes_left = 1 if most == resource.RLIM_INFINITY else min(1, most)
    resource.setrlimit(resource.RLIMIT_CORE, (bytes_left, bytes_left))


def _in_loop(main: Any) -> int:
    from supervisor.server.common.crowds import raise_descriptor_limit

    keep_absolute_path()
    _leave_no_core_dump()
    raise_descriptor_limit()
    try:
        # Not uvloop, which closes a pipe's descriptor twice (its `UVSocketHandle._close`): by then
        # the number may belong to a file in one of our threads.
        with asyncio.Runner() as runner:
            code: int = runner.run(main)
            return code
    except BaseExceptionGroup as group:
        # Also the interrupt of an unfinished start: `main` has a message for each.
        expected = group.subgroup((GatehouseError, OSError, KeyboardInterrupt))
        if expected is not None:
            raise _first(expected) from group
        raise


def _first(group: BaseExceptionGroup[Any]) -> BaseException:
    error: Any = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, BaseException)
    return error
