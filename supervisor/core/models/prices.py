"""Price table of models, and exact sums over it.

It decides which row of `policy/prices.yaml` a model's name means, and what counts of tokens cost by
it. Money is whole pico-dollars (a price of $0.000001 for a million tokens is one for each), never a
float. Missing knowledge must never make a price low: a model that isn't in the table costs the
table's highest price.
"""

import re
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple, Protocol

import msgspec

from supervisor.core.models.model_calls import Tier, Tokens
from supervisor.core.text import strict_yaml
from supervisor.core.text.mistyped import nearest
from supervisor.errors import PolicyError

_MILLION = 10**6
_RATES = ("input", "output", "cache_read", "cache_write", "cache_write_long")
_KEYS = (
    *_RATES,
    "above",
    "context_tokens",
    "max_output_tokens",
    "fast",
    "ultrafast",
    "web_search_preview",
)
_TABLE_KEYS = ("version", "models", "web_search", "regional", "server_steps")
MOST_TOKENS = 10**9
MOST_FACTOR = 100
# Anthropic pauses after so many, and the caller asks anew (its page on server tools); nobody else
# names a number.
SERVER_STEPS = 10
# Variations in names of one model: region, vendor, build date, and OpenRouter's routing.
_REGION = re.compile(
    r"^(?:[a-z]{2,6}(?:-gov)?\.)?(?:anthropic|openai|amazon|meta|mistral|deepseek|qwen|moonshot)\."
)
_BUILD = re.compile(
    r"(?:-v\d+(?::\d+(?::\w+)?)?|[@-]20\d{6}|-20\d{2}-\d{2}-\d{2}|-latest|@default|\[1m\]|:(?:free|nitro|floor|exacto|thinking|online))$"
)
_DOTTED = re.compile(r"(?<=\d)\.(?=\d)")


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """Pico-dollars for one token of each kind. `cache_write_long` is a write that lasts an hour or
    more."""

    input: int
    output: int
    cache_read: int
    cache_write: int
    cache_write_long: int


class Price(msgspec.Struct, frozen=True, kw_only=True):
    """One model's row. If the prompt (all kinds of input together) exceeds `above_tokens`, `above`
    applies to the whole call.

    `fast` and `ultrafast` are the factors of faster service tiers, in thousandths;
    `preview_picousd` is the price of a search by the older tool. The model takes at most
    `context_tokens` in, and gives at most `max_output_tokens`.
    """

    rates: Rates
    context_tokens: int
    max_output_tokens: int
    fast: int | None = None
    ultrafast: int | None = None
    preview_picousd: int | None = None
    above_tokens: int | None = None
    above: Rates | None = None


class PriceTerms(Protocol):
    """The parts of a call that change its price."""

    @property
    def tier(self) -> Tier: ...
    @property
    def regional(self) -> bool: ...
    @property
    def previews(self) -> bool: ...


class Found(NamedTuple):
    """The price that a model's name means. `is_known` False: it is the table's highest."""

    price: Price
    is_known: bool


class PriceTable(msgspec.Struct, frozen=True, kw_only=True):
    """The table. `highest` combines the highest price of each kind; `regional` is a factor in
    thousandths. A provider is assumed to take at most `server_steps` steps by itself in one call.
    """

    models: dict[str, Price]
    highest: Price
    search_picousd: int
    regional: int
    server_steps: int

    def find(self, model: str) -> Found:
        """Return the row for a model's name, in any spelling that a provider accepts."""
        for name in _names(model):
            if name in self.models:
                return Found(self.models[name], is_known=True)
        return Found(self.highest, is_known=False)

    def cost_picousd(self, price: Price, tokens: Tokens, terms: PriceTerms) -> int:
        """Return the cost of tokens, rounded up to a whole pico-dollar."""
        is_long = price.above_tokens is not None and tokens.prompt > price.above_tokens
        rates = price.above if is_long and price.above is not None else price.rates
        cost: int = sum(getattr(tokens, kind) * getattr(rates, kind) for kind in _RATES)
        factor = self._factor(price, terms.tier)
        factor *= self.regional if terms.regional else 1000
        preview = price.preview_picousd if terms.previews else None
        each = self.search_picousd if preview is None else preview
        return -(-cost * factor // _MILLION) + tokens.searches * each

    def _factor(self, price: Price, tier: Tier) -> int:
        """Return a tier's price factor, in thousandths: the table's highest if the model's factor
        isn't known."""
        if tier == "plain":
            return 1000
        own = {"fast": price.fast, "ultrafast": price.ultrafast}.get(tier)
        return own or (self.highest.fast if tier == "fast" else self.highest.ultrafast) or 1000


def _names(model: str) -> list[str]:
    """Return the spellings of a model's name to look for, nearest first."""
    name = model.strip().lower().rpartition("/")[2]
    found = [model, name]
    name = _REGION.sub("", name)
    while (shorter := _BUILD.sub("", name)) != name:
        found.append(name)
        name = shorter
    return [*found, name, _DOTTED.sub("-", name)]


# -- the file -------------------------------------------------------------------------------------


def parse_prices(text: str, source: str) -> PriceTable:
    """Return the table in a file. Raise `PolicyError` with file, line and a remedy if it can't be
    used."""
    root = _fields(strict_yaml.load(text, source), source, "the table", _TABLE_KEYS)
    if root.get("version") != "1":
        raise _fail(source, root, "`version` is not 1", "write `version: 1`")
    listed = _fields(root.get("models"), source, "`models`", None)
    if not listed:
        raise _fail(
            source,
            root,
            "no `models`",
            "name at least one: its highest prices stand in for what isn't named",
        )
    models = {str(name).lower(): _price(source, str(name), row) for name, row in listed.items()}
    return PriceTable(
        models=models,
        highest=_highest(list(models.values())),
        search_picousd=_money(source, root, "web_search"),
        regional=_factor(source, root, "regional") or 1000,
        server_steps=_count(source, root, "server_steps")
        if "server_steps" in root
        else SERVER_STEPS,
    )


def _price(source: str, name: str, row: Any) -> Price:
    fields = _fields(row, source, f"`{name}`", _KEYS)
    rates = _rates(source, fields)
    above_tokens = above = None
    if "above" in fields:
        longer = _fields(fields["above"], source, "`above`", (*_RATES, "tokens"))
        above_tokens, above = _count(source, longer, "tokens"), _rates(source, longer)
    return Price(
        rates=rates,
        context_tokens=_count(source, fields, "context_tokens"),
        max_output_tokens=_count(source, fields, "max_output_tokens"),
        fast=_factor(source, fields, "fast"),
        ultrafast=_factor(source, fields, "ultrafast"),
        preview_picousd=_money(source, fields, "web_search_preview")
        if "web_search_preview" in fields
        else None,
        above_tokens=above_tokens,
        above=above,
    )


def _rates(source: str, fields: Any) -> Rates:
    """Return the rates: a kind without a price costs as much as plain input, and a long cache write
    as much as a short one."""
    plain = _money(source, fields, "input")
    cache_write = _money(source, fields, "cache_write", plain)
    return Rates(
        input=plain,
        output=_money(source, fields, "output"),
        cache_read=_money(source, fields, "cache_read", plain),
        cache_write=cache_write,
        cache_write_long=_money(source, fields, "cache_write_long", cache_write),
    )


def _highest(prices: list[Price]) -> Price:
    """Return the highest price of each kind. For cache reads only explicit prices count: a model
    without one has no cache."""
    all_rates = [
        rates for price in prices for rates in (price.rates, price.above) if rates is not None
    ]
    highest = {kind: max(getattr(rates, kind) for rates in all_rates) for kind in _RATES}
    cached = [rates.cache_read for rates in all_rates if rates.cache_read < rates.input]
    return Price(
        rates=Rates(**highest | {"cache_read": max(cached, default=highest["input"])}),
        context_tokens=max(price.context_tokens for price in prices),
        max_output_tokens=max(price.max_output_tokens for price in prices),
        fast=max(price.fast or 1000 for price in prices),
        ultrafast=max(
            factor or 1000 for price in prices for factor in (price.fast, price.ultrafast)
        ),
        preview_picousd=max(
            (one for price in prices if (one := price.preview_picousd) is not None), default=None
        ),
    )


def _money(source: str, fields: Any, key: str, default: int | None = None) -> int:
    """Return dollars for a million tokens as pico-dollars for one."""
    if key not in fields and default is not None:
        return default
    return _decimal(source, fields, key, _MILLION, "dollars, such as 3.75, with at most 6 decimals")


def _factor(source: str, fields: Any, key: str) -> int | None:
    """Return a factor of at least one, in thousandths."""
    if key not in fields:
        return None
    found = _decimal(source, fields, key, 1000, "a factor, such as 2 or 1.1")
    if not 1000 <= found <= MOST_FACTOR * 1000:
        raise _fail(
            source,
            fields,
            f"`{key}` is not between 1 and {MOST_FACTOR}",
            "write a factor, such as 2 or 1.1",
        )
    return found


def _count(source: str, fields: Any, key: str) -> int:
    found = _decimal(source, fields, key, 1, "a whole number")
    if not 0 < found <= MOST_TOKENS:
        raise _fail(
            source, fields, f"`{key}` is not between 1 and {MOST_TOKENS}", "write a whole number"
        )
    return found


def _decimal(source: str, fields: Any, key: str, unit: int, wanted: str) -> int:
    text = fields.get(key)
    try:
        if not isinstance(text, str) or not text.isascii():
            raise InvalidOperation
        number = Decimal(text) * unit
        if not number.is_finite() or number < 0 or number > 10**15 or number != int(number):
            raise InvalidOperation
    except InvalidOperation:
        raise _fail(
            source, fields, f"`{key}` is missing or not a number that fits", f"write {wanted}"
        ) from None
    return int(number)


def _fields(value: Any, source: str, what: str, keys: tuple[str, ...] | None) -> strict_yaml.Fields:
    if not isinstance(value, strict_yaml.Fields):
        raise _fail(
            source, value, f"{what} is not a mapping", "see policy/prices.yaml for the form"
        )
    for key in value:
        if keys is not None and key not in keys:
            raise _fail(source, value, f"unknown key `{key}` in {what}", nearest(str(key), keys))
    return value


def _fail(source: str, value: Any, message: str, remedy: str) -> PolicyError:
    line = strict_yaml.line_of(value)
    return PolicyError(f"{source}:{line}: {message}" if line else f"{source}: {message}", remedy)
