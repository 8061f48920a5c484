"""What must not be overlooked in new text: secrets and characters that don't show, and only
those that are new."""

import pytest

from supervisor.core.files.content_flags import MOST_LINES, Flags, Layout, flags_of, layout_of
from supervisor.core.secrets.redact import Redactor
from tests.tables import each_row

KEY = "ghp_" + "a1B2" * 9
OWN = "correct-horse-battery"
PEM = "-----BEGIN PRIVATE KEY-----\nMIIBVQIBADANBgkqhkiG9w0BAQ\n-----END PRIVATE KEY-----\n"


@pytest.mark.parametrize(
    ("old", "new", "secret"),
    [
        ("", "a\nb\n", ()),
        ("a\n", f"a\ntoken = '{KEY}'\n", (2,)),
        ("", f"{OWN}\nx\n{KEY}", (1, 3)),
        (f"token = '{KEY}'\n", f"first\ntoken = '{KEY}'\n", ()),  # it was there before
        (f"token = '{KEY}'\n", f"token = '{KEY[:-4]}zzzz'\n", (1,)),
        ("a\n", f"a\n{PEM}", (2,)),
        ("", f'\nAWS_SECRET_ACCESS_KEY = "{"aB3/" * 10}"\n', (2,)),
        ("two\nlines of it\n", "x\nthe first half\nand the second\n", (2,)),
    ],
)
def test_secrets_are_found_where_they_are_new(old: str, new: str, secret: tuple[int, ...]) -> None:
    redactor = Redactor([OWN, "first half\nand the second"])
    assert flags_of(old.encode(), new.encode(), redactor) == Flags(secret=secret)


@pytest.mark.parametrize(
    ("old", "new", "hidden"),
    [
        ("", "tab\tand\r\nform\f feed\n", ()),
        ("", "naïve 日本 🙂\n", ()),
        ("", "a\nb\u202egpj.exe\n", (2,)),
        ("", "ev\u200bil\n", (1,)),
        ("", "a\u00a0b\n", (1,)),
        ("", "\x1b[31mred\n", (1,)),
        ("", "\ufefffirst\n", (1,)),
        ("old\u200b\n", "new\nold\u200b\n", ()),
        ("", "\u3164 = 1\n", (1,)),
    ],
)
def test_characters_that_do_not_show_are_found_where_they_are_new(
    old: str, new: str, hidden: tuple[int, ...]
) -> None:
    found = flags_of(old.encode(), new.encode(), Redactor())
    assert found.hidden == hidden
    assert found.names == (("hidden",) if hidden else ())


def test_what_did_not_change_has_nothing_new() -> None:
    text = f"ev\u200bil {KEY}".encode()
    assert flags_of(text, text, Redactor([])) == Flags()


def test_bytes_that_are_no_text_are_searched_for_secrets_only() -> None:
    found = flags_of(b"", b"\0\xff" + KEY.encode() + b"\0", Redactor(), is_text=False)
    assert found.names == ("secret",)


def test_there_is_an_end_to_it() -> None:
    assert len(flags_of(b"", "\u200b\n".encode() * 1000, Redactor()).hidden) == MOST_LINES
    assert len(flags_of(b"", f"{KEY}\n".encode() * 1000, Redactor()).secret) == MOST_LINES


@each_row(
    ("old", "new", "layout"),
    [
        ("a\n", "a\nb = 1\n", Layout()),
        ("a\n", "a\n", Layout()),
        ("", f"a\n{'x' * 501}\n", Layout(long=(2,))),
        (f"{'x' * 501}\n", f"a\n{'x' * 501}\n", Layout()),  # it was there before
        ("", f"ok(){' ' * 40}; evil()\n", Layout(blank=(1,))),
        ("", f"a\nok(){chr(9) * 10}; evil()\n", Layout(blank=(2,))),
        ("", "a" + "\n" * 60 + "evil()\n", Layout(blank=(2,))),
        ("", "a\n" + "  \n" * 60 + "evil()\n", Layout(blank=(2,))),
        ("b" + "\n" * 60 + "c", "a" + "\n" * 60 + "evil()\n", Layout()),
        ("", "\n".join(["x" * 501] * 30), Layout(long=tuple(range(1, MOST_LINES + 1)))),
    ],
)
def test_lines_that_could_hide_others_are_told(old: str, new: str, layout: Layout) -> None:
    assert layout_of(old.encode(), new.encode()) == layout
