"""Actions in words: a card's text beside the exact action, and an answer's outcome. Pure.

One place, so that a new category is one more branch of each function here and nothing else on
the pages.
"""

import msgspec

from supervisor.core.actions import (
    Action,
    BudgetRaise,
    Category,
    Exec,
    FileChange,
    Git,
    McpCall,
    McpTools,
    Network,
    Packages,
    PlannedPackage,
    Proposal,
    RefUpdate,
    category_of,
)
from supervisor.core.approvals import Request, failure, goes_on, status
from supervisor.core.budget import SCOPE_WORDS, amount
from supervisor.core.files.change_card import HAZARD_NOTES
from supervisor.core.forge_acts import Act, act_title
from supervisor.core.text.duration import format_duration


class CategoryWords(msgspec.Struct, frozen=True):
    """What its things are called together, what one is called, and what its icon is called."""

    label: str
    one: str
    icon: str


WORDS: dict[Category, CategoryWords] = {
    "exec": CategoryWords("Commands", "Command", "exec"),
    "filesystem": CategoryWords("Files", "File", "files"),
    "network": CategoryWords("Network", "Request", "network"),
    "git": CategoryWords("Git", "Git", "git"),
    "packages": CategoryWords("Packages", "Install", "packages"),
    "review": CategoryWords("Reviews", "Review", "review"),
    "sandbox": CategoryWords("Policy", "Rule", "shield"),
    "budget": CategoryWords("Budget", "Budget", "coin"),
}
# Warnings that say that something leaves the machine or leaks: shown in red. Others are amber.
_RED = frozenset({"secret", "may hold a secret", "forces", "deletes", "uploads"})
# The icons of warnings that have one of their own.
_FLAG_ICONS = {
    "secret": "key",
    "may hold a secret": "key",
    "forces": "force",
    "conflict": "conflict",
    "uploads": "out",
    "new-executable": "exec",
}
_FILE_VERBS = {
    "write": "write a file",
    "edit": "edit a file",
    "delete": "delete a file",
    "mkdir": "make a folder",
    "chmod": "change a file's mode",
    "symlink": "make a symbolic link",
    "rename": "rename a file",
}
# What an act is about, by what its targets are called.
_TARGETS = {
    "reply": "comment",
    "react": "comment",
    "resolve": "threads",
    "dismiss": "review",
    "undo": "removes",
}
# An act as what the agent wants, and as the button that lets it.
_ACT_WORDS = {
    "post": ("post a review", "Post review"),
    "comment": ("comment on a pull request", "Post comment"),
    "reply": ("reply to a comment", "Post reply"),
    "resolve": ("resolve what is settled", "Resolve"),
    "react": ("react to a comment", "React"),
    "check": ("set a check", "Set check"),
    "dismiss": ("dismiss its own review", "Dismiss review"),
    "undo": ("take its own review back", "Take review back"),
    "push": ("push a branch", "Push branch"),
    "open-pr": ("open a pull request", "Open pull request"),
    "update-pr": ("change a pull request", "Change pull request"),
    "open-issue": ("open an issue", "Open issue"),
    "delete-branch": ("delete the branch of a job", "Delete branch"),
}
_DAY_S = 86_400.0


def asks(action: Action) -> str:
    """Return what the agent wants, to follow the words "the agent"."""
    match action:
        case Exec():
            return "wants to run a command"
        case McpCall() | McpTools():
            does = "call a tool" if isinstance(action, McpCall) else "use changed tools"
            return f"wants to {does} of an MCP server"
        case FileChange():
            return f"wants to {_file_verb(action)}"
        case Network(operation="connect"):
            return "wants to open a connection"
        case Network():
            return "wants to send a request"
        case Git(operation="push"):
            return "wants to push"
        case Git():
            return "wants to use git"
        case Packages():
            return "wants to run a package manager"
        case Act():
            return f"wants to {_ACT_WORDS[action.operation][0]}"
        case Proposal():
            return "proposes a rule"
        case BudgetRaise():
            return "asks for more budget"


def _file_verb(action: FileChange) -> str:
    match action:
        case FileChange(operation="write", before=None):
            return "create a file"
        case FileChange(operation="chmod", after="dir"):
            return "change a folder's mode"
        case FileChange(operation="swap"):
            return "put a folder where a file is" if action.after == "dir" else "replace a folder"
    return _FILE_VERBS[action.operation]


class Flag(msgspec.Struct, frozen=True):
    """A reason to look twice: `name` in a word or two, `note` what it means. `is_red`: it leaves
    the machine or leaks."""

    name: str
    note: str
    icon: str
    is_red: bool


def flags(action: Action) -> tuple[Flag, ...]:
    """Return what a person must not overlook, what leaves the machine first."""
    found = [
        Flag(name, note, _FLAG_ICONS.get(name, "alert"), name in _RED)
        for name, note in warnings(action)
    ]
    return tuple(sorted(found, key=lambda one: not one.is_red))


def heading(action: Action) -> str:
    """Return what would happen, as a card's heading."""
    words = asks(action).removeprefix("wants to ")
    where = ""
    match action:
        case Git(operation="push"):
            where = f" to {action.remote or action.url}" if action.remote or action.url else ""
        case Git():
            words = f"run git {action.operation}"
        case FileChange(operation="write" | "edit" | "delete" | "mkdir" | "rename" | "symlink"):
            words = f"{_file_verb(action).partition(' ')[0]} {action.path.rpartition('/')[2]}"
        case Packages():
            words = f"{action.operation} {' '.join(action.names) or 'packages'}"
            where = f" with {action.manager}"
        case McpCall():
            words, where = f"call {action.tool}", f" of the MCP server {action.server}"
        case Network(operation="connect"):
            where = f" to {action.host}:{action.port}"
        case Network():
            where = f" to {action.host}"
        case Act(number=int(number)) if number:
            where = f" on {action.repository}#{number}"
        case Proposal():
            words = f"{'add' if action.effect == 'allow' else 'save'} a rule"
        case BudgetRaise():
            words = "raise a limit"
    return words[:1].upper() + words[1:] + where


def question(action: Action) -> str:
    """Return the question that an answer answers: it names the consequence."""
    match action:
        case Exec(by_agent=True):
            return "Let the agent run this in its sandbox?"
        case Exec():
            return "Run this command in the sandbox?"
        case McpCall() | McpTools():
            what = "do this" if isinstance(action, McpCall) else "have agents use these tools"
            return f"Let the MCP server {action.server} {what}?"
        case FileChange():
            verb = "Delete" if action.operation == "delete" else "Change"
            return f"{verb} this in your folder?"
        case Network():
            return f"Let this {answer_object(action)} through to {action.host}?"
        case Git(operation="push"):
            return "Send this to the remote?"
        case Git():
            return "Run this git command with your access?"
        case Packages():
            return "Install this in the private copy?"
        case Act():
            text = act_title(action)
            return f"{text[:1].upper()}{text[1:]}?"
        case Proposal():
            return "Add this rule to the policy?"
        case BudgetRaise():
            return "Let it spend more?"


def approve_words(action: Action) -> str:
    """Return what approving does, as its button says it."""
    if not isinstance(action, Act):
        return f"Approve {answer_object(action)}"
    if count := len(action.comments):
        return f"Post {count} finding{'' if count == 1 else 's'}"
    return _ACT_WORDS[action.operation][1]


def answer_object(action: Action) -> str:
    """Return what an answer is about, to follow "Approve"."""
    match action:
        case Exec():
            return "command"
        case McpCall():
            return "call"
        case McpTools():
            return "tools"
        case FileChange():
            return "change"
        case Network():
            return "connection" if action.operation == "connect" else "request"
        case Git():
            return action.operation
        case Packages():
            return "install"
        case Act():
            return action.operation
        case Proposal():
            return "rule"
        case BudgetRaise():
            return "raise"


def details(action: Action) -> list[tuple[str, str]]:
    """Return labels and values of details that the title lacks."""
    found: list[tuple[str, str | None]]
    match action:
        case Exec():
            found = [
                ("runs in", _folder(action.cwd)),
                ("by", "the agent's own tool, in its sandbox" if action.by_agent else ""),
                ("at most", "" if action.by_agent else format_duration(action.timeout_s)),
            ]
            named = ", ".join(one.path for one in action.scripts)
            found += [
                (
                    "approving covers",
                    f"{named} as it is now: asked again if it changes" if named else "",
                )
            ]
        case McpCall():
            found = [
                ("server", action.server),
                ("tool", action.tool),
                ("by", "the agent's own server, in its sandbox" if action.by_agent else ""),
            ]
        case McpTools():
            found = [
                ("server", action.server),
                *(
                    (f"{one.name} {word}", text)
                    for one in action.changes
                    for word, text in (("was", one.before), ("is now", one.after))
                ),
            ]
        case Network():
            covers = (
                "every request on this connection that no rule matches"
                if action.operation == "connect"
                else ""
            )
            found = [
                ("host", f"{action.host}:{action.port}"),
                ("approving covers", covers),
                ("address", ", ".join(action.resolved)),
                ("TLS name", action.sni if action.sni not in (None, action.host) else ""),
                (
                    "Host header",
                    action.host_header if action.host_header not in (None, action.host) else "",
                ),
            ]
        case Git():
            found = [
                ("remote", " ".join(filter(None, (action.remote, action.url)))),
                ("refs", " ".join(action.refspecs)),
                *(("moves", _moved(one)) for one in action.updates),
                ("options", " ".join(action.flags)),
                ("runs in", _folder(action.cwd) if action.cwd != "." else ""),
            ]
        case Packages():
            found = [
                ("manager", action.manager),
                ("packages", " ".join(action.names)),
                ("options", " ".join(action.flags)),
                ("runs in", _folder(action.cwd) if action.cwd != "." else ""),
            ]
        case Act():
            found = [
                ("repository", f"{action.forge}: {action.repository}"),
                ("pull request", f"#{action.number}" if action.number else ""),
                ("head", action.head[:12]),
                ("verdict", action.verdict.replace("_", " ")),
                ("gravest", action.severity),
                (_TARGETS.get(action.operation, ""), ", ".join(map(_target, action.targets))),
            ]
        case FileChange():
            found = [("link to", action.link_target), ("new name", action.to)]
        case Proposal():
            found = [("because", action.why)]
        case BudgetRaise():
            found = [
                ("now", f"{amount(action.kind, action.limit)} for {SCOPE_WORDS[action.scope]}"),
                ("approving adds", f"{amount(action.kind, action.by)}, once"),
            ]
    return [(label, value) for label, value in found if value]


def warnings(action: Action) -> list[tuple[str, str]]:
    """Return what a person must not overlook: a word, and what it means."""
    match action:
        case FileChange():
            return [
                (hazard, HAZARD_NOTES.get(hazard, "never allowed by a rule"))
                for hazard in action.hazards
            ]
        case Git():
            found = [("forces", "it can overwrite what others pushed")] if action.force else []
            return (
                [*found, ("deletes", "the branch or tag is gone afterwards")]
                if action.delete
                else found
            )
        case McpCall(by_agent=False):
            return [
                ("outside", "what this server does is not in the sandbox: no undo takes it back")
            ]
        case McpTools():
            return [("a stranger's words", "the server wrote these texts; agents read them")]
        case Network(method="PUT"):
            return [("uploads", "what the agent sends leaves this machine, and is stored there")]
        case Act(fork=True):
            return [("from a fork", "its author may be anybody")]
        case Act(secrets=True):
            return [("may hold a secret", "the commit adds what looks like one")]
        case Act(is_of_job=True, scope=()):
            return [("has no scope", "the job may change any file but protected ones")]
        case Proposal(effect="allow"):
            return [("loosens the policy", "what this rule matches is no longer asked")]
    return []


def delivery(request: Request) -> str:
    """Return the outcome of an approval; empty otherwise. An approval that had no effect must not
    look like one that had.
    """
    current = status(request)
    if current in ("approved", "allowed"):
        return (
            "goes through when the agent tries again"
            if goes_on(request.origin, category_of(request.action))
            else "not carried out yet"
        )
    if current != "used":
        return ""
    if request.settled_at is None:
        is_passed = goes_on(request.origin, category_of(request.action))
        return "let through" if is_passed else "being carried out"
    if why := failure(request):
        return f"failed: {why}"
    if isinstance(request.action, FileChange):
        return "applied"
    outcome = request.outcome or {}
    return f"done, exit code {outcome['exit_code']}" if "exit_code" in outcome else "done"


def _person(request: Request) -> str:
    by = request.answered_by or ""
    return "you" if by.startswith("operator") else by or "a rule"


def answer_words(request: Request) -> str:
    """Return who let it through, and how soon; empty where nobody did."""
    if request.decision == "allow":
        return f"Allowed by {request.rule}" if request.rule else "Allowed by a rule"
    if request.answer != "approved" or request.answered_at is None:
        return ""
    waited = format_duration(request.answered_at - request.asked_at)
    person = _person(request)
    return f"{'You' if person == 'you' else person} approved after {waited}"


def _target(target: str) -> str:
    kind, colon, number = target.rpartition(":")
    return f"{number} (beside the code)" if colon and kind == "review" else target


def _folder(cwd: str) -> str:
    return "the workspace's root" if cwd == "." else cwd


def _moved(one: RefUpdate) -> str:
    if not one.new:
        return f"{one.ref}: deleted, it was {one.old[:12]}"
    return f"{one.ref}: {one.old[:12] or 'new'} -> {one.new[:12]}"


class PackageRow(msgspec.Struct, frozen=True):
    """One package: its name, how it changes, and what is known about it."""

    name: str
    change: str
    facts: str
    notes: tuple[str, ...]


class InstallWords(msgspec.Struct, frozen=True):
    """`rows` are all packages, those with notes first. `flags` are to be shown in red."""

    summary: str
    flags: tuple[str, ...]
    rows: tuple[PackageRow, ...]
    source: str
    unknown: str
    has_scripts: bool


def install_words(action: Packages, now: float) -> InstallWords:
    """Return an install in words. `now` is in seconds since the epoch."""
    plan = sorted(action.plan, key=lambda one: (not one.notes, one.name))
    added = sum(not one.before for one in plan)
    gone = sum(not one.version for one in plan)
    counts = ((added, "added"), (len(plan) - added - gone, "changed"), (gone, "removed"))
    summary = ", ".join(f"{count} {word}" for count, word in counts if count)
    reaches = f", reaching {', '.join(action.hosts)}" if action.hosts else ""
    return InstallWords(
        summary or "nothing is known to change",
        action.notes,
        tuple(_row(one, now) for one in plan),
        f"from {action.index}{reaches}" if action.index else "",
        "; ".join(action.unknown),
        not plan
        or bool(action.doubt)
        or any(one.has_scripts is not False for one in plan if one.version),
    )


def _row(one: PlannedPackage, now: float) -> PackageRow:
    if not one.version:
        change = f"{one.before} is removed"
    else:
        change = f"{one.before} to {one.version}" if one.before else one.version
    facts = (
        f"{_age(now - one.published_at)} old" if one.published_at is not None else "",
        _size(one.size) if one.size is not None else "",
        one.licence or "",
    )
    return PackageRow(one.name, change, ", ".join(filter(None, facts)), one.notes)


def _age(seconds: float) -> str:
    days = max(0, int(seconds // _DAY_S))
    for span, word in ((365, "year"), (30, "month"), (1, "day")):
        if days >= span:
            count = days // span
            return f"{count} {word}{'s' * (count > 1)}"
    return "less than a day"


def _size(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{max(1, round(size / 1e3))} kB"
