"""What must hold for any text at all, one property per parser: the fuzzer's targets.

Each target takes one text and raises where a promise of docs/policy.md is broken. It holds its
own idea of what an allowed action looks like (Python's `shlex`, `posixpath`, `ipaddress`,
`unicodedata`), so that it doesn't share the engine's mistakes. It knows nothing of atheris:
`engine.py` searches with it, `test_fuzz.py` runs the known inputs, `python -m tests.fuzz TARGET
FILE` runs one.
"""

import ipaddress
import json
import posixpath
import re
import shlex
import unicodedata
from collections.abc import Callable, Iterable
from contextlib import suppress
from urllib.parse import unquote

from supervisor.core.actions import WORKSPACE, Action, Exec, FileChange, Git, Network, Packages
from supervisor.core.lab.check import answer, answer_line
from supervisor.core.packages import package_commands
from supervisor.core.policy import git_refs
from supervisor.core.policy.evaluate import evaluate
from supervisor.core.policy.policy_text import entry_of, parse_policy, parse_rule, policy_from_data
from supervisor.core.policy.rules import Policy, Verdict
from supervisor.core.policy.suggest import suggest
from supervisor.core.shell.exec_candidates import candidates
from supervisor.core.shell.shell import parse
from supervisor.core.text.globs import MAX_WILDCARDS, Glob, escape
from supervisor.core.text.hosts import (
    as_address,
    canonical_host,
    is_shared_by_strangers,
    registrable_domain,
)
from supervisor.core.text.paths import canonical, fold, is_git_name
from supervisor.core.text.urls import normalise_path, split_authority, split_url
from supervisor.egress.protocols.client_hello import (
    RETRY_BYTES,
    ClientHello,
    HelloError,
    HelloReader,
    asks_again,
)
from supervisor.errors import PolicyError
from tests.fakes.naive_rules import naive_verdict

NOW = 1_790_000_000.0

# What the judges say instead of an exception of theirs (law 3): for a user a denial, here a find.
_SWALLOWED = (
    "the rules could not be evaluated:",
    "the command can't be judged (",
    "the line could not be judged:",
)
POLICY = policy_from_data(
    {
        "allow": [
            "exec(git log *)", "exec(git status)", "exec(ls *)", "exec(cat *)", "exec(pytest *)",
            "exec(rg *)", "exec(echo *)",
            "exec(find *)", "exec(sed *)", "exec(awk *)", "exec(sort *)", "exec(xargs ls *)",
            "exec(sudo apt-get update)", "exec(make test)",
            "filesystem(**)",
            "network(api.example.com)", "network(*.cdn.example.com)", "network(192.0.2.7)",
            "network([2001:db8::7])",
            "network(GET https://code.example.com/repos/me/**)",
            "git(push origin feature/*)", "git(docs)", "git(fetch origin)",
            "git(push --force origin feature/mine)",
            "packages(npm:zod)", "packages(npm:@team/*)", "packages(npm ci)",
            "packages(pip install requests)",
        ],
        "ask": ["exec(git push *)", "filesystem(secret/**)", "network(pay.cdn.example.com)",
        "git(push origin feature/release)"],
        "deny": ["exec(rm *)", "exec(curl *)", "filesystem(vault/**)",
        "network(*.evil.cdn.example.com)", "git(main)", "packages(npm:@team/bad)"],
    }
)  # fmt: skip


def verdict_on(action: Action, policy: Policy = POLICY) -> Verdict:
    """The policy's verdict, with its why; an exception that the engine turned into a denial is
    raised."""
    verdict = evaluate(policy, action, now=NOW, workspace=WORKSPACE, uses={})
    assert not verdict.why.startswith(_SWALLOWED), verdict.why
    assert verdict.why, verdict
    return verdict


def is_hidden(text: str, *, allowed: str = "") -> bool:
    """Whether the text holds a control, format (bidi, zero-width) or separator character, or
    half a surrogate pair."""
    return any(
        unicodedata.category(char) in ("Cc", "Cf", "Zl", "Zp", "Cs")
        for char in text
        if char not in allowed
    )


def check_suggestions(action: Action) -> None:
    """What "always" would save allows the action that it is made from."""
    for candidate in suggest(action, workspace=WORKSPACE):
        policy = policy_from_data({"allow": [candidate.rule]})
        assert not policy.warnings, candidate
        remotes = frozenset({action.remote}) if isinstance(action, Git) and action.remote else None
        verdict = evaluate(policy, action, now=NOW, workspace=WORKSPACE, configured_remotes=remotes)
        assert verdict.decision == "allow", (candidate, verdict)


def fuzz_exec(text: str) -> None:
    """A command line: parsed and judged; nothing hidden or unread is allowed, a command before
    it is always seen."""
    script = parse(text)
    assert all(command.words for command in script.commands)
    action = Exec(command=text)
    if verdict_on(action).decision == "allow":
        assert not is_hidden(text, allowed="\t\n"), "hidden character allowed"
        assert not script.constructs, script.constructs
        assert verdict_on(action, _DENIES_EXEC).decision == "deny"
    assert verdict_on(Exec(command=f"stranger\n{text}")).decision != "allow"
    assert verdict_on(Exec(command=f"rm -rf x\n{text}")).decision == "deny"
    candidates(text, ".", (WORKSPACE,))
    check_suggestions(action)


_DENIES_EXEC = policy_from_data({"allow": ["exec(ls *)"], "deny": ["exec(*)"]})
_HOST = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?\Z")


def fuzz_hosts(text: str) -> None:
    """A host, an authority, a URL, a request path: one spelling each, and an allow only for that
    of a rule."""
    host = _canonical_host(text)
    verdict = verdict_on(Network(operation="connect", host=text, port=443))
    if host is None:
        assert verdict.decision == "deny", verdict
    else:
        _check_host(host)
        assert verdict == verdict_on(Network(operation="connect", host=host, port=443))
    if verdict.decision == "allow":
        assert host is not None
        # What UTS 46 leaves out of a name (a soft hyphen) may be in the text: the name without it
        # is what is dialled.
        assert _is_named_by_the_policy(host), host
        assert not any(unicodedata.category(char) in ("Cc", "Zl", "Zp", "Cs") for char in text), (
            text
        )
    _check_url(text)
    request = Network(
        operation="request",
        host="code.example.com",
        port=443,
        scheme="https",
        method="GET",
        path=text,
    )
    if verdict_on(request).decision == "allow":
        path = unquote(re.split("[?#]", text, maxsplit=1)[0])
        assert f"{posixpath.normpath(path)}/".startswith("/repos/me/"), path
    check_suggestions(request)
    with suppress(PolicyError):
        parse_rule(f"network({text})", "allow")


def _canonical_host(text: str) -> str | None:
    try:
        return canonical_host(text)
    except ValueError:
        return None


def _check_host(host: str) -> None:
    assert canonical_host(host) == host
    address = as_address(host)
    if address is not None:
        assert str(ipaddress.ip_address(host)) == host
        return
    assert _HOST.match(host), host
    assert len(host) <= 253
    assert ".." not in host
    domain = registrable_domain(host)
    assert domain is None or f".{host}".endswith(f".{domain}")
    is_shared_by_strangers(host)


def _is_named_by_the_policy(host: str) -> bool:
    exact = ("api.example.com", "code.example.com", "192.0.2.7", "2001:db8::7")
    is_below = host.endswith(".cdn.example.com")
    return host in exact or (
        is_below and host != "pay.cdn.example.com" and not host.endswith(".evil.cdn.example.com")
    )


def _check_url(text: str) -> None:
    try:
        host, port = split_authority(text)
        assert host
        assert port is None or 0 < port < 65536
    except ValueError:
        pass
    try:
        url = split_url(text)
    except ValueError:
        return
    assert url.scheme in ("http", "https")
    assert url.path.startswith("/")
    assert "#" not in url.path
    path = normalise_path(url.path)
    assert path.text.startswith("/")
    if not path.ambiguous and not set(path.text) & set("%?#;"):
        assert normalise_path(path.text).text == path.text


def fuzz_paths(text: str) -> None:
    """First line a glob, the rest a path: nothing leaves the workspace, and a naive matcher
    agrees on what a glob covers."""
    pattern, _, path = text.partition("\n")
    verdict = verdict_on(FileChange(operation="write", path=path))
    try:
        seen = canonical(path)
    except ValueError:
        assert verdict.decision == "deny", verdict
        return
    assert posixpath.normpath(posixpath.join("/w", path)) == f"/w/{seen.text}"
    assert canonical(seen.text) == seen
    assert fold(fold(path)) == fold(path)
    assert Glob(escape(seen.text)).matches(seen.text)
    segments = seen.text.split("/")
    if verdict.decision == "allow":
        assert not is_hidden(path)
        assert not any(
            unicodedata.normalize("NFKC", one).casefold() == ".git" for one in segments
        ), path
        assert segments[0] not in ("secret", "vault"), path
    if any(map(is_git_name, segments)):
        assert verdict.decision == "deny", path
    check_suggestions(FileChange(operation="write", path=path))
    _compare_globs(pattern, seen.text)


def _compare_globs(pattern: str, path: str) -> None:
    try:
        rule = parse_rule(f"filesystem({pattern})", "allow")
    except PolicyError:
        return
    # `filesystem(.)` is the workspace: everything.
    tidy = "/".join(one for one in rule.pattern.split("/") if one not in ("", ".")) or "**"
    glob = Glob(tidy)
    matches = glob.matches(path)
    # The naive matcher takes exponential steps, and Python's fnmatch has no word for `[^...]` and
    # other ideas of odd brackets.
    if (
        tidy.count("**") <= 3
        and path.count("/") <= 8
        and "[" not in tidy
        and len(tidy) < 200
        and tidy != "*"
    ):
        assert matches == (
            naive_verdict("filesystem", {"allow": [tidy]}, "ask", path) == "allow"
        ), (tidy, path)
    assert sum(map(tidy.count, "*?[")) <= MAX_WILDCARDS


def fuzz_git(text: str) -> None:
    """A git command line: read without raising, and an allow only for words that `shlex` reads
    as an ordinary push or fetch."""
    action = git_refs.parse_command(text)
    assert git_refs.agrees(action)
    if verdict_on(action).decision == "allow":
        assert not is_hidden(text, allowed="\t")
        words = shlex.split(text)
        assert posixpath.basename(words[0]) == "git"
        operands = [word for word in words[1:] if not word.startswith("-")]
        has_flag = any(
            word.startswith(("--f", "-")) and "f" in word.lstrip("-")[:1] for word in words
        )
        is_forced = has_flag or any(one.startswith("+") for one in operands[2:])
        assert operands[0] in ("push", "fetch"), operands
        assert operands[1] == "origin", operands
        if operands[0] == "push":
            assert len(operands) > 2
            assert all(map(_is_named_branch, operands[2:])), operands
            assert not is_forced or {
                one.lstrip("+").rpartition(":")[2] for one in operands[2:]
            } <= {
                "feature/mine",
                "refs/heads/feature/mine",
            }
    git_refs.rough_actions(text)
    check_suggestions(action)
    with suppress(PolicyError):
        parse_rule(f"git({text})", "allow")


def _is_named_branch(ref: str) -> bool:
    source, colon, target = ref.removeprefix("+").partition(":")
    branch = (target if colon else source).removeprefix("refs/heads/")
    return (
        bool(source)
        and (branch == "docs" or branch.startswith("feature/"))
        and branch != "feature/release"
    )


def fuzz_packages(text: str) -> None:
    """A package manager's command line: read without raising, and an allow only for plain names
    that a rule has."""
    action = package_commands.parse_command(text)
    assert package_commands.agrees(action)
    if verdict_on(action).decision == "allow":
        assert not is_hidden(text, allowed="\t")
        words = shlex.split(text)
        assert not re.search(r"://|git\+|file:|link:|\.\./", text), text
        for name in action.names:
            assert name in words
            assert re.match(
                r"(?:zod|@team/(?!bad\b)[\w.~-]+)(?:@[^@/:]+)?\Z|(?i:requests)\Z", name
            ), name
    package_commands.rough_actions(text)
    if action.manager:
        check_suggestions(action)
    with suppress(PolicyError):
        parse_rule(f"packages({text})", "allow")


_ACTIONS: tuple[Action, ...] = (
    Exec(command="git log -3 | head"),
    FileChange(operation="rename", path="src/a.py", to="b/.env"),
    Network(
        operation="request",
        host="API.example.com.",
        port=443,
        scheme="https",
        method="GET",
        path="/a/../b?x",
    ),
    Network(operation="connect", host="10.0.0.1", port=22, resolved=("10.0.0.1",)),
    Git(operation="push", remote="origin", refspecs=("feature/x", "+main")),
    Packages(manager="npm", operation="install", names=("zod@1",)),
)


def fuzz_policy(text: str) -> None:
    """The text of a policy: read, or refused with a reason; what was read is judged with, and
    written and read again."""
    try:
        policy = parse_policy(text, "policy.yaml")
    except PolicyError:
        return
    for action in _ACTIONS:
        verdict_on(action, policy)
        policy_and_deny = policy_from_data({"deny": [f"{action.__struct_config__.tag}(*)"]})
        assert verdict_on(action, policy_and_deny).decision == "deny"
    for rule in policy.rules:
        again = policy_from_data({rule.effect: [entry_of(rule)]}).rules[0]
        for field in (
            "effect",
            "category",
            "pattern",
            "text",
            "id",
            "why",
            "exceptions",
            "match",
            "not_match",
            "uses",
        ):
            assert getattr(again, field) == getattr(rule, field), field


def fuzz_check(text: str) -> None:
    """A line of `gatehouse policy check`: always one line of JSON with a verdict and a why, the
    same each time."""
    line = text.encode("utf-8", "surrogateescape")
    found = answer_line(line, POLICY, WORKSPACE, NOW)
    assert found["verdict"] in ("allow", "ask", "deny")
    assert found["why"]
    assert not found["why"].startswith(_SWALLOWED), found["why"]
    encoded = answer(line, POLICY, WORKSPACE, NOW)
    assert b"\n" not in encoded
    assert json.loads(encoded)["verdict"] == found["verdict"]
    if found["verdict"] == "allow":
        fields = json.loads(line)
        assert isinstance(fields, dict)
        assert ".." not in str(fields.get("path", "")).split("/")


def fuzz_hello(text: str) -> None:
    """The first bytes of a TLS client or server: one reading, however they are cut into
    segments, and never before they are whole."""
    data = text.encode("utf-8", "surrogateescape")
    for is_second in (False, True):
        found = _hello(data, [len(data)], is_second=is_second)
        assert _hello(data, range(1, len(data) + 1), is_second=is_second) == found
        assert (
            _hello(data, [len(data) // 3, len(data) // 2, len(data)], is_second=is_second) == found
        )
        if isinstance(found, ClientHello):
            assert 0 < found.length <= len(data)
            assert _hello(data[: found.length - 1], [found.length - 1], is_second=is_second) is None
            assert found.server_name is None or 0 < len(found.server_name) < 256
    answers = [_asks_again(data[:length]) for length in range(min(len(data), RETRY_BYTES) + 1)]
    decided = [answer for answer in answers if answer is not None]
    assert len(set(decided)) <= 1, "what was once decided stays so"
    assert not decided or _asks_again(data) == decided[0]


def _hello(data: bytes, lengths: Iterable[int], *, is_second: bool) -> ClientHello | str | None:
    """What the reader makes of a connection's bytes that come in pieces, up to these lengths."""
    reader, held = HelloReader(is_second=is_second), bytearray()
    for length in lengths:
        held += data[len(held) : length]
        try:
            found = reader.read(held)
        except HelloError:
            return "refused"
        if found is not None:
            return found
    return None


def _asks_again(data: bytes) -> bool | str | None:
    try:
        return asks_again(data)
    except HelloError:
        return "refused"


TARGETS: dict[str, Callable[[str], None]] = {
    "exec": fuzz_exec,
    "hosts": fuzz_hosts,
    "paths": fuzz_paths,
    "git": fuzz_git,
    "packages": fuzz_packages,
    "policy": fuzz_policy,
    "check": fuzz_check,
    "hello": fuzz_hello,
}


def run(name: str, data: bytes) -> None:
    """Run one target on bytes as the fuzzer makes them; what isn't UTF-8 becomes lone
    surrogates."""
    TARGETS[name](data.decode("utf-8", "surrogateescape"))
