"""Apply granted changes to the host: whole or not at all, over crashes.

Start with `effects` (claims and settles) and `apply` (one change).
"""
