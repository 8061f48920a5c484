"""From the copy to requests: finds what the agent changed and asks the gate about it.

Start with `compare`.
"""
