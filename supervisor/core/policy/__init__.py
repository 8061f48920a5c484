"""Rules and verdicts: read a policy, compile it, and judge one action at a time.

A rule that raises is a denial. Nothing here acts or asks a person. Start with `evaluate`. Each
category has a judge (`*_rules`) and an object that answers all other questions about its rules
(`*_category`, in the table of `categories`).
"""
