"""Finds secrets in text and hides them: by value, by shape, by context.

Start with `redact`, which everything that is stored or shown goes through (law 6).
"""
