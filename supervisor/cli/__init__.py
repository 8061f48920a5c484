"""`gatehouse`: one function per verb. Each calls the running supervisor or the engine, and prints.

Start with `cli` (the words), then `verbs`.
"""
