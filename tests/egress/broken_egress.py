"""Starts egress with one part that raises, named by the first argument: `Guard.HOOK`, or a function that hooks use."""

import sys
from collections.abc import Callable

sys.path.insert(0, ".")

from supervisor.egress import __main__, addresses, admission, checks, guard, layers, secrets
from supervisor.egress import tls as egress_tls


class BrokenError(Exception):
    """The text must not be seen anywhere: it stands for what a client sent."""


def _broken(*args: object, **kwargs: object) -> None:
    raise BrokenError("text of a client")


def _named(name: str) -> Callable[[object, object], None]:
    def hook(self: object, data: object) -> None:
        _broken()

    hook.__name__ = name
    return hook


def break_part(name: str) -> None:
    owners = {
        "Guard": guard.Guard,
        "Admission": admission.Admission,
        "GuardedTls": egress_tls.GuardedTls,
        "checks": checks,
        "secrets": secrets,
        "addresses": addresses,
        "layers": layers,
    }
    owner_name, _, attribute = name.partition(".")
    owner = owners[owner_name]
    original = getattr(owner, attribute)
    if owner_name == "Guard" and hasattr(original, "__wrapped__"):
        # The hook itself raises, inside of what makes it fail closed.
        refuse = next(
            cell.cell_contents for cell in original.__closure__ if cell.cell_contents is not original.__wrapped__
        )
        setattr(owner, attribute, guard.closes(refuse)(_named(attribute)))
    else:
        setattr(owner, attribute, _broken)


if __name__ == "__main__":
    part = sys.argv.pop(1)
    if part.startswith("Raw."):  # the hook raises with nothing around it: mitmproxy logs it and goes on
        setattr(guard.Guard, part.removeprefix("Raw."), _broken)
    elif part != "nothing":
        break_part(part)
    __main__.main()
