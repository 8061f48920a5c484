"""Egress as data: messages to and from its process, exchanges, HAR, named credentials.

Start with `egress_wire`.
"""
