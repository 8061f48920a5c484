"""Secrets are found however they are written, from end to end and where the text is cut off; what is no secret stays as it is."""

import base64
import json
import re
import urllib.parse
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from supervisor.core.secret_forms import MOST_READINGS, SHORTEST_SECRET, SecretForms

MARK = b"[redacted]"
PLAIN = "sk-ant-0123456789abcdef"
HARD = 'p@ss/w\N{LATIN SMALL LETTER O WITH DIAERESIS}rd+ "100%" \\ \N{GRINNING FACE}'
LONG = "-----BEGIN KEY-----\n" + "MIIEvQIBADANBg/kqhkiG9w0BAQ+EFAASC\n" * 20 + "-----END KEY-----\n"

type Writing = Callable[[str], str]


def in_base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


WRITINGS: dict[str, Writing] = {
    "as it is": lambda text: text,
    "JSON": json.dumps,
    "JSON in UTF-8": lambda text: json.dumps(text, ensure_ascii=False),
    "JSON with its slashes escaped": lambda text: json.dumps(text).replace("/", "\\/"),
    "JSON, each character by its number": lambda text: "".join(
        f"\\u{text.encode('utf-16-be')[at : at + 2].hex().upper()}" for at in range(0, len(text.encode("utf-16-be")), 2)
    ),
    "JSON in JSON": lambda text: json.dumps(json.dumps({"body": text})),
    "percent-encoded": lambda text: urllib.parse.quote(text, safe=""),
    "percent-encoded in lower case, each byte": lambda text: "".join(f"%{byte:02x}" for byte in text.encode()),
    "percent-encoded twice": lambda text: urllib.parse.quote(urllib.parse.quote(text, safe=""), safe=""),
    "of a form": urllib.parse.quote_plus,
    "percent-encoded in JSON": lambda text: json.dumps(urllib.parse.quote(text)),
    "JSON, percent-encoded": lambda text: urllib.parse.quote(json.dumps(text)),
    "base64": in_base64,
    "base64, second place": lambda text: in_base64(":" + text),
    "base64, third place, more behind": lambda text: in_base64("me" + text + "!"),
    "base64 of URLs": lambda text: base64.urlsafe_b64encode(text.encode()).decode(),
    "base64 in lines": lambda text: base64.encodebytes(("x" * 70 + text).encode()).decode(),
    "base64 in lines in JSON": lambda text: json.dumps(base64.encodebytes(("x" * 70 + text).encode()).decode()),
    "base64, percent-encoded": lambda text: urllib.parse.quote(in_base64(text), safe=""),
    "Basic credentials": lambda text: "Authorization: Basic " + in_base64("x-access-token:" + text) + "\r\n",
}


def readings(data: bytes) -> set[bytes]:
    """What anybody could make of a text, two times over; apart from how the module does it."""
    found = {data}
    for _ in range(2):
        for one in tuple(found):
            found.add(urllib.parse.unquote_to_bytes(one))
            found.add(urllib.parse.unquote_to_bytes(one.replace(b"+", b" ")))
            try:
                found.add(json.loads(b'"' + one.strip(b'" ') + b'"', strict=False).encode("utf-8", "surrogatepass"))
            except (ValueError, AttributeError):
                continue
    return found


def of_base64(text: bytes) -> bytes:
    """What a text is as base64, as far as it is any."""
    plain = urllib.parse.unquote_to_bytes(text).translate(bytes.maketrans(b"-_", b"+/"))
    code = b"".join(re.findall(rb"[A-Za-z0-9+/]", plain))
    return base64.b64decode(code[: len(code) // 4 * 4])


@pytest.mark.parametrize("secret", [PLAIN, HARD, LONG])
@pytest.mark.parametrize("writing", WRITINGS)
def test_a_secret_is_found_however_it_is_written(secret: str, writing: str) -> None:
    written = WRITINGS[writing](secret).encode()
    shown = SecretForms([secret]).without(b"before " + written + b"; after", MARK)
    assert shown.count(MARK) == 1
    assert shown.startswith(b"before ")
    assert shown.endswith(b"; after")
    assert secret.encode() not in readings(shown)
    if "base64" not in writing and "Basic" not in writing:
        around = shown.removeprefix(b"before ").removesuffix(b"; after").replace(MARK, b"")
        assert around.strip(b'"\\') in (b"", b"{body: }", b"%22%22", b'{\\"body\\": \\"\\"}')


@pytest.mark.parametrize("secret", [PLAIN, HARD])
@pytest.mark.parametrize("writing", [one for one in WRITINGS if "lines" not in one])
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


def test_a_text_that_could_be_read_in_too_many_ways_is_read_in_some() -> None:
    forms = SecretForms([HARD])
    layers = b"%2525+%5C%5Cu002525\\u0025" * 3
    assert len(forms._readings(layers)) <= MOST_READINGS
    assert forms.without(layers + HARD.encode(), MARK) == layers + MARK


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
def test_any_secret_is_found_between_any_text(secret: str, before: str, after: str, writing: str) -> None:
    written = WRITINGS[writing](before + secret + after).encode()
    assert MARK in SecretForms([secret]).without(written, MARK)
