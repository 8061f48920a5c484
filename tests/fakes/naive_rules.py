"""A second, naive evaluator for filesystem and network rules: no index, no cache, another way to
match. For differential tests.

It knows ordinary paths and hosts only (small ASCII letters, nothing protected, public names) and
`category(pattern)` without details.
"""

from fnmatch import fnmatchcase


def naive_verdict(category: str, lists: dict[str, list[str]], mode: str, subject: object) -> str:
    """`subject`: a path, or (host, port, method, path) with method None for a connection; behind
    a method a `+` says that there is a body."""
    if category == "network" and _is_closed(lists.get("deny", []), subject):
        return "deny"
    for effect in ("deny", "ask", "allow"):
        for pattern in lists.get(effect, []):
            if category == "filesystem":
                assert isinstance(subject, str)
                hit = pattern in ("*", "**") or _path(pattern.split("/"), subject.split("/"))
                # Deny and ask rules mean a name in any case.
                hit = hit or (
                    effect != "allow"
                    and _path(pattern.lower().split("/"), subject.lower().split("/"))
                )
            else:
                assert isinstance(subject, tuple)
                hit = _network(pattern, subject, broad=effect != "allow")
            if hit:
                return effect
    if category == "network" and (subject[2] or "").endswith("+"):  # type: ignore[index]
        host, port, method, path = subject  # type: ignore[misc]
        if naive_verdict(category, lists, "ask", (host, port, method.rstrip("+"), path)) == "allow":
            return "deny"
    if category == "network" and subject[2] is None:  # type: ignore[index]
        host, port, _, _ = subject  # type: ignore[misc]
        if any(
            " " in pattern and _network(pattern, (host, port, "GET", None), broad=False)
            for pattern in lists.get("allow", [])
        ):
            return "allow"
    return mode


def _is_closed(denied: list[str], subject: object) -> bool:
    """Whether every https request that could follow on a connection is denied; elsewhere than at
    443 it could be another."""
    host, port, method, _ = subject  # type: ignore[misc]
    every = [
        one
        for one in denied
        if one.startswith("* ") and one.endswith("/**") and one.count("/") == 3
    ]
    return (
        method is None
        and port == 443
        and any(_network(one, (host, port, "GET", None), broad=True) for one in every)
    )


def _path(pattern: list[str], path: list[str]) -> bool:
    if not pattern:
        return not path
    if pattern[0] == "**":
        return _path(pattern[1:], path) or (bool(path) and _path(pattern, path[1:]))
    return bool(path) and fnmatchcase(path[0], pattern[0]) and _path(pattern[1:], path[1:])


def _network(
    pattern: str, subject: tuple[str, int, str | None, str | None], *, broad: bool
) -> bool:
    host, port, method, path = subject
    methods, _, url = pattern.rpartition(" ")
    where, _, glob = url.removeprefix("https://").partition("/")
    name, _, number = where.partition(":")
    is_host = name == "*" or host == name or (name.startswith("*.") and host.endswith(name[1:]))
    ports = [int(number)] if number else ([port] if broad else [443] if methods else [80, 443])
    if not is_host or port not in ports:
        return False
    if not methods:
        return True
    if method is not None and method.endswith("+"):
        method = method.rstrip("+")
        if not broad and method == "GET" and methods != "*":
            return False
    if method is None or (methods != "*" and method not in methods.split(",") and path is not None):
        return False
    return path is None or _path(glob.split("/"), path[1:].split("/"))
