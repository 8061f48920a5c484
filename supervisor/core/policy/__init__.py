"""Rules and verdicts: read a policy, compile it, and judge one action at a time.

A rule that raises is a denial. Nothing here acts or asks a person.
Start with `evaluate`; each category has its own `*_rules`, `policy_text` reads the file.
"""
