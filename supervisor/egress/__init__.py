"""Egress: the process that every connection of every sandbox goes through.

It holds the installation's CA key and the credentials to inject, and neither database nor
workspace. It asks the supervisor's gate about everything that isn't contradictory in itself, and
lets nothing through without an explicit allow: each part refuses by default, so any failure ends in
a refusal.

`front` reads a connection's head and finds its way; `admission/` asks, `loop/` dials and relays,
`protocols/` parses, `mitm/` looks into requests. Start with `app`, then `front`.
"""
