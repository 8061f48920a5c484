"""The policy lab: the verbs of `gatehouse policy`. Each reads files, asks `core`, and prints; none needs a running supervisor.

One module a verb, so that a verb costs what it imports. What is decided is decided in `core`; nothing here changes a policy that is
in force, and what a verb proposes goes to standard output for a person to save.
"""
