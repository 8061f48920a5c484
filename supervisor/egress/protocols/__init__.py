"""Parsers of what clients and origins send: CONNECT heads, TLS hellos, encodings, SigV4.

Pure: bytes in, values or a refusal out. Start with `checks`.
"""
