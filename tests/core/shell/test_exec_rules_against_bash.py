"""Real bash as the judge of the parser: of a line that is allowed, nothing runs that wasn't listed,
or wouldn't be allowed alone.

Lines come from a generator of scripts, from the golden cases, and from both with characters
changed at random; `make fuzz` makes a hundred times as many. How what ran is written down:
`tests/fakes/logged_bash.py`.
"""

import random
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import settings

from supervisor.core.shell.exec_candidates import quote
from supervisor.core.shell.exec_rules import Judgement, compile_pattern, judge
from supervisor.core.shell.exec_wrappers import unwrap
from supervisor.core.shell.shell import parse
from supervisor.core.shell.shell_words import Word
from supervisor.sandbox.base import HOME
from tests.fakes.logged_bash import MOST_CHARS, Argv, run_lines
from tests.fakes.shell_scripts import (
    ALLOWED,
    EVIL,
    FEEDERS,
    JOINS,
    NAMES,
    PREFIXES,
    SUFFIXES,
    insert,
    random_script,
)

ROOT = "/workspace/merged"
GOLDEN = Path(__file__).parents[2] / "golden" / "policy_cases"


def golden(name: str) -> list[dict[str, Any]]:
    """The cases of a file whose lines are run in the workspace's root."""
    found = yaml.load((GOLDEN / name).read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    return [case for case in found if case.get("cwd", ".") == "."]


CASES = golden("exec.yaml")
# What is put into lines, or takes the place of a character.
BREAKERS = (*";&|()<>'\"`$#{}\\\n !*=~[]-,:%@^/?+0123\t\r\x0b\x00", "$(", "<(", "<<", "<<<", ";;",
"&&", "||", "|&", "&>", ">&", "$'", "$\"", "${", "$((", "((",
            "))", "[[", "]]", " in ", " do ", "done", "fi", "then ", "if ", "{ ", "; }", "<<'E'",
            "\nE\n", "E", "\\\n", "#", " #", "\n#", "evil", " evil ", "; evil",
            "\nevil\n", "$(evil)", "`evil`", "'evil'", "|evil", "&evil", "! ", "time ", "-p ",
            "exec ", "eval ", "command ", "{a,b}", "$@", "$*", "$IFS", "$HOME",
            "\u00a0", "\u2003", "\u0085", "\u00e9", "2>", "2>&1", ">/dev/null", "</dev/null",
            "coproc ", "function ", "()", "=", "x=", "a[0]=", "+=", "--",
            " -exec ", "{}", "{} +", "\\;", "-I", "-I{}", " -n ", " sh -c ", " bash -c ", "'\\''",
            "\"'\"'\"", "\\'", "\\\"", "\\\\")  # fmt: skip
# Loops that would never end when they are run, and what waits.
ENDLESS = re.compile(r"\b(?:while|until|yes|sleep|tail\s+-f)\b")


def allow(line: str, rules: list[str]) -> Judgement[str]:
    patterns = [
        (rule, compile_pattern(rule.removeprefix("exec(").removesuffix(")"))) for rule in rules
    ]
    return judge(line, ".", allow=patterns, ask=(), deny=(), workspace_roots=[ROOT])


OWN = [
    f"exec({name} *)"
    for name in (
        *NAMES,
        "rg",
        "jq",
        "env",
        "tail",
        "wc",
        "uniq",
        "cut",
        "tr",
        "seq",
        "ca",
        "cb",
        "command",
    )
]


# -- what was listed ------------------------------------------------------------------------------
def listed(line: str) -> list[tuple[Word, ...]]:
    """Every command that the parser finds in the line, and inside the commands."""
    found: list[tuple[Word, ...]] = []
    texts = [line]
    while texts:
        pending = [command.words for command in parse(texts.pop()).commands]
        while pending:
            words = pending.pop()
            found.append(words)
            for payload in unwrapped.payloads if (unwrapped := unwrap(words)) else ():
                if payload.text is not None:
                    texts.append(payload.text)
                else:
                    pending.append(payload.words)
    return found


TILDE = re.compile(r"(?:^|(?<=[=:]))~(?=/|:|$)")


def fits(words: tuple[Word, ...], argv: Argv) -> bool:
    """Whether the command as it was read could have become what ran."""
    if not argv:
        return not words or all(word.is_many or not word.text for word in words)
    if not words:
        return False
    word, rest = words[0], words[1:]
    if word.is_literal:
        # `~` is a word of its own to rules: what the shell makes of it is the sandbox's own home.
        same = word.text == argv[0] or TILDE.sub(HOME, word.text) == argv[0]
        return same and fits(rest, argv[1:])
    if word.is_many or "{}" in word.text:
        # Of a glob, and of braces, every word begins alike.
        starts = "" if word.splits or "{}" in word.text else word.prefix
        return fits(rest, argv) or (
            argv[0].startswith(starts) and (fits(words, argv[1:]) or fits(rest, argv[1:]))
        )
    return argv[0].startswith(word.prefix) and fits(rest, argv[1:])


def base(words: tuple[Word, ...]) -> tuple[Word, ...]:
    return (Word(words[0].text.rpartition("/")[2]), *words[1:])


# What runs by contract: the `cat` of `"$(cat <<'E' ...)"`, which is a literal word; `echo`, which
# xargs runs where it is given nothing; what tar starts for `-z`. By a command's first words: what
# must stand in the line.
BY_CONTRACT = {
    ("cat",): re.compile(r"\$\([ \t]*cat[ \t]+<<"),
    ("echo",): re.compile("xargs"),
    ("sh", "-c", "gzip"): re.compile("tar "),
}
BY_CONTRACT[("gzip",)] = BY_CONTRACT[("sh", "-c", "gzip")]


def is_by_contract(line: str, argv: Argv) -> bool:
    mark = BY_CONTRACT.get(argv[:1] if argv[0] == "echo" else argv)
    return mark is not None and mark.search(line) is not None


def complaints(line: str, rules: list[str], ran: list[Argv]) -> list[str]:
    found = [base(words) for words in listed(line)]
    wrong = []
    for argv in ran:
        if is_by_contract(line, argv):
            continue
        if not any(fits(words, argv) for words in found):
            wrong.append(f"{line!r} ran {argv}, which isn't listed")
        elif (
            rules[-len(OWN) :] == OWN
            and allow(" ".join(map(quote, argv)), rules).decision != "allow"
        ):
            wrong.append(f"{line!r} ran {argv}, which isn't allowed alone")
    return wrong


# -- lines ----------------------------------------------------------------------------------------
def mutated(rng: random.Random, line: str) -> str:
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(line) + 1)
        kind = rng.random()
        if kind < 0.3:
            line = line[:at] + line[at + 1 :]
        elif kind < 0.9:
            line = line[:at] + rng.choice(BREAKERS) + line[at + (kind > 0.75) :]
        else:
            end = min(len(line), at + rng.randint(1, 8))
            line = line[:end] + line[at:end] + line[end:]
    return line


def soup(rng: random.Random) -> str:
    """Words that are nothing but quoting, behind a command's name."""
    atoms = [
        rng.choice(
            BREAKERS
            if rng.random() < 0.4
            else ("a", "'b c'", '"d"', "$'e'", " ", " ", " echo x", "-n", "ls ")
        )
        for _ in range(rng.randint(1, 8))
    ]
    return rng.choice(
        (
            "echo ",
            "ls ",
            "cat ",
            "ca ",
            "xargs ",
            "find . ",
            "sh -c ",
            "bash -c ",
            "env ",
            "timeout 5 ",
            "printf ",
            "",
        )
    ) + "".join(atoms)


HOLDERS = ("sh -c @", "bash -c @", "bash -c @ x f", "env -i bash -c @", "timeout 5 sh -c @ | cat",
"xargs -I{} sh -c @", "ls | xargs -I X bash -c @ y X",
           "find . -name f -exec sh -c @ x {} \\;", "find . -maxdepth 0 -exec bash -c @ {} +",
           "for f in a 'b c'; do bash -c @ $f; done",
           "xargs sh -c @ x", "bash -lc @", "bash -ec @", "( bash -c @ )",
           "nice bash -c @ && ls")  # fmt: skip


def generated(rng: random.Random) -> tuple[str, list[str]]:
    """A line, and the rules under which it is judged."""
    kind = rng.randrange(12)
    if kind > 9:
        line, rules = generated(rng)
        shell = rng.choice(HOLDERS)
        return shell.replace(
            "@", shlex.quote(line) if rng.random() < 0.7 else '"' + line.replace('"', '\\"') + '"'
        ), [
            *rules,
            *OWN,
        ]
    if kind < 2:
        case = rng.choice(CASES)
        return mutated(rng, case["command"]), [*case["policy"].get("allow", ())]
    if kind < 4:
        return soup(rng), OWN
    if kind < 6:
        simple = rng.choice((*PREFIXES, *FEEDERS, "")) + rng.choice(ALLOWED)
        line = (
            simple
            if rng.random() < 0.3
            else simple + rng.choice(JOINS) + rng.choice((*ALLOWED, *EVIL)).replace("{}", "evil")
        )
        return mutated(rng, line if rng.random() < 0.9 else line + rng.choice(SUFFIXES)), OWN
    script = random_script(rng, depth=rng.choice((0, 1, 2)), may_loop=False)
    if kind == 6:
        insert(rng, script)
    text = script.render()
    return (text if kind < 8 else mutated(rng, text)), OWN


def allowed_lines(rng: random.Random, count: int) -> list[tuple[str, list[str]]]:
    """So many different lines that are allowed."""
    kept: dict[str, list[str]] = {}
    while len(kept) < count:
        line, rules = generated(rng)
        if line not in kept and is_runnable(line) and allow(line, rules).decision == "allow":
            kept[line] = rules
    return list(kept.items())


def is_runnable(line: str) -> bool:
    # Scripts of the generator loop on what ends the loop at once.
    plain = line.replace("while false;", "").replace("until true;", "")
    # What is run must fit into a record, with all that is expanded in it.
    return not ENDLESS.search(plain) and "\x00" not in line and len(line) <= MOST_CHARS // 2


async def check(lines: list[tuple[str, list[str]]], folder: Path) -> int:
    ran = await run_lines([line for line, _ in lines], folder)
    wrong = [
        each
        for (line, rules), commands in zip(lines, ran, strict=True)
        for each in complaints(line, rules, commands)
    ]
    assert not wrong, "\n".join(wrong[:20])
    return sum(map(len, ran))


@pytest.mark.timeout(600)
async def test_of_the_golden_cases_nothing_runs_that_is_not_listed(tmp_path: Path) -> None:
    cases = [*CASES, *golden("exec_daily.yaml"), *golden("exec_everyday.yaml")]
    lines = [
        (case["command"], case["policy"].get("allow", []))
        for case in cases
        if case["verdict"] == "allow"
    ]
    lines = [(line, rules) for line, rules in lines if is_runnable(line)]
    assert await check(lines, tmp_path) > len(lines)


@pytest.mark.untraced
@pytest.mark.hypothesis
@pytest.mark.timeout(3600)
async def test_of_random_lines_nothing_runs_that_is_not_listed(tmp_path: Path) -> None:
    examples = settings.default.max_examples if settings.default else 100
    seed = random.randrange(2**32) if examples > 100 else 20261121
    print(f"seed {seed}")
    rng = random.Random(seed)
    for part in range(max(1, examples // 1000)):
        lines = allowed_lines(rng, min(2 * examples, 1000))
        assert await check(lines, tmp_path / str(part)) > len(lines)


async def test_what_ran_is_seen_wherever_it_was_started_from(tmp_path: Path) -> None:
    """The instrument itself: each of these runs `evil`, and the logs say so."""
    lines = ["evil", "/usr/bin/evil", "sh -c evil", "find . -maxdepth 0 -exec evil \\;",
    "echo | xargs evil", "env -i evil", "(sleep 0.1; evil) &",
             "eval evil", "env -i bash -c 'eval evil'", "awk 'BEGIN { system(\"evil\") }'",
             "sed -n 1e\\ evil f", "nohup setsid evil", "x=$(evil)",
             "cat <(evil)", "bash <<< evil",
             "tar -cf /tmp/x --checkpoint=1 --checkpoint-action=exec=evil .",
             "timeout 5 nice env X=1 evil",
             "f() { evil; }; f", "trap evil EXIT"]  # fmt: skip
    for line, commands in zip(lines, await run_lines(lines, tmp_path), strict=True):
        assert any(argv[0] == "evil" for argv in commands), (line, commands)
    words = ("a b", "", "'", '"', "\n", "\\", "é", "$x", "*", "\t\x01", "a'b\nc")
    (ran,) = await run_lines([shlex.join(["evil", *words])], tmp_path / "words")
    assert ran == [("evil", *words), ("evil", *words)]


async def test_a_record_that_is_more_than_one_write_is_an_error(tmp_path: Path) -> None:
    """In pieces it could mix with that of another command in the background, and be read
    wrongly."""
    with pytest.raises(AssertionError, match="evil x"):
        await run_lines([f"evil {'x' * 5000} & evil {'y' * 5000} & wait"], tmp_path)


def test_a_difference_is_a_complaint() -> None:
    assert complaints("echo a; ls", OWN, [("echo", "a"), ("ls",)]) == []
    for argv in (("evil",), ("echo",), ("echo", "a", "b"), ("ls", "-l"), ("echo a",)):
        assert len(complaints("echo a; ls", OWN, [argv])) == 1
    assert complaints("ls x*", OWN, [("ls", "x.py", "xy")]) == []
    assert complaints("ls x*", OWN, [("ls", "y")])
    assert complaints("find . -delete", ["exec(find . -delete)"], [("find", ".", "-delete")]) == []
