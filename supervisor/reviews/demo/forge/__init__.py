"""A forge on loopback: real HTTP, real git, and the refusals of the real one.

Start with `forge`: its state and what a person does there. `rest` is what an App sees.
"""
