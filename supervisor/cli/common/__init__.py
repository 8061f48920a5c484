"""What verbs of every package use: settings, the running supervisor, standard streams, lines.

Start with `options`, then `client`.
"""
