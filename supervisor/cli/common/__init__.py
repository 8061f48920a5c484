"""Shared by verbs of every package: settings, the running supervisor, streams, lines.

Start with `options`, then `client`.
"""
