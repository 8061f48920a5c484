"""A server that takes a request only where botocore's own signer gives it the same signature: S3,
DynamoDB and Bedrock, as little as a client needs.

It knows the real keys, as AWS does, and judges what arrived byte for byte; what it is given
nobody else signed. On loopback, over TLS.
"""

import hashlib
import json
import re
import ssl
import struct
import threading
import zlib
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from botocore.auth import S3SigV4Auth, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tests.fakes.quiet_http import QuietHandler, QuietServer

_CLAIMED = re.compile(
    r"AWS4-HMAC-SHA256"
    r" Credential=(?P<access>[^/]+)/\d{8}/(?P<region>[^/]+)/(?P<service>[^/]+)/aws4_request, "
    r"SignedHeaders=(?P<headers>[^,]+), Signature=(?P<signature>[0-9a-f]{64})"
)


@dataclass
class AwsOrigin:
    """`with AwsOrigin(context, access, secret, token) as origin:`; `taken` are the requests that
    were signed as they must be, `refused` why others weren't."""

    context: ssl.SSLContext
    access: str
    secret: str
    token: str | None = None
    taken: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    objects: dict[str, bytes] = field(default_factory=dict)
    heads: list[str] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.socket = self.context.wrap_socket(self._server.socket, server_side=True)
        self._server.origin = self
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        ).start()
        self.port = int(self._server.server_address[1])
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def why_not(self, method: str, target: str, headers: dict[str, str], body: bytes) -> str | None:
        """Why a request isn't taken; None where its signature is the one that botocore makes
        with the real keys."""
        claimed = _CLAIMED.fullmatch(headers.get("authorization", ""))
        if claimed is None:
            return "not signed"
        if claimed["access"] != self.access or headers.get("x-amz-security-token") != self.token:
            return f"signed by `{claimed['access']}`"
        named = claimed["headers"].split(";")
        if "host" not in named or not {
            name for name in headers if name.startswith("x-amz-")
        } <= set(named):
            return f"signed are only {named}"
        kind = S3SigV4Auth if claimed["service"] == "s3" else SigV4Auth
        signer = kind(
            Credentials(self.access, self.secret, self.token), claimed["service"], claimed["region"]
        )
        path, _, query = target.partition("?")
        request = AWSRequest(
            method=method, url=f"https://{headers['host']}{path}?{query}", data=body
        )
        for name in named:
            request.headers[name] = headers.get(name, "")
        request.context["timestamp"] = headers.get("x-amz-date", "")
        digest = headers.get("x-amz-content-sha256", "")
        if re.fullmatch("[0-9a-f]{64}", digest) and digest != hashlib.sha256(body).hexdigest():
            return "another body than was signed"
        text = signer.string_to_sign(request, signer.canonical_request(request))
        made = signer.signature(text, request)
        return None if made == claimed["signature"] else f"SignatureDoesNotMatch: {text}"


def event(kind: str, payload: bytes) -> bytes:
    """One message of AWS's event stream:
    https://docs.aws.amazon.com/transcribe/latest/dg/event-stream.html."""
    fields = {":event-type": kind, ":content-type": "application/json", ":message-type": "event"}
    headers = b"".join(
        bytes([len(name)])
        + name.encode()
        + b"\x07"
        + struct.pack(">H", len(value))
        + value.encode()
        for name, value in fields.items()
    )
    prelude = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    prelude += struct.pack(">I", zlib.crc32(prelude))
    message = prelude + headers + payload
    return message + struct.pack(">I", zlib.crc32(message))


def unpack_chunks(body: bytes) -> bytes:
    """The content of a body of the coding `aws-chunked`, whose chunks have no signatures; its
    trailers are left out."""
    content = b""
    while True:
        size, _, body = body.partition(b"\r\n")
        length = int(size.partition(b";")[0], 16)
        if not length:
            return content
        content, body = content + body[:length], body[length + 2 :]


class _Server(QuietServer):
    origin: AwsOrigin


class _Handler(QuietHandler):
    server: _Server

    def do_GET(self) -> None:
        self._answer()

    def do_PUT(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def _answer(self) -> None:
        origin = self.server.origin
        headers = {name.lower(): value for name, value in self.headers.items()}
        origin.heads.append(f"{self.command} {self.path} {headers}")
        body = self.body()
        why = origin.why_not(self.command, self.path, headers, body)
        if why is not None:
            origin.refused.append(why)
            return self.respond(403, "application/json", json.dumps({"message": why}).encode())
        origin.taken.append(f"{self.command} {self.path.partition('?')[0]}")
        if "x-amz-target" in headers:
            return self.respond(
                200,
                "application/x-amz-json-1.0",
                json.dumps({"Table": {"TableName": str(len(body))}}).encode(),
            )
        if self.path.endswith("/converse-stream"):
            text = {"delta": {"text": "hello from bedrock"}, "contentBlockIndex": 0}
            used = {
                "usage": {"inputTokens": 11, "outputTokens": 7, "totalTokens": 18},
                "metrics": {"latencyMs": 5},
            }
            events = [
                ("contentBlockDelta", text),
                ("messageStop", {"stopReason": "end_turn"}),
                ("metadata", used),
            ]
            stream = b"".join(event(kind, json.dumps(data).encode()) for kind, data in events)
            return self.respond(200, "application/vnd.amazon.eventstream", stream)
        if self.command == "PUT":
            is_coded = "aws-chunked" in headers.get("content-encoding", "")
            origin.objects[self.path.partition("?")[0]] = unpack_chunks(body) if is_coded else body
            return self.respond(200, "application/xml", b"")
        found = origin.objects.get(self.path.partition("?")[0], b"")
        return self.respond(200, "application/octet-stream", found)
