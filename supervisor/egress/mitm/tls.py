"""TLS on both sides: our certificate for clients, system authorities for origins.

It is a reduced form of mitmproxy's own TLS addon. The client's handshake begins only after its
server name matched the host of the CONNECT. The addon's answer to requests for its revocation list
is off, since nothing here answers unasked. For clients it caches what mitmproxy makes anew for each
connection: a host's certificate and key, read once by OpenSSL. For origins it caches only the
authorities: each origin proves itself at each connection. INVARIANT: a session can fill, and
displace from, only its own part of the cache.
"""

from collections import OrderedDict
from weakref import WeakKeyDictionary

from mitmproxy import http
from mitmproxy import tls as mitm_tls
from mitmproxy.addons import tlsconfig
from mitmproxy.net import tls as net_tls
from OpenSSL import SSL

from supervisor.egress.admission.egress_sessions import EgressSession, Sessions
from supervisor.egress.protocols import checks

# Per session; about 20 kB each.
MOST_CONTEXTS = 64


class GuardedTls(tlsconfig.TlsConfig):
    """The TLS addon. mitmproxy knows its addons by class name."""

    name = "tlsconfig"

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        # INVARIANT: keyed by session, so that resumption data (RFC 8446 2.2) is useless in another
        # session. Then by host, however the client spells it: its server name was found to match
        # (`server_name_ok`).
        self._contexts: WeakKeyDictionary[EgressSession, OrderedDict[str, SSL.Context]] = (
            WeakKeyDictionary()
        )

    def tls_start_client(self, tls_start: mitm_tls.TlsData) -> None:
        connection = self._sessions.of_client(tls_start.context.client.id)
        # Without an SSL connection mitmproxy closes the client's: no check, no handshake.
        if connection is None or not connection.server_name_ok or connection.target is None:
            return
        host = connection.target[0]
        contexts = self._contexts.setdefault(connection.session, OrderedDict())
        if host not in contexts:
            contexts[host] = self._make_context(host)
        contexts.move_to_end(host)
        if len(contexts) > MOST_CONTEXTS:
            contexts.popitem(last=False)
        tls_start.ssl_conn = SSL.Connection(contexts[host])
        told = tlsconfig.AppData(
            client_alpn=None, server_alpn=tls_start.context.server.alpn, http2=True
        )
        tls_start.ssl_conn.set_app_data(told)
        tls_start.ssl_conn.set_accept_state()

    def _make_context(self, host: str) -> SSL.Context:
        """Return mitmproxy's context, but one per certificate. mitmproxy has a single one, and
        reads certificate and key again for each connection."""
        entry = self.certstore.get_cert(host, [tlsconfig._ip_or_dns_name(host)])
        made: SSL.Context = net_tls.create_client_proxy_context.__wrapped__(
            method=net_tls.Method.TLS_SERVER_METHOD,
            min_version=net_tls.DEFAULT_MIN_VERSION,
            max_version=net_tls.DEFAULT_MAX_VERSION,
            cipher_list=tlsconfig._default_ciphers(net_tls.DEFAULT_MIN_VERSION),
            ecdh_curve=None,
            chain_file=entry.chain_file,
            alpn_select_callback=tlsconfig.alpn_select_callback,
            request_client_cert=False,
            extra_chain_certs=(),
            dhparams=self.certstore.dhparams,
        )
        made.use_certificate(entry.cert.to_cryptography())
        made.use_privatekey(entry.privatekey)
        return made

    def tls_start_server(self, tls_start: mitm_tls.TlsData) -> None:
        server = tls_start.context.server
        # INVARIANT: the origin's certificate is verified for the host that was judged.
        if server.address is not None and checks.server_name(server.sni, server.address[0]) is None:
            super().tls_start_server(tls_start)

    def request(self, flow: http.HTTPFlow) -> None:
        return None
