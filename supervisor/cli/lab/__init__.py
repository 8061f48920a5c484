"""The verbs of `gatehouse policy`: read files, ask `core.lab`, print. None needs a supervisor.

Start with `explain`.
"""
