"""Secrets found by the label beside them, such as `TOKEN=...`.

Also `"password": "..."`, `Authorization: Basic ...`, `login x password ...`. It decides which names
say that their value authenticates, and finds such values in any text. A value that may be anything
(`token: expired`) is left alone: it must look like a secret, or stand in quotes.
"""

import re
from collections.abc import Iterator
from functools import lru_cache

from supervisor.core.secrets.header_secrets import authenticates

# The last word of a name, whatever comes before it.
_LAST = frozenset(
    {
        "accesskey", "accesstoken", "apikey", "apitoken", "authtoken", "bearer", "credential",
        "credentials", "jwt", "otp", "passcode",
        "passphrase", "passwd", "password", "passwords", "pwd", "pass", "secret", "secretkey",
        "secrets", "storepass", "keypass",
        "token", "totp", "pat",
    }
)  # fmt: skip
_ENDS = re.compile(
    r"(?:[^t]oken|token|secret|password|passwd|passphrase|(?:ssh|db|user|root|admin|my|store|key)pass)\Z"
)
# `key` alone may mean anything: the other words of the name decide.
_KEYS = frozenset(
    {
        "access", "account", "admin", "api", "app", "application", "auth", "client", "consumer",
        "deploy", "encryption", "hmac", "jwt",
        "license", "master", "private", "publishing", "secret", "security", "service", "session",
        "shared", "signing", "storage",
        "subscription", "webhook", "anthropic", "openai", "stripe",
    }
)  # fmt: skip
_WHOLE = frozenset(
    {
        "rediscliauth",
        "secretkeybase",
        "requirepass",
        "masterauth",
        "proxyauth",
        "auth",
        "npmconfigauth",
        "pgpassword",
    }
)
# A name with one of these words means an amount, a switch, or something else that isn't secret.
_NO_SECRET = frozenset(
    {
        "alias", "allow", "ask", "check", "count", "disable", "enable", "forget", "has", "is",
        "limit", "list", "max", "min", "no", "num",
        "number", "print", "prompt", "public", "require", "reset", "rotate", "show", "skip",
        "total", "use", "with", "without",
    }
)  # fmt: skip
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_SWITCHES = re.compile(
    r"(?i:true|false|yes|no|none|null|nil|on|off|auto|never|always|prompt|stdin|required|optional|undefined)"
)
MOST_NAME_CHARS = 120


@lru_cache(maxsize=4096)
def names_secret(name: str) -> bool:
    """Return whether a variable, option or field with this name holds something that
    authenticates."""
    if len(name) > MOST_NAME_CHARS or name in ("PWD", "OLDPWD", "pwd", "pass"):
        return False
    words = [word.lower() for word in _WORD.findall(name.rpartition("/")[2])]
    if not words or not _NO_SECRET.isdisjoint(words):
        return False
    joined = "".join(words)
    if words[-1] in _LAST or joined in _WHOLE or _ENDS.search(joined):
        return True
    return words[-1] == "key" and (not _KEYS.isdisjoint(words) or joined[:-3].endswith("api"))


def is_value(value: str) -> bool:
    """Return whether the value may be a secret, rather than a switch or something trivial."""
    return len(value) > 2 and _SWITCHES.fullmatch(value) is None


# In quotes, also escaped ones: the value without the quotes. Quoted text can't act.
_QUOTED = r"""\\{0,3}"((?:[^"\\\n$`]|\\(?!")[^$`\n])+)\\{0,3}"|\\{0,3}'([^'\n]+)'"""
_FIELD = re.compile(
    rf"""(?<![\w.-])([A-Za-z_][\w.-]{{1,80}})(?:\\{{0,3}}["'])?(?:[ \t]*(?::=?|=>)|[ \t]+=)[ \t]*(?:{_QUOTED}|([^\s"'\\`$(){{}}\[\]<>,;&|]+))"""  # noqa: E501
)
_HEADER = re.compile(
    r"(?i)(?<![\w-])((?:proxy-)?authorization|(?:set-)?cookie|[a-z][a-z0-9-]{0,60}-(?:key|token|auth|secret|password|passphrase)|apikey)"
    r"[ \t]*:[ \t]*([^\r\n\"'`]+)"
)
_SCHEME = re.compile(
    r"(?i)(basic|bearer|digest|token|negotiate|ntlm|apikey|api-key|key|splunk|hawk|dpop|aws4-[a-z0-9-]+)["
    r" \t]+"
)
_PARTS = re.compile(
    r"(?i)(?:(?<=[;, ])|(?<=^))(?:signature|response|nonce|cnonce|mac|credential)=\"?([^\",;\s]+)"
)
_COOKIE = re.compile(r"(?:^|(?<=[;\s]))[^=;\s]+=([^;\s]+)")
_SQL = re.compile(
    r"(?i)\b(?:identified[ ]+(?:with[ ]+\S+[ ]+)?by|password)["
    r" ]+(?:\\{0,3}'([^'\\\n]+)|\\{0,3}\"([^\"\\\n$`]+))"
)
_NETRC = re.compile(r"\blogin[ \t]+\S+[ \t\n]+password[ \t]+([^\s\"'`;&|$]+)")
_PAIR = re.compile(r"\bauth[ ]*=[ ]*\([ ]*(?:[\"'][^\"'\n]*[\"'])[ ]*,[ ]*[\"']([^\"'\n]+)[\"']")
_PGPASS = re.compile(
    r"(?<![^\s\"'])[^:\s\"']{1,200}:(?:[0-9]{1,5}|\*):[^:\s]{1,100}:[^:\s]{1,100}:([^\s\"']+)"
)
_URL = re.compile(
    r"(?<=://)(?:[^\s/:@\"'`$]{0,200}):([^\s\"'`$/@]{1,500})@|(?<=://)((?=[A-Za-z_-]{0,500}[0-9])[A-Za-z0-9_-]{16,500})@"
)
_QUERY = re.compile(r"[?&]([^?&=\s\"'#]{1,120})=([^&#\s\"'`$<>;|()]+)")
# `-o username=a,password=b`, `//registry/:_authToken=...`
_LISTED = re.compile(r"(?<=[,:])([A-Za-z_][\w.-]{1,80})=([^\s\"'`$(){}<>,;&|]+)")
_SIGNED = re.compile(r"(?i)\bx-amz-(?:signature|security-token|credential)=([^&\s\"'`$]+)")
# A value outside quotes that can't be a word of a language.
_RANDOM = re.compile(r"(?=.*[0-9])(?=.*[A-Za-z]).{6,}|(?=.*[!@#%^*+=~]).{6,}|[0-9]{4,}")
_CODE = re.compile(r"[A-Za-z_][\w]*(?:\.[A-Za-z_]\w*)+")

type SecretSpan = tuple[int, int]


def spans(text: str, *, is_command: bool = True) -> Iterator[SecretSpan]:
    """Return the spans of labelled secrets in a text. Outside a command, fields (`name: value`) are
    left alone: the text may be code."""
    if ":" in text:
        yield from _in_headers(text)
        yield from _groups(_URL, text)
    if "=" in text:
        yield from _in_queries(text)
        yield from (
            found.span(2)
            for found in _LISTED.finditer(text)
            if names_secret(found[1]) and is_value(found[2])
        )
    if not is_command:
        yield from _in_environment(text)
        return
    yield from _in_fields(text)
    for pattern in (_SQL, _NETRC, _PAIR):
        yield from _groups(pattern, text)
    if "pgpass" in text:
        yield from _groups(_PGPASS, text)


def in_header(text: str, start: int = 0) -> Iterator[SecretSpan]:
    """Return the spans of secrets in one header (`Name: value`), shifted by `start`."""
    name, colon, value = text.partition(":")
    if not colon or not authenticates(
        name.strip().encode(), value.strip().encode("utf-8", "replace")
    ):
        return
    at = len(name) + 1 + len(value) - len(value.lstrip())
    for first, last in _of_header(name.strip().lower(), value.strip(), is_sure=True):
        yield start + at + first, start + at + last


def in_cookies(text: str, start: int = 0) -> Iterator[SecretSpan]:
    """Return the spans of the values of cookies."""
    for found in _COOKIE.finditer(text):
        yield start + found.start(1), start + found.end(1)


def _of_header(name: str, value: str, *, is_sure: bool) -> Iterator[SecretSpan]:
    """Return the hidden spans of a header's value. The scheme of credentials and the names of
    cookies stay visible."""
    if name in ("cookie", "set-cookie"):
        yield from in_cookies(value if name == "cookie" else value.partition(";")[0])
        return
    scheme = _SCHEME.match(value)
    rest = value[scheme.end() :] if scheme else value
    at = scheme.end() if scheme else 0
    if "=" in rest and (found := list(_PARTS.finditer(rest))):
        yield from ((at + one.start(1), at + one.end(1)) for one in found)
        return
    rest = rest.strip()
    is_likely = " " not in rest and (scheme or _RANDOM.fullmatch(rest) or len(rest) >= 16)
    if rest and (is_sure or is_likely):
        yield at, at + len(rest)


def _in_headers(text: str) -> Iterator[SecretSpan]:
    for found in _HEADER.finditer(text):
        value = found[2].split("\\n")[0].split("\\r")[0].rstrip("\\ ")
        if "$" in value or value.startswith("["):
            continue
        for first, last in _of_header(found[1].lower(), value, is_sure=False):
            yield found.start(2) + first, found.start(2) + last


def _in_queries(text: str) -> Iterator[SecretSpan]:
    for found in _QUERY.finditer(text):
        if names_secret(found[1]) or found[1].lower() in (
            "sig",
            "signature",
            "key",
            "auth",
            "sid",
            "hmac",
            "x-amz-signature",
        ):
            yield found.span(2)
    yield from _groups(_SIGNED, text)


_ENVIRONMENT = re.compile(r"(?m)^(?:export |declare -x )?([A-Z][A-Z0-9_]{2,100})=\"?([^\s\"]+)")


def _in_environment(text: str) -> Iterator[SecretSpan]:
    """Find secrets in the form in which `env` and `export -p` print them."""
    for found in _ENVIRONMENT.finditer(text):
        if names_secret(found[1]) and is_value(found[2]):
            yield found.span(2)


def _in_fields(text: str) -> Iterator[SecretSpan]:
    for found in _FIELD.finditer(text):
        if not names_secret(found[1]):
            continue
        group = next(number for number in (2, 3, 4) if found[number] is not None)
        value = found[group]
        if group == 4 and (not _RANDOM.fullmatch(value) or _CODE.fullmatch(value)):
            continue
        if is_value(value):
            yield found.span(group)


def _groups(pattern: re.Pattern[str], text: str) -> Iterator[SecretSpan]:
    for found in pattern.finditer(text):
        yield next(
            found.span(group) for group in range(1, pattern.groups + 1) if found[group] is not None
        )
