"""What `gatehouse demo` and the tests run on: a forge on loopback, with the refusals of a real one.

Nothing of it is part of a supervisor that serves real repositories. Start with `forge`: its state
and what a person does there. `rest` is what an App sees, `stage` the demo's repository.
"""
