"""Files below a folder, opened so that no rename or link leads out of it (law 4).

Knows no session and no request. Start with `beneath` and `scan`.
"""
