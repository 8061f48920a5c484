"""Small worlds for the laws, in which rules of all categories and actions meet often; and a wild
one, in which little is well formed.

`rule_worlds` has worlds of one category, with every trick of it; these are for what must hold
whatever the category.
"""

from typing import Any

from hypothesis import strategies as st

from supervisor.core.actions import (
    Action,
    Effect,
    Exec,
    FileChange,
    Git,
    Network,
    Packages,
    Proposal,
)
from supervisor.core.policy.policy_text import policy_from_data
from tests.fakes.shell_scripts import insert, random_script

EFFECTS: tuple[Effect, ...] = ("allow", "ask", "deny")

SEGMENT = st.sampled_from(["a", "b", "src", "x.py", "y.md", "A", "café", "cafe\u0301"])
PATHS = st.lists(SEGMENT, min_size=1, max_size=4).map("/".join)
GLOBS = st.lists(
    st.sampled_from(["a", "b", "src", "*", "**", "*.py", "?", "[ab]", "x*"]), min_size=1, max_size=4
).map("/".join)
HOSTS = st.sampled_from(
    ["a.example.com", "b.example.com", "x.a.example.com", "example.com", "other.example.net"]
)
HOST_PATTERNS = st.sampled_from(
    ["a.example.com", "*.example.com", "*.a.example.com", "example.com", "b.example.com:8443",
     "other.example.net",
     "GET https://a.example.com/a/**", "GET,POST https://*.example.com/*",
     "* https://b.example.com/a/b", "192.0.2.0/24"]
)  # fmt: skip
GIT_PATTERNS = st.sampled_from(
    ["main", "feature/*", "push origin feature/*", "push main", "push --force *", "push --delete *",
     "*", "push origin *",
     "fetch origin", "push origin HEAD:main", "push --mirror *", "push *"]
)  # fmt: skip
PACKAGE_PATTERNS = st.sampled_from(
    [
        "npm:zod",
        "npm install zod@1",
        "npm install *",
        "npm:*",
        "*",
        "pip:requests",
        "npm ci",
        "npm:@team/*",
        "* install zod",
    ]
)
EXEC_PATTERNS = st.sampled_from(
    ["git log *", "ls *", "*", "rm *", "git *", "pytest", "pytest *", "echo *", "cat *",
     "* --force *", "rm -rf *", "bash -c *", "xargs *", "find *",
     "timeout *", "sudo *", "cat src/*", "ls src", "git push *", "evil --now", "e* *",
     "sh -c 'evil --now'", "env *"]
)  # fmt: skip
COMMANDS = st.sampled_from(
    ["git log", "ls; rm x", "rm x", "rm -fr x", "git log $(id)", "pytest | ls", "ls &&", "'",
     "timeout 5 pytest -q", "sudo rm -rf /", "ls src",
     "bash -c 'ls; evil --now'", "find . -exec cat {} \\;", "ls | xargs rm", "cat src/$X",
     "git -C src push --force origin main", "ls\x00; evil --now",
     "cat <<E\n$(evil --now)\nE", "env A=1 evil --now", "ls > x", "cd src && ls", "cd / && ls",
     "echo a\nevil --now", "evil --now", "sh -c 'evil --now'"]
)  # fmt: skip
SCRIPTS = st.randoms(use_true_random=False).map(lambda random: script_text(random))
PATTERNS = {
    "filesystem": GLOBS,
    "network": HOST_PATTERNS,
    "git": GIT_PATTERNS,
    "packages": PACKAGE_PATTERNS,
    "exec": EXEC_PATTERNS,
}
RULES = st.sampled_from(sorted(PATTERNS)).flatmap(
    lambda category: PATTERNS[category].map(lambda pattern: f"{category}({pattern})")
)
LISTS = st.fixed_dictionaries({effect: st.lists(RULES, max_size=4) for effect in EFFECTS})
MODES = st.fixed_dictionaries(
    {
        "filesystem": st.sampled_from(EFFECTS),
        "network": st.sampled_from(EFFECTS),
        "git": st.sampled_from(EFFECTS),
        "packages": st.sampled_from(["ask", "deny"]),
        "exec": st.sampled_from(["ask", "deny"]),
    }
)
WORDS = st.lists(
    st.sampled_from(["push", "origin", "feature/x", "main", "-f", "+main", "HEAD:main", ":x",
    "--delete", "HEAD", "evil", "fetch", "--",
                     "tag", "v1", "--mirror", "-u", "refs/heads/main", "-c", "a=b", ";",
                     "feature/*"]), max_size=6
)  # fmt: skip
PACKAGE_WORDS = st.lists(
    st.sampled_from(["install", "zod", "zod@1", "requests", "--registry=x", "-D", "@team/ui", "ci",
    "./x", "git+https://x", "-r",
                     "requirements.txt", "add", "--", ";", "npm:zod"]), max_size=5
)  # fmt: skip
ACTIONS: st.SearchStrategy[Action] = st.one_of(
    st.builds(FileChange, operation=st.sampled_from(["write", "delete", "rename", "mkdir"]),
    path=PATHS, to=st.none() | PATHS),
    st.builds(
        Network, operation=st.just("request"), host=HOSTS, port=st.sampled_from([80, 443, 8443]),
        scheme=st.just("https"),
        method=st.sampled_from(["GET", "POST", "get"]), path=st.sampled_from(["/", "/a", "/a/b",
        "/a/../b", "/a%2fb", "/a//b", "/A/b"]),
        resolved=st.sampled_from([(), ("93.184.216.34",), ("192.0.2.1",), ("10.0.0.1",)]),
    ),
    st.builds(Network, operation=st.just("connect"), host=HOSTS, port=st.sampled_from([80, 443,
    8443])),
    WORDS.map(lambda words: Git(operation="", command=" ".join(["git", *words]))),
    st.tuples(st.sampled_from(["npm", "pip", "yarn"]), PACKAGE_WORDS).map(
        lambda both: Packages(manager="", operation="", command=" ".join([both[0], *both[1]]))
    ),
    (COMMANDS | SCRIPTS).map(lambda text: Exec(command=text)),
)  # fmt: skip


def script_text(random: Any) -> str:
    """A script of allowed commands, every other time with one that isn't."""
    script = random_script(random, depth=2)
    if random.random() < 0.5:
        insert(random, script)
    return script.render()


# Little of this is well formed.
ANY = st.text(max_size=30) | st.sampled_from(
    ["\x00", "..", "%2f", "[::1", "git~1", "\ud800", "xn--", "1.2.3.4.5", "a" * 300]
)
WILD_ACTIONS: st.SearchStrategy[Action] = st.one_of(
    st.builds(
        FileChange,
        operation=st.sampled_from(["write", "rename", "symlink", "chmod"]),
        path=ANY,
        to=st.none() | ANY,
        path_b64=st.none() | ANY,
        to_b64=st.none() | ANY,
        link_target=st.none() | ANY,
        mode=st.none() | st.integers(),
        hazards=st.lists(ANY, max_size=2).map(tuple),
    ),
    st.builds(
        Network,
        operation=st.sampled_from(["connect", "request"]),
        host=ANY,
        port=st.integers(),
        scheme=st.sampled_from(["https", "tcp"]),
        method=st.none() | ANY,
        path=st.none() | ANY,
        sni=st.none() | ANY,
        host_header=st.none() | ANY,
        resolved=st.lists(ANY, max_size=2).map(tuple),
    ),
    st.builds(Git, operation=ANY, remote=st.none() | ANY, refspecs=st.lists(ANY,
    max_size=2).map(tuple), flags=st.lists(ANY, max_size=2).map(tuple)),
    ANY.map(lambda text: Git(operation="", command=f"git push {text}")),
    st.builds(Packages, manager=ANY, operation=ANY, names=st.lists(ANY, max_size=2).map(tuple),
    flags=st.lists(ANY, max_size=2).map(tuple)),
    ANY.map(lambda text: Packages(manager="", operation="", command=f"pip install {text}")),
    ANY.map(lambda text: Exec(command=text, cwd=text)),
    st.builds(Proposal, effect=st.sampled_from(EFFECTS), rule=ANY),
)  # fmt: skip
WIDE = policy_from_data(
    {
        "allow": [
            "filesystem(**)",
            "network(*.example.com)",
            "git(*)",
            "packages(npm:*)",
            "exec(ls *)",
        ],
        "ask": ["filesystem(x/**/*.py)", "git(push --force *)"],
        "deny": [
            "network(*.evil.net)",
            "packages(npm:evil)",
            "filesystem(**/secret*)",
            "git(main)",
        ],
    }
)
