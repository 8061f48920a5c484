"""What a command tells by itself: the same whoever asks first, and nothing that hangs on a rule
or a folder."""

import pytest

from supervisor.core.shell.exec_commands import ExecCommand, read_line, show
from supervisor.core.shell.exec_tables import opaque_words, plain_form
from supervisor.core.shell.exec_wrappers import unwrap
from supervisor.core.shell.shell import parse
from tests.tables import each_row

LINES = (
    "git status",
    "git --no-pager -C src log -3",
    "./run --fast",
    "/usr/bin/env FOO=1 ls",
    "sudo rm -rf x",
    "exec",
    "exec 3<a",
    "eval ls",
    "$X a",
    "'' a",
    "rm -rf $X *.pyc",
    "cd src && cat .env | head -3",
    "curl https://example.org -o x",
)


@each_row("text", LINES)
def test_what_is_found_out_early_is_what_the_tables_say(text: str) -> None:
    line = read_line(text)
    assert line.script == parse(text)
    assert [command.words for command in line.commands] == [
        command.words for command in line.script.commands
    ]
    for command in line.commands:
        words = command.words
        plain = command.plain
        assert command.opaque == opaque_words(words)
        assert command.unwrapped == unwrap(words)
        assert (None if plain is None else (plain[0].words, plain[1])) in (None, plain_form(words))
        assert command.is_spelled_out == all(word.is_literal for word in words)
        assert command.operands == {word.text for word in words[1:]} - {""}
        assert command.arguments.split("\0") == ([word.text for word in words[1:]] or [""])
        assert command.shown == show(words)


@pytest.mark.parametrize(
    ("text", "is_program"),
    [
        ("ls", True),
        ("exec ls", True),
        ("exec", False),
        ("eval ls", False),
        ("$X", False),
        ("'' a", False),
        ("./a", True),
    ],
)
def test_a_name_that_is_certain_and_runs_a_program(text: str, is_program: bool) -> None:
    assert ExecCommand(parse(text).commands[0].words).is_program is is_program


@pytest.mark.parametrize(
    ("name", "base", "has_path"),
    [("ls", "ls", False), ("./a/b", "b", True), ("/bin/ls", "ls", False)],
)
def test_names(name: str, base: str, has_path: bool) -> None:
    command = ExecCommand(parse(name).commands[0].words)
    assert (command.name, command.has_path) == (base, has_path)


def test_a_program_that_lies_in_the_workspace_has_no_plain_form() -> None:
    (plain,) = read_line("git --no-pager log").commands
    (other,) = read_line("./git --no-pager log").commands
    assert plain.plain is not None
    assert plain.plain[0].shown == "git log"
    assert other.plain is None


def test_a_long_command_is_cut_where_it_is_shown() -> None:
    assert len(read_line("echo " + "a" * 500).commands[0].shown) == 120
