"""Rules and actions for `bench/policy.py`, for Gatehouse and as globs for its peers.

A peer's glob is over "kind:subject". Rules and actions are computed from their numbers, not random,
so every run measures the same. The shapes are those that people write: hosts, parents of hosts and
URLs; files, folders and trees; programs with a subcommand; branches; packages.
"""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from supervisor.core.actions import (
    Action,
    Category,
    Effect,
    Exec,
    FileChange,
    Git,
    Network,
    Packages,
)

CATEGORIES: tuple[Category, ...] = ("network", "filesystem", "exec", "git", "packages")
ACTIONS = 10_000
# Three of five actions are matched by a rule; the others name something that no rule knows.
_HIT = (True, True, False, True, False)


class Row(NamedTuple):
    """A rule, an equivalent glob for a peer, and a function that makes the m-th action that it
    matches."""

    category: Category
    pattern: str
    glob: str
    action: Callable[[int], tuple[Action, str]]

    @property
    def rule(self) -> str:
        return f"{self.category}({self.pattern})"


class Asked(NamedTuple):
    """An action, and the same in a peer's form."""

    action: Action
    subject: str


def effect_of(number: int) -> Effect:
    """Return the effect of a rule: of ten, eight allow, one asks, one denies."""
    effects: dict[int, Effect] = {8: "ask", 9: "deny"}
    return effects.get(number // 5 % 10, "allow")


def rows(count: int, category: Category | None = None) -> list[Row]:
    """Return `count` rules, of all categories in turn or of one."""
    return [row(number, category or CATEGORIES[number % 5]) for number in range(count)]


def row(number: int, category: Category) -> Row:
    """Return rule `number` of a category."""
    shapes = _SHAPES[category]
    return shapes[number // 5 % len(shapes)](number)


def stream(count: int, category: Category | None = None, actions: int = ACTIONS) -> list[Asked]:
    """Return different actions over `count` rules, no two alike, spread over all of them."""
    found = []
    for index in range(actions):
        kind = category or CATEGORIES[index % 5]
        number = index * 7919 % count if category else index * 7919 % (count // 5) * 5 + index % 5
        if not _HIT[index // 5 % 5]:
            number += 1_000_000
        found.append(Asked(*row(number, kind).action(index)))
    return found


def policy_data(given: Sequence[Row]) -> dict[str, object]:
    """Return a policy of these rules, as `policy_from_data` takes it."""
    lists: dict[str, list[str]] = {"allow": [], "ask": [], "deny": []}
    for number, one in enumerate(given):
        lists[effect_of(number)].append(one.rule)
    return {"version": 1, **lists}


def policy_text(given: Sequence[Row], *, examples: bool = False) -> str:
    """Return the same as YAML. With `examples`, each rule has a why, a matching example and one
    that doesn't match."""
    lines = ["version: 1"]
    for effect, rules in policy_data(given).items():
        if effect != "version":
            lines.append(f"{effect}:")
            lines += [_entry(rule) if examples else f"  - {rule}" for rule in rules]  # type: ignore[attr-defined]
    return "\n".join(lines) + "\n"


def _entry(rule: str) -> str:
    category, _, pattern = rule.removesuffix(")").partition("(")
    match, other = _EXAMPLES[category](pattern)  # type: ignore[index]
    return (
        f'  - rule: {rule}\n    why: the team needs it\n    match: ["{match}"]\n    not_match:'
        f' ["{other}"]'
    )


def _filled(pattern: str) -> str:
    return pattern.replace("**", "x").replace("*", "x")


_EXAMPLES: dict[Category, Callable[[str], tuple[str, str]]] = {
    "network": lambda pattern: (_filled(pattern), "other.example.com"),
    "filesystem": lambda pattern: (_filled(pattern), "other/x/y.txt"),
    "exec": lambda pattern: (_filled(pattern), "true && other"),
    "git": lambda pattern: (_filled(pattern), "push origin main"),
    "packages": lambda pattern: (_filled(pattern), "npm:left-pad"),
}


# -- the shapes -----------------------------------------------------------------------------------


def _host(n: int) -> Row:
    host = f"h{n}.example{n % 7}.org"
    return Row("network", f"*.{host}", f"network:*.{host}:443", lambda m: _connect(f"a{m}.{host}"))


def _exact_host(n: int) -> Row:
    host = f"api{n}.example.net"
    return Row(
        "network",
        host,
        f"network:* https://{host}/*",
        lambda m: _request("GET", host, f"/items/{m}"),
    )


def _url(n: int) -> Row:
    host = f"u{n}.example.com"
    glob = f"network:GET https://{host}/v1/*"
    return Row(
        "network",
        f"GET https://{host}/v1/**",
        glob,
        lambda m: _request("GET", host, f"/v1/items/{m}"),
    )


def _connect(host: str) -> tuple[Action, str]:
    return Network(operation="connect", host=host, port=443), f"network:{host}:443"


def _request(method: str, host: str, path: str) -> tuple[Action, str]:
    action = Network(
        operation="request", host=host, port=443, scheme="https", method=method, path=path
    )
    return action, f"network:{method} https://{host}{path}"


def _file_in(n: int) -> Row:
    return Row(
        "filesystem",
        f"src/part{n}/*.py",
        f"filesystem:src/part{n}/*.py",
        lambda m: _write(f"src/part{n}/a{m}.py"),
    )


def _tree(n: int) -> Row:
    return Row(
        "filesystem",
        f"docs/d{n}/**",
        f"filesystem:docs/d{n}/*",
        lambda m: _write(f"docs/d{n}/deep/{m}/a.md"),
    )


def _anywhere(n: int) -> Row:
    return Row(
        "filesystem",
        f"**/module{n}.ts",
        f"filesystem:*/module{n}.ts",
        lambda m: _write(f"web/p{m}/module{n}.ts"),
    )


def _write(path: str) -> tuple[Action, str]:
    return FileChange(operation="write", path=path), f"filesystem:{path}"


def _program(n: int) -> Row:
    return Row(
        "exec",
        f"tool{n} run *",
        f"exec:tool{n} run *",
        lambda m: _run(f"tool{n} run --fast src/part{m}"),
    )


def _script(n: int) -> Row:
    return Row(
        "exec",
        f"make target{n} *",
        f"exec:make target{n} *",
        lambda m: _run(f"make target{n} JOB{m}"),
    )


def _run(command: str) -> tuple[Action, str]:
    return Exec(command=command), f"exec:{command}"


def _branches(n: int) -> Row:
    return Row(
        "git",
        f"push origin feature{n}/*",
        f"git:push origin feature{n}/*",
        lambda m: _push(f"feature{n}/x{m}"),
    )


def _branch(n: int) -> Row:
    return Row(
        "git", f"topic{n}-*", f"git:push origin topic{n}-*", lambda m: _push(f"topic{n}-{m}")
    )


def _push(branch: str) -> tuple[Action, str]:
    return Git(operation="push", remote="origin", refspecs=(branch,)), f"git:push origin {branch}"


def _package(n: int) -> Row:
    return Row(
        "packages",
        f"npm:package{n}",
        f"packages:npm install package{n}@*",
        lambda m: _install("npm", f"package{n}", "@", m),
    )


def _version(n: int) -> Row:
    pattern = f"pip install lib{n}==*"
    return Row(
        "packages", pattern, f"packages:{pattern}", lambda m: _install("pip", f"lib{n}", "==", m)
    )


def _install(
    manager: Literal["npm", "pip"], name: str, mark: str, version: int
) -> tuple[Action, str]:
    spec = f"{name}{mark}{version}.0"
    return (
        Packages(manager=manager, operation="install", names=(spec,)),
        f"packages:{manager} install {spec}",
    )


_SHAPES: dict[Category, tuple[Callable[[int], Row], ...]] = {
    "network": (_host, _exact_host, _url),
    "filesystem": (_file_in, _tree, _anywhere),
    "exec": (_program, _script),
    "git": (_branches, _branch),
    "packages": (_package, _version),
}
