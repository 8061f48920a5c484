"""Egress: the process that every connection of every sandbox goes through, and the only package that imports mitmproxy.

It holds the installation's CA key and the credentials to inject, and neither database nor workspace. It decides nothing
but what is contradictory or never allowed; every other question goes over the control channel to the supervisor's gate. It must
never let a connection or request through without an explicit allow: each part below refuses by default, so that a failure
of any other part ends in a refusal.

The process, and what it hears and says:

    app           puts it together and obeys the supervisor
    link          the egress end of the control channel
    questions     questions that wait for an answer
    tally         what egress refuses by itself, told as numbers
    progress      what has moved over what is still under way, told now and then
    sessions      sessions, their listeners and connections
    allowances    what sessions may still send, drawn from the supervisor in portions
    failures      an exception as one line of the log, without the texts of clients

From a connection to an origin:

    front         reads each connection's head, finds its way
    connect_head  the head of an ordinary CONNECT, read at once; h11 reads every other
    redirected    where a client that knows no proxy meant to go
    names         the addresses that stand for names at its door
    name_server   gives those addresses; with dnspython, which is imported with the first session that has one
    checks        contradictions in a request
    admission     from an action to checked addresses
    resolver      names to addresses, once
    addresses     which addresses are never dialled
    dialler       the event loop, which dials nothing but checked addresses
    likely        which CONNECT is likely to be allowed, so that its client is told early
    tunnels       TLS passed on unread, its server name checked
    client_hello  the first message of a TLS client
    ends          the two ends of a connection as protocols
    refusals      what a client reads when it is refused
    tls_failures  why TLS failed on what is looked into, in words
    secrets       credentials in place of placeholders
    sigv4         requests to AWS signed anew
    codings       bodies as what they say, unpacked within bounds

What others have of the processor:

    share         one session's share of the loop
    bucket        how often a client may do what costs the others time
    waits         waiting for a future until a time, without a task of its own
    put_off       what is left to do of connections that are over: not while another waits

Only these import mitmproxy, and they are imported when the first connection is to be looked into:

    inspector     mitmproxy, put together
    hooks         its hooks, straight to the addons
    layers        its HTTP layers, refusing by default
    http1         HTTP/1 of both sides, bounded
    http2         HTTP/2 of both sides, bounded
    websockets    their messages, bounded
    tls           TLS of both sides
    guard         the addon that asks and lifts the refusal
    exchange      what is known of one request, and whether it is allowed
    fail_closed   what becomes of whatever a hook of ours raises at
    looks         bodies looked at on their way
    held_bodies   bodies that are held until they are whole
    leaks         placeholders and credentials behind a head
    signing       which requests are signed anew, and when
    meter         model calls: reserved, read, settled
    bodies        what bodies begin with, for the person to see
"""
