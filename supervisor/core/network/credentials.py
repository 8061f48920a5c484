"""Parser of `credentials.yaml`: named secrets, and where each may go.

    version: 1
    credentials:
      github: {preset: github}                # its value is in data/secrets/github
      tracker:
        cmd: op read op://team/tracker/token  # or env: TRACKER_TOKEN, or file: another-name
        hosts: [tracker.example.org]
        methods: [GET, POST]
        paths: [/api/**]
        header: x-api-key
        variable: TRACKER_TOKEN               # where the sandbox finds the placeholder

It decides what the file may say, and which credentials and variables it gives a session.
`supervisor.sessions.named_secrets` reads the values. INVARIANT: the value of a secret passes
through here only from `credentials_of`'s argument into its result.
"""

import base64
import itertools
import re
import shlex
from typing import Any, Literal, NamedTuple

import msgspec

from supervisor.core.network.egress_wire import Credential
from supervisor.core.text import globs, strict_yaml
from supervisor.core.text.hosts import EVERY, as_address, canonical_host, is_shared_by_strangers
from supervisor.core.text.mistyped import nearest
from supervisor.core.text.urls import DEFAULT_PORTS, normalise_path, split_authority
from supervisor.errors import PolicyError, UserError

Source = Literal["file", "env", "cmd"]
_SOURCES: tuple[Source, ...] = ("file", "env", "cmd")
_KEYS = ("preset", *_SOURCES, "hosts", "methods", "paths", "header", "variable")
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,40}")
_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,80}")
_HOST = re.compile(r"\S{1,300}")
_METHOD = re.compile(r"[A-Z]{1,20}")
_PATH = re.compile(r"/[^\s\x00-\x20\x7f]*")
_HEADER = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,60}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,80}")
# `s3.amazonaws.com` is a public suffix: its names are buckets of people who don't know each other.
_LEAST_LABELS_OF_SERVICE = 3
_SHELLS = ("sh", "bash", "dash", "zsh", "ksh", "fish")
_SHELL_WORD = re.compile(r"\$[A-Za-z_{(]|`|\A~")
# Headers that egress sets itself, or that frame a request: a secret there is overwritten, or
# changes the request.
_OUR_HEADERS = re.compile(
    r"host|content-(?:length|encoding)|transfer-encoding|accept-encoding|connection|keep-alive|te|trailer|upgrade|expect|range|if-range|request-range"
    r"|http2-settings|(?:proxy|sec-websocket)-.+",
    re.IGNORECASE,
)
# Variables that the sandbox sets, and variables that change which programs run.
_OUR_VARIABLES = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|LANG|LC_.+|TERM|TZ|TMPDIR|IFS|ENV|BASH_ENV|IS_SANDBOX|.+_PROXY|NODE_(?:USE_ENV_PROXY|OPTIONS|EXTRA_CA_CERTS)"
    r"|(?:GATEHOUSE|LD|DYLD|JAVA_TOOL|GIT_CONFIG|GIT_SSL|GIT_SSH)_.+|PYTHON[A-Z]+|.+_CERT|.*(?:SSL_CERT|SSL_ROOTS|CA_?(?:BUNDLE|FILE|INFO|CERTS)).*",
    re.IGNORECASE,
)
# Characters of a header's value, long enough not to be found in ordinary text.
_SECRET = re.compile(r"[\x21-\x7e]{8,4096}")
_KEYS_OF_AWS = re.compile(r"[^:]+:[^:]{8,}(?::.+)?")


class Preset(NamedTuple):
    """A known service. `asks`: its hosts come from the configuration of this program. `git_user`:
    git sends the key as a password with this user name, or with another (`git_users`) if the value
    begins so. `other_headers` and `query_names` are other places where the service accepts keys (as
    in `Credential`): those in its documentation of REST authentication, including the deprecated
    ones."""

    hosts: tuple[str, ...]
    headers: tuple[str, ...]
    variables: tuple[str, ...]
    asks: Literal["", "pip", "npm"] = ""
    git_user: str = ""
    git_users: tuple[tuple[str, str], ...] = ()
    git_host: str = ""
    signs: bool = False
    other_headers: tuple[str, ...] = ()
    query_names: tuple[str, ...] = ()


PRESETS: dict[str, Preset] = {
    "anthropic": Preset(
        ("api.anthropic.com",), ("x-api-key", "authorization"), ("ANTHROPIC_API_KEY",)
    ),
    # Browsers can't set headers, so they send a key among the protocols of a WebSocket.
    "openai": Preset(
        ("api.openai.com",),
        ("authorization",),
        ("OPENAI_API_KEY", "CODEX_API_KEY"),
        other_headers=("sec-websocket-protocol: openai-insecure-api-key.",),
    ),
    # Its endpoint for Anthropic's clients accepts the header that they send.
    "openrouter": Preset(
        ("openrouter.ai",), ("authorization", "x-api-key"), ("OPENROUTER_API_KEY",)
    ),
    "github": Preset(
        ("api.github.com", "uploads.github.com", "github.com"),
        ("authorization",),
        ("GH_TOKEN", "GITHUB_TOKEN"),
        git_user="x-access-token",
        git_host="github.com",
        query_names=("access_token",),
    ),
    "gitlab": Preset(
        ("gitlab.com",),
        ("private-token", "authorization"),
        ("GITLAB_TOKEN",),
        git_user="oauth2",
        git_host="gitlab.com",
        # `bearer_token` is Doorkeeper's, by which it reads personal access tokens, too; the header
        # of NuGet uploads packages.
        other_headers=(
            "job-token",
            "deploy-token",
            "x-gitlab-static-object-token",
            "x-nuget-apikey",
        ),
        query_names=(
            "private_token",
            "access_token",
            "bearer_token",
            "job_token",
            "feed_token",
            "rss_token",
            "token",
        ),
    ),
    "bitbucket": Preset(
        ("api.bitbucket.org", "bitbucket.org"),
        ("authorization",),
        ("BITBUCKET_TOKEN",),
        # Access tokens of a repository, project or workspace begin with ATCT, API tokens of a
        # person with ATAT.
        git_user="x-token-auth",
        git_users=(("ATAT", "x-bitbucket-api-token-auth"),),
        git_host="bitbucket.org",
        query_names=("access_token", "jwt"),
    ),
    "pypi": Preset(
        (),
        ("authorization",),
        ("TWINE_PASSWORD", "UV_PUBLISH_TOKEN"),
        asks="pip",
        git_user="__token__",
    ),
    "npm": Preset((), ("authorization",), ("NPM_TOKEN",), asks="npm"),
    "aws": Preset(
        (), ("authorization",), ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), signs=True
    ),
}


class Binding(msgspec.Struct, frozen=True, kw_only=True):
    """A named secret: the source of its value, where it may go, and where the sandbox finds its
    placeholder."""

    name: str
    source: Source
    where: str
    hosts: tuple[str, ...]
    headers: tuple[str, ...]
    methods: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    asks: Literal["", "pip", "npm"] = ""
    git_user: str = ""
    git_users: tuple[tuple[str, str], ...] = ()
    git_hosts: tuple[str, ...] = ()
    signs: bool = False
    other_headers: tuple[str, ...] = ()
    query_names: tuple[str, ...] = ()


class ServerSecrets(NamedTuple):
    """What an MCP server has of named secrets: what egress adds, and the placeholders, as variables
    and as headers."""

    credentials: tuple[Credential, ...]
    variables: dict[str, str]
    headers: dict[str, str]


def parse_credentials(text: str, source: str) -> tuple[Binding, ...]:
    """Parse a file's bindings. Raise `PolicyError` with file, line and a remedy if it can't be
    used."""
    root = strict_yaml.load(text, source)
    if not isinstance(root, strict_yaml.Fields) or root.get("version") != "1":
        raise _fail(source, root, "`version: 1` is missing", "write it as the first line")
    for key in root:
        if key not in ("version", "credentials"):
            raise _fail(
                source, root, f"unknown key `{key}`", nearest(str(key), ("version", "credentials"))
            )
    listed = root.get("credentials")
    if not isinstance(listed, strict_yaml.Fields):
        raise _fail(
            source,
            root,
            "`credentials` is not a mapping of names",
            "write `credentials:` and a name below it",
        )
    return tuple(_binding(source, str(name), fields) for name, fields in listed.items())


def authority(host: str, port: int | None) -> str:
    """Return a host and its port as a binding names them. Raise `ValueError` if it isn't a host."""
    name = canonical_host(host)
    shown = f"[{name}]" if ":" in name else name
    return shown if port in (None, DEFAULT_PORTS["https"]) else f"{shown}:{port}"


def check_secret(name: str, value: str, *, signs: bool = False) -> str:
    """Return the value if it can be a secret. Raise `UserError`, which doesn't show the value, if
    it can't."""
    if signs and not _KEYS_OF_AWS.fullmatch(value):
        raise UserError(
            f"the value of the credential `{name}` is not `ACCESS:SECRET` or `ACCESS:SECRET:TOKEN`",
            "write the access key, a colon and the secret key",
        )
    if not _SECRET.fullmatch(value):
        raise UserError(
            f"the value of the credential `{name}` is not 8 to 4096 printable characters without"
            " spaces",
            "look at what it is read from",
        )
    return value


def credentials_of(binding: Binding, placeholder: str, secret: str) -> tuple[Credential, ...]:
    """Return egress's credentials: one for each header that may hold the secret."""
    return tuple(
        Credential(
            placeholder=placeholder,
            secret=secret,
            header=header,
            hosts=binding.hosts,
            methods=binding.methods,
            paths=binding.paths,
            basic=bool(binding.git_user) and header == "authorization",
            signs=binding.signs,
            other_headers=binding.other_headers,
            query_names=binding.query_names,
        )
        for header in binding.headers
    )


def environment_of(binding: Binding, placeholder: str) -> dict[str, str]:
    """Return the sandbox's variables that hold the placeholder."""
    found = dict.fromkeys(binding.variables, placeholder)
    if binding.git_user and "TWINE_PASSWORD" in found:
        found["TWINE_USERNAME"] = binding.git_user
    return found


def _binding(source: str, name: str, fields: Any) -> Binding:
    if not _NAME.fullmatch(name):
        raise _fail(
            source,
            fields,
            f"`{name}` is no name of a credential",
            "write lower-case letters, digits, - and _",
        )
    if not isinstance(fields, strict_yaml.Fields):
        raise _fail(source, fields, f"`{name}` is not a mapping", "write e.g. `{preset: github}`")
    for key in fields:
        if key not in _KEYS:
            raise _fail(
                source, fields, f"unknown key `{key}` in `{name}`", nearest(str(key), _KEYS)
            )
        # INVARIANT: an emptied list, or one of comments alone, never means "any".
        if not fields[key]:
            raise _fail(
                source,
                fields,
                f"`{key}` of `{name}` has no value",
                "leave the key out, or write at least one value",
            )
    for key in ("preset", *_SOURCES):
        if not isinstance(fields.get(key, ""), str):
            raise _fail(
                source,
                fields,
                f"`{key}` of `{name}` is not one text",
                f"write `{key}:` and one value",
            )
    preset = _preset(source, name, fields)
    given = [one for one in _SOURCES if one in fields]
    if len(given) > 1:
        raise _fail(
            source, fields, f"`{name}` has two sources", "keep one of `file`, `env` and `cmd`"
        )
    kind: Source = given[0] if given else "file"
    where = str(fields.get(kind, name))
    _check_source(source, fields, kind, where)
    hosts = _several(source, fields, "hosts", _HOST) or preset.hosts
    for host in hosts:
        _check_host(source, fields, host, signs=preset.signs)
    headers = _headers(source, fields, preset)
    if not headers or not (hosts or preset.asks):
        raise _fail(
            source,
            fields,
            f"`{name}` has no `{'hosts' if headers else 'header'}`",
            "say where it may go, or name a preset",
        )
    return Binding(
        name=name,
        source=kind,
        where=where,
        hosts=hosts,
        headers=tuple(header.lower() for header in headers),
        methods=_several(source, fields, "methods", _METHOD),
        paths=_paths(source, fields),
        variables=_variables(source, fields, preset),
        asks="" if "hosts" in fields else preset.asks,
        git_user=preset.git_user,
        git_users=preset.git_users,
        git_hosts=_git_hosts(preset, fields, hosts),
        signs=preset.signs,
        other_headers=preset.other_headers,
        query_names=preset.query_names,
    )


def _check_host(source: str, fields: Any, text: str, *, signs: bool) -> None:
    """Check a host's spelling: it must be the one with which requests are compared, or its
    credential would go nowhere. A host with a `*` must belong to one owner, or a secret would go to
    strangers. A key that only signs is never sent, and its signature is valid only at its own host,
    so the names of a service will do for one (`*.s3.amazonaws.com`)."""
    name = text.removeprefix(EVERY)
    try:
        meant = authority(*split_authority(name))
    except ValueError:
        meant = ""
    host = meant.partition(":")[0]
    is_below_address = text != name and (meant.startswith("[") or as_address(host) is not None)
    if is_below_address or meant != name.removesuffix(":443"):
        right = f"`{text.replace(name, meant)}`" if meant and not is_below_address else ""
        remedy = f"write {right or '`api.example.org`, `api.example.org:8443` or `*.example.org`'}"
        raise _fail(source, fields, f"`{text}` in `hosts` names no host", remedy)
    if text == name:
        return
    if is_shared_by_strangers(host) and not (
        signs and host.count(".") + 1 >= _LEAST_LABELS_OF_SERVICE
    ):
        raise _fail(
            source,
            fields,
            f"`{text}` are the hosts of strangers to each other",
            "name the hosts, or their own domain",
        )


def _headers(source: str, fields: Any, preset: Preset) -> tuple[str, ...]:
    found = _several(source, fields, "header", _HEADER)
    for header in found:
        if _OUR_HEADERS.fullmatch(header):
            raise _fail(
                source,
                fields,
                f"`{header}` in `header` is no header for a credential",
                "write the one that carries it",
            )
        if preset.signs and header.lower() not in preset.headers:
            raise _fail(
                source,
                fields,
                f"keys of AWS sign `authorization`, not `{header}`",
                "leave `header` out",
            )
    return found or preset.headers


def _variables(source: str, fields: Any, preset: Preset) -> tuple[str, ...]:
    found = _several(source, fields, "variable", _VARIABLE)
    for variable in found:
        if _OUR_VARIABLES.fullmatch(variable):
            raise _fail(
                source,
                fields,
                f"`{variable}` in `variable` means something else to the sandbox or to programs"
                " in it",
                "write another one",
            )
    return found or preset.variables


def _git_hosts(preset: Preset, fields: Any, hosts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the hosts to which git sends the secret: the service's own, or those of a self-hosted
    server."""
    if not preset.git_host:
        return ()
    return hosts if "hosts" in fields else (preset.git_host,)


def _preset(source: str, name: str, fields: Any) -> Preset:
    if "preset" not in fields:
        return Preset((), (), ())
    found = PRESETS.get(str(fields["preset"]))
    if found is None:
        raise _fail(
            source,
            fields,
            f"unknown preset `{fields['preset']}` in `{name}`",
            nearest(str(fields["preset"]), PRESETS),
        )
    return found


def _check_source(source: str, fields: Any, kind: Source, where: str) -> None:
    if kind == "cmd":
        try:
            words = shlex.split(where)
        except ValueError:
            words = []
        if not words:
            raise _fail(
                source,
                fields,
                "`cmd` can't be read",
                "write a program and its words, every quote closed",
            )
        word = _for_a_shell(where, words)
        if word:
            message = f"no shell runs `cmd`, and `{word}` means something to a shell only"
            raise _fail(
                source, fields, message, "write `sh -c '...'` around what a shell is to run"
            )
    elif not (_VARIABLE if kind == "env" else _FILE).fullmatch(where):
        # Don't quote it: somebody may have written the secret itself there.
        raise _fail(
            source,
            fields,
            f"what `{kind}` says is no name",
            "write the name of a variable, or of a file in data/secrets, which has the secret"
            " in it",
        )


def _for_a_shell(command: str, words: list[str]) -> str:
    """Return the first word that was meant for a shell; empty if there is none, or if the command
    itself names a shell.

    The literal result of such a word may look like a secret, and would be sent as one.
    """
    if words[0].rpartition("/")[2] in _SHELLS:
        return ""
    if "=" in words[0]:
        return words[0]
    lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    for word in lexer:
        if _SHELL_WORD.search(word) or not word.strip(lexer.punctuation_chars):
            return word
    return ""


def _several(source: str, fields: Any, key: str, form: re.Pattern[str]) -> tuple[str, ...]:
    """Return a list of words; a single word becomes a list of one."""
    value = fields.get(key)
    if value is None:
        return ()
    items = value if isinstance(value, strict_yaml.Items) else [value]
    for item in items:
        if not isinstance(item, str) or not form.fullmatch(item):
            raise _fail(
                source,
                fields,
                f"`{item}` in `{key}` can't be used",
                "see the examples in docs/network-and-credentials.md",
            )
    return tuple(str(item) for item in items)


def _paths(source: str, fields: Any) -> tuple[str, ...]:
    found = _several(source, fields, "paths", _PATH)
    for path in found:
        if any(segment in ("", ".", "..") for segment in path[1:].split("/")[:-1]) or path.endswith(
            ("/..", "/.")
        ):
            raise _fail(
                source,
                fields,
                f"`{path}` has dot or empty segments",
                "write the path as it is meant",
            )
        meant = normalise_path(path)
        if meant.ambiguous or meant.text != path:
            remedy = "write it without percent-encoding, `?` and `#`"
            raise _fail(
                source, fields, f"`{path}` in `paths` is no path as requests' are compared", remedy
            )
        globs.check(path[1:], path)
    return found


def _fail(source: str, value: Any, message: str, remedy: str) -> PolicyError:
    line = strict_yaml.line_of(value)
    return PolicyError(f"{source}:{line}: {message}" if line else f"{source}: {message}", remedy)


def git_settings(bindings: dict[str, Binding]) -> dict[str, str]:
    """Return settings for git that send the placeholders (the keys) to their hosts, as environment
    variables (git-config(1))."""
    found: list[tuple[str, str]] = []
    for placeholder, binding in bindings.items():
        basic = base64.b64encode(f"{binding.git_user}:{placeholder}".encode()).decode()
        places = [
            f"{host}{prefix}" for host in binding.git_hosts for prefix in _prefixes(binding.paths)
        ]
        found += [
            (f"http.https://{place}.extraHeader", f"Authorization: Basic {basic}")
            for place in places
        ]
    if not found:
        return {}
    made = {"GIT_CONFIG_COUNT": str(len(found))}
    for number, (key, value) in enumerate(found):
        made |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return made


def _prefixes(paths: tuple[str, ...]) -> list[str]:
    """Return the folders that contain the paths, up to their first wildcard. INVARIANT: none is
    below another: git sends the header of each that fits."""
    folders = []
    for path in paths or ("/**",):
        kept = itertools.takewhile(
            lambda segment: not globs.has_wildcard(segment), path[1:].split("/")
        )
        folders.append("/".join(["", *filter(None, kept), ""]))
    return [
        one
        for one in dict.fromkeys(folders)
        if not any(one != other and one.startswith(other) for other in folders)
    ]
