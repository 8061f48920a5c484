"""`gatehouse`: one function per verb, which calls the supervisor or the engine and prints.

Start with `cli` (the words), then `verbs`.
"""
