"""The ways to write a secret that are known, each made by somebody else's code where there is
any: what is searched has to find it in all of them."""

import base64
import html
import json
import urllib.parse
from collections.abc import Callable

type Writing = Callable[[str], str]


def in_base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


WRITINGS: dict[str, Writing] = {
    "as it is": lambda text: text,
    "JSON": json.dumps,
    "JSON in UTF-8": lambda text: json.dumps(text, ensure_ascii=False),
    "JSON with its slashes escaped": lambda text: json.dumps(text).replace("/", "\\/"),
    "JSON, each character by its number": lambda text: "".join(
        f"\\u{text.encode('utf-16-be')[at : at + 2].hex().upper()}"
        for at in range(0, len(text.encode("utf-16-be")), 2)
    ),
    "JSON in JSON": lambda text: json.dumps(json.dumps({"body": text})),
    "percent-encoded": lambda text: urllib.parse.quote(text, safe=""),
    "percent-encoded in lower case, each byte": lambda text: "".join(
        f"%{byte:02x}" for byte in text.encode()
    ),
    "percent-encoded twice": lambda text: urllib.parse.quote(
        urllib.parse.quote(text, safe=""), safe=""
    ),
    "of a form": urllib.parse.quote_plus,
    "percent-encoded in JSON": lambda text: json.dumps(urllib.parse.quote(text)),
    "JSON, percent-encoded": lambda text: urllib.parse.quote(json.dumps(text)),
    "base64": in_base64,
    "base64, second place": lambda text: in_base64(":" + text),
    "base64, third place, more behind": lambda text: in_base64("me" + text + "!"),
    "base64 of URLs": lambda text: base64.urlsafe_b64encode(text.encode()).decode(),
    "base64 in lines": lambda text: base64.encodebytes(("x" * 70 + text).encode()).decode(),
    "base64 in lines in JSON": lambda text: json.dumps(
        base64.encodebytes(("x" * 70 + text).encode()).decode()
    ),
    "base64, percent-encoded": lambda text: urllib.parse.quote(in_base64(text), safe=""),
    "percent-encoded, lower and upper case": lambda text: "".join(
        f"%{byte:02x}" if byte % 2 else f"%{byte:02X}" for byte in text.encode()
    ),
    "JavaScript's numbers in braces": lambda text: "".join(f"\\u{{{ord(one):x}}}" for one in text),
    "JavaScript's bytes": lambda text: (
        "".join(f"\\x{byte:02x}" for byte in text.encode("latin-1", "ignore"))
        if text.isascii()
        else json.dumps(text)
    ),
    "HTML": html.escape,
    "HTML, each character by its number": lambda text: "".join(f"&#{ord(one)};" for one in text),
    "HTML, by its hexadecimal number": lambda text: "".join(f"&#x{ord(one):04X};" for one in text),
    "HTML in JSON": lambda text: json.dumps(html.escape(text)).replace("&", "\\u0026"),
    "JSON in HTML": lambda text: html.escape(json.dumps(text)),
    "HTML in HTML": lambda text: html.escape(html.escape(text)),
    "hexadecimal": lambda text: text.encode().hex(),
    "hexadecimal, in both cases": lambda text: "".join(
        f"{byte:02x}" if byte % 2 else f"{byte:02X}" for byte in text.encode()
    ),
    "hexadecimal, apart": lambda text: text.encode().hex(" "),
    "hexadecimal, as a program has it": lambda text: ", ".join(
        f"0x{byte:02X}" for byte in text.encode()
    ),
    "numbers": lambda text: json.dumps(list(text.encode())),
    "numbers, one a line": lambda text: json.dumps(list(text.encode()), indent=2),
    "Basic credentials": lambda text: (
        "Authorization: Basic " + in_base64("x-access-token:" + text) + "\r\n"
    ),
}
