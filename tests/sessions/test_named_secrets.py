"""The values of named secrets: where they come from, and that an error shows none."""

import base64
import os
from pathlib import Path

import pytest

from supervisor.cli import cli
from supervisor.core.network.credentials import parse_credentials
from supervisor.core.network.egress_wire import PutCredentials, encode
from supervisor.core.secrets.redact import Redactor
from supervisor.errors import UserError
from supervisor.sessions import named_secrets
from supervisor.sessions.named_secrets import Named, NamedSecrets
from supervisor.sessions.session_sandboxes import _CA_VARIABLES
from supervisor.settings import ROOT

SECRET = "s3cret-value-0123456789"


async def load(tmp_path: Path, fields: str) -> tuple[NamedSecrets, Redactor]:
    (tmp_path / "credentials.yaml").write_text(f"version: 1\ncredentials:\n  it: {fields}\n")
    found, redactor = NamedSecrets(), Redactor()
    await found.load(tmp_path / "credentials.yaml", tmp_path / "secrets", redactor)
    return found, redactor


def write(tmp_path: Path, mode: int = 0o600, text: str = SECRET + "\n") -> Path:
    (tmp_path / "secrets").mkdir(exist_ok=True)
    path = tmp_path / "secrets" / "it"
    path.write_text(text)
    path.chmod(mode)
    return path


async def test_from_a_file(tmp_path: Path) -> None:
    write(tmp_path)
    found, redactor = await load(tmp_path, "{preset: openai}")
    assert [credential.secret for credential in found.credentials] == [SECRET]
    assert SECRET not in str(found.variables)
    assert found.variables["OPENAI_API_KEY"].startswith("gatehouse-placeholder-it-")
    assert found.variables["CODEX_API_KEY"] == found.variables["OPENAI_API_KEY"]
    assert SECRET not in redactor.text(f"a line with {SECRET}")
    assert SECRET not in repr(found.__dict__)
    assert isinstance(found._named[0], Named)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
async def test_a_file_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    write(tmp_path, mode)
    with pytest.raises(UserError, match="chmod 600"):
        await load(tmp_path, "{preset: openai}")


@pytest.mark.parametrize("mode", [0o664, 0o646, 0o666, 0o620])
async def test_nobody_else_says_where_credentials_go(tmp_path: Path, mode: int) -> None:
    write(tmp_path)
    await load(tmp_path, "{preset: openai}")
    file = tmp_path / "credentials.yaml"
    file.chmod(mode)
    with pytest.raises(UserError, match="others can write it") as caught:
        await NamedSecrets().load(file, tmp_path / "secrets", Redactor())
    assert caught.value.remedy == f"chmod go-w {file}"


@pytest.mark.parametrize(
    "is_roots",
    [
        pytest.param(False, id="ours"),
        pytest.param(
            True,
            id="root's",
            marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away"),
        ),
    ],
)
async def test_the_file_that_says_it_is_ours_or_roots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_roots: bool
) -> None:
    write(tmp_path)
    await load(tmp_path, "{preset: openai}")
    file = tmp_path / "credentials.yaml"
    us = os.geteuid() + 1
    if is_roots:
        monkeypatch.setattr(os, "geteuid", lambda: us)
        assert named_secrets.bindings(file)
        os.chown(file, us + 1, -1)
    elif os.geteuid() == 0:
        os.chown(file, us, -1)
        monkeypatch.setattr(os, "geteuid", lambda: us)
        assert named_secrets.bindings(file)
        monkeypatch.setattr(os, "geteuid", lambda: us + 1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: us)
    with pytest.raises(UserError, match="belongs to somebody else"):
        named_secrets.bindings(file)


async def test_a_link_or_no_file_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path)
    path.rename(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="No such file"):
        await load(tmp_path, "{preset: openai}")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match=r"credential `it`: .*: it is a symlink"):
        await load(tmp_path, "{preset: openai}")


async def test_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", SECRET)
    found, _ = await load(tmp_path, "{preset: openai, env: MY_TOKEN}")
    assert found.credentials[0].secret == SECRET
    monkeypatch.delenv("MY_TOKEN")
    with pytest.raises(UserError, match="`MY_TOKEN` is not set"):
        await load(tmp_path, "{preset: openai, env: MY_TOKEN}")


async def test_more_than_egress_can_be_told_is_an_error_at_the_start(tmp_path: Path) -> None:
    """Or no session would have a network, and egress be started again and again."""
    write(tmp_path, text="x" * 4000)
    file = tmp_path / "credentials.yaml"
    for count, fits in ((25, True), (40, False)):
        named = "".join(
            f"  c{one}: {{file: it, hosts: a{one}.test, header: x-api-key}}\n"
            for one in range(count)
        )
        file.write_text(f"version: 1\ncredentials:\n{named}")
        found = NamedSecrets()
        if fits:
            await found.load(file, tmp_path / "secrets", Redactor())
            encode(PutCredentials(session_id="s" * 100, credentials=found.credentials))
        else:
            with pytest.raises(UserError, match="egress is told 114,688 at most; name fewer"):
                await found.load(file, tmp_path / "secrets", Redactor())


@pytest.mark.parametrize(
    ("value", "user"),
    [
        ("ATCTT3xFfGN0-s3cret", "x-token-auth"),
        ("ATATT3xFfGF0-s3cret", "x-bitbucket-api-token-auth"),
    ],
)
async def test_git_sends_the_name_that_the_kind_of_token_wants(
    tmp_path: Path, value: str, user: str
) -> None:
    write(tmp_path, text=value)
    found, _ = await load(tmp_path, "{preset: bitbucket}")
    encoded = found.variables["GIT_CONFIG_VALUE_0"].removeprefix("Authorization: Basic ")
    assert base64.b64decode(encoded).decode() == f"{user}:{found.variables['BITBUCKET_TOKEN']}"


TOKEN = "ghp_" + "a1B2" * 9


@pytest.mark.parametrize(
    "fields",
    [
        f"{{preset: github, env: {TOKEN}}}",
        f"{{preset: github, env: {SECRET}}}",
        f"{{preset: github, file: {TOKEN}}}",
        f"{{preset: github, cmd: {TOKEN}}}",
        f"{{hosts: a.test, header: 'Bearer {SECRET}'}}",
        f"{{hosts: 'https://me:{SECRET}@a.test', header: x-api-key}}",
        f"{{preset: github, value: {SECRET}}}",
        SECRET,
    ],
)
async def test_a_secret_that_was_written_in_a_wrong_place_is_not_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], fields: str
) -> None:
    with pytest.raises(UserError) as caught:
        await load(tmp_path, fields)
    cli._complain(str(caught.value))
    said = capsys.readouterr().err
    assert said.startswith("gatehouse: ")
    assert TOKEN not in said
    assert SECRET not in said


async def test_from_a_command(tmp_path: Path) -> None:
    found, _ = await load(tmp_path, f"{{preset: openai, cmd: printf '%s\\n' {SECRET}}}")
    assert found.credentials[0].secret == SECRET


@pytest.mark.parametrize(
    "command", [f"sh -c 'echo {SECRET}; echo {SECRET} >&2; exit 3'", "no-such-program-at-all x"]
)
async def test_a_command_that_fails_shows_nothing_that_it_wrote(
    tmp_path: Path, command: str
) -> None:
    with pytest.raises(UserError) as caught:
        await load(tmp_path, f'{{preset: openai, cmd: "{command}"}}')
    assert SECRET not in str(caught.value)


async def test_a_command_that_is_not_installed_is_named_with_its_credential(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="credential `it`: can't start `no-such-program-at-all`"):
        await load(tmp_path, "{preset: openai, cmd: no-such-program-at-all x}")


async def test_a_command_that_does_not_end_is_said_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(named_secrets, "COMMAND_S", 0.05)
    with pytest.raises(UserError, match=r"credential `it`: `sleep` took more than 0.05 s"):
        await load(tmp_path, "{preset: openai, cmd: sleep 1000}")


@pytest.mark.parametrize("said", ["two\\nlines-0123456789", "nul\\0-0123456789", "%70000d"])
async def test_what_a_command_says_must_be_one_word(tmp_path: Path, said: str) -> None:
    with pytest.raises(UserError, match="credential `it`"):
        await load(tmp_path, f"{{preset: openai, cmd: \"printf '{said}' 1\"}}")


async def test_a_file_that_nobody_writes_to_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir()
    os.mkfifo(tmp_path / "secrets" / "it", 0o600)
    with pytest.raises(UserError, match="it is a FIFO, and only a file is read"):
        await load(tmp_path, "{preset: openai}")


async def test_a_value_that_is_none_is_not_shown(tmp_path: Path) -> None:
    write(tmp_path, text="two words\n")
    with pytest.raises(UserError) as caught:
        await load(tmp_path, "{preset: openai}")
    assert "two words" not in str(caught.value)


def set_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, script: str) -> None:
    """Have a package manager that is set up so."""
    programs = tmp_path / "programs"
    programs.mkdir(exist_ok=True)
    path = programs / program
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")


@pytest.mark.parametrize(
    ("preset", "asked"),
    [("npm", "npm config get registry"), ("pypi", "pip config get global.index-url")],
)
@pytest.mark.parametrize(
    ("index", "host"),
    [
        ("https://packages.example.org/npm/", "packages.example.org"),
        ("https://packages.example.org:443/npm/", "packages.example.org"),
        ("https://Packages.Example.org:8443/npm/", "packages.example.org:8443"),
        ("https://me:pass-0123456789@packages.example.org:8443/", "packages.example.org:8443"),
        ("https://[fd00::1]:4873/", "[fd00::1]:4873"),
    ],
)
async def test_a_registry_is_the_one_of_the_package_manager(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, preset: str, asked: str, index: str, host: str
) -> None:
    write(tmp_path)
    program, _, words = asked.partition(" ")
    set_up(tmp_path, monkeypatch, program, f'[ "$*" = "{words}" ] && echo {index}')
    found, _ = await load(tmp_path, f"{{preset: {preset}}}")
    assert {credential.hosts for credential in found.credentials} == {(host,)}


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("exit 1", "`npm config get registry` names no host"),
        ("echo undefined", "`npm config get registry` names no host"),
        ("echo https://", "`npm config get registry` names no host"),
        ("echo https://packages.example.org:99999/", "`npm config get registry` names no host"),
        ("echo 'https://[fd00::1/'", "`npm config get registry` names no host"),
        ("echo https://a..example.org/", "`npm config get registry` names no host"),
        (
            "echo http://me:pass-0123456789@packages.example.org/",
            "`npm config get registry` names an address of `http`",
        ),
    ],
)
async def test_what_a_package_manager_says_must_be_a_host_that_is_reached_by_https(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, message: str
) -> None:
    write(tmp_path)
    set_up(tmp_path, monkeypatch, "npm", script)
    with pytest.raises(UserError, match="credential `it`") as caught:
        await load(tmp_path, "{preset: npm}")
    assert message in str(caught.value)
    assert "pass-0123456789" not in str(caught.value)
    assert "write `hosts:`" in caught.value.remedy


async def test_the_folder_that_gatehouse_is_started_in_has_no_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is often the workspace: npm reads its `.npmrc`, and the token would be bound to
    whatever host stands there."""
    write(tmp_path)
    programs, workspace = tmp_path / "programs", tmp_path / "workspace"
    programs.mkdir()
    workspace.mkdir()
    npm = programs / "npm"
    npm.write_text(
        "#!/bin/sh\n[ -f .npmrc ] && exec cat .npmrc\necho https://packages.example.org/npm/\n"
    )
    npm.chmod(0o755)
    (workspace / ".npmrc").write_text("https://evil.example.org/\n")
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.chdir(workspace)
    found, _ = await load(tmp_path, "{preset: npm}")
    assert {credential.hosts for credential in found.credentials} == {("packages.example.org",)}
    (workspace / "token").write_text("of-the-workspace")
    (tmp_path / "token").write_text(SECRET)
    found, _ = await load(tmp_path, "{preset: openai, cmd: cat token}")
    assert found.credentials[0].secret == SECRET


def test_the_example_of_the_documents_is_one() -> None:
    example = next(
        block
        for block in (ROOT / "docs/network-and-credentials.md").read_text().split("```")
        if block.startswith("yaml\nversion: 1\ncredentials")
    )
    found = parse_credentials(example.removeprefix("yaml\n"), "the example")
    assert [one.name for one in found] == ["github", "openai", "tracker"]


async def test_no_file_means_none(tmp_path: Path) -> None:
    found = NamedSecrets()
    await found.load(tmp_path / "credentials.yaml", tmp_path, Redactor())
    assert (found.credentials, found.variables) == ((), {})
    (tmp_path / "credentials.yaml").mkdir()
    with pytest.raises(UserError, match="GATEHOUSE_CREDENTIALS"):
        await found.load(tmp_path / "credentials.yaml", tmp_path, Redactor())


def test_no_credential_takes_the_place_of_what_the_sandbox_needs() -> None:
    """What names the authorities there is one table; that nothing of it can be bound another."""
    for name in (
        *_CA_VARIABLES,
        "HTTP_PROXY",
        "https_proxy",
        "YARN_HTTP_PROXY",
        "JAVA_TOOL_OPTIONS",
        "GATEHOUSE_URL",
    ):
        with pytest.raises(UserError, match=f"`{name}` in `variable`"):
            parse_credentials(
                f"version: 1\ncredentials: {{a: {{preset: openai, variable: {name}}}}}",
                "credentials.yaml",
            )


async def test_a_command_gets_the_environment_without_secrets_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GATEHOUSE_TELL", "https://hooks.example/secret-address")
    monkeypatch.setenv("GATEHOUSE_GITHUB_TOKEN", "a-workflows-token")
    monkeypatch.setenv("THEIRS", SECRET)
    said = "\"sh -c 'echo $THEIRS$GATEHOUSE_TELL$GATEHOUSE_GITHUB_TOKEN'\""
    found, _ = await load(tmp_path, f"{{preset: openai, cmd: {said}}}")
    assert [one.secret for one in found.credentials] == [SECRET]
