"""Finds secrets in text and hides them: by value, by shape, by the place where they stand.

Start with `redact`, which everything that is stored or shown goes through (law 6).
"""
