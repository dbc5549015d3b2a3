"""Reads and writes JSON so that numbers which were read are put back unchanged."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any

from .errors import UsageError

_MARK = secrets.token_hex()  # nobody knows it, so no text holds it
_MARKED = re.compile(f'"{_MARK}([^"]*)"')


def loads(text: str | bytes, object_pairs_hook: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """Numbers that neither an int nor a float holds are Decimals, and those that no Decimal holds texts."""
    if isinstance(text, bytes):
        text = text.decode()  # json would read UTF-16 and UTF-32, too
    try:
        return json.loads(text, parse_int=_integer, parse_float=_fraction, parse_constant=_refused, object_pairs_hook=object_pairs_hook)
    except RecursionError as cause:
        raise ValueError("it nests too deeply") from cause


def encode(body: Any) -> bytes:
    """A Decimal is a number with all its digits."""
    try:
        text = json.dumps(body, separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=_marked)
        return _MARKED.sub(r"\1", text).encode()
    except (TypeError, ValueError, RecursionError) as cause:
        raise UsageError(f"it cannot be sent as JSON: {cause}") from cause


def _integer(text: str) -> int | Decimal:
    try:
        return int(text)
    except ValueError:  # it has more digits than Python turns into an int
        return Decimal(text)


def _fraction(text: str) -> float | Decimal | str:
    number = float(text)
    try:
        exact = Decimal(text)
    except InvalidOperation:  # its exponent has 19 digits or more
        return text
    return number if exact == Decimal(repr(number)) else exact


def _refused(name: str) -> Any:
    raise ValueError(f"JSON has no {name}")


def _marked(value: Any) -> str:
    if isinstance(value, Decimal) and value.is_finite():
        return f"{_MARK}{value}"
    raise TypeError(f"{type(value).__name__} is no JSON")
