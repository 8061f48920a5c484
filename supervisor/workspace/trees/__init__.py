"""Host folder and agent copy, and what both last agreed on: the baseline.

Start with `trees`; `journal` holds what survives a crash.
"""
