"""The words in which the two clients differ and that no replacement makes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from typing import Any, Union

from ._common import line_of

Lines = Union[bytes, str, Iterable[Any]]
AsyncLines = Union[Lines, AsyncIterable[Any]]


def pause(seconds: float) -> None:
    time.sleep(seconds)


async def pause_async(seconds: float) -> None:
    await asyncio.sleep(seconds)


def sent(lines: Any) -> Iterator[bytes]:
    """The lines of an import in parts of about 16 KiB."""
    part = bytearray()
    for line in lines:
        part += line_of(line)
        if len(part) >= 16384:
            yield bytes(part)
            part.clear()
    if part:
        yield bytes(part)


async def sent_async(lines: Any) -> AsyncIterator[bytes]:
    """The same, of what comes asynchronously too."""
    part = bytearray()
    if isinstance(lines, AsyncIterable):
        async for line in lines:
            part += line_of(line)
            if len(part) >= 16384:
                yield bytes(part)
                part.clear()
        if part:
            yield bytes(part)
    else:
        for whole in sent(lines):
            yield whole
