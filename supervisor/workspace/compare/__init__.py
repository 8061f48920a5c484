"""From the copy to requests: find the agent's changes and ask the gate.

Start with `compare`.
"""
