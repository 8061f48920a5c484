"""Egress: the process that every connection of every sandbox goes through.

It holds the installation's CA key and the credentials to inject, but no database and no workspace.
It refuses contradictory requests itself and asks the supervisor's gate about all others. Nothing
passes without an explicit allow: each part refuses by default, so any failure ends in a refusal.

`front` reads a connection's head and finds its way; `admission/` asks, `loop/` dials and relays,
`protocols/` parses, `mitm/` inspects requests. Start with `app`, then `front`.
"""
