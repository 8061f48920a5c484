"""Pure part of the supervisor: no I/O, no async, no clock (`now` is an argument).

The top level holds what all parts share: actions, verdicts, approvals, sessions, money. Each folder
is the pure half of one subject. Start with `actions`, then `policy/rules`.
"""
