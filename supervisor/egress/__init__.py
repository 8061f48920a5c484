"""Egress: the process that every connection of every sandbox goes through, and the only package that imports mitmproxy.

It holds the installation's CA key and the credentials to inject, and neither database nor workspace. It decides nothing
but what is contradictory or never allowed; every other question goes over the control channel to the supervisor's gate. It must
never let a connection or request through without an explicit allow: each part below refuses by default, so that a failure
of any other part ends in a refusal.

    link       the egress end of the control channel        questions  questions that wait for an answer
    sessions   sessions, their listeners and connections    checks     contradictions in a request (pure)
    resolver   names to addresses, once                     dialler    the event loop, which dials nothing but checked addresses
    layers     mitmproxy's HTTP layers, refusing by default guard      the addon that asks and lifts the refusal
    secrets    credentials in place of placeholders         app        puts it together and obeys the supervisor
"""
