"""TLS of both sides: our certificate towards the client, the system's authorities towards the origin.

It is mitmproxy's own TLS addon with less: the client's handshake begins only after its server name was found to be the host of
the CONNECT, and the addon's answer to requests for its revocation list is off (no request is answered here unasked).
"""

from mitmproxy import http
from mitmproxy import tls as mitm_tls
from mitmproxy.addons import tlsconfig

from supervisor.egress import checks
from supervisor.egress.sessions import Sessions


class GuardedTls(tlsconfig.TlsConfig):
    """mitmproxy knows its addons by name."""

    name = "tlsconfig"

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def tls_start_client(self, tls_start: mitm_tls.TlsData) -> None:
        connection = self._sessions.of_client(tls_start.context.client.id)
        # Without an SSL connection mitmproxy closes the client's: so no check, no handshake.
        if connection is not None and connection.server_name_ok:
            super().tls_start_client(tls_start)

    def tls_start_server(self, tls_start: mitm_tls.TlsData) -> None:
        server = tls_start.context.server
        # INVARIANT: the name that the origin's certificate is verified for is the host that was judged.
        if server.address is not None and checks.server_name(server.sni, server.address[0]) is None:
            super().tls_start_server(tls_start)

    def request(self, flow: http.HTTPFlow) -> None:
        return None
