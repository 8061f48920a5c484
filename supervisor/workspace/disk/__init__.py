"""Files below a folder, opened so that no rename or link leads out of it (law 4).

It knows no session and no request. Start with `beneath` and `scan`.
"""
