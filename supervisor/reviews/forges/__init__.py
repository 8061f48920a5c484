"""Clients of forges, behind one port: the only place that speaks to one.

Start with `base`. A client decides nothing and retries nothing: who calls it holds a grant,
and knows when to try again.
"""
