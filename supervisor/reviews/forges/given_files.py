"""Reads the files that settings name: keys, tokens and secrets."""

from pathlib import Path

from supervisor.errors import UserError


def read_secret(file: Path | None, name: str, forge: str) -> bytes:
    """Return the secret of webhooks. Raise `UserError` if it can't be one."""
    secret = read_given(file, name).strip()
    if len(secret) < 8:
        raise UserError(
            "the webhook's secret has less than 8 characters", f"set a long random one at {forge}"
        )
    return secret


def read_given(file: Path | None, name: str) -> bytes:
    """Return the bytes of the file that a setting names. Raise `UserError` if it can't be read."""
    if file is None:
        raise UserError(f"{name} is not set", "see docs/reviews.md")
    try:
        return file.read_bytes()
    except OSError as error:
        raise UserError(f"{name}: {file}: {error.strerror}", "name a file that is there") from error
