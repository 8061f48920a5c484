"""The file that binds named secrets: what it means, and what is wrong with it."""

import pytest

from supervisor.core.network.credentials import (
    PRESETS,
    Binding,
    authority,
    check_secret,
    credentials_of,
    environment_of,
    parse_credentials,
)
from supervisor.errors import PolicyError, UserError
from tests.tables import each_row

SECRET = "s3cret-value-0123456789"


def one(text: str) -> Binding:
    (found,) = parse_credentials(f"version: 1\ncredentials:\n  it: {text}\n", "credentials.yaml")
    return found


def test_a_preset_needs_no_more_than_its_name() -> None:
    found = one("{preset: github}")
    assert (found.source, found.where, found.variables) == (
        "file",
        "it",
        ("GH_TOKEN", "GITHUB_TOKEN"),
    )
    assert "api.github.com" in found.hosts
    for name in PRESETS:
        made = credentials_of(one(f"{{preset: {name}, hosts: [h.example.org]}}"), "p", SECRET)
        assert {credential.hosts for credential in made} == {("h.example.org",)}


def test_one_of_ones_own() -> None:
    found = one(
        "{cmd: op read op://a/b, hosts: ['api.example.org:8443'], methods: GET, paths: [/v1/**],"
        " header: X-Api-Key, variable: KEY}"
    )
    assert found == Binding(
        name="it", source="cmd", where="op read op://a/b", hosts=("api.example.org:8443",),
        methods=("GET",), paths=("/v1/**",),
        headers=("x-api-key",), variables=("KEY",),
    )  # fmt: skip
    (credential,) = credentials_of(found, "placeholder", SECRET)
    assert (credential.secret, credential.methods, credential.paths, credential.basic) == (
        SECRET,
        ("GET",),
        ("/v1/**",),
        False,
    )
    assert SECRET not in repr(credential)
    assert environment_of(found, "placeholder") == {"KEY": "placeholder"}


@pytest.mark.parametrize(
    "text",
    [
        "{header: x-key, hosts: '*.example.org'}",
        "{preset: github, hosts: ['*.git.example.org:8443']}",
        "{preset: aws, hosts: '*.s3.amazonaws.com'}",
        "{preset: aws, hosts: ['*.s3.eu-west-1.amazonaws.com', dynamodb.eu-west-1.amazonaws.com]}",
    ],
)
def test_hosts_of_one_owner_may_be_named_at_once_and_for_a_key_that_signs_those_of_a_service(
    text: str,
) -> None:
    assert any(host.startswith("*.") for host in one(text).hosts)


def test_registries_are_those_of_the_package_managers() -> None:
    found = one("{preset: pypi, env: TOKEN}")
    assert (found.asks, found.hosts) == ("pip", ())
    assert environment_of(found, "p") == {
        "TWINE_PASSWORD": "p",
        "UV_PUBLISH_TOKEN": "p",
        "TWINE_USERNAME": "__token__",
    }
    own = one("{preset: pypi, hosts: packages.example.org}")
    assert own.asks == ""
    assert environment_of(own, "p")["TWINE_USERNAME"] == "__token__"
    bare = one("{hosts: packages.example.org, header: authorization, variable: TWINE_PASSWORD}")
    assert environment_of(bare, "p") == {"TWINE_PASSWORD": "p"}
    assert one("{preset: npm}").asks == "npm"


def test_egress_is_told_where_else_a_service_takes_keys() -> None:
    made = credentials_of(one("{preset: gitlab, hosts: git.example.org}"), "p", SECRET)
    assert {"job-token", "deploy-token"} <= set(made[0].other_headers)
    assert {"private_token", "access_token", "job_token"} <= set(made[0].query_names)
    assert made[0].other_headers == made[1].other_headers


def test_a_registry_is_named_as_a_host_is() -> None:
    assert (
        authority("Packages.Example.org", None)
        == authority("packages.example.org", 443)
        == "packages.example.org"
    )
    assert authority("fd00::1", 8443) == "[fd00::1]:8443"
    with pytest.raises(ValueError, match="is empty"):
        authority("", None)


def test_keys_of_aws() -> None:
    found = one("{preset: aws, hosts: bedrock-runtime.us-east-1.amazonaws.com}")
    (credential,) = credentials_of(found, "placeholder", "AK:secret-key")
    assert credential.signs
    assert environment_of(found, "p") == {"AWS_ACCESS_KEY_ID": "p", "AWS_SECRET_ACCESS_KEY": "p"}
    for value in ("AK:secret-key", "AK:secret-key:token"):
        assert check_secret("it", value, signs=True) == value
    with pytest.raises(UserError, match="ACCESS:SECRET"):
        check_secret("it", "only-an-access-key", signs=True)


@each_row(
    ("command", "word"),
    [
        ("cat $HOME/token", "$HOME/token"),
        ("cat ${HOME}/token", "${HOME}/token"),
        ("cat ~/token", "~/token"),
        ("cat token | head -1", "|"),
        ("cat token|head -1", "|"),
        ("cat < token", "<"),
        ("unlock && cat token", "&&"),
        ("cat `which token`", "`which"),
        ("echo $(cat token)", "("),
        ("TOKEN=x printenv TOKEN", "TOKEN=x"),
    ],
)
def test_a_command_that_only_a_shell_understands_is_refused(command: str, word: str) -> None:
    with pytest.raises(PolicyError, match="no shell runs `cmd`") as caught:
        one(f'{{preset: openai, cmd: "{command}"}}')
    assert f"`{word}`" in str(caught.value)
    assert "sh -c" in caught.value.remedy


@pytest.mark.parametrize(
    "command",
    [
        "sh -c 'cat $HOME/token | head -1'",
        "/bin/bash -c 'a && b'",
        "op read op://team/tracker/token",
        "get 'https://h/?a=1&b=2' --x=y",
    ],
)
def test_one_that_needs_none_or_names_it_is_run(command: str) -> None:
    assert one(f'{{preset: openai, cmd: "{command}"}}').where == command


@pytest.mark.parametrize(
    "value", ["", "short", "with a space", "with\nbreak", "ümläuts-in-it", "x" * 5000]
)
def test_a_value_that_cant_be_one_is_refused_without_being_shown(value: str) -> None:
    with pytest.raises(UserError) as caught:
        check_secret("it", value)
    assert "it" in str(caught.value)
    assert not value or value not in str(caught.value)
    assert check_secret("it", SECRET) == SECRET


@each_row(
    ("text", "message"),
    [
        ("", "`version: 1` is missing"),
        ("version: 2", "`version: 1` is missing"),
        ("version: 1\nsecrets: {}", "unknown key `secrets`"),
        ("version: 1\ncredentials: []", "not a mapping of names"),
        ("version: 1\ncredentials: {A: {preset: github}}", "`A` is no name"),
        ("version: 1\ncredentials: {a: github}", "`a` is not a mapping"),
        (
            "version: 1\ncredentials:\n  a: {preset: github, host: x}",
            "credentials.yaml:3: unknown key `host` in `a`",
        ),
        ("version: 1\ncredentials: {a: {preset: git}}", "unknown preset `git`"),
        ("version: 1\ncredentials: {a: {preset: github, env: A, cmd: b}}", "two sources"),
        (
            "version: 1\ncredentials: {a: {preset: github, file: ../x}}",
            "what `file` says is no name",
        ),
        ("version: 1\ncredentials: {a: {preset: github, env: A-B}}", "what `env` says is no name"),
        ("version: 1\ncredentials: {a: {preset: github, cmd: 'x \"'}}", "`cmd` can't be read"),
        ("version: 1\ncredentials: {a: {preset: github, cmd: ' '}}", "`cmd` can't be read"),
        ("version: 1\ncredentials: {a: {header: x-key}}", "`a` has no `hosts`"),
        ("version: 1\ncredentials: {a: {hosts: h.example.org}}", "`a` has no `header`"),
        ("version: 1\ncredentials: {a: {hosts: '*', header: x}}", "in `hosts` names no host"),
        (
            "version: 1\ncredentials: {a: {hosts: 'a.*.example.org', header: x}}",
            "in `hosts` names no host",
        ),
        (
            "version: 1\ncredentials: {a: {hosts: '*example.org', header: x}}",
            "in `hosts` names no host",
        ),
        (
            "version: 1\ncredentials: {a: {hosts: '*.127.1', header: x}}",
            "`*.127.1` in `hosts` names no host",
        ),
        (
            "version: 1\ncredentials: {a: {hosts: '*.10.0.0.1', header: x}}",
            "`*.10.0.0.1` in `hosts` names no host",
        ),
        (
            "version: 1\ncredentials: {a: {hosts: '*.a..example.org', header: x}}",
            "`*.a..example.org` in `hosts` names no host",
        ),
        (
            "version: 1\ncredentials: {a: {hosts: '*.com', header: x}}",
            "`*.com` are the hosts of strangers",
        ),
        (
            "version: 1\ncredentials: {a: {hosts: '*.github.io:443', header: x}}",
            "`*.github.io:443` are the hosts",
        ),
        (
            "version: 1\ncredentials: {a: {hosts: '*.s3.amazonaws.com', header: x}}",
            "`*.s3.amazonaws.com` are the hosts",
        ),
        (
            "version: 1\ncredentials: {a: {preset: aws, hosts: '*.amazonaws.com'}}",
            "`*.amazonaws.com` are the hosts",
        ),
        (
            "version: 1\ncredentials: {a: {preset: aws, hosts: [h.example.org, '*.co.uk']}}",
            "`*.co.uk` are the hosts",
        ),
        ("version: 1\ncredentials: {a: {hosts: [[x]], header: x}}", "in `hosts` can't be used"),
        (
            "version: 1\ncredentials: {a: {hosts: h, header: x, paths: v1}}",
            "in `paths` can't be used",
        ),
        ("version: 1\ncredentials: {a: {hosts: h, header: x, paths: '/a/../b'}}", "/a/../b"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(text: str, message: str) -> None:
    with pytest.raises(PolicyError) as caught:
        parse_credentials(text, "credentials.yaml")
    assert message in str(caught.value)


@each_row("nothing", ["[]", "", "''", "null", "{}", "[[]]", "[null]", "['']"])
@each_row(
    "key", ["hosts", "methods", "paths", "header", "variable", "cmd", "env", "file", "preset"]
)
def test_a_key_without_a_value_never_means_anything(key: str, nothing: str) -> None:
    """Whoever takes the last method out of a list doesn't mean all of them."""
    with pytest.raises(PolicyError) as caught:
        one(f"\n    {key}: {nothing}" + ("" if key == "preset" else "\n    preset: github"))
    if nothing in ("[]", "", "''", "null", "{}"):
        assert f"`{key}` of `it` has no value" in str(caught.value)
        assert "leave the key out" in caught.value.remedy


@each_row(
    ("text", "message", "remedy"),
    [
        ("hosts: API.example.org, header: x", "`API.example.org` in `hosts`",
         "write `api.example.org`"),
        ("hosts: api.example.org., header: x", "`api.example.org.` in `hosts`",
         "write `api.example.org`"),
        ("hosts: 'https://api.example.org', header: x", "`https://api.example.org` in `hosts`",
         "write `api"),
        ("hosts: 'me@api.example.org', header: x", "`me@api.example.org` in `hosts`", "write `api"),
        ("hosts: api.example.org/v1, header: x", "`api.example.org/v1` in `hosts`", "write `api"),
        ("hosts: 'api.example.org:99999', header: x", "`api.example.org:99999` in `hosts`",
         "write `api"),
        ("hosts: 'api.example.org:0443', header: x", "`api.example.org:0443` in `hosts`",
         "write `api.example.org`"),
        ("hosts: bücher.example, header: x", "in `hosts`", "write `xn--bcher-kva.example`"),
        ("hosts: 10.0.0.300, header: x", "`10.0.0.300` in `hosts`", "write `api"),
        ("hosts: '0x7f.1', header: x", "`0x7f.1` in `hosts`", "write `127.0.0.1`"),
        ("hosts: a..example.org, header: x", "`a..example.org` in `hosts`", "write `api"),
        ("hosts: '*.[fd00::1]', header: x", "`*.[fd00::1]` in `hosts`", "write `api"),
        ("hosts: '*.Example.org:8443', header: x", "in `hosts`", "write `*.example.org:8443`"),
        ("hosts: h.example, header: x, paths: /v1/%63hat", "`/v1/%63hat` in `paths`",
         "percent-encoding"),
        ("hosts: h.example, header: x, paths: '/v1/chat?x=1'", "`/v1/chat?x=1` in `paths`", "`?`"),
        ("hosts: h.example, header: x, paths: '/v1/a%2fb'", "`/v1/a%2fb` in `paths`",
         "percent-encoding"),
        ("preset: aws, hosts: h.example, header: x-api-key", "keys of AWS sign `authorization`",
         "leave `header` out"),
        *((f"hosts: h.example, header: {one}", f"`{one}` in `header`", "") for one in (
            "Host", "content-length", "connection", "transfer-encoding", "accept-encoding",
            "proxy-authorization", "Range", "Upgrade"
        )),
        *((f"preset: openai, variable: {one}", f"`{one}` in `variable`",
        "write another one") for one in (
            "PATH", "HTTPS_PROXY", "all_proxy", "GATEHOUSE_TOKEN", "LD_PRELOAD", "GIT_CONFIG_COUNT",
            "HOME", "PYTHONPATH", "SSL_CERT_FILE"
        )),
    ],
)  # fmt: skip
def test_a_binding_that_could_never_work_is_refused_at_once(
    text: str, message: str, remedy: str
) -> None:
    with pytest.raises(PolicyError) as caught:
        one(f"{{{text}}}")
    assert message in str(caught.value)
    assert remedy in caught.value.remedy


@pytest.mark.parametrize(
    "text",
    [
        (
            "hosts: ['api.example.org:443', '10.0.0.5:8443', 'fd00--1.example', '[fd00::1]:8443',"
            " '*.example.org:443']"
        ),
        "hosts: h.example, paths: ['/**', /v1/*/b, '/v1/[ab]c', '/bücher/**', /]",
        "hosts: h.example, variable: [MY_TOKEN, PATH_TOKEN, TOKEN_OF_GIT]",
    ],
)
def test_one_that_works_is_left_as_it_is(text: str) -> None:
    assert one(f"{{header: x-key, {text}}}")
