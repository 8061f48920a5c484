"""Egress: the process that every connection of every sandbox goes through, and the only package that imports mitmproxy.

It holds the installation's CA key and the credentials to inject, and neither database nor workspace. It decides nothing
but what is contradictory or never allowed; every other question goes over the control channel to the supervisor's gate. It must
never let a connection or request through without an explicit allow: each part below refuses by default, so that a failure
of any other part ends in a refusal.

    link       the egress end of the control channel        questions  questions that wait for an answer
    tally      what egress refuses by itself, told as numbers       bucket     how often a client may do what costs the others time (pure)
    sessions   sessions, their listeners and connections    checks     contradictions in a request (pure)
    resolver   names to addresses, once                     dialler    the event loop, which dials nothing but checked addresses
    admission  from an action to checked addresses          refusals   what a client reads when it is refused
    front      reads each connection's head, finds its way  tunnels    TLS passed on unread, its server name checked
    ends       the two ends of a connection as protocols    client_hello  the first message of a TLS client (pure)
    secrets    credentials in place of placeholders         app        puts it together and obeys the supervisor
    redirected where a client that knows no proxy meant to go    names      the addresses that stand for names at its door
    connect_head  the head of an ordinary CONNECT, read at once (pure); h11 reads every other
    put_off    what is left to do of connections that are over: not while another waits
    progress   what has moved over what is still under way, told now and then
    name_server  gives those addresses; with dnspython, which is imported with the first session that has one

Only these import mitmproxy, and they are imported when the first connection is to be looked into:

    inspector  mitmproxy, put together                      layers     its HTTP layers, refusing by default
    guard      the addon that asks and lifts the refusal    tls        TLS of both sides
    fail_closed  what becomes of whatever a hook of ours raises at
    websockets their messages, bounded                      leaks      placeholders and credentials behind a head
    meter      model calls: reserved, read, settled         sigv4      requests to AWS signed anew (pure)
    hooks      mitmproxy's hooks, straight to the addons    http1, http2  the wire of both, bounded
"""
