"""Programs that run another command: where that command stands, and that a doubt about it is
said."""

from supervisor.core.actions import Exec
from supervisor.core.shell.exec_wrappers import Unwrapped, unwrap
from supervisor.core.shell.shell import parse
from tests.fakes.ruled import ruled
from tests.tables import each_row


def unwrapped(text: str) -> Unwrapped | None:
    return unwrap(parse(text).commands[0].words)


def payloads(text: str) -> list[str]:
    found = unwrapped(text)
    assert found is not None
    return [
        one.text if one.text is not None else " ".join(word.text for word in one.words)
        for one in found.payloads
    ]


@each_row(
    ("text", "expected"),
    [
        ("timeout 5 rm x", ["rm x"]),
        ("timeout -k 3 -s KILL 5 rm x", ["rm x"]),
        ("timeout --signal=KILL 5 -- rm x", ["rm x"]),
        ("nice -n5 rm x", ["rm x"]),
        ("nice -10 rm x", ["rm x"]),
        ("env A=1 rm x", ["rm x"]),
        ("sudo -u root rm x", ["rm x"]),
        ("xargs -n 1 rm", ["rm ..."]),
        ("xargs -I {} rm {} x", ["rm {} x"]),
        ("xargs -I{} rm {}", ["rm {}"]),
        ("xargs --replace=X rm X", ["rm X"]),
        ("watch -n 1 rm x", ["rm x"]),
        ("ssh -p 22 host rm x", ["rm x"]),
        ("find . -name x -exec rm {} + -o -execdir cat {} \\;", ["rm {}", "cat {}"]),
        ("bash -c 'rm x'", ["rm x"]),
        ("bash -lc 'rm x'", ["rm x"]),
        ("bash -o pipefail -c 'rm x' name", ["rm x"]),
        ("bash -c -x 'rm x'", ["rm x"]),
        ("su root -c 'rm x'", ["rm x"]),
        ("su --command='rm x' root", ["rm x"]),
        ("python3 -m pytest -q", ["pytest -q"]),
        ("uv run -- pytest -q", ["pytest -q"]),
        ("fd x -x rm", ["rm ..."]),
        ("env -S 'rm x' y", ["rm x"]),
        ("env -S'rm x'", ["-Srm x", "rm x"]),
    ],
)
def test_the_payload_is_found(text: str, expected: list[str]) -> None:
    assert payloads(text) == expected


@each_row(
    "text",
    ["ls", "timeout", "timeout 5", "nice -n 5", "command -v x", "env --version", "find . -name x",
     "bash script.sh", "bash", "bash -x", "su root",
     "python3 x.py", "python3 -m", "uv sync", "uv run", "xargs --help"],
)  # fmt: skip
def test_what_runs_nothing_here_is_no_wrapper(text: str) -> None:
    assert unwrapped(text) is None


@each_row(
    ("text", "problem"),
    [
        ("env A=1", "an assignment before a command"),
        ("env A=1 x", "an assignment before a command"),
        ('timeout "$T" x', "an expansion among the words of `timeout`"),
        ("timeout $T x", "an expansion among the words of `timeout`"),
        ("timeout 5 \"$X\" y", "an expansion among the words of `timeout`"),
        ("timeout -s $S 5 x", "an expansion among the words of `timeout`"),
        ("timeout -- $T x", "an expansion among the words of `timeout`"),
        ("timeout --unheard-of 5 x", "`timeout --unheard-of`: what it runs can't be told"),
        ("xargs -I {} {} x", "an expansion in the name of what `xargs` runs"),
        ("watch x \"$Y\"", "an expansion in what `watch` runs"),
        ("find . -exec", "`find -exec` without a command"),
        ("find . -exec \\;", "`find -exec` without a command"),
        ("find . -exec \"$X\" {} \\;", "an expansion in the name of what `find` runs"),
        ("find . -exec {} \\;", "an expansion in the name of what `find` runs"),
        ("bash -\"$X\" x", "an expansion among the options of `bash`"),
        ("bash -c", "`bash -c` without a text"),
        ("bash -c -x", "`bash -c` without a text"),
        ("bash -Zc x", "options of `bash` that aren't known here"),
        ("bash -c \"$X\"", "an expansion in the text of `bash -c`"),
        ("fish -c x", "the text of `fish` is read by another grammar"),
        ("su --command=x root", "`su --command`"),
        ("python3 -m \"$X\"", "an expansion in the name of a module"),
        ("uv run --with x y", "`uv run`: what it runs can't be told"),
        ("uv run \"$X\"", "`uv run`: what it runs can't be told"),
    ],
)  # fmt: skip
def test_a_doubt_about_what_runs_is_said_and_never_allowed(text: str, problem: str) -> None:
    found = unwrapped(text)
    assert found is not None
    assert found.problem == problem
    name = text.split()[0]
    verdict = ruled(
        Exec(command=text), allow=[f"exec({name} *)", "exec(x *)", "exec(y *)", "exec(pytest *)"]
    )
    assert verdict.decision == "ask", verdict


@each_row(
    "text",
    ["timeout $T rm x", "timeout --unheard-of 5 rm x", "bash -Zc 'rm x'", "bash -c -Z 'rm x'",
     "bash -\"$X\" -c 'rm x'", "uv run --with a rm x",
     "env -S 'rm x'", "find . -exec rm {} +", "xargs -I {} rm {}", "su --command='rm x'",
     "parallel rm ::: x"],
)  # fmt: skip
def test_deny_rules_see_the_payload_whatever_the_doubt(text: str) -> None:
    assert ruled(Exec(command=text), deny=["exec(rm *)"]).decision == "deny"
