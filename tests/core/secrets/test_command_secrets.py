"""Credentials on command lines: none shows, nothing harmless is touched, and nothing that acts
is hidden."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.actions import Action, Exec, Git, Network, Packages, Proposal, fingerprint
from supervisor.core.secrets.command_secrets import (
    hidden,
    secrets_in,
    without,
    without_secrets,
    words_without_secrets,
)
from supervisor.core.secrets.labelled_secrets import is_value, names_secret
from supervisor.core.secrets.loose_words import commands
from supervisor.core.secrets.redact import Redactor, redacted
from supervisor.core.secrets.url_secrets import MARK
from tests.core.command_lines import HARMLESS, NEEDLES, WITH_SECRETS
from tests.tables import each_row


def needles_in(text: str) -> list[str]:
    return [one for one in NEEDLES if one in text]


def test_the_tables_are_as_long_as_promised() -> None:
    assert len(set(WITH_SECRETS)) >= 80
    assert len(set(HARMLESS)) >= 80
    assert all(needles_in(command) for command in WITH_SECRETS)


@each_row("command", WITH_SECRETS)
def test_no_credential_shows(command: str) -> None:
    shown = without_secrets(command)
    assert not needles_in(shown)
    assert MARK in shown
    assert without_secrets(shown) == shown


@each_row("command", WITH_SECRETS)
def test_none_shows_in_a_sentence_about_the_command(command: str) -> None:
    assert not needles_in(without_secrets(f"I have to run this: {command}\nand it doesn't work"))


@each_row("command", HARMLESS)
def test_what_is_harmless_stays_as_it_is(command: str) -> None:
    assert without_secrets(command) == command
    action = Exec(command=command)
    assert redacted(action, Redactor()) is action


@each_row(
    ("command", "acting"),
    [
        ("SECRET='rm -rf ~'; eval $SECRET", "rm -rf ~"),
        ("SECRET=reboot; sudo -u root $SECRET", "reboot"),
        ("SECRET=reboot; bash -c $SECRET", "reboot"),
        ("TOKEN=reboot; set -- $TOKEN; $1", "reboot"),
        ("alias token='reboot now'", "reboot now"),
        ("git -c alias.token='!reboot' token", "!reboot"),
        ("make PASSWORD='x; rm -rf ~'", "rm -rf ~"),
        ("bash -c 'PASSWORD=abcdef reboot'", "reboot"),
        ("set -- redis-cli -a 'rm -rf ~'; $3", "rm -rf ~"),
        ("echo redis-cli -a 'rm -rf ~' | cut -c13- | sh", "rm -rf ~"),
        ("echo 'rm -rf ~' | sudo -S sh", "rm -rf ~"),
        ("echo reboot | bash gh secret set", "reboot"),
        ("curl -u a:$(rm -rf ~) https://a.test", "$(rm -rf ~)"),
        ('curl -u "a:`rm -rf ~`x" https://a.test', "`rm -rf ~`"),
        ("mysql -p$(cat pw)", "$(cat pw)"),
        ("curl -H 'X-Token: abcdefgh'; rm -rf ~", "; rm -rf ~"),
        ("export TOKEN=abcdef && rm -rf ~", "&& rm -rf ~"),
    ],
)
def test_nothing_that_acts_is_hidden_from_who_answers(command: str, acting: str) -> None:
    assert acting in without_secrets(command)


def test_a_long_value_says_how_long_it_is() -> None:
    shown = without_secrets(f"export TOKEN={'a1' * 200} && true")
    assert shown == "export TOKEN=[hidden: 400 characters] && true"
    assert without_secrets(shown) == shown
    assert (
        without_secrets('curl -u "a:[hidden]b" -H "X-Token: [redacted]" x')
        == 'curl -u "a:[hidden][hidden]" -H "X-Token: [redacted]" x'
    )


def test_what_is_approved_is_what_was_asked() -> None:
    one, other = Exec(command="curl -u a:first1 x"), Exec(command="curl -u a:second2 x")
    assert hidden(one) == hidden(other)
    assert fingerprint(one) != fingerprint(other)
    assert one.command == "curl -u a:first1 x"


def test_fields_made_of_a_commands_words_hide_what_it_hides() -> None:
    git = Git(
        operation="push",
        remote="https://bob:Zq7hunter@a.test/b.git",
        refspecs=("Zq7hunter",),
        flags=("--x=Zq7hunter",),
        command="git push https://bob:Zq7hunter@a.test/b.git",
    )
    package = Packages(
        manager="npm",
        operation="publish",
        names=("a",),
        flags=("--otp", "Zq7hunter"),
        command="npm publish --otp Zq7hunter",
    )
    apart = Git(operation="fetch", remote="https://bob:Zq7hunter@a.test/b.git")
    nothing = Packages(
        manager="npm", operation="install", names=("password",), flags=("--token=Zq7hunter",)
    )
    proposal = Proposal(effect="allow", rule="exec(curl -u a:Zq7hunter *)", why="TOKEN=Zq7hunter")
    plain: list[Action] = [git, package, apart, nothing, proposal]
    for action in plain:
        assert "Zq7hunter" not in msgspec.json.encode(hidden(action)).decode()
    unnamed = Git(operation="fetch", command="git fetch")
    assert hidden(unnamed) == unnamed
    assert hidden(Network(operation="connect", host="a.test", port=1)) == Network(
        operation="connect", host="a.test", port=1
    )


def test_a_commands_secrets_are_hidden_in_texts_beside_it() -> None:
    action = Exec(command="curl -u a:Zq7hunter -H 'X-Token: abc' x")
    assert secrets_in(action) == ("Zq7hunter",)
    assert without("it said Zq7hunter", secrets_in(action)) == "it said [hidden]"
    assert secrets_in(Git(operation="fetch")) == ()
    assert Redactor().said("the password is Zq7hunter", action) == "the password is [hidden]"
    assert Redactor(["hunter2hunter2"]).said("mysql -phunter2hunter2") == "mysql -p[hidden]"


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (("curl", "-u", "a:b c", "x"), ("curl", "-u", "a:[hidden]", "x")),
        (("sh", "-c", "mysql -pabcdef x"), ("sh", "-c", "mysql -p[hidden] x")),
        (("claude", "--api-key", "abcdef"), ("claude", "--api-key", "[hidden]")),
        (("git", "commit", "-m", "it's a token"), ("git", "commit", "-m", "it's a token")),
        (("true",), ("true",)),
        ((), ()),
    ],
)
def test_a_command_in_words_is_hidden_word_by_word(
    words: tuple[str, ...], shown: tuple[str, ...]
) -> None:
    assert words_without_secrets(words) == shown


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        ("PGPASSWORD=abcdef\nHOME=/root\n", "PGPASSWORD=[hidden]\nHOME=/root\n"),
        ('declare -x API_KEY="abcdef"', 'declare -x API_KEY="[hidden]"'),
        (
            "> Authorization: Basic YTpiOmM5\r\n> Accept: */*",
            "> Authorization: Basic [hidden]\r\n> Accept: */*",
        ),
        ("< Set-Cookie: sid=abcdef; Path=/", "< Set-Cookie: sid=[hidden]; Path=/"),
        ("fatal: https://a:bcdef@a.test/x.git", "fatal: https://a:[hidden]@a.test/x.git"),
        (
            "password = get_password()\ntoken: str = None",
            "password = get_password()\ntoken: str = None",
        ),
        ("mysql -pabcdef", "mysql -pabcdef"),
        ("DEBUG_TOKEN=true\nX-Api-Key: short", "DEBUG_TOKEN=true\nX-Api-Key: short"),
    ],
)
def test_of_what_a_program_printed_only_what_is_surely_a_credential_is_hidden(
    printed: str, shown: str
) -> None:
    assert Redactor().printed(printed) == shown


@pytest.mark.parametrize(
    "name",
    [
        "TOKEN",
        "DB_PASS",
        "apiKey",
        "OPENAIKEY_TOKEN",
        "client-secret",
        "GITHUB_PAT",
        "x/:_authToken",
        "mysql_pwd",
    ],
)
def test_names_of_secrets(name: str) -> None:
    assert names_secret(name)


@each_row(
    "name",
    [
        "PWD",
        "key",
        "sort-key",
        "author",
        "max-tokens",
        "tokenizer",
        "token-file",
        "x" * 200,
        "",
        "123",
        "with-token",
    ],
)
def test_names_of_other_things(name: str) -> None:
    assert not names_secret(name)
    assert not is_value("true")


@pytest.mark.parametrize(
    "text",
    ["://a:" + "@" * 9000, "\"'$(" * 5000, "token <<a\n" * 2000, "curl -u a:b " * 2000,
     "Cookie: " + "a" * 20000, "'" * 20000 + "token", "$(" * 9000 + "token"],
)  # fmt: skip
def test_hostile_texts_are_read_to_their_end(text: str) -> None:
    assert len(without_secrets(text)) <= 2 * len(text)


PARTS = st.sampled_from(
    ["curl", " ", "-u", "a:bcdef", "'", '"', "\\", "$(", ")", "`", "$X", "${Y}", "$'", "\n", "|",
     "<<E", "<<<", "TOKEN=", "-p", "mysql",
     "[hidden]", "[", "echo", ";", "\t", "E", "docker login --password-stdin",
     "Authorization: Basic ", "https://a:b@c", "é", "\0"]
)  # fmt: skip


@given(st.lists(PARTS, max_size=30).map("".join))
def test_words_are_where_they_are_said_to_be(text: str) -> None:
    for command in commands(text):
        for word in (*command.words, *command.fed):
            assert 0 <= word.start <= word.end <= len(text)
            assert "".join(run.text for run in word.runs) == word.text
            for start, end in word.stretches(0):
                assert word.start <= start < end <= word.end


@given(st.lists(PARTS, max_size=30).map("".join))
def test_what_was_hidden_is_hidden_once(text: str) -> None:
    shown = without_secrets(text)
    assert without_secrets(shown) == shown
    # What acts is seen: every operator and every expansion outside of what was hidden.
    assert text.count("$(") == shown.count("$(")
