"""Text as data: paths, hosts, URLs, globs, durations, and text made safe to show.

Also `data/`, the tables (protected names, programs, public suffixes) that the engine reads once.
Start with `paths` and `hosts`.
"""
