"""Egress as data: messages to and from its process, exchanges, HAR, credentials.

Start with `egress_wire`.
"""
