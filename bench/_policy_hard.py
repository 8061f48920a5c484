"""Rules that an index helps least with, and inputs of the greatest length."""

from collections.abc import Iterator

from supervisor.core.actions import Action, Category, Exec, FileChange, Git, Network, Packages

LONG = 10_000


def shapes(count: int) -> Iterator[tuple[str, Category, list[str], list[Action]]]:
    """Yield a name, a category, `count` rules that share what an index would use to distinguish
    them, and actions about them."""
    asked = range(0, count, max(1, count // 500))
    yield (
        "one program",
        "exec",
        [f"git log --author=a{n} *" for n in range(count)],
        [Exec(command=f"git log --author=a{n} -3") for n in asked],
    )
    yield (
        "a wildcard in every name",
        "exec",
        [f"*tool{n} run *" for n in range(count // 50)],
        [Exec(command=f"tool{n} run x") for n in range(0, count // 50, 10)],
    )
    yield (
        "one folder, `**`, one name",
        "filesystem",
        [f"src/**/part{n}/main.py" for n in range(count)],
        [FileChange(operation="write", path=f"src/a/part{n}/main.py") for n in asked],
    )
    yield (
        "one folder, wildcards",
        "filesystem",
        [f"src/part{n}*" for n in range(count)],
        [FileChange(operation="write", path=f"src/part{n}-x") for n in asked],
    )
    yield (
        "one host, many paths",
        "network",
        [f"GET https://api.example.org/repos/r{n}/**" for n in range(count)],
        [
            Network(
                operation="request",
                host="api.example.org",
                port=443,
                scheme="https",
                method="GET",
                path=f"/repos/r{n}/a",
            )
            for n in asked
        ],
    )
    yield (
        "one prefix of branches",
        "git",
        [f"push origin feature/{n}-*" for n in range(count)],
        [Git(operation="push", remote="origin", refspecs=(f"feature/{n}-x",)) for n in asked],
    )
    yield (
        "one scope of packages",
        "packages",
        [f"npm install @team/part{n}@*" for n in range(count)],
        [
            Packages(manager="npm", operation="install", names=(f"@team/part{n}@1.0",))
            for n in asked
        ],
    )


def long_inputs() -> Iterator[tuple[Category, Action]]:
    """Yield actions of about 10,000 characters, each made to be slow."""
    for text in (
        "a " * (LONG // 2), "a;" * (LONG // 2), "'" * LONG, "$(" * (LONG // 2),
        "a|" * (LONG // 2) + "a", "git " + "-c " * (LONG // 3),
        "sudo " * (LONG // 5) + "ls", "rm -rf " + "x " * (LONG // 2 - 5),
        "echo \"" + "$a " * (LONG // 3 - 5) + "\"", "x" * LONG,
        "bash -c '" + "ls;" * (LONG // 3 - 5) + "'",
        "cat <<'E'\n" + "a\n" * (LONG // 2 - 10) + "E\n", "[[ " * (LONG // 3),
        "{a,b}" * (LONG // 5),
        "for i in a; do " * (LONG // 15), "xargs " * (LONG // 6),
        "find . " + "-exec ls {} ; " * (LONG // 15), "ls " + "* " * (LONG // 2),
        "cat " + " ".join(f".?{n}*" for n in range(LONG // 7)),
        "cat " + ".env a* " * (LONG // 8),
    ):  # fmt: skip
        yield "exec", Exec(command=text[:LONG])
    for path in (
        "a/" * (LONG // 2) + "b",
        "a" * LONG,
        "é/" * (LONG // 2) + "b",
        "../" * (LONG // 3),
        ".git/" * (LONG // 5) + "x",
        "a/" * 2040 + "b",
    ):
        yield "filesystem", FileChange(operation="write", path=path)
    for host in (
        "a." * (LONG // 2) + "org",
        "é" * LONG,
        "xn--" * (LONG // 4),
        "1." * (LONG // 2),
        ":" * LONG,
        "0" * LONG,
    ):
        yield "network", Network(operation="connect", host=host, port=443)
    for path in (
        "/a" * (LONG // 2),
        "/%2e" * (LONG // 4),
        "/" * LONG,
        "/" + "%25" * (LONG // 3),
        "/.." * (LONG // 3),
        "/a;" * (LONG // 3),
        "/\\" * (LONG // 2),
    ):
        yield (
            "network",
            Network(
                operation="request",
                host="api.example.org",
                port=443,
                scheme="https",
                method="GET",
                path=path,
            ),
        )
    for ref in (
        "a/" * (LONG // 2) + "b",
        "a" * LONG,
        ":" * LONG,
        "refs/heads/" * (LONG // 11) + "a",
        "a-" * (LONG // 2),
    ):
        yield "git", Git(operation="push", remote="origin", refspecs=(ref,))
    for command in (
        "git push origin " + "a " * (LONG // 2 - 10),
        "git push " + "--force " * (LONG // 8 - 3),
        "git;" * (LONG // 4),
        "git push '" + "\\" * LONG,
    ):
        yield "git", Git(operation="", command=command[:LONG])
    for name in (
        "a" * LONG,
        "a-" * (LONG // 2) + "a",
        "@" * LONG,
        "a," * (LONG // 2),
        "a[" + "b," * (LONG // 2 - 3) + "]",
        "a==1," * (LONG // 5),
    ):
        for manager in ("npm", "pip"):
            yield "packages", Packages(manager=manager, operation="install", names=(name,))
    for command in (
        "npm install " + "a " * (LONG // 2 - 10),
        "pip install " + "-r x " * (LONG // 5 - 5),
        "npm;" * (LONG // 4),
    ):
        yield "packages", Packages(manager="", operation="", command=command[:LONG])
