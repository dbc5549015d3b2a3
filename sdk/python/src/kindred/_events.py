"""What both clients share of following events."""

from __future__ import annotations

from collections import deque
from typing import Any

from . import types as t
from ._common import LONGEST_LINE, REMEMBERED
from ._json import loads
from .errors import AnswerError


class Place:
    """Where a follower is. It passes over events that come twice."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._order: deque[str] = deque()

    def take(self, event: t.PublicEvent) -> bool:
        """Whether an event is new."""
        id = id_of(event)
        if id in self._seen:
            return False
        self._seen.add(id)
        self._order.append(id)
        if len(self._order) > REMEMBERED:
            self._seen.discard(self._order.popleft())
        return True


class EventParser:
    """Reads Server-Sent Events (HTML standard, section 9.2) from the parts that come. What is cut is no event."""

    def __init__(self) -> None:
        self._rest = b""
        self._id = ""
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, part: bytes) -> list[t.PublicEvent | None]:
        """The events that are whole by now, and None for a comment."""
        out: list[t.PublicEvent | None] = []
        lines = (self._rest + part).split(b"\n")
        self._rest = lines.pop()
        for line in lines:
            line = line.removesuffix(b"\r")
            name, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if not line:
                out.append(_read(self._id, b"\n".join(self._data)) if self._data else None)
                self._id, self._data, self._size = "", [], 0
            elif name == b"id":
                self._id = value.decode(errors="replace")
            elif name == b"data":
                self._data.append(value)
                self._size += len(value)
            elif not name and not self._id and not self._data:
                out.append(None)  # it says that the stream lives
        if self._size + len(self._rest) > LONGEST_LINE:
            raise AnswerError("an event is longer than 16 MiB")
        return out


def _read(id: str, data: bytes) -> t.PublicEvent:
    try:
        event: Any = {"id": id, **loads(data)}
    except (ValueError, TypeError) as cause:
        raise AnswerError("an event is not JSON") from cause
    event["id"] = id
    id_of(event)
    return event  # type: ignore[no-any-return]


def id_of(event: t.PublicEvent) -> str:
    told: Any = event
    if not isinstance(told, dict) or not all(isinstance(told.get(name), str) and told[name] for name in ("id", "event_type")):
        raise AnswerError("an event has no id or type")
    if not isinstance(told.get("data"), dict):
        raise AnswerError("an event has no data")
    return str(told["id"])
