"""Command lines: bash text to simple commands, and what exec rules say of them.

More than 25 modules would be one subject all the same: parser, tables and rules change together.
Start with `shell` (text to commands), then `exec_rules` (commands to a verdict).
"""
