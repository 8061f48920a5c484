"""Apply granted changes to the host: completely or not at all, also across crashes.

Start with `effects` (claims and settles) and `apply` (one change).
"""
