"""`gatehouse`: one function per verb. Each parses, calls, prints; whoever answers is the running supervisor or the engine.

Everything heavy is imported inside the verb that needs it, and argparse does the parsing: `gatehouse --help` starts in about
twice the time of `python -c pass` (click alone takes four times as long).

Exit codes: 0 done, 1 a mistake of the user's, 2 refused, 3 a bug (with a report to paste), 130 ^C. `run` and `review` give the
agent's own exit code; 0 where MAX_UPTIME or a person ended the session.
"""

from __future__ import annotations

import argparse
import sys

from supervisor import __version__
from supervisor.errors import GatehouseError, UserError

# A constant that type checkers know: importing `typing` for it would take a tenth of the time that `--help` may take.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from supervisor.client import Client
    from supervisor.settings import Settings

    type Verb = Callable[[argparse.Namespace], int]


def main(argv: Sequence[str] | None = None) -> int:
    """Parse, run the verb, turn its error into one line and an exit code."""
    try:
        options = _parser().parse_args(argv)
        verb: Verb = options.verb
        code = verb(options)
        print(end="", flush=True)  # what can't be written is to be known here, not at exit
        return code
    except GatehouseError as error:
        _complain(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        sys.stderr.close()  # the reader has gone; Python would complain once more at exit
        return 0
    except OSError as error:
        if error.filename is not None:
            return _report_bug()
        # Without a name it is what we print to, and Python would try once more at exit.
        _complain(f"the output can't be written: {error.strerror}; make room, or give another place")
        sys.stdout = None
        return 1
    except Exception:
        return _report_bug()


# -- running -----------------------------------------------------------------------------------------------------------


def up(options: argparse.Namespace) -> int:
    """Keep the supervisor and its page running until ^C."""
    from supervisor import foreground

    return foreground.keep_running(_settings(options), open_browser=options.open)


def run(options: argparse.Namespace) -> int:
    """Supervise any command."""
    if not options.command:
        raise UserError("no command to supervise", "give one after --: gatehouse run --workspace DIR -- COMMAND")
    command = options.command[1:] if options.command[0] == "--" else options.command
    return _supervise(options, kind="agent", command=tuple(command), tty=options.tty)


def review(options: argparse.Namespace) -> int:
    """Run the review agent on the workspace's changes."""
    return _supervise(options, kind="review", base=options.base)


def _supervise(options: argparse.Namespace, **wanted: Any) -> int:
    from pathlib import Path

    from supervisor import foreground

    settings = _settings(options)
    return foreground.supervise(
        settings, workspace=Path(options.workspace), open_browser=options.open, stay=options.stay, **wanted
    )


# -- answering -----------------------------------------------------------------------------------------------------------


def approvals(options: argparse.Namespace) -> int:
    """List what waits; with --watch, whatever comes, until ^C."""
    from supervisor import terminal

    client = _client(options)
    if options.watch:
        return terminal.watch_approvals(client)
    waiting, sets = terminal.waiting(client)
    for request in waiting:
        print(terminal.approval_lines(request))
    for one in sets:
        print(terminal.change_set_lines(one))
    if not waiting and not sets:
        print("nothing waits")
    return 0


def show(options: argparse.Namespace) -> int:
    """Print one request whole, with the numbered changes of its file."""
    from supervisor import card_verbs

    return card_verbs.show(_client(options), _id(options.id))


def approve(options: argparse.Namespace) -> int:
    """Approve one request; with --always or --for, save the rule that is suggested first."""
    from supervisor import card_verbs

    if options.hunks is not None or options.drop_rest:
        return card_verbs.approve_hunks(_client(options), _id(options.id), options)
    request_id = _id(options.id)
    return card_verbs.answer(_client(options), request_id, options, "approve")


def deny(options: argparse.Namespace) -> int:
    """Deny one request; with --always or --for, save the rule that is suggested first."""
    from supervisor import card_verbs

    request_id = _id(options.id)
    if options.lift:
        return card_verbs.lift(_client(options), request_id)
    return card_verbs.answer(_client(options), request_id, options, "deny")


def undo(options: argparse.Namespace) -> int:
    """Take applied changes back: shows first what that does to which files, and asks."""
    from supervisor.undo_verb import undo as take_back

    return take_back(
        _settings(options),
        any_id=options.id,
        session=options.session,
        everything=options.all,
        to=options.to,
        merge=options.merge,
        is_agreed=options.yes,
    )


def stop(options: argparse.Namespace) -> int:
    """End a session in order."""
    session = _client(options).post(f"/api/sessions/{_id(options.id)}/stop", reason=options.reason)
    print(f"{session['state']}: {session['id']}")
    return 0


# -- rules -------------------------------------------------------------------------------------------------------------


def rules_list(options: argparse.Namespace) -> int:
    """Every rule in force, with its id, its source and when it last matched."""
    from supervisor import terminal

    for rule in _client(options).get("/api/rules"):
        print(terminal.rule_line(rule))
    return 0


def rules_add(options: argparse.Namespace) -> int:
    """Save a rule; prints what it would have answered of the last requests."""
    from supervisor import terminal

    client = _client(options)
    seen = client.get("/api/rules/preview", effect=options.effect, rule=options.rule)
    saved = client.post("/api/rules", effect=options.effect, rule=options.rule, why=options.why, lasts=options.lasts)
    print(terminal.rule_preview_lines(seen))
    print(f"saved with id {saved['id']}; {len(saved['also'])} waiting requests answered by it")
    return 0


def rules_remove(options: argparse.Namespace) -> int:
    """Take a saved rule away."""
    _client(options).delete(f"/api/rules/{_id(options.id)}")
    print(f"removed {options.id}")
    return 0


# -- the policy lab ------------------------------------------------------------------------------------------------------


def policy_check(options: argparse.Namespace) -> int:
    """Answer actions on standard input, a JSON line each, by a policy (policy/README.md tells the fields)."""
    from supervisor.lab.check import check

    return check(options.policy, options.workspace)


def policy_explain(options: argparse.Namespace) -> int:
    """Tell of an action what each rule says, and why."""
    from supervisor.lab.explain import explain

    return explain(
        options.action, options.policy, options.workspace, _settings(options, policy=False), as_json=options.json
    )


def policy_test(options: argparse.Namespace) -> int:
    """Check a folder of case files against a policy."""
    from supervisor.lab.cases import test

    return test(options.folder, options.policy, _settings(options, policy=False))


def policy_lint(options: argparse.Namespace) -> int:
    """Name rules that can't match, are covered by others, expired, unused, or wider than they look."""
    from supervisor.lab.lint import lint

    return lint(options.policy, options.audit, _settings(options, policy=False), as_json=options.json)


def policy_replay(options: argparse.Namespace) -> int:
    """Decide a recorded audit log anew under another policy; print what changes."""
    from supervisor.lab.replay import replay

    settings = _settings(options, policy=False)
    return replay(options.against, options.audit, settings, fail_if_wider=options.fail_if_wider, as_json=options.json)


def policy_learn(options: argparse.Namespace) -> int:
    """Propose the smallest policy that would have answered what was approved, and nothing that was denied."""
    from supervisor.lab.learn import learn

    return learn(options.audit, options.policy, options.session, _settings(options, policy=False))


def policy_import(options: argparse.Namespace) -> int:
    """Turn another tool's permission lists into a policy; name what can't be carried over."""
    from supervisor.lab.imports import import_claude

    return import_claude(options.file)


# -- looking -----------------------------------------------------------------------------------------------------------


def audit(options: argparse.Namespace) -> int:
    """Print the audit log, oldest first; --verify checks that no line was changed, removed or added."""
    from supervisor import terminal

    path = _settings(options).audit_log
    if options.verify:
        from supervisor.audit import verify

        if path.exists():
            print(f"{verify(path)} records, unbroken")
        return 0
    return terminal.print_audit(path, follow=options.follow, as_json=options.json)


def sessions(options: argparse.Namespace) -> int:
    """List the sessions, newest first."""
    from supervisor import terminal

    for session in _client(options).get("/api/sessions"):
        print(terminal.session_line(session))
    return 0


def url(options: argparse.Namespace) -> int:
    """Print a new one-time URL of the page."""
    print(_client(options).post("/api/login-token")["url"])
    return 0


def doctor(options: argparse.Namespace) -> int:
    """Check everything that Gatehouse needs of this machine; for each failure, what to do."""
    from supervisor.doctor import report

    return report(_settings(options))


# -- parsing -----------------------------------------------------------------------------------------------------------


class _Help(argparse.HelpFormatter):
    """A fixed width. argparse makes a formatter for every argument that is added, and asks the terminal's size each time."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=100)


class _Parser(argparse.ArgumentParser):
    """One clear line and exit 1 for bad words, where argparse prints its usage and exits 2."""

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=_Help, **options)

    def error(self, message: str) -> Any:
        raise UserError(message, f"see `{self.prog} --help`")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="gatehouse", description="Supervise AI agents that work on real code.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"gatehouse {__version__}")
    # Each `prog` is said: argparse finds it out by formatting a usage, which takes longer than all the rest of parsing.
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True, parser_class=_Parser, prog="gatehouse")

    def verb(name: str, function: Verb, within: Any = verbs) -> argparse.ArgumentParser:
        text = (function.__doc__ or "").strip()
        added: argparse.ArgumentParser = within.add_parser(name, help=text, description=text, allow_abbrev=False)
        added.add_argument("--data-dir", metavar="DIR", help="where Gatehouse keeps its state (GATEHOUSE_DATA)")
        added.set_defaults(verb=function)
        return added

    _add_running(verb)
    _add_answering(verb)
    _add_rules(verbs, verb)
    _add_policy(verbs, verb)
    log = verb("audit", audit)
    log.add_argument("--follow", action="store_true", help="go on with what comes")
    log.add_argument("--json", action="store_true", help="the lines as they are")
    log.add_argument("--verify", action="store_true", help="check the chain of hashes")
    verb("sessions", sessions)
    verb("url", url)
    verb("doctor", doctor)
    return parser


def _add_running(verb: Callable[..., argparse.ArgumentParser]) -> None:
    parsers = {"up": verb("up", up), "run": verb("run", run), "review": verb("review", review)}
    for name, parser in parsers.items():
        parser.add_argument("--port", help="the page's port on 127.0.0.1 (GATEHOUSE_PORT)")
        parser.add_argument("--policy", metavar="FILE", help="the policy that sessions start with (GATEHOUSE_POLICY)")
        parser.add_argument("--max-uptime", metavar="TIME", help="how long a session may last (MAX_UPTIME)")
        parser.add_argument(
            "--budget", metavar="AMOUNT", action="append", help="$5, 2M-tokens, 1000-requests, 50MB (MAX_COST)"
        )
        parser.add_argument("--include-ignored", action="store_true", help="copy what git ignores, too: .venv, say")
        parser.add_argument("--copy", metavar="MODE", help="auto, copy or overlay: the private copy (GATEHOUSE_COPY)")
        parser.add_argument("--network", metavar="MODE", help="proxy or transparent: the way out (GATEHOUSE_NETWORK)")
        parser.add_argument("--keep-bodies", action="store_true", help="show bodies, too (GATEHOUSE_KEEP_BODIES)")
        parser.add_argument("--open", action="store_true", help="open the page in a browser, where there is one")
        if name != "up":
            parser.add_argument("--workspace", metavar="DIR", default=".", help="the folder to work on (this one)")
            parser.add_argument("--stay", action="store_true", help="keep the page open after the agent is done")
    parsers["run"].add_argument("--tty", action="store_true", help="give the command this terminal")
    parsers["run"].add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="and its words")
    parsers["review"].add_argument("--base", metavar="REV", help="review the changes since this revision")


def _add_answering(verb: Callable[..., argparse.ArgumentParser]) -> None:
    verb("approvals", approvals).add_argument("--watch", action="store_true", help="go on with what comes")
    verb("show", show).add_argument("id", metavar="ID", help="of a request")
    approving, denying = verb("approve", approve), verb("deny", deny)
    approving.add_argument("--hunks", metavar="N,N", help="only these changes of its file, as `show` numbers them")
    approving.add_argument("--drop-rest", action="store_true", help="with --hunks: deny the others (they wait on)")
    denying.add_argument("--lift", action="store_true", help="the reverse: what was denied may be asked again at once")
    for parser in (approving, denying):
        parser.add_argument("id", metavar="ID", help="of a request; with --changes, of a session")
        parser.add_argument("--changes", action="store_true", help="the session's changed files that wait, all at once")
        parser.add_argument("--below", metavar="DIR", help="with --changes: only of this folder")
        parser.add_argument("--always", action="store_true", help="save the suggested rule too")
        parser.add_argument("--rule", metavar="RULE", help="save this rule too")
        parser.add_argument("--for", dest="lasts", metavar="TIME", help="save the rule for 15m, 2h, or this `session`")
        parser.add_argument("--reason", metavar="TEXT", help="what the agent is told")
    undoing = verb("undo", undo)
    undoing.add_argument("id", metavar="ID", nargs="?", help="a request, a whole session, or an undo")
    undoing.add_argument("--all", action="store_true", help="everything that the session applied")
    undoing.add_argument("--to", metavar="TIME", help="rewind the session to 14:05, 14:05:30, an ISO time, or 5m ago")
    undoing.add_argument("--session", metavar="ID", help="the session (the newest that applied anything)")
    undoing.add_argument("--merge", action="store_true", help="merge with what you edited since, where possible")
    undoing.add_argument("--yes", action="store_true", help="don't ask")
    ending = verb("stop", stop)
    ending.add_argument("id", metavar="ID")
    ending.add_argument("--reason", metavar="TEXT", help="what the record says")


def _group(verbs: Any, name: str, text: str, metavar: str) -> Any:
    added = verbs.add_parser(name, help=text)
    return added.add_subparsers(metavar=metavar, required=True, parser_class=_Parser, prog=f"gatehouse {name}")


def _add_rules(verbs: Any, verb: Callable[..., argparse.ArgumentParser]) -> None:
    rules = _group(verbs, "rules", "List, add and remove rules.", "list|add|remove")
    verb("list", rules_list, rules)
    adding = verb("add", rules_add, rules)
    adding.add_argument("effect", choices=("allow", "ask", "deny"))
    adding.add_argument("rule", metavar="RULE", help="for example 'network(*.example.org)'")
    adding.add_argument("--for", dest="lasts", metavar="TIME", default="always", help="how long it holds: 15m, 2h")
    adding.add_argument("--why", metavar="TEXT", default="", help="for whoever reads the rule later")
    verb("remove", rules_remove, rules).add_argument("id", metavar="ID")


def _add_policy(verbs: Any, verb: Callable[..., argparse.ArgumentParser]) -> None:
    text = "Ask what a policy says, would have said, or should say."
    lab = _group(verbs, "policy", text, "check|explain|test|lint|replay|learn|import")
    checking, explaining = verb("check", policy_check, lab), verb("explain", policy_explain, lab)
    testing, linting = verb("test", policy_test, lab), verb("lint", policy_lint, lab)
    replaying, learning = verb("replay", policy_replay, lab), verb("learn", policy_learn, lab)
    for parser in (explaining, testing, linting, learning):
        parser.add_argument("--policy", metavar="FILE", help="the policy (what a session would start with now)")
    checking.add_argument("--policy", metavar="FILE", help="may be left out where each line carries its own")
    for parser in (checking, explaining):
        parser.add_argument("--workspace", metavar="DIR", help="the workspace that paths are about")
    for parser in (explaining, linting, replaying):
        parser.add_argument("--json", action="store_true", help="one JSON object instead of text")
    explaining.add_argument(
        "action",
        nargs="+",
        metavar="ACTION",
        help="category and action (quote one with options), or a line as for `check`",
    )
    testing.add_argument("folder", metavar="DIR", help="a folder of case files (or one file)")
    linting.add_argument("--audit", metavar="FILE", help="the audit log that tells what was used (this installation's)")
    replaying.add_argument("--against", metavar="FILE", required=True, help="the other policy")
    replaying.add_argument(
        "--fail-if-wider", action="store_true", help="exit 2 where anything is answered more loosely"
    )
    for parser in (replaying, learning):
        parser.add_argument("audit", nargs="?", metavar="AUDIT", help="an audit log (this installation's)")
    learning.add_argument("--session", metavar="ID", help="of one session only")
    importing = verb("import", policy_import, lab)
    importing.add_argument("tool", choices=("claude",))
    importing.add_argument("file", metavar="SETTINGS.json", help="the other tool's settings")


def _settings(options: argparse.Namespace, *, policy: bool = True) -> Settings:
    """The environment's settings, with what the command line says instead. Not `policy`: there `--policy` means another file."""
    from pathlib import Path

    from supervisor.core.duration import parse_duration
    from supervisor.settings import copy_mode, from_environment, network_mode, port_number

    settings = from_environment()
    if getattr(options, "copy", None):
        settings = settings._replace(copy_mode=copy_mode(options.copy, "--copy"))
    if getattr(options, "network", None):
        settings = settings._replace(network_mode=network_mode(options.network, "--network"))
    if options.data_dir:
        settings = settings._replace(data_dir=Path(options.data_dir).expanduser().absolute())
    if policy and getattr(options, "policy", None):
        settings = settings._replace(policy_file=Path(options.policy).expanduser().absolute())
    if getattr(options, "max_uptime", None):
        settings = settings._replace(max_uptime_s=parse_duration(options.max_uptime, "--max-uptime"))
    if getattr(options, "budget", None):
        settings = settings._replace(max_cost=",".join(options.budget))
    settings = settings._replace(include_ignored=settings.include_ignored or getattr(options, "include_ignored", False))
    settings = settings._replace(keep_bodies=settings.keep_bodies or getattr(options, "keep_bodies", False))
    if getattr(options, "port", None):
        settings = settings._replace(port=port_number(options.port, "--port"))
    return settings


def _client(options: argparse.Namespace) -> Client:
    from supervisor.client import must_find

    return must_find(_settings(options).data_dir)


def _id(text: str) -> str:
    """An id as it may stand in a URL's path."""
    if not text.replace("-", "").replace("_", "").isalnum() or not text.isascii():
        raise UserError(f"`{text}` is not an id", "copy it from `gatehouse approvals`, `sessions` or `rules list`")
    return text


def _complain(text: str) -> None:
    from supervisor.core.display import visible

    print(f"gatehouse: {visible(text, one_line=True)}", file=sys.stderr)


def _report_bug() -> int:
    import traceback

    from supervisor.core.redact import Redactor

    print("gatehouse: this is a bug in Gatehouse; please report it with the text below", file=sys.stderr)
    print(f"gatehouse {__version__}, Python {sys.version}", file=sys.stderr)
    print(Redactor().text(traceback.format_exc()), file=sys.stderr)
    return 3


if __name__ == "__main__":
    sys.exit(main())
