"""Real clients in real sandboxes through real egress: each allowed, denied, asked and approved,
asked and left waiting.

Each of them once where the host is only tunnelled and once where it is looked into. Asserted is
what the client's user sees, what the origin sees (of a refusal nothing, not even a connection)
and what is on record. How a client is run is `table.py`'s.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from supervisor.core.approvals import Request, status
from supervisor.core.sessions import Session
from tests.clients.conftest import WAYS, WHY, Noting
from tests.clients.table import CLIENTS, Client, Origin, Shows
from tests.fakes.supervised import Supervised

pytestmark = pytest.mark.asyncio(loop_scope="module")
OPERATIONS = {"tunnelled": "connect", "looked-into": "request"}


def cells() -> list[object]:
    """Every client both ways, of which `make test` tries one, in turns. Each way is a group of its
    own, for one worker of pytest's."""
    return [
        pytest.param(
            client, way, id=f"{client.name} {way}", marks=_marks(client, way, (row + at) % 2 == 1)
        )
        for at, way in enumerate(WAYS)
        for row, client in enumerate(CLIENTS)
    ]


def _marks(client: Client, way: str, is_one_of_many: bool) -> list[pytest.MarkDecorator]:
    marks = [pytest.mark.xdist_group(f"clients-{way}")]
    if client.missing:
        marks.append(pytest.mark.skip(reason=client.missing))
    if is_one_of_many:
        marks.append(pytest.mark.many)
    return marks


def url(origin: Noting, verdict: str, way: str) -> str:
    return f"https://{verdict}.{way}.test:{origin.port}"


def check_shown(output: str, shows: Shows, why: str) -> None:
    assert {"why": why, "403": "403", "": ""}[shows] in output, output


def network_records(
    running: Supervised, session: Session, verdict: str, way: str
) -> list[dict[str, Any]]:
    """What the rules answered this session, of the operation that this way is about."""
    found = running.audit("verdict_given", session=session.id, category="network", verdict=verdict)
    return [record for record in found if record["action"]["operation"] == OPERATIONS[way]]


@pytest.mark.parametrize(("client", "way"), cells())
class TestEveryClient:
    """One row of the table, one way."""

    async def test_is_allowed(
        self,
        patient: Supervised,
        origins: Mapping[Origin, Noting],
        workspace: Path,
        client: Client,
        way: str,
    ) -> None:
        origin = origins[client.origin]
        origin.forget()
        session, output = await patient.run(workspace, *client.command(url(origin, "allowed", way)))
        assert session.exit_code == 0, output
        assert client.prints in output
        assert not origin.untouched
        rules = {record["rule"] for record in network_records(patient, session, "allow", way)}
        assert any(f"allowed.{way}.test:{origin.port}" in rule for rule in rules), rules
        assert not patient.requests(session)

    async def test_is_denied(
        self,
        patient: Supervised,
        origins: Mapping[Origin, Noting],
        workspace: Path,
        client: Client,
        way: str,
    ) -> None:
        origin = origins[client.origin]
        origin.forget()
        session, output = await patient.run(workspace, *client.command(url(origin, "denied", way)))
        assert session.exit_code != 0, output
        assert client.prints not in output
        check_shown(output, client.inside if way == "looked-into" else client.tunnelled, WHY)
        assert origin.untouched
        records = network_records(patient, session, "deny", way)
        assert records
        assert all(WHY in record["why"] for record in records), records

    async def test_goes_on_when_approved(
        self,
        patient: Supervised,
        origins: Mapping[Origin, Noting],
        workspace: Path,
        client: Client,
        way: str,
    ) -> None:
        origin = origins[client.origin]
        origin.forget()
        session = await patient.start(workspace, *client.command(url(origin, "asked", way)))
        request = await patient.asked("network", where=lambda one: one.session_id == session.id)
        assert origin.untouched, "nothing goes out while it is held"
        assert request.hold_until is not None

        def is_ours(one: Request) -> str | None:
            return "approved" if one.session_id == session.id else None

        with patient.answering(is_ours):  # type: ignore[arg-type]
            session = await patient.ended(session)
        output = patient.output(session)
        assert session.exit_code == 0, output
        assert client.prints in output
        assert not origin.untouched
        assert request.action.operation == OPERATIONS[way]  # type: ignore[union-attr]
        assert {status(one) for one in patient.requests(session)} == {"used"}
        assert (await patient.done(request))["ok"]

    async def test_is_refused_when_nobody_answers(
        self,
        impatient: Supervised,
        origins: Mapping[Origin, Noting],
        workspace: Path,
        client: Client,
        way: str,
    ) -> None:
        origin = origins[client.origin]
        origin.forget()
        session, output = await impatient.run(workspace, *client.command(url(origin, "asked", way)))
        assert session.exit_code != 0, output
        assert client.prints not in output
        check_shown(
            output,
            client.inside if way == "looked-into" else client.tunnelled,
            "nobody answered within",
        )
        assert origin.untouched
        asked = impatient.audit("request_asked", session=session.id)
        assert asked
        assert all(record["verdict"] == "ask" for record in asked)
        assert all(one.answered_at is None for one in impatient.requests(session))


# What curl, requests, Node, git, pip, cargo, AWS, gcloud, gRPC, httplib2, Perl, Hex, Nix, Deno and
# all that use OpenSSL's default or rustls read.
AUTHORITIES = [
    "CURL_CA_BUNDLE",
    "REQUESTS_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "GIT_SSL_CAINFO",
    "PIP_CERT",
    "CARGO_HTTP_CAINFO",
    "AWS_CA_BUNDLE",
    "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
    "HTTPLIB2_CA_CERTS",
    "PERL_LWP_SSL_CA_FILE",
    "HEX_CACERTS_PATH",
    "NIX_SSL_CERT_FILE",
    "DENO_CERT",
    "SSL_CERT_FILE",
]
PROXIES = [
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "http_proxy",
    "https_proxy",
    "YARN_HTTP_PROXY",
    "YARN_HTTPS_PROXY",
]


@pytest.mark.xdist_group("clients-tunnelled")
async def test_each_variable_that_clients_read_names_the_bundle_or_the_proxy(
    patient: Supervised, workspace: Path
) -> None:
    script = (
        'for name; do cmp -s "${!name}" /etc/ssl/certs/ca-certificates.crt && echo "same $name";'
        " done; env"
    )
    session, output = await patient.run(workspace, "bash", "-c", script, "bash", *AUTHORITIES)
    lines = output.splitlines()
    assert session.exit_code == 0
    assert {line.removeprefix("same ") for line in lines if line.startswith("same ")} == set(
        AUTHORITIES
    )
    assert {f"{name}=http://127.0.0.1:3128" for name in PROXIES} <= set(lines)
