"""Named secrets of each kind with the clients that people use them with: the origin gets the real
one, the sandbox never has it.

Nothing is given to a client but what stands in its environment, and the settings that its users
would have in a file.
"""

import base64
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
import trustme

from supervisor.core.sessions import Session
from tests.clients.table import IDENTITY, PIP, PROGRAMS, PYTHON, absent
from tests.fakes.aws_origin import AwsOrigin
from tests.fakes.site import WHEEL, Site, trustme_context
from tests.fakes.supervised import Supervised, make_repository, settings_in, supervised

pytestmark = [
    pytest.mark.xdist_group("clients-credentials"),
    pytest.mark.asyncio(loop_scope="module"),
]
ACCESS, SECRET, TOKEN = "AKIDREAL00000000", "real/secret+0123456789", "real/token=="
PRESETS = ("github", "gitlab", "bitbucket", "pypi", "npm", "openai", "openrouter", "anthropic")


def real(preset: str) -> str:
    return f"real-{preset}-0123456789"


def basic(user: str, preset: str) -> tuple[str, str]:
    return "Authorization", "Basic " + base64.b64encode(f"{user}:{real(preset)}".encode()).decode()


LOCKED = {
    "github.test": basic("x-access-token", "github"),
    "gitlab.test": basic("oauth2", "gitlab"),
    "bitbucket.test": basic("x-token-auth", "bitbucket"),
    "pypi.test": basic("__token__", "pypi"),
    "npm.test": ("Authorization", f"Bearer {real('npm')}"),
    "openai.test": ("Authorization", f"Bearer {real('openai')}"),
    "openrouter.test": ("Authorization", f"Bearer {real('openrouter')}"),
    "anthropic.test": ("X-Api-Key", real("anthropic")),
}


@pytest.fixture(scope="module")
def site(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Site(tmp_path_factory.mktemp("site"), authority, (*LOCKED, "127.0.0.1")) as site:
        site.locked |= LOCKED
        yield site


@pytest.fixture(scope="module")
def aws(authority: trustme.CA) -> Iterator[AwsOrigin]:
    with AwsOrigin(trustme_context(authority, "aws.test"), ACCESS, SECRET, TOKEN) as origin:
        yield origin


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(
    site: Site, aws: AwsOrigin, upstream_ca: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Supervised]:
    ports = {**dict.fromkeys(LOCKED, site.https_port), "aws.test": aws.port}
    rules = [f"  - network(* https://{host}:{port}/**)" for host, port in ports.items()]
    addresses = [f"  - network(127.0.0.1:{port})" for port in (site.https_port, aws.port)]
    policy = "\n".join(["version: 1", "modes: {filesystem: deny}", "allow:", *rules, *addresses])
    settings = settings_in(tmp_path_factory.mktemp("credentials"), policy, upstream_ca=upstream_ca)
    secrets = {preset: real(preset) for preset in PRESETS} | {"aws": f"{ACCESS}:{SECRET}:{TOKEN}"}
    settings.secrets_dir.mkdir(parents=True)
    lines = ["version: 1", "credentials:"]
    for preset, value in secrets.items():
        (settings.secrets_dir / preset).write_text(value + "\n")
        (settings.secrets_dir / preset).chmod(0o600)
        lines.append(
            f"  {preset}: {{preset: {preset}, hosts: ['{preset}.test:{ports[f'{preset}.test']}']}}"
        )
    (settings.data_dir / "credentials.yaml").write_text("\n".join(lines))
    async with supervised(settings, names=dict.fromkeys(ports, ("127.0.0.1",))) as running:
        yield running


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = Path(__file__).with_name("programs") / "aws.py"
    return make_repository(
        tmp_path_factory.mktemp("workspace") / "project", {"programs/aws.py": program.read_text()}
    )


async def play(running: Supervised, workspace: Path, *command: str) -> tuple[Session, str]:
    """Run it; whatever it does, the sandbox has seen no real secret."""
    session, output = await running.run(workspace, *command)
    assert not any(secret in output for secret in (*map(real, PRESETS), ACCESS, SECRET, TOKEN))
    return session, output


async def test_the_sandbox_has_placeholders_only(running: Supervised, workspace: Path) -> None:
    _, output = await play(running, workspace, "env")
    found = dict(
        line.split("=", 1) for line in output.splitlines() if "=gatehouse-placeholder-" in line
    )
    assert {name.rpartition("-")[0] for name in found.values()} == {
        f"gatehouse-placeholder-{preset}" for preset in (*PRESETS, "aws")
    }


@pytest.mark.parametrize("preset", ["github", "gitlab", "bitbucket"])
async def test_git_clones_and_pushes_nothing_that_no_card_shows(
    running: Supervised, workspace: Path, site: Site, preset: str
) -> None:
    url = site.https(f"{preset}.test", "/project.git")
    push = (
        f"git {IDENTITY} commit -q --allow-empty -m new"
        f" && ! git push origin HEAD:refs/heads/{preset} 2>&1"
    )
    script = f"cd /tmp && git clone -q {url} clone && cd clone && {push}"
    session, output = await play(running, workspace, "bash", "-ec", script)
    assert session.exit_code == 0, output
    assert "403" in output
    assert "[new branch]" not in output
    listed = await play(running, workspace, "bash", "-ec", f"git ls-remote {url}")
    assert f"refs/heads/{preset}" not in listed[1]


@pytest.mark.skipif(not PIP, reason="this Python has no pip")
async def test_pip_downloads_from_a_private_index(
    running: Supervised, workspace: Path, site: Site
) -> None:
    options = [
        "--disable-pip-version-check",
        "download",
        "--no-deps",
        "--retries",
        "0",
        "-d",
        "/tmp/wheels",
    ]
    index = f"https://{{TWINE_USERNAME}}:{{TWINE_PASSWORD}}@pypi.test:{site.https_port}/simple"
    script = (
        "import os, subprocess, sys; os.environ.pop('PIP_PYTHON', None);"
        " index = sys.argv.pop().format(**os.environ);"
        " sys.exit(subprocess.call([sys.executable, '-m', 'pip', *sys.argv[1:], '--index-url',"
        " index, 'gatehouse-demo']))"
    )
    session, output = await play(running, workspace, PIP, "-c", script, *options, index)
    assert session.exit_code == 0, output
    assert f"Saved /tmp/wheels/{WHEEL}" in output


@pytest.mark.skipif(bool(absent("npm")), reason="npm isn't installed below /usr")
async def test_npm_fetches_from_a_private_registry(
    running: Supervised, workspace: Path, site: Site
) -> None:
    registry = f"//npm.test:{site.https_port}/npm/"
    script = f"cd /tmp && echo '{registry}:_authToken=${{NPM_TOKEN}}' > .npmrc && "
    script += (
        f"npm pack --no-update-notifier --fetch-retries 0 --registry https:{registry}"
        " gatehouse-demo"
    )
    session, output = await play(running, workspace, "bash", "-ec", script)
    assert session.exit_code == 0, output
    assert "gatehouse-demo-1.0.0.tgz" in output


async def test_keys_of_models_in_the_header_that_each_wants(
    running: Supervised, workspace: Path, site: Site
) -> None:
    headers = {
        "openai": "Authorization: Bearer $OPENAI_API_KEY",
        "openrouter": "Authorization: Bearer $OPENROUTER_API_KEY",
        "anthropic": "x-api-key: $ANTHROPIC_API_KEY",
    }
    calls = [
        f'curl -sS --fail-with-body -H "{header}" {site.https(f"{preset}.test")}'
        for preset, header in headers.items()
    ]
    session, output = await play(running, workspace, "bash", "-ec", "; ".join(calls))
    assert session.exit_code == 0, output
    assert output.count("hello from outside") == 3


async def test_without_its_placeholder_no_secret_is_sent(
    running: Supervised, workspace: Path, site: Site
) -> None:
    script = f"env -u GIT_CONFIG_COUNT git ls-remote {
        site.https('github.test', '/project.git')
    } </dev/null"
    session, output = await play(running, workspace, "bash", "-ec", script)
    assert session.exit_code != 0, output


async def test_aws_takes_what_was_signed_anew(
    running: Supervised, workspace: Path, aws: AwsOrigin
) -> None:
    """The origin judges each signature by AWS's own signer, with the real keys; the session's
    token is one of them."""
    session, output = await play(
        running, workspace, PYTHON, f"{PROGRAMS}/aws.py", f"https://aws.test:{aws.port}"
    )
    assert session.exit_code == 0, (output, aws.refused)
    assert aws.refused == []
    for line in (
        "small: small",
        "long: True",
        "file: True",
        "written: True",
        "model: ['hello from bedrock']",
    ):
        assert line in output
    assert len(aws.taken) == 8
    (settled,) = running.audit("spend_settled", session=session.id)
    assert (settled["counts"]["input"], settled["counts"]["output"], settled["flags"]) == (
        11,
        7,
        [],
    )
