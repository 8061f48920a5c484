"""Command lines: parse bash text into simple commands and judge them by exec rules.

More than 25 modules would be one subject all the same: parser, tables and rules change together.
Start with `shell` (text to commands), then `exec_rules` (commands to a verdict).
"""
