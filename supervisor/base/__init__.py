"""Small tools that every part may use: the clock, child processes, whole files.

Only `clock` reads the time and only `process` starts processes. Nothing here knows an action or
a rule. Start with `process`.
"""
