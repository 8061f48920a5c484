"""Clients of forges, behind one port: no other code talks to a forge.

Start with `base`. A client decides nothing and retries nothing: its caller holds a grant, and knows
when to try again.
"""
