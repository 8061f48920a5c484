"""A forge on loopback for `gatehouse demo` and the tests, which refuses what a real one refuses.

Supervisors that serve real repositories use none of it. Start with `forge`: its state and what a
person does there. `rest` is the API that an App sees, `stage` the demo's repository.
"""
