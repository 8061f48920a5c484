"""The gate: turns every ask into a recorded verdict. The only place that makes a proof.

Nothing here acts; a channel does, with the Grant or Lease it got.
Start with `gate.Gate`, then `rulings` (kill switch, rules, own files).
"""
