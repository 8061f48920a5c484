"""Secrets are found however they are written, from end to end and where the text is cut off;
what is no secret stays as it is."""

import base64
import html
import json
import re
import urllib.parse

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from supervisor.core.secrets.secret_forms import (
    SHORTEST_SECRET,
    SecretForms,
    SecretSearch,
    in_any_case,
    with_halves,
)
from tests.core.secret_writings import WRITINGS, Writing
from tests.tables import each_row

MARK = b"[redacted]"
PLAIN = "sk-ant-0123456789abcdef"
HARD = 'p@ss/w\N{LATIN SMALL LETTER O WITH DIAERESIS}rd+ "100%" \\ \N{GRINNING FACE}'
LONG = "-----BEGIN KEY-----\n" + "MIIEvQIBADANBg/kqhkiG9w0BAQ+EFAASC\n" * 20 + "-----END KEY-----\n"


def readings(data: bytes) -> set[bytes]:
    """What anybody could make of a text, two times over; apart from how the module does it."""
    found = {data}
    for _ in range(2):
        for one in tuple(found):
            found.add(urllib.parse.unquote_to_bytes(one))
            found.add(urllib.parse.unquote_to_bytes(one.replace(b"+", b" ")))
            try:
                found.add(
                    json.loads(b'"' + one.strip(b'" ') + b'"', strict=False).encode(
                        "utf-8", "surrogatepass"
                    )
                )
            except (ValueError, AttributeError):
                continue
    return found


def of_base64(text: bytes) -> bytes:
    """What a text is as base64, as far as it is any."""
    plain = urllib.parse.unquote_to_bytes(text).translate(bytes.maketrans(b"-_", b"+/"))
    code = b"".join(re.findall(rb"[A-Za-z0-9+/]", plain))
    return base64.b64decode(code[: len(code) // 4 * 4])


@each_row("secret", [PLAIN, HARD, LONG])
@each_row("writing", WRITINGS)
def test_a_secret_is_found_however_it_is_written(secret: str, writing: str) -> None:
    written = WRITINGS[writing](secret).encode()
    shown = SecretForms([secret]).without(b"before " + written + b"; after", MARK)
    assert shown.count(MARK) == 1
    assert shown.startswith(b"before ")
    assert shown.endswith(b"; after")
    assert secret.encode() not in readings(shown)
    if "base64" not in writing and "Basic" not in writing:
        around = html.unescape(
            shown.removeprefix(b"before ").removesuffix(b"; after").replace(MARK, b"").decode()
        )
        assert around.strip('"\\[]{}0x \n') in ("", "body: ", "%22%22", 'body\\":')


@each_row("secret", [PLAIN, HARD])
@each_row("writing", [one for one in WRITINGS if "lines" not in one])
def test_nothing_of_it_is_seen_where_the_text_is_cut_off(secret: str, writing: str) -> None:
    written = WRITINGS[writing](secret).encode()
    forms = SecretForms([secret])
    begins = secret.encode()[: SHORTEST_SECRET + 1]
    for length in range(len(written) + 1):
        shown = forms.without(b"before " + written[:length], MARK)
        assert shown.startswith(b"before ")
        assert not any(begins in one for one in readings(shown)), shown
        assert begins not in of_base64(shown.removeprefix(b"before "))


def test_secrets_that_overlap_or_lie_side_by_side_are_all_hidden() -> None:
    forms = SecretForms(["abcdefgh12", "fgh12345678", "short", ""])
    assert (
        forms.without(b"<abcdefgh12345678> <abcdefgh12abcdefgh12> short", MARK)
        == b"<[redacted]> <[redacted][redacted]> short"
    )
    assert SecretForms(["short"]).without(b"short", MARK) == b"short"
    assert SecretForms([]).without(b"anything", MARK) == b"anything"


def test_the_longest_beginning_is_hidden_where_several_fit() -> None:
    forms = SecretForms(["abcdefgh-one-of-them", "one-of-them-and-more"])
    assert forms.without(b"x abcdefgh-one-of-the", MARK) == b"x [redacted]"
    assert forms.without(b"x abcdefg", MARK) == b"x abcdefg"


@given(text=st.binary(max_size=400), secrets=st.lists(st.text(min_size=1, max_size=40), max_size=4))
@example(text=b"%zz%4\\u12\\x\\", secrets=[PLAIN])
@example(text=b"A" * 40 + b"\n" + b"A" * 40, secrets=[PLAIN, HARD])
@example(text=b"\\ud83d\\ude00 \\ud83d \\ude00", secrets=["\N{GRINNING FACE}" * 3])
def test_what_is_shown_has_no_secret_and_all_of_the_rest(text: bytes, secrets: list[str]) -> None:
    shown = SecretForms(secrets).without(text, MARK)
    for secret in secrets:
        data = secret.encode("utf-8", "ignore")
        assert len(data) < SHORTEST_SECRET or data in MARK or data not in shown
    position = 0
    for piece in shown.split(MARK):
        position = text.index(piece, position) + len(piece)


@given(
    secret=st.text(st.characters(codec="utf-8"), min_size=SHORTEST_SECRET, max_size=60),
    before=st.text(st.characters(codec="ascii"), max_size=20),
    after=st.text(st.characters(codec="ascii"), max_size=20),
    writing=st.sampled_from([one for one in WRITINGS if "twice" not in one]),
)
@example(secret="000\\\x1f000", before="", after="", writing="JSON")
def test_any_secret_is_found_between_any_text(
    secret: str, before: str, after: str, writing: str
) -> None:
    written = WRITINGS[writing](before + secret + after).encode()
    assert MARK in SecretForms([secret]).without(written, MARK)


@given(
    secret=st.text(
        st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=SHORTEST_SECRET, max_size=60
    ),
    before=st.binary(max_size=40),
    after=st.binary(max_size=40),
    writing=st.sampled_from(list(WRITINGS)),
)
@example(
    secret="1ab+cdefghijklmn", before=b"%4", after=b"", writing="JSON, each character by its number"
)
@example(secret="x\\u0041%41&#65;y", before=b"\\", after=b"", writing="percent-encoded")
def test_it_is_found_in_any_noise_wherever_it_is_cut(
    secret: str, before: bytes, after: bytes, writing: str
) -> None:
    written = before + WRITINGS[writing](secret).encode() + after
    forms = SecretForms([secret])
    assert forms.is_in(written)
    assert not forms.is_in(forms.without(written, MARK))
    for at in range(len(written) + 1):
        search = SecretSearch(forms)
        assert search.finds(written[:at]) or search.finds(written[at:])
    search = SecretSearch(forms)
    assert any(search.finds(written[at : at + 1]) for at in range(len(written)))


SWALLOWED = {
    "of two hexadecimal digits": (b"%4", '1ab"cdefghijklm', json.dumps),
    "of four": (b"\\u004", "1ab+cdefghijklm", urllib.parse.quote),
    "of a page": (b"&#6", "5;b+cdefghijklm", urllib.parse.quote),
    "of a backslash": (b"\\", "nab&cdefghijklm", html.escape),
    "behind it": (b"", "ab&cdefghijklm%", lambda text: html.escape(text) + "41"),
}


@pytest.mark.parametrize("case", SWALLOWED.values(), ids=SWALLOWED)
def test_what_stands_before_it_makes_no_escape_of_its_beginning(
    case: tuple[bytes, str, Writing],
) -> None:
    before, secret, writing = case
    written = before + writing(secret).strip('"').encode()
    forms = SecretForms([secret])
    assert forms.is_in(written)
    assert secret[5:-5].encode() not in forms.without(written, MARK)


@pytest.mark.parametrize("coding", ["utf-16-le", "utf-16-be", "utf-16", "utf-32-le", "utf-32-be"])
def test_wide_characters(coding: str) -> None:
    written = f'{{"k": {json.dumps(PLAIN)}}}'.encode(coding)
    forms = SecretForms([PLAIN])
    for at in range(len(written)):
        search = SecretSearch(forms)
        assert search.finds(written[:at]) or search.finds(written[at:])
    assert b"0" not in forms.without(written, b"")


@each_row("writing", [one for one in WRITINGS if "numbers, one" not in one])
def test_a_piece_that_ends_in_the_beginning_of_one_is_known(writing: str) -> None:
    """Before it has half of it; and no longer than it may still become one."""
    written = WRITINGS[writing](PLAIN).encode()
    search = SecretSearch(SecretForms([PLAIN]))
    begun = []
    for at in range(len(written)):
        found = search.finds(written[at : at + 1])
        begun.append(search.begun)
        if found:
            break
    else:
        pytest.fail("it wasn't found")
    first = next(at for at, one in enumerate(begun) if one)
    assert all(begun[first:at])
    # It begins at the same place, however much of it has come.
    assert {one.at for one in begun[first:at] if one} == {begun[first].at}
    assert first < at - len(PLAIN) // 2
    search = SecretSearch(SecretForms([PLAIN]))
    assert not search.finds(written[: first + 1])
    assert not search.finds(b"\n" * search._forms.reach)
    assert search.begun is None


@each_row("secret", [PLAIN, HARD])
@each_row("writing", WRITINGS)
def test_either_half_of_one_is_found_like_the_whole(secret: str, writing: str) -> None:
    forms = SecretForms(with_halves([secret]))
    for part in (
        secret,
        secret[:-1],
        secret[1:],
        secret[: len(secret) // 2],
        secret[len(secret) // 2 :],
    ):
        assert forms.is_in(b"before " + WRITINGS[writing](part).encode() + b"; after")


def test_half_of_a_short_one_may_be_anything() -> None:
    assert with_halves(["0123456789abcdefghi"]) == {"0123456789abcdefghi"}
    assert with_halves(["0123456789abcdefghij"]) == {
        "0123456789abcdefghij",
        "0123456789",
        "abcdefghij",
    }
    assert with_halves([]) == set()


def test_neither_small_letters_nor_capitals_hide_one() -> None:
    assert in_any_case(["aB-1"]) == {"aB-1", "ab-1", "AB-1"}
    forms = SecretForms(with_halves(in_any_case(["0123456789abcDEF0123456789"])))
    for said in (b"0123456789ABCDEF0123456789", b"0123456789abcdef0123456789", b"ABCDEF0123456789"):
        assert forms.is_in(b"you sent " + said)


ORDINARY = (
    json.dumps(
        {
            "model": "m",
            "text": 'He said "%41 & \\u0041" \n' * 20,
            "url": "https://x.test/?a=%20b%2Bc&d=1",
        }
    ),
    "sk-ant-0123456789 abcdef and sk-ant-012345678-9abcdef",
    "\n".join(f"{number:08x} {number * 7919:032x}" for number in range(200)),
    json.dumps(list(range(256)) * 4),
    base64.b64encode(bytes(range(256)) * 20).decode(),
)


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_text_is_never_cut(text: str) -> None:
    forms = SecretForms([PLAIN, HARD, "correct-horse-battery", "0f" * 20])
    for coding in ("utf-8", "utf-16-le"):
        written = text.encode(coding)
        assert not forms.is_in(written)
        assert forms.without(written, MARK) == written


def test_little_is_kept_of_what_came() -> None:
    forms = SecretForms(["x" * 100, "short-one"])
    search = SecretSearch(forms)
    assert not search.finds(b"y" * 10_000)
    for _ in range(100):
        assert not search.finds(b"y" * 500)
        assert len(search._tail) == forms.reach < 1300
    nothing = SecretSearch(SecretForms(["short"]))
    assert not nothing.finds(b"short" * 1000)
    assert not nothing._tail
    assert nothing.begun is None
    assert not SecretForms([])
    assert forms
