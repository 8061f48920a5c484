"""What is known of programs: interpreters, and the arguments that turn one program into another."""

import pytest

from supervisor.core.shell.exec_tables import (
    is_shell_state,
    opaque_words,
    plain_form,
    program_name,
    runs_input,
    tables,
)
from supervisor.core.shell.shell import parse
from supervisor.core.shell.shell_words import Word
from tests.tables import each_row


def command(text: str) -> tuple[Word, ...]:
    return parse(text).commands[0].words


@each_row(
    ("text", "expected"),
    [
        ("python3", True),
        ("python3 -", True),
        ("python3 -u", True),
        ("python3 x.py", False),
        ("python3 x.py -", True),
        ("python3 --version", False),
        ("python3 -c x", False),
        ("node -v", False),
        ("bash -v", True),
        ("bash -s", True),
        ("bash -c x", False),
        ("bash -c x -s", True),
        ("cat /dev/stdin", False),
        ("perl /dev/stdin", True),
        ("ssh host", True),
        ("psql -f x db", True),
        ("ls", False),
    ],
)
def test_an_interpreter_without_a_script_runs_its_input(text: str, expected: bool) -> None:
    assert runs_input(command(text)) is expected


@each_row(
    ("text", "expected"),
    [
        # An option, its value, a bundle, an abbreviation.
        ("sort --compress-program=x y", {1}),
        ("sort --compress-program x y", {1, 2}),
        ("sort --compress x y", {1, 2}),
        ("sort -no x y", {1, 2}),
        ("sort -n y", set()),
        # Behind `--` there are no options; behind an option it may be a value, and ends nothing.
        ("sort -- -o", set()),
        ("sort -k -- -o x", {3, 4}),
        # git: what stands before the subcommand, an alias, and what a subcommand makes of its
        # arguments.
        ("git -c a=b log", {1, 2}),
        ("git unheard-of x", {1, 2}),
        ("git log --output=x", {2}),
        ("git log -3", set()),
        ("git", set()),
        ("git -c a=b", {1, 2}),
        ("git fetch ext::sh", {2}),
        # An expansion that could become such an argument counts as one; one with a certain
        # beginning doesn't.
        ("sort $X", {1}),
        ("sort \"$X\"", {1}),
        ("sort \"a$X\"", set()),
        ("git log \"--grep=$X\"", set()),
        ("git log \"--output=$X\"", {2}),
        ("curl \"f$X\"", {1}),
        ("tee \"a$X\"", {1}),
        ("make \"A$X\"", {1}),
        # The first word of tar may be a bundle without its dash.
        ("tar xf a", set()),
        ("tar xIf a", {1}),
        # Small programs of their own: whatever does more than print.
        ("sed p x", set()),
        ("sed -n 1p x", set()),
        ("sed 's/a/b/e' x", {1}),
        ("sed -e p -e 'w out' x", {4}),
        ("sed -ep x", set()),
        ("sed -ne p x", set()),
        ("sed -es/a/b/e x", {1}),
        ("sed --expression=e x", {1}),
        ("sed --expr=e x", {1}),
        ("sed -e", set()),
        ("sed \"$X\" x", {1}),
        ("sed -e \"$X\" x", {2}),
        ("sed -l 5 p", set()),
        ("awk '{print}' x", set()),
        ("awk -F : '{print $1}' x", set()),
        ("awk -v a=1 'BEGIN{system(a)}'", {3}),
        ("awk 'BEGIN{system(\"id\")}'", {1}),
        ("ls -la", set()),
    ],
)  # fmt: skip
def test_the_arguments_that_only_a_spelled_rule_covers(text: str, expected: set[int]) -> None:
    assert set(opaque_words(command(text))) >= expected
    if not expected:
        assert not opaque_words(command(text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("git --no-pager log", (["git", "log"], [])),
        ("git -C a -C b log -3", (["git", "log", "-3"], ["a", "b"])),
        ("git log", None),
        ("git --no-pager", None),
        ("make -C build", (["make"], ["build"])),
        ('git -C "$X" log', None),
        ("ls -C a", None),
    ],
)
def test_options_that_change_nothing_are_left_out(
    text: str, expected: tuple[list[str], list[str]] | None
) -> None:
    found = plain_form(command(text))
    assert (([word.text for word in found[0]], found[1]) if found else None) == expected


def test_a_program_is_known_by_its_name_in_the_folders_of_the_system_only() -> None:
    assert program_name("git") == "git"
    assert program_name("/usr/bin/git") == "git"
    assert program_name("./git") is None
    assert program_name("/tmp/git") is None
    assert is_shell_state("eval")
    assert not is_shell_state("ls")


def test_an_exact_name_comes_before_one_that_is_only_a_beginning() -> None:
    programs = tables().programs
    assert programs.get("python3.13") is programs.get("python3")
    assert programs.get("no-such-program") is None
