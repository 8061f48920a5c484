"""Egress as plain data: wire messages, exchanges, HAR, credentials.

Start with `egress_wire`.
"""
