"""The gate: turns every ask into a recorded verdict. Only it makes grants and leases.

Nothing here acts; channels do, with a Grant or Lease from here. Start with `gate.Gate`, then
`rulings` (kill switch, rules, own files).
"""
