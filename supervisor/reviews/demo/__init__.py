"""What `gatehouse demo` and the tests run on: a forge on loopback that behaves like GitHub.

Nothing of it is part of a supervisor that serves real repositories. Start with `forge`.
"""
