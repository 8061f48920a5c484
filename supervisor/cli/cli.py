"""`gatehouse`: its command line and its endings: an exit code, a one-line error, or a report.

argparse does the parsing, and everything heavy is imported inside the verb (`verbs`) that needs it:
`gatehouse --help` starts in about twice the time of `python -c pass` (click alone takes four times
as long). It does nothing by itself.

Exit codes: 0 done, 1 a mistake of the user's, 2 refused, 3 a bug (with a report to paste), 130 ^C.
`run` and `review` return the agent's own exit code, or 0 where MAX_UPTIME or a person ended the
session.
"""

from __future__ import annotations

import argparse
import errno
import sys

from supervisor import __version__
from supervisor.cli import verbs
from supervisor.cli.common import streams
from supervisor.errors import GatehouseError, UserError
from supervisor.reviews.cli import review_verbs

# Type checkers know this constant: importing `typing` for it would take a tenth of the time that
# `--help` may take.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    type Verb = Callable[[argparse.Namespace], int]


def main(argv: Sequence[str] | None = None) -> int:
    """Parse and run the verb; turn its error into one line and an exit code."""
    if argv is None:
        streams.make_ready()
    try:
        code = _run(argv)
        print(end="", flush=True)  # what can't be written is to be known here, not at exit
        return code
    except GatehouseError as error:
        _complain(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        return _say_state(error)
    except Exception:
        return _report_bug()


def _run(argv: Sequence[str] | None) -> int:
    try:
        given = sys.argv[1:] if argv is None else argv
        parser = _parser()
        if not given:
            _complete(parser)
        options, further = parser.parse_known_args(given or ["status"])
    except SystemExit as ended:  # --help, --version
        return int(ended.code or 0)
    if further and not hasattr(options, "words"):
        raise UserError(f"unrecognized arguments: {' '.join(further)}", "see `gatehouse --help`")
    options.words = further
    verb: Verb = options.verb
    if verb is not verbs.policy_explain:  # which tells how to say such a name
        streams.must_be_text(sys.argv[1:] if argv is None else argv)
    return verb(options)


def _complete(parser: argparse.ArgumentParser) -> None:
    """Where a shell asks for the words that may come next (`gatehouse completion`), print them and
    exit. It gives them by variables, not as arguments."""
    from supervisor.settings import inherited

    if inherited("_ARGCOMPLETE"):
        import argcomplete

        argcomplete.autocomplete(parser)


class _Help(argparse.HelpFormatter):
    """Help of a fixed width. argparse makes a formatter for every argument, and asks for the
    terminal's size each time."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=100)


class _Parser(argparse.ArgumentParser):
    """Prints one clear line and exits 1 for bad words, where argparse prints its usage and exits
    2."""

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=_Help, **options)

    def error(self, message: str) -> Any:
        raise UserError(*_meant(message, f"see `{self.prog} --help`"))


def _meant(message: str, remedy: str) -> tuple[str, str]:
    """Return the message and remedy for a word that argparse doesn't know: the nearest one."""
    _, is_choice, rest = message.partition(": invalid choice: '")
    word, _, listed = rest.partition("' (choose from ")
    if not is_choice:
        return message, remedy
    from supervisor.core.text.mistyped import nearest

    known = [one.strip("'") for one in listed.removesuffix(")").split(", ")]
    return f"there is no `{word}` here", f"{nearest(word, known)}; {remedy}"


class _Overview(_Parser):
    """The parser of the verbs. Its help lists them by what one wants to do."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._sections: dict[str, list[tuple[str, str]]] = {}

    def section(self, title: str) -> None:
        """List the verbs that are added from here on below this title."""
        self._sections[title] = []

    def list_verb(self, name: str, text: str) -> None:
        self._sections[next(reversed(self._sections))].append((name, text))

    def format_help(self) -> str:
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        formatter.add_text(self.description)
        for title, listed in self._sections.items():
            formatter.start_section(title)
            for name, text in listed:
                formatter.add_argument(argparse.Action([], name, nargs=0, metavar=name, help=text))
            formatter.end_section()
        formatter.add_text("`gatehouse VERB --help` says more of one.")
        return formatter.format_help()


def _parser() -> argparse.ArgumentParser:
    parser = _Overview(
        prog="gatehouse",
        description="Supervise AI agents that work on real code.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"gatehouse {__version__}")
    # Each `prog` is given: argparse would format a usage to find it, which takes longer than all
    # other parsing.
    words = parser.add_subparsers(
        title="verbs", metavar="VERB", required=True, parser_class=_Parser, prog="gatehouse"
    )

    def verb(name: str, function: Verb, within: Any = words) -> argparse.ArgumentParser:
        text = (function.__doc__ or "").strip()
        if within is words:
            parser.list_verb(name, text)
        added: argparse.ArgumentParser = within.add_parser(
            name, help=text, description=text, allow_abbrev=False
        )
        added.add_argument(
            "--data-dir", metavar="DIR", help="where Gatehouse keeps its state (GATEHOUSE_DATA)"
        )
        added.set_defaults(verb=function)
        return added

    def group(name: str, text: str, metavar: str) -> Any:
        parser.list_verb(name, text)
        return _group(words, name, text, metavar)

    parser.section("start an agent")
    _add_running(verb)
    text = "Remove the conversations that are kept of agents."
    verb("forget", verbs.agents_forget, group("agents", text, "forget")).add_argument(
        "agent", metavar="AGENT", nargs="?", choices=("claude", "codex", "opencode")
    )
    parser.section("answer what it asks")
    _add_answering(verb)
    parser.section("work with a session")
    _add_sessions(verb)
    parser.section("rules")
    _add_rules(group, verb)
    _add_policy(group, verb)
    parser.section("reviews and jobs of repositories")
    trying = verb("demo", verbs.demo)
    trying.add_argument("--port", help="the page's port on 127.0.0.1 (GATEHOUSE_PORT)")
    trying.add_argument(
        "--open", action="store_true", help="open the page in a browser, where there is one"
    )
    trying.add_argument(
        "--forge",
        choices=("github", "bitbucket"),
        default="github",
        help="which forge the one of this machine is like",
    )
    verb("action", verbs.action)
    review_verbs.add_words(verb, group)
    parser.section("look")
    verb("status", verbs.where_one_stands)
    verb("url", verbs.url)
    log = verb("audit", verbs.audit)
    log.add_argument("--follow", action="store_true", help="keep printing what comes")
    log.add_argument("--json", action="store_true", help="print the lines as they are")
    log.add_argument(
        "--verify", action="store_true", help="check the chain of hashes and the signatures"
    )
    verb("doctor", verbs.doctor).add_argument(
        "--agent",
        choices=("claude", "codex", "opencode"),
        help="also what a session of this agent would lack",
    )
    verb("completion", verbs.completion).add_argument("shell", choices=("bash", "zsh", "fish"))
    return parser


def _add_running(verb: Callable[..., argparse.ArgumentParser]) -> None:
    parsers = {
        "up": verb("up", verbs.up),
        "run": verb("run", verbs.run),
        "review": verb("review", verbs.review),
        "maintain": verb("maintain", verbs.maintain),
        "claude": verb("claude", verbs.claude),
        "codex": verb("codex", verbs.codex),
        "opencode": verb("opencode", verbs.opencode),
        "quarantine": verb("quarantine", verbs.quarantine),
    }
    for name, parser in parsers.items():
        parser.add_argument("--port", help="the page's port on 127.0.0.1 (GATEHOUSE_PORT)")
        parser.add_argument(
            "--policy",
            metavar="FILE",
            help="the policy that sessions start with (GATEHOUSE_POLICY)",
        )
        parser.add_argument(
            "--max-uptime",
            metavar="TIME",
            help="how long a session may last: 30m, 1h30m (MAX_UPTIME)",
        )
        parser.add_argument(
            "--budget",
            metavar="AMOUNT",
            action="append",
            help="$5, 2M-tokens, 1000-requests, 50MB (MAX_COST)",
        )
        parser.add_argument(
            "--include-ignored",
            action="store_true",
            help="also copy what git ignores, such as .venv",
        )
        parser.add_argument(
            "--copy",
            metavar="MODE",
            help="the private copy: auto, copy or overlay (GATEHOUSE_COPY)",
        )
        parser.add_argument(
            "--network",
            metavar="MODE",
            help="the way out: proxy or transparent (GATEHOUSE_NETWORK)",
        )
        parser.add_argument(
            "--bind",
            metavar="TOOLS",
            action="append",
            help="show tools of your home read-only: nvm, pyenv, cargo, a folder of programs"
            " (GATEHOUSE_BIND)",
        )
        if name != "quarantine":
            parser.add_argument(
                "--host-port",
                metavar="PORT",
                action="append",
                help="a server of this machine that programs may reach at 127.0.0.1:PORT, such as"
                " a database (GATEHOUSE_HOST_PORTS)",
            )
        parser.add_argument(
            "--exec-rules",
            metavar="HOW",
            help="enforce: deny and ask rules hold for every program that starts, but not for what"
            " one does by itself, such as a shell's builtins (GATEHOUSE_EXEC_RULES)",
        )
        parser.add_argument(
            "--keep-bodies",
            action="store_true",
            help="show bodies on the Network tab (GATEHOUSE_KEEP_BODIES)",
        )
        parser.add_argument(
            "--open", action="store_true", help="open the page in a browser, where there is one"
        )
        if name == "up":
            parser.add_argument(
                "--reviews", action="store_true", help="review pull requests, too (docs/reviews.md)"
            )
        else:
            parser.add_argument(
                "--workspace",
                metavar="DIR",
                default=".",
                help="the folder to work on (default: this one)",
            )
            parser.add_argument(
                "--stay", action="store_true", help="keep the page open after the agent is done"
            )
    for name in ("claude", "codex", "opencode"):
        # Everything that isn't our option belongs to the agent.
        parsers[name].set_defaults(words=[])
        parsers[name].usage = f"gatehouse {name} [OPTIONS] [--] [ARGUMENTS OF {name.upper()}]"
    parsers["run"].add_argument(
        "command",
        nargs=argparse.REMAINDER,
        metavar="-- COMMAND",
        help="the agent and its arguments",
    )
    parsers["quarantine"].add_argument(
        "command",
        nargs=argparse.REMAINDER,
        metavar="-- AGENT",
        help="claude, opencode or any command, and its arguments",
    )
    job = parsers["maintain"]
    task = job.add_mutually_exclusive_group(required=True)
    task.add_argument("--prompt", metavar="TEXT|FILE", help="what is to be done, or a file with it")
    task.add_argument(
        "--updates",
        metavar="WHICH",
        nargs="?",
        const="all",
        help="update dependencies: all, managers (npm,pip) or packages of one (npm:react)",
    )
    job.add_argument(
        "--min-age",
        metavar="TIME",
        help="with --updates, releases younger than this wait (default: 3d)",
    )
    job.add_argument(
        "--scope",
        metavar="GLOB",
        action="append",
        default=[],
        help="what may be changed: 'docs/**'; with ! before it, what may not (default: everything)",
    )
    job.add_argument(
        "--agent", metavar="NAME", help="claude, codex or opencode (default: the built-in agent)"
    )
    job.add_argument(
        "--tests", metavar="COMMAND", default="", help="run this on the result: 'make test'"
    )
    job.add_argument(
        "--branch",
        action="store_true",
        help="commit the result on a branch to take or push (default: cards of changed files)",
    )
    parsers["review"].add_argument(
        "--base", metavar="REV", help="review the changes since this revision"
    )


def _add_answering(verb: Callable[..., argparse.ArgumentParser]) -> None:
    listing = verb("approvals", verbs.approvals)
    listing.add_argument("--watch", action="store_true", help="keep printing what comes")
    listing.add_argument(
        "--json", action="store_true", help="for programs; with --watch one object a line"
    )
    verb("show", verbs.show).add_argument("id", metavar="ID", help="a request's id")
    approving, denying = verb("approve", verbs.approve), verb("deny", verbs.deny)
    approving.add_argument(
        "--hunks", metavar="N,N", help="only these changes of its file, as `show` numbers them"
    )
    approving.add_argument(
        "--seen",
        metavar="WORD",
        help="the word at the end of `show`: you read all of a folded request",
    )
    approving.add_argument(
        "--with-scripts",
        action="store_true",
        help="of an install: let its install scripts run",
    )
    approving.add_argument(
        "--drop-rest",
        action="store_true",
        help="with --hunks: deny the others (default: they wait)",
    )
    denying.add_argument(
        "--lift",
        action="store_true",
        help="let the agent ask again at once for what was denied",
    )
    for parser in (approving, denying):
        what = "a request's id; with --changes, a session's (default: the only one that waits)"
        parser.add_argument("id", metavar="ID", nargs="?", help=what)
        parser.add_argument(
            "--changes",
            action="store_true",
            help="the session's changed files that wait, all at once",
        )
        parser.add_argument("--below", metavar="DIR", help="with --changes: only of this folder")
        parser.add_argument("--always", action="store_true", help="save the suggested rule too")
        parser.add_argument("--rule", metavar="RULE", help="save this rule too")
        parser.add_argument(
            "--for",
            dest="lasts",
            metavar="TIME",
            help="save the rule for 15m, 2h, or this `session`",
        )
        parser.add_argument("--reason", metavar="TEXT", help="what the agent is told")


def _add_sessions(verb: Callable[..., argparse.ArgumentParser]) -> None:
    verb("sessions", verbs.sessions)
    undoing = verb("undo", verbs.undo)
    undoing.add_argument(
        "id", metavar="ID", nargs="?", help="a request, a whole session, or an undo"
    )
    undoing.add_argument("--all", action="store_true", help="everything that the session applied")
    undoing.add_argument(
        "--to", metavar="TIME", help="rewind the session to 14:05, 14:05:30, an ISO time, or 5m ago"
    )
    undoing.add_argument(
        "--session", metavar="ID", help="the session (default: the newest that applied anything)"
    )
    undoing.add_argument(
        "--merge", action="store_true", help="merge with what you edited since, where possible"
    )
    undoing.add_argument("--yes", action="store_true", help="don't ask")
    taking = verb("take", verbs.take)
    taking.add_argument("id", metavar="ID", help="a session")
    taking.add_argument(
        "--branch",
        metavar="NAME",
        help="which branch of the agent's (default: the one it has checked out)",
    )
    verb("pause", verbs.pause).add_argument("id", metavar="ID", help="a session that runs")
    verb("unpause", verbs.unpause).add_argument("id", metavar="ID", help="a paused session")
    renaming = verb("rename", verbs.rename)
    renaming.add_argument("id", metavar="ID", help="a session")
    renaming.add_argument("name", metavar="NAME", nargs="*", help="its new name")
    resuming = verb("resume", verbs.resume)
    resuming.add_argument("id", metavar="ID", help="a session that has ended")
    resuming.add_argument(
        "command", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="default: the same command"
    )
    verb("drop", verbs.drop).add_argument("id", metavar="ID", help="a session that has ended")
    ending = verb("stop", verbs.stop)
    ending.add_argument("id", metavar="ID")
    ending.add_argument("--reason", metavar="TEXT", help="what the record says")


def _group(words: Any, name: str, text: str, metavar: str) -> Any:
    added = words.add_parser(name, help=text)
    return added.add_subparsers(
        metavar=metavar, required=True, parser_class=_Parser, prog=f"gatehouse {name}"
    )


def _add_rules(group: Callable[..., Any], verb: Callable[..., argparse.ArgumentParser]) -> None:
    rules = group("rules", "List, add and remove rules.", "list|add|remove")
    verb("list", verbs.rules_list, rules)
    adding = verb("add", verbs.rules_add, rules)
    adding.add_argument("effect", choices=("allow", "ask", "deny"))
    adding.add_argument("rule", metavar="RULE", help="for example 'network(*.example.org)'")
    adding.add_argument(
        "--for", dest="lasts", metavar="TIME", default="always", help="how long it holds: 15m, 2h"
    )
    adding.add_argument(
        "--why", metavar="TEXT", default="", help="a note for those who read the rule later"
    )
    verb("remove", verbs.rules_remove, rules).add_argument("id", metavar="ID")


def _add_policy(group: Callable[..., Any], verb: Callable[..., argparse.ArgumentParser]) -> None:
    text = "Ask what a policy says, would have said, or should say."
    lab = group("policy", text, "check|explain|test|lint|replay|learn|import")
    checking, explaining = (
        verb("check", verbs.policy_check, lab),
        verb("explain", verbs.policy_explain, lab),
    )
    testing, linting = verb("test", verbs.policy_test, lab), verb("lint", verbs.policy_lint, lab)
    replaying, learning = (
        verb("replay", verbs.policy_replay, lab),
        verb("learn", verbs.policy_learn, lab),
    )
    for parser in (explaining, testing, linting, learning):
        parser.add_argument(
            "--policy",
            metavar="FILE",
            help="the policy (default: what a session would start with now)",
        )
    checking.add_argument(
        "--policy", metavar="FILE", help="may be left out where each line carries its own"
    )
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
    linting.add_argument(
        "--audit",
        metavar="FILE",
        help="the audit log that tells what was used (default: this installation's)",
    )
    replaying.add_argument("--against", metavar="FILE", required=True, help="the other policy")
    replaying.add_argument(
        "--fail-if-wider",
        action="store_true",
        help="exit 2 where anything is answered more loosely",
    )
    for parser in (replaying, learning):
        parser.add_argument(
            "audit", nargs="?", metavar="AUDIT", help="an audit log (default: this installation's)"
        )
    learning.add_argument("--session", metavar="ID", help="of one session only")
    importing = verb("import", verbs.policy_import, lab)
    importing.add_argument("tool", choices=("claude",))
    importing.add_argument(
        "file",
        metavar="SETTINGS.json",
        nargs="?",
        help="the other tool's settings (default: ~/.claude/settings.json)",
    )


def _complain(text: str) -> None:
    from supervisor.core.secrets.token_shapes import without_tokens
    from supervisor.core.text.display import visible

    # A misplaced word may be a token, or a command for a runner of workflows.
    shown = visible(without_tokens(text), one_line=True).replace("##[", "## [")
    print(f"gatehouse: {shown}", file=sys.stderr)


# Errors that aren't our bugs, and their remedies.
_REMEDIES = {
    "EACCES": "it must be yours; what `sudo` once made, `sudo chown -R USER FOLDER` gives back",
    "EPERM": "it must be yours; what `sudo` once made, `sudo chown -R USER FOLDER` gives back",
    "ENOSPC": "free some room, then try again",
    "EDQUOT": "free some room, then try again",
    "EROFS": "give a place that can be written",
    "EIO": "look at the disk: `dmesg` says more",
    "EMFILE": "raise the limit of open files: `ulimit -n`",
    "ENFILE": "the machine has too many files open: end what opened them",
    "ENOMEM": "the machine has no memory left: end what uses it",
    "ENOTDIR": "move away what lies there, or name another place",
    "EISDIR": "move away what lies there, or name another place",
    "ELOOP": "move away what lies there, or name another place",
    "ENAMETOOLONG": "give a shorter name",
}


def _say_state(error: OSError) -> int:
    """Report in one line what the machine refused. An error that only our mistake can cause is a
    bug."""
    if isinstance(error, streams.OutputError):
        streams.drop_output()
        if error.errno == errno.EPIPE:
            return 0  # the reader has gone, and wants no more
        _complain(
            f"the output can't be written: {error.strerror}; make room, or give another place"
        )
        return 1
    remedy = _REMEDIES.get(errno.errorcode.get(error.errno or 0, ""))
    name = error.filename2 or error.filename
    where, what = "" if name is None else f"{name}: ", error.strerror
    if isinstance(error, streams.InputError):
        what, remedy = str(error), "give it something to read"
    elif error.errno == errno.ENOENT and error.filename is None:  # of `os.getcwd`
        what, remedy = "the folder that you are in is gone", "go to another"
    if remedy is None:
        return _report_bug()
    _complain(f"{where}{what}; {remedy}")
    return 1


def _report_bug() -> int:
    import traceback

    from supervisor.core.secrets.token_shapes import without_tokens

    print(
        "gatehouse: this is a bug in Gatehouse; please report it with the text below",
        file=sys.stderr,
    )
    print(f"gatehouse {__version__}, Python {sys.version}", file=sys.stderr)
    print(without_tokens(traceback.format_exc()), file=sys.stderr)
    return 3


if __name__ == "__main__":
    sys.exit(main())
