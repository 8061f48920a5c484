"""An operator's decisions, as functions and as the JSON API; live state.

Start with `decisions`, then `operator_api`.
"""
