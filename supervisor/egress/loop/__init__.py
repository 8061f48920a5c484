"""The event loop of egress: dials checked addresses only, relays bytes, shares time fairly.

It knows nothing of rules or sessions. Start with `dialler` and `relay`.
"""
