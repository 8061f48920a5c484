"""One target under atheris: `python -m tests.fuzz.engine TARGET [libFuzzer options] [folders]`. It
never returns.

It is a process of its own because libFuzzer ends the process, and because the core must be
imported anew to be instrumented.
"""

import importlib
import pkgutil
import sys

import atheris


def main(target: str, *options: str) -> None:
    """Search until an option of libFuzzer's says stop, or something is found."""
    with atheris.instrument_imports(
        include=["supervisor.core", "supervisor.egress.protocols.client_hello"],
        enable_loader_override=False,
    ):
        core = importlib.import_module("supervisor.core")
        # Judges are imported when they are first needed; that would be too late.
        for module in pkgutil.walk_packages(core.__path__, "supervisor.core."):
            importlib.import_module(module.name)
        targets = importlib.import_module("tests.fuzz.targets")

    def test_one_input(data: bytes) -> None:
        targets.run(target, data)

    atheris.Setup([f"fuzz-{target}", *options], test_one_input, enable_python_coverage=True)
    atheris.Fuzz()


if __name__ == "__main__":
    main(*sys.argv[1:])
