"""One function for each verb of `gatehouse`: it calls and prints; whoever answers is the running
supervisor or the engine.

Its text is the verb's help. None decides anything that the operator's API decides, and each imports
what it needs only when it runs: most need little.
"""

from __future__ import annotations

from supervisor.cli.common.options import client_of, id_of, settings_of, whole_id
from supervisor.errors import UserError

# A constant that type checkers know: importing `typing` for it would take a tenth of the time that
# `--help` may take.
TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable
    from typing import Any

    from supervisor.cli.common.client import Client
    from supervisor.core.agents.agents import AgentName


NO_SESSIONS = "no sessions yet"


# -- running --------------------------------------------------------------------------------------


def up(options: argparse.Namespace) -> int:
    """Keep the supervisor and its page running until ^C."""
    from supervisor.cli import foreground

    return foreground.keep_running(
        settings_of(options), open_browser=options.open, reviews=options.reviews
    )


def demo(options: argparse.Namespace) -> int:
    """Try reviews without account and key: a forge on this machine, a pull request, its review."""
    from supervisor.cli import foreground

    settings = settings_of(options)
    return foreground.demo(settings, open_browser=options.open, forge=options.forge)


def action(options: argparse.Namespace) -> int:
    """Review the pull request of a GitHub workflow's event, in a job of that workflow."""
    from supervisor.cli import foreground

    return foreground.act(settings_of(options))


def run(options: argparse.Namespace) -> int:
    """Supervise any command."""
    if not options.command:
        raise UserError(
            "no command to supervise", "give one after --: gatehouse run --workspace DIR -- COMMAND"
        )
    command = options.command[1:] if options.command[0] == "--" else options.command
    return _supervise(options, kind="agent", command=tuple(command), tty=_has_terminal())


def claude(options: argparse.Namespace) -> int:
    """Supervise Claude Code; it is installed where it isn't."""
    return _supervise_agent(options, "claude")


def codex(options: argparse.Namespace) -> int:
    """Supervise Codex; it is installed where it isn't."""
    return _supervise_agent(options, "codex")


def opencode(options: argparse.Namespace) -> int:
    """Supervise OpenCode; it is installed where it isn't."""
    return _supervise_agent(options, "opencode")


def agents_forget(options: argparse.Namespace) -> int:
    """Remove the conversations that are kept of an agent, or of all."""
    import asyncio

    from supervisor.cli.common.client import find
    from supervisor.core.agents.agents import AGENTS
    from supervisor.sessions import conversations

    settings = settings_of(options)
    client = find(settings.data_dir)
    for one in client.get("/api/sessions") if client is not None else ():
        if one["ended_at"] is None and one["agent"] and options.agent in (None, one["agent"]):
            raise UserError(
                f"session {one['id'][:8]} of {AGENTS[one['agent']].title} runs, and writes there",
                "try again when it has ended, or stop it",
            )
    count = asyncio.run(conversations.forget(settings, options.agent))
    whose = AGENTS[options.agent].title if options.agent else "every agent"
    where = f"in {count} workspace{'s' * (count != 1)}" if count else "there were none"
    print(f"forgotten: conversations of {whose}, {where}")
    return 0


def _supervise_agent(options: argparse.Namespace, name: AgentName) -> int:
    words = options.words[1:] if options.words[:1] == ["--"] else options.words
    return _supervise(
        options, kind="agent", agent=name, command=(name, *words), tty=_has_terminal()
    )


def _has_terminal() -> bool:
    """Return whether there is a terminal to give to an agent: then it is used as without
    Gatehouse."""
    import sys

    return sys.stdin.isatty() and sys.stdout.isatty()


def quarantine(options: argparse.Namespace) -> int:
    """Have an agent review a folder that it only reads by reference; print what stands of its
    answer."""
    from supervisor.core.agents.agents import AGENTS, agent_named
    from supervisor.core.quarantine.quarantine import PROMPT

    words = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not words:
        raise UserError("no agent to quarantine", "give one: gatehouse quarantine -- claude")
    name = agent_named(words[0]) if words[0] in ("claude", "opencode") else None
    if name is not None and len(words) == 1:
        words = [*words, *AGENTS[name].headless, PROMPT]
    return _supervise(options, kind="quarantine", agent=name, command=tuple(words))


def review(options: argparse.Namespace) -> int:
    """Run the review agent on the workspace's changes."""
    return _supervise(options, kind="review", base=options.base)


def maintain(options: argparse.Namespace) -> int:
    """Have an agent carry out one task on a folder, within a scope."""
    from pathlib import Path

    from supervisor.core.agents.agents import agent_named
    from supervisor.core.jobs import DEFAULT_MIN_AGE, UPDATES_PROMPT, Job
    from supervisor.core.packages.updates import parse_updates
    from supervisor.core.text.duration import parse_duration

    prompt, file = options.prompt or UPDATES_PROMPT, Path(options.prompt or ".")
    if len(prompt) < 256 and "\n" not in prompt and file.is_file():
        prompt = file.read_text("utf-8", "replace")
    agent = agent_named(options.agent) if options.agent else None
    updates = None
    if options.updates:
        age = parse_duration(options.min_age or DEFAULT_MIN_AGE, "--min-age")
        updates = parse_updates(options.updates, age)
    job = Job(
        prompt=prompt,
        scope=tuple(options.scope),
        tests=options.tests,
        branch=options.branch,
        updates=updates,
    )
    return _supervise(options, kind="maintenance", agent=agent, job=job)


def _supervise(options: argparse.Namespace, **wanted: Any) -> int:
    from pathlib import Path

    from supervisor.cli import foreground

    settings = settings_of(options)
    return foreground.supervise(
        settings,
        workspace=Path(options.workspace),
        open_browser=options.open,
        stay=options.stay,
        **wanted,
    )


# -- answering ------------------------------------------------------------------------------------


def approvals(options: argparse.Namespace) -> int:
    """List what waits, and what was approved but isn't carried out yet; --watch goes on until
    ^C."""
    import json

    from supervisor.cli import terminal

    if options.watch:
        return terminal.watch_approvals(client_of(options), as_json=options.json)

    def list_them(client: Client) -> int:
        waiting, sets = terminal.waiting(client)
        ready = client.get("/api/requests", status="ready")
        if options.json:
            print(json.dumps({"requests": waiting, "changes": sets, "approved": ready}, indent=2))
            return 0
        left_s = terminal.time_left(client) if waiting else {}
        for request in waiting:
            print(terminal.approval_lines(request, left_s))
        for one in sets:
            print(terminal.change_set_lines(one))
        if not waiting and not sets:
            print("nothing waits")
        for request in ready:
            print(terminal.ready_line(request))
        return 0

    return _asked(options, list_them)


def show(options: argparse.Namespace) -> int:
    """Print all of a request, with the numbered changes of its file."""
    from supervisor.cli import card_verbs

    return _about(options, "request", card_verbs.show)


def approve(options: argparse.Namespace) -> int:
    """Approve a request; with --always or --for, also save the first rule that is suggested."""
    from supervisor.cli import card_verbs

    def answer(client: Client, any_id: str) -> int:
        if options.hunks is not None or options.drop_rest:
            return card_verbs.approve_hunks(client, any_id, options)
        return card_verbs.answer(client, any_id, options, "approve")

    return _answered(options, answer)


def deny(options: argparse.Namespace) -> int:
    """Deny a request; with --always or --for, also save the first rule that is suggested."""
    from supervisor.cli import card_verbs

    if options.lift and not options.id:
        raise UserError("--lift is about a denied request", "give its id")

    def answer(client: Client, any_id: str) -> int:
        if options.lift:
            return card_verbs.lift(client, any_id)
        return card_verbs.answer(client, any_id, options, "deny")

    return _answered(options, answer)


def _answered(options: argparse.Namespace, answer: Callable[[Client, str], int]) -> int:
    """Answer the request, or with --changes the session, that is named, or the only one that
    waits."""
    from supervisor.cli import card_verbs

    if options.id:
        return _about(options, "session" if options.changes else "request", answer)
    return _asked(options, lambda client: answer(client, card_verbs.only_waiting(client, options)))


def undo(options: argparse.Namespace) -> int:
    """Undo applied changes: shows what would happen to which files, then asks."""
    from supervisor.cli.undo_verb import undo as take_back

    return take_back(
        settings_of(options),
        any_id=options.id,
        session=options.session,
        everything=options.all,
        to=options.to,
        merge=options.merge,
        is_agreed=options.yes,
    )


def stop(options: argparse.Namespace) -> int:
    """End a session in order, and wait for its end."""
    from supervisor.cli import following
    from supervisor.cli.common.client import find

    client = client_of(options)
    wanted = whole_id(client, options.id, "session")
    try:
        following.stop(client, wanted, reason=options.reason)
    except UserError:
        # The end of a `run` without another session is that of its supervisor.
        if find(settings_of(options).data_dir) is not None:
            raise
    print(f"ended: {wanted}")
    return 0


def take(options: argparse.Namespace) -> int:
    """Take the agent's branch into your repository, as a branch."""
    from supervisor.core.text.display import visible

    def take_it(client: Client, session: str) -> int:
        path = f"/api/sessions/{session}/take"
        taken = client.post_and_wait(path, branch=options.branch or "")
        source, branch = (visible(taken[name], one_line=True) for name in ("source", "branch"))
        count = taken["commits"]
        print(f"{branch}: {count} commits of the agent's `{source}`, at {taken['commit'][:12]}")
        return 0

    return _about(options, "session", take_it)


def pause(options: argparse.Namespace) -> int:
    """Stop a session's processes where they stand; its uptime stands still."""
    client = client_of(options)
    client.post(f"/api/sessions/{whole_id(client, options.id, 'session')}/pause")
    print("paused; `gatehouse unpause` lets it go on")
    return 0


def unpause(options: argparse.Namespace) -> int:
    """Let a paused session go on."""
    client = client_of(options)
    client.post(f"/api/sessions/{whole_id(client, options.id, 'session')}/unpause")
    print("it goes on")
    return 0


def rename(options: argparse.Namespace) -> int:
    """Give a session another name; without one, its usual name."""
    from supervisor.core.text.display import visible

    def name_it(client: Client, session: str) -> int:
        named = client.post(f"/api/sessions/{session}/name", name=" ".join(options.name))
        print(visible(named["name"], one_line=True))
        return 0

    return _about(options, "session", name_it)


def resume(options: argparse.Namespace) -> int:
    """Start a new session on the copy of one that has ended."""
    from supervisor.cli import following

    client = client_of(options)
    given = options.command[1:] if options.command[:1] == ["--"] else options.command
    wanted = following.wanted(
        settings_of(options),
        client,
        command=tuple(given),
        resume=whole_id(client, options.id, "session"),
        tty=_has_terminal(),
    )
    return following.follow(client, wanted, open_from=None)


def drop(options: argparse.Namespace) -> int:
    """Deny all that a session left to answer at its end."""
    client = client_of(options)
    done = client.post(f"/api/sessions/{whole_id(client, options.id, 'session')}/drop")
    print(f"{done['dropped']} requests denied")
    return 0


# -- rules ----------------------------------------------------------------------------------------


def where_one_stands(options: argparse.Namespace) -> int:
    """Say what runs and what waits; `gatehouse` alone does the same."""
    from supervisor.cli import terminal
    from supervisor.cli.common.client import find

    client = find(settings_of(options).data_dir)
    if client is None:
        print("Gatehouse doesn't run here.\n")
        for words, why in terminal.FIRST_WORDS.items():
            print(f"  gatehouse {words:<24} {why}")
        return 0
    running = [one for one in client.get("/api/sessions") if one["ended_at"] is None]
    for one in running:
        print(terminal.session_line(one))
    waiting, sets = terminal.waiting(client)
    count = len(waiting) + sum(one["waiting"] for one in sets)
    listed = "; `gatehouse approvals` lists them" if count else ""
    print(
        f"{len(running)} sessions run, {count} requests wait{listed}; `gatehouse url` is the page"
    )
    return 0


def rules_list(options: argparse.Namespace) -> int:
    """List every rule in force, the saved ones last, with its id, its source and how often it
    matched."""
    from supervisor.cli import terminal

    def list_them(client: Client) -> int:
        for rule in sorted(client.get("/api/rules"), key=lambda one: bool(one["can_remove"])):
            print(terminal.rule_line(rule))
        return 0

    return _asked(options, list_them, is_new=True)


def rules_add(options: argparse.Namespace) -> int:
    """Save a rule; print what it would have answered of the last requests."""
    from supervisor.cli import terminal

    rule = {"effect": options.effect, "rule": options.rule}

    def add(client: Client) -> int:
        seen = client.get("/api/rules/preview", **rule)
        saved = client.post("/api/rules", **rule, why=options.why, lasts=options.lasts)
        print(terminal.rule_preview_lines(seen))
        print(f"saved with id {saved['id']}; {saved['also_count']} waiting requests answered")
        return 0

    return _asked(options, add, is_new=True)


def rules_remove(options: argparse.Namespace) -> int:
    """Remove a saved rule."""

    def remove(client: Client, rule_id: str) -> int:
        client.delete(f"/api/rules/{rule_id}")
        print(f"removed {rule_id}")
        return 0

    return _about(options, "rule", remove)


# -- the policy lab -------------------------------------------------------------------------------


def policy_check(options: argparse.Namespace) -> int:
    """Answer actions on standard input, a JSON line each, by a policy (docs/policy.md tells
    the fields)."""
    from supervisor.cli.lab.check import check

    return check(options.policy, options.workspace)


def policy_explain(options: argparse.Namespace) -> int:
    """Explain what each rule says of an action, and why."""
    from supervisor.cli.lab.explain import explain

    return explain(
        options.action,
        options.policy,
        options.workspace,
        settings_of(options, policy=False),
        as_json=options.json,
    )


def policy_test(options: argparse.Namespace) -> int:
    """Check a folder of case files against a policy."""
    from supervisor.cli.lab.cases import test

    return test(options.folder, options.policy, settings_of(options, policy=False))


def policy_lint(options: argparse.Namespace) -> int:
    """Name rules that can't match, are covered by others, expired, unused, or wider than they
    look."""
    from supervisor.cli.lab.lint import lint

    return lint(
        options.policy, options.audit, settings_of(options, policy=False), as_json=options.json
    )


def policy_replay(options: argparse.Namespace) -> int:
    """Judge a recorded audit log again under another policy; print what changes."""
    from supervisor.cli.lab.replay import replay

    settings = settings_of(options, policy=False)
    return replay(
        options.against,
        options.audit,
        settings,
        fail_if_wider=options.fail_if_wider,
        as_json=options.json,
    )


def policy_learn(options: argparse.Namespace) -> int:
    """Propose the smallest policy that would have answered what was approved, and nothing that
    was denied."""
    from supervisor.cli.lab.learn import learn

    return learn(options.audit, options.policy, options.session, settings_of(options, policy=False))


def policy_import(options: argparse.Namespace) -> int:
    """Turn another tool's permission lists into a policy; name what can't be carried over."""
    from supervisor.cli.lab.imports import import_claude

    return import_claude(options.file)


# -- looking --------------------------------------------------------------------------------------


def audit(options: argparse.Namespace) -> int:
    """Print the audit log, oldest first; --verify checks that no line was changed, removed or
    added."""
    from supervisor.cli import terminal

    settings = settings_of(options)
    path = settings.audit_log
    if options.verify:
        from supervisor.records.audit_check import Outside, verify

        outside = Outside.read(path, settings.database)
        for line in terminal.checked_lines(verify(path, outside), outside):
            print(line)
        return 0
    return terminal.print_audit(path, follow=options.follow, as_json=options.json)


def sessions(options: argparse.Namespace) -> int:
    """List the sessions, newest first."""
    from supervisor.cli import terminal

    def list_them(client: Client) -> int:
        listed = client.get("/api/sessions")
        print("\n".join(map(terminal.session_line, listed)) or NO_SESSIONS)
        return 0

    if not settings_of(options).database.exists():
        print(NO_SESSIONS)
        return 0
    return _asked(options, list_them)


def url(options: argparse.Namespace) -> int:
    """Print a new one-time URL of the page."""
    print(client_of(options).post("/api/login-token")["url"])
    return 0


def doctor(options: argparse.Namespace) -> int:
    """Check what Gatehouse needs of this machine; say what to do about each failure."""
    from supervisor.cli.doctor import report

    return report(settings_of(options), options.agent)


def completion(options: argparse.Namespace) -> int:
    """Print what makes a shell complete the words of `gatehouse`; docs/cli.md says where to put
    it."""
    from argcomplete.shell_integration import shellcode

    print(shellcode(["gatehouse"], shell=options.shell))
    return 0


# -- inside ---------------------------------------------------------------------------------------


def _about(options: argparse.Namespace, of: str, work: Callable[[Client, str], int]) -> int:
    """Do `_asked` for the request, session or rule whose id, or its start, was given."""
    id_of(options.id)  # before a supervisor is started for it
    return _asked(options, lambda client: work(client, whole_id(client, options.id, of)))


def _asked(
    options: argparse.Namespace, work: Callable[[Client], int], *, is_new: bool = False
) -> int:
    """Have the running supervisor asked, or where none runs one that is there for as long as that
    takes; `is_new`: also where there was none before."""
    from supervisor.cli.common.client import find, must_find

    settings = settings_of(options)
    client = find(settings.data_dir)
    if client is None and (is_new or settings.database.exists()):
        from supervisor.cli import foreground

        return foreground.alone(settings, work)
    return work(client or must_find(settings.data_dir))
