"""Small worlds in which rules and actions of one category meet often, and every trick of that
category has its word.

For property tests that compare policies: `patterns(category)` and `actions(category)` draw from
the same few words.
"""

from typing import Any

from hypothesis import strategies as st

from supervisor.core.actions import Action, Exec, FileChange, Git, Network, Packages

CATEGORIES = ("exec", "filesystem", "network", "git", "packages")
REMOTES = frozenset({"origin", "backup", "docs"})


def _words(words: list[str], most: int, least: int = 0) -> st.SearchStrategy[str]:
    return st.lists(st.sampled_from(words), min_size=least, max_size=most).map(" ".join)


PROGRAMS = ["git", "npm", "rm", "cat", "python", "bash", "find", "timeout", "env", "xargs", "sudo",
"make", "./run", "tar", "sed", "ls",
            "uv", "docker", "cd"]  # fmt: skip
ARGUMENTS = ["log", "-3", "run", "test", "-c", "x=1", "-C", "src", "--force", "push", "-f", "-rf",
"build", "-m", "pytest", "-exec",
             "exec", "./x", "../y", "/etc/passwd", ".env", "-i", "s/a/b/", "w", "'a b'", "FOO=1",
             "60", "--", "-n", "?", "[ab]", "-la",
             "main", "origin", "--no-pager", "-delete", ".", "-name"]  # fmt: skip
_EXEC_PATTERNS = st.builds(
    lambda name, words, tail: " ".join(one for one in (name, words, tail) if one),
    st.sampled_from([*PROGRAMS, "git*", "gi*"]),
    _words([*ARGUMENTS, "src/*", "*", "a*", "*b", "src*", "a?"], 4),
    st.sampled_from(["", "*", "*", "./**"]),
)
_COMMANDS = st.builds(
    lambda name, words: f"{name} {words}".strip(),
    st.sampled_from([*PROGRAMS, "gitk", "/usr/bin/git", "/usr/bin/npm", "/tmp/git", "../run"]),
    _words([*ARGUMENTS, "-fr", "src/*", "*", "ab", "src/../x", "$X", '"$X"', "src/$X", "{a,b}",
    "~/x", "$(id)", "git", "rm", "cat",
            "\\;", "{}", "-lc", "'git log'", "'rm -rf x'"], 6),
)  # fmt: skip
_LINES = st.lists(
    st.tuples(_COMMANDS, st.sampled_from(["; ", " && ", " | ", " || "])), min_size=1, max_size=3
).map(lambda parts: "".join(command + joint for command, joint in parts[:-1]) + parts[-1][0])

_GLOBS = st.lists(
    st.sampled_from(
        [
            "a",
            "b",
            "src",
            "*",
            "**",
            "*.py",
            "?",
            "[ab]",
            "x*",
            ".git",
            ".env",
            "A",
            "café",
            ".github",
            "a.py",
            "*a*",
        ]
    ),
    min_size=1,
    max_size=4,
).map("/".join)
_PATHS = st.lists(
    st.sampled_from(
        [
            "a",
            "b",
            "src",
            "x.py",
            "A",
            "café",
            "cafe\u0301",
            ".git",
            ".env",
            "xa",
            "a.py",
            ".github",
            "c",
            "config",
        ]
    ),
    min_size=1,
    max_size=4,
).map("/".join)

_HOSTS = st.sampled_from(["a.example.com", "*.example.com", "*.a.example.com", "example.com",
"b.example.com", "192.0.2.0/24",
                          "10.0.0.0/8", "10.1.2.3", "10.1.0.0/16", "127.0.0.1", "[fd00::1]",
                          "0.0.0.0/1",
                          "metadata.google.internal", "*"])  # fmt: skip
_PORTS = st.sampled_from(["", "", ":8443", ":443", ":80"])
_URLS = st.builds(
    lambda methods, scheme, host, port, path: f"{methods}{scheme}://{host}{port}/{'/'.join(path)}",
    st.sampled_from(["", "GET ", "GET,POST ", "* ", "POST "]),
    st.sampled_from(["https", "http", "*"]),
    _HOSTS.filter(lambda host: "/" not in host),
    _PORTS,
    st.lists(st.sampled_from(["a", "b", "*", "**", "x*", "A"]), max_size=3),
)
_NETWORK_PATTERNS = st.builds(str.__add__, _HOSTS, _PORTS) | _URLS
_TARGETS: dict[str, Any] = {
    "host": st.sampled_from(["a.example.com", "x.a.example.com", "example.com", "b.example.com",
    "192.0.2.5", "10.1.2.3", "10.9.9.9",
                             "127.0.0.1", "fd00::1", "metadata.google.internal",
                             "other.example.net"]),
    "port": st.sampled_from([80, 443, 8443, 22]),
    "resolved": st.sampled_from([(), (), ("93.184.216.34",), ("10.1.2.3",), ("10.9.9.9",),
    ("192.0.2.1",), ("127.0.0.1",)]),
}  # fmt: skip

_GIT_WORDS = ["push", "origin", "feature/x", "main", "docs", "fetch", "--force", "--delete", "-f",
"+main", "HEAD:main", "HEAD",
              "refs/tags/v1", "tag", "v1", "backup", "--mirror", "-u", "pull", "checkout", "log",
              "a:b", "--tags", "--all",
              "--force-with-lease", ":x", "@"]  # fmt: skip
_GIT_ACTIONS = st.builds(
    lambda operation, rest: Git(operation="", command=f"git {operation} {rest}".strip()),
    st.sampled_from(["push", "push", "fetch", "pull", "checkout"]),
    _words([*_GIT_WORDS, "feature/a/b", "lo", "refs/heads/main", "--prune", ";"], 4),
) | st.builds(
    Git,
    operation=st.sampled_from(["push", "fetch", "docs", "checkout", "log", "feature/x", "pull"]),
    remote=st.sampled_from([None, "origin", "docs", "backup"]),
    refspecs=st.lists(
        st.sampled_from(["main", "feature/x", "HEAD", "refs/tags/v1", "docs", "log", "a:b"]),
        max_size=2,
    ).map(tuple),
    force=st.booleans(),
)

_PACKAGE_WORDS = [
    "zod",
    "zod@1",
    "requests==1",
    "-D",
    "-r",
    "requirements.txt",
    "Requests",
    "./x",
    "git+https://x",
]
_PACKAGE_PATTERNS = st.builds(
    lambda manager, name: f"{manager}:{name}",
    st.sampled_from(["npm", "pip", "pnpm", "*", "np*"]),
    st.sampled_from(["zod", "*", "z*", "@t/*", "@t/ui", "requests", "Requests", "re*"]),
) | st.builds(
    lambda manager, operation, rest: f"{manager} {operation} {rest}".strip(),
    st.sampled_from(["npm", "pip", "pnpm", "*", "np*"]),
    st.sampled_from(["install", "add", "ci", "*", "uninstall", "i", "in*"]),
    _words([*_PACKAGE_WORDS, "*", "z*", "@t/*", "--registry", "zod@*"], 2),
)
_PACKAGE_ACTIONS = st.builds(
    lambda manager, operation, rest: Packages(
        manager="", operation="", command=f"{manager} {operation} {rest}".strip()
    ),
    st.sampled_from(["npm", "pip", "pnpm", "yarn"]),
    st.sampled_from(["install", "add", "ci", "uninstall", "i", "rm"]),
    _words([*_PACKAGE_WORDS, "@t/ui", "--registry=x", "zod@2", "x@npm:zod", "requests", "good"], 3),
)


def patterns(category: str) -> st.SearchStrategy[str]:
    """Patterns of rules; not each of them can stand in each list."""
    return {
        "exec": _EXEC_PATTERNS,
        "filesystem": _GLOBS,
        "network": _NETWORK_PATTERNS,
        "git": _words([*_GIT_WORDS, "feature/*", "*", "ma*", "refs/tags/*", "feature/a/*", "lo*",
        "l*", "pu*", "o*"], 4, 1),
        "packages": _PACKAGE_PATTERNS,
    }[category]  # fmt: skip


def actions(category: str) -> st.SearchStrategy[Action]:
    """Actions that such patterns are about."""
    worlds: dict[str, st.SearchStrategy[Action]] = {
        "exec": st.builds(Exec, command=_LINES, cwd=st.sampled_from([".", "src"])),
        "filesystem": st.builds(
            FileChange,
            operation=st.sampled_from(["write", "delete", "rename", "symlink"]),
            path=_PATHS,
            to=st.none() | _PATHS,
        ),
        "network": st.builds(Network, operation=st.just("connect"), **_TARGETS)
        | st.builds(
            Network,
            operation=st.just("request"),
            scheme=st.sampled_from(["http", "https"]),
            method=st.sampled_from(["GET", "POST", "get", "HEAD"]),
            path=st.sampled_from(
                [
                    "/",
                    "/a",
                    "/a/b",
                    "/a/../b",
                    "/a%2fb",
                    "/a//b",
                    "/A/b",
                    "/xa",
                    "/a/",
                    "/a/b/c?q=1",
                ]
            ),
            **_TARGETS,
        ),
        "git": _GIT_ACTIONS,
        "packages": _PACKAGE_ACTIONS,
    }
    return worlds[category]
