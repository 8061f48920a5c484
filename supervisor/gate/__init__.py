"""The gate: turns every ask into a recorded verdict. The only place that makes a Grant.

Nothing here acts; a channel does, with the grant it got.
Start with `gate.Gate`, then `judging` (kill switch, rules, own files).
"""
