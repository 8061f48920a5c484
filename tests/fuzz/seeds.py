"""Where the fuzzer starts: the golden cases, the policies of this repository, and the words that
the languages are made of."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.egress import hellos

ROOT = Path(__file__).resolve().parents[2]
CASES = ROOT / "tests" / "golden" / "policy_cases"
POLICIES = ROOT / "policy"
# Inputs that once broke a target: tests/fuzz/found/TARGET/NAME.
FOUND = Path(__file__).with_name("found")

_TOKENS = {
    "exec": (
        "; && || | & ( ) { } < > >> <<< <<'E' $( ` ' \" \\ \\\n \n $x ${x} ${x:-y} $((1)) $' # ! *"
        " ? [ ] ~ if then else fi for in do done while case esac function eval exec cd env sudo"
        " xargs timeout bash -c sh -c find -exec {} \\; -delete --output= git log ls cat rm curl"
        " tee 2>&1 >/dev/null /dev/null /dev/tcp/ A=1 \u200b \u202e \x00 \r \x1b -- -n -c"
    ),
    "hosts": (
        "http:// https:// :// @ : [ ] % . .. / \\ ? # %2e %2f %00 %252e ; // /repos/me/ xn-- 0x"
        " 127.1 ::1 ::ffff: 64:ff9b:: 169.254.169.254 api.example.com .cdn.example.com"
        " code.example.com 192.0.2.7 2001:db8::7 :443 :80 * *. GET \u3002 \uff0e \uff41 \u00ad"
        " \u200d localhost \u00df \u0130"
    ),
    "paths": (
        "/ .. . ./ ../ // \n * ** **/ ? [ ] [! [^ [a-z] .git .GIT git~1 .env .github/ src/ secret/"
        " vault/ \\ : \u200b \u00e9 e\u0301 \u2024 \u00ad \u212a \uff0f \x00 \x7f"
    ),
    "git": (
        "git push fetch pull clone origin upstream feature/ main docs : + +: -f --force"
        " --force-with-lease --fo -d --delete --mirror --all --tags tag refs/heads/ refs/tags/ HEAD"
        " @ -- -c -C --repo= -o ' \" \\ $( ; * ext:: file:// ~ ^ \u00ad \u3164 \u200b"
    ),
    "packages": (
        "npm pip uv yarn pnpm bun poetry cargo go gem install i add ci get zod requests @team/"
        " @team/bad @ == >= < --registry= --index-url -r -e -g -D --save-dev git+https:// file: ./"
        " ../ .tgz npm: ' \" \\ ; -- python3 -m \u00ad"
    ),
    "policy": (
        "version: 1 modes: allow: ask: deny: exec( filesystem( network( git( packages( ) - rule:"
        " why: expires: session uses: except: match: not_match: protected: unprotected: { } [ ] : ,"
        " & * ! | > ' \" # %YAML --- ... <<: !!str !!binary null ~ true 2027-01-31 \t \ufeff"
    ),
    "check": (
        '{" ":" "," :{ } [ ] null true false 1e999 \\u0000 \\ud800 "id" "category" "exec"'
        ' "filesystem" "network" "git" "packages" "command" "cwd" "operation" "write" "rename"'
        ' "path" "path_b64" "to" "mode" "url" "connect" "method" "resolved" "policy" "allow" "deny"'
        ' "modes" "workspace"'
    ),
    "hello": "origin.test h2 http/1.1",
}
# Record and message types with a version or a length, extensions with theirs: what a dictionary of
# text can't say.
_BYTES = {
    "hello": [
        *(bytes([kind, 3, minor]) for kind in (20, 21, 22, 23) for minor in (1, 3)),
        b"\x01\x00\x00", b"\x02\x00\x00", b"\x03\x03", b"\x13\x01",
        *(hellos.extension(kind, b"") for kind in (0, 5, 16, 41, 42, 43, 51, 0xFE0D)),
        hellos.server_name(b"a"), hellos.RETRY_RANDOM, bytes(32),
    ]
}  # fmt: skip


@cache
def _cases() -> dict[str, list[dict[str, Any]]]:
    return {
        path.stem: yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
        for path in sorted(CASES.glob("*.yaml"))
    }


def _texts(target: str) -> Iterator[str]:
    match target:
        case "exec" | "git" | "packages":
            yield from (case["command"] for case in _cases()[target] if "command" in case)
        case "hosts":
            for case in _cases()["network"]:
                yield from (
                    str(case[key])
                    for key in ("url", "connect", "sni", "host_header")
                    if case.get(key)
                )
                if "://" in case.get("url", ""):
                    authority, slash, rest = case["url"].split("://", 1)[1].partition("/")
                    yield from (authority, slash + rest)
        case "paths":
            for case in _cases()["filesystem"]:
                patterns = [
                    rule for effect in ("allow", "deny") for rule in case["policy"].get(effect, ())
                ]
                texts = [rule if isinstance(rule, str) else rule["rule"] for rule in patterns]
                first = texts[len(case["name"]) % len(texts)] if texts else "filesystem(**)"
                yield f"{first.removeprefix('filesystem(').removesuffix(')')}\n{
                    case.get('path', '')
                }"
        case "policy":
            yield from (
                path.read_text(encoding="utf-8") for path in sorted(POLICIES.rglob("*.yaml"))
            )
            unique = {
                json.dumps(case["policy"], sort_keys=True)
                for cases in _cases().values()
                for case in cases
            }
            yield from (
                yaml.safe_dump(json.loads(one), allow_unicode=True) for one in sorted(unique)
            )
        case "check":
            for cases in _cases().values():
                yield from (
                    json.dumps({key: case[key] for key in case if key not in ("name", "verdict")})
                    for case in cases
                )


def _hellos() -> Iterator[bytes]:
    """ClientHellos and what is none, the same each time: so without those that hold random bytes
    of OpenSSL's."""
    name = hellos.extension(0, hellos.server_name(b"origin.test"))
    whole = hellos.with_extensions(
        name, hellos.extension(16, b"\x00\x03\x02h2"), hellos.extension(43, b"\x02\x03\x04")
    )
    for sizes in ((), (1,), (3, 1), (4,), (30, 40), (len(whole) - 6,)):
        yield hellos.records(hellos.message(whole), sizes)
    yield hellos.record(b"\x01", kind=20) + hellos.record(b"early data", kind=23) + whole
    yield hellos.server_hello()
    yield hellos.server_hello(hellos.RETRY_RANDOM)
    random = hellos.HELLO[11:43]
    yield from (data for data in hellos.BAD.values() if random not in data and len(data) < 1000)


def seeds(target: str) -> list[bytes]:
    """What the target starts from, without doubles, what was once found first."""
    known = [path.read_bytes() for path in sorted((FOUND / target).glob("*"))]
    texts = [text.encode("utf-8", "surrogatepass") for text in _texts(target)]
    if target == "hello":
        texts = list(_hellos())
    return list(dict.fromkeys([*known, *texts]))


def dictionary(target: str) -> str:
    """The target's words in the format of libFuzzer's `-dict`."""
    words = [*(word.encode() for word in _TOKENS[target].split(" ")), *_BYTES.get(target, ())]
    quoted = ("".join(f"\\x{byte:02x}" for byte in word) for word in words if word)
    return "".join(f'"{word}"\n' for word in quoted)
