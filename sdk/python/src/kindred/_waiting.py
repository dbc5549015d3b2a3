"""The words in which the two clients differ and that no replacement makes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from typing import Any, Union

import httpx

from ._common import LONGEST_TIMEOUT, line_of
from .errors import TookTooLongError

Lines = Union[bytes, str, Iterable[Any]]
AsyncLines = Union[Lines, AsyncIterable[Any]]
Reader = Callable[[httpx.Response, float], Any]  # of an answer of 2xx, until when it is given up; a stream is closed by who gets it
AsyncReader = Callable[[httpx.Response, float], Awaitable[Any]]


def pause(seconds: float) -> None:
    time.sleep(seconds)


async def pause_async(seconds: float) -> None:
    await asyncio.sleep(seconds)


def answered(http: httpx.Client, request: httpx.Request, seconds: float) -> httpx.Response:
    """The head of an answer. Nothing ends a thread that gets it drop by drop: each read of the socket has all the time."""
    return http.send(request, stream=True)


async def answered_async(http: httpx.AsyncClient, request: httpx.Request, seconds: float) -> httpx.Response:
    """The head of an answer, if all of it comes in its time."""
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            try:
                return await http.send(request, stream=True)
            except BaseException:
                await _close_abandoned(http)
                raise
    except TimeoutError:
        if not limit.expired():  # it is of what makes the lines
            raise
        raise httpx.ReadTimeout("the head of the answer took too long") from None


async def _close_abandoned(http: httpx.AsyncClient) -> None:
    """Close what no request has: httpcore keeps the connection of a call that is cancelled before it sends, and uses it no more."""
    for transport in (http._transport, *http._mounts.values()):
        pool: Any = getattr(transport, "_pool", None)  # a transport of tests has none
        used = {id(request.connection) for request in getattr(pool, "_requests", ())}
        for one in getattr(pool, "connections", ()):
            if id(one) not in used and not one.is_idle() and not one.is_closed():
                await one.aclose()


def sent(lines: Any, ends: float) -> Iterator[bytes]:
    """The lines of an import in parts of about 16 KiB, for as long as it may take."""
    part = bytearray()
    for line in lines:
        part += line_of(line)
        if time.monotonic() > ends:
            raise TookTooLongError("the lines took too long")
        if len(part) >= 16384:
            yield bytes(part)
            part.clear()
    if part:
        yield bytes(part)


async def sent_async(lines: Any, ends: float) -> AsyncIterator[bytes]:
    """The same, of what comes asynchronously too."""
    if not isinstance(lines, AsyncIterable):
        for whole in sent(lines, ends):
            yield whole
        return
    part = bytearray()
    each = aiter(lines)
    while True:
        limit = asyncio.timeout(min(max(0.0, ends - time.monotonic()), LONGEST_TIMEOUT))
        try:
            async with limit:
                part += line_of(await anext(each))
        except StopAsyncIteration:
            break
        except TimeoutError:
            if not limit.expired():  # it is of what makes the lines
                raise
            raise TookTooLongError("the lines took too long") from None
        if len(part) >= 16384:
            yield bytes(part)
            part.clear()
    if part:
        yield bytes(part)
