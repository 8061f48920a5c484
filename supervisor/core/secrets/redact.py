"""Redact secrets in everything that is stored or shown (law 6).

Two nets: the values that this installation knows (`Redactor(secrets)`), in each form that
`secret_forms` finds, and the shapes of well-known tokens (`token_shapes`). A shape can miss an
unusual secret, so channels that handle a secret register its value.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from supervisor.core.actions import Action, Network
from supervisor.core.secrets import command_secrets, url_secrets
from supervisor.core.secrets.encodings import MOST_LAYERS
from supervisor.core.secrets.secret_forms import SHORTEST_SECRET, SecretForms
from supervisor.core.secrets.token_shapes import MARK, PARTS, without_tokens

_BETWEEN = "\0"
_encode = msgspec.json.Encoder().encode
_PARTS = tuple(PARTS.items())


class Redactor:
    """Replaces known secrets and secret-looking text by `[redacted]`. Idempotent. `changes` counts
    added secrets."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets: set[str] = set()
        self.changes = 0
        self._forms = SecretForms(())
        for secret in secrets:
            self.add(secret)

    def add(self, secret: str) -> None:
        """Redact this value from now on. Values under 8 characters are ignored, because they would
        redact ordinary text."""
        if len(secret) >= SHORTEST_SECRET:
            self._secrets.add(secret)
            self._forms = SecretForms(self._secrets)
            self.changes += 1

    def text(self, value: str) -> str:
        """Return `value` without secrets."""
        written = value.encode("utf-8", "surrogatepass")
        if self._forms.is_in(written):
            value = self._forms.without(written, MARK.encode(), may_be_cut=False).decode(
                "utf-8", "replace"
            )
        return without_tokens(value)

    def said(self, value: str, action: Action | None = None) -> str:
        """Return a person's or agent's text without secrets, including those in commands that it
        quotes and those of `action`."""
        value = command_secrets.without_secrets(value)
        return self.text(
            value
            if action is None
            else command_secrets.without(value, command_secrets.secrets_in(action))
        )

    def printed(self, value: str) -> str:
        """Return a program's output without secrets."""
        return self.text(command_secrets.without_secrets(value, is_command=False))

    def body(self, value: bytes, mark: bytes = MARK.encode()) -> bytes:
        """Return the beginning of a body without known secrets, and without a partial one at its
        end; `text` handles shapes. `mark` stands in for them."""
        return self._forms.without(value, mark)

    def is_clean(self, value: Any) -> bool:
        """Return whether data, or a Struct, certainly holds no secret. False means only that it
        might."""
        try:
            encoded = _encode(value)
        except (TypeError, ValueError, OverflowError, RecursionError):
            return False
        return self.is_clean_json(encoded)

    def is_clean_json(self, encoded: bytes) -> bool:
        """Return whether msgspec's JSON certainly holds no secret.

        INVARIANT: JSON encodes each character by itself, so the encoding of a text contains the
        encoding of each part of it, under one more layer.
        """
        # JSON writes all parts unchanged. Each byte is one character of this text, and searching
        # text takes a fifth of the time of searching bytes.
        text = encoded.decode("latin-1")
        # No generators, which take three times as long: this runs several times for each verdict.
        for first, parts in _PARTS:
            if first in text:
                for part in parts:
                    if part in text:
                        return False
        return not self._forms.is_in(encoded, MOST_LAYERS + 1)

    def data(self, value: Any) -> Any:
        """Return JSON-like data without secrets, keys included."""
        if self.is_clean(value):
            return value
        # One search instead of one for each text. INVARIANT: no shape matches the character between
        # them, or looks at it.
        joined = _BETWEEN.join(_texts(value))
        return value if self.text(joined) == joined else self._data(value)

    def _data(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self._data(key): self._data(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._data(item) for item in value]
        return value


def _texts(value: Any) -> list[str]:
    """Yield every text in JSON-like data."""
    texts: list[str] = []
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, str):
            texts.append(one)
        elif isinstance(one, dict):
            left.extend(one)
            left.extend(one.values())
        elif isinstance(one, list | tuple):
            left.extend(one)
    return texts


def hidden(action: Action) -> Action:
    """Return the action without values that authenticate because of where they stand: in an
    address, or on a command line."""
    return (
        url_secrets.hidden(action)
        if isinstance(action, Network)
        else command_secrets.hidden(action)
    )


def redacted(action: Action, redactor: Redactor) -> Action:
    """Return the action as it may be stored and shown."""
    action = hidden(action)
    if redactor.is_clean(action):
        return action
    # Each text separately: in an encoded text, the `n` of a line break would directly precede a
    # token and hide where it begins.
    fields = msgspec.to_builtins(action)
    shown = redactor.data(fields)
    return action if shown == fields else msgspec.convert(shown, Action)
