"""One running supervisor: the parts of `supervisor.parts`, started and stopped in order.

Only the CLI imports it. Start with `app`.
"""
