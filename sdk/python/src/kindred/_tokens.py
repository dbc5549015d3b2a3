"""The token in force. However many callers need a new one, the key is exchanged once."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future

from ._common import LONGEST_TIMEOUT, Settings, Token, audience
from .errors import KindredError, TookTooLongError, UsageError


def first(settings: Settings) -> Token | None:
    if not settings.token:
        return None
    return Token(settings.token, audience(settings.token), float("inf"), fixed=True)


class Tokens:
    """For threads."""

    def __init__(self, settings: Settings, exchange: Callable[[], Token]) -> None:
        self._settings, self._exchange = settings, exchange
        self._lock = threading.Lock()
        self._current = first(settings)
        self._pending: Future[Token] | None = None

    def get(self, timeout: float) -> Token:
        with self._lock:
            if self._current and time.monotonic() < self._current.until:
                return self._current
            if not (self._settings.key or self._settings.session):
                raise UsageError("no API key is given, nor KINDRED_API_KEY")
            pending = self._pending
            if pending is None:
                pending = Future()
                threading.Thread(target=self._renew, args=(pending,), daemon=True).start()  # no caller's time bounds it
                self._pending = pending  # where no thread begins, nobody waits for it
        try:
            return pending.result(min(timeout, LONGEST_TIMEOUT))
        except TimeoutError:
            raise TookTooLongError("no token came in time") from None

    def _renew(self, pending: Future[Token]) -> None:
        token: Token | None = None
        fault: BaseException | None = None
        try:
            token = self._exchange()
        except BaseException as e:  # whoever waits gets it
            fault = e
        with self._lock:
            if token:
                self._current = token
            self._pending = None
        if token:
            pending.set_result(token)
        else:
            pending.set_exception(fault or KindredError("no token came"))

    def refuse(self, used: Token) -> None:
        """Drop a token that was answered with 401, unless another is there."""
        with self._lock:
            if self._current is used:
                self._current = None


class AsyncTokens:
    """For the tasks of one event loop."""

    def __init__(self, settings: Settings, exchange: Callable[[], Awaitable[Token]]) -> None:
        self._settings, self._exchange = settings, exchange
        self._current = first(settings)
        self._pending: asyncio.Task[Token] | None = None

    async def get(self, timeout: float) -> Token:
        if self._current and time.monotonic() < self._current.until:
            return self._current
        if not (self._settings.key or self._settings.session):
            raise UsageError("no API key is given, nor KINDRED_API_KEY")
        if self._pending is None:
            self._pending = asyncio.create_task(self._renew())
            self._pending.add_done_callback(_seen)
        # A call that gives up takes nobody's token away: the exchange goes on.
        try:
            return await asyncio.wait_for(asyncio.shield(self._pending), min(timeout, LONGEST_TIMEOUT))
        except TimeoutError:
            raise TookTooLongError("no token came in time") from None

    async def _renew(self) -> Token:
        try:
            self._current = await self._exchange()
            return self._current
        finally:
            self._pending = None

    def refuse(self, used: Token) -> None:
        """Drop a token that was answered with 401, unless another is there."""
        if self._current is used:
            self._current = None


def _seen(exchange: asyncio.Task[Token]) -> None:
    """Look at a fault that nobody may be left to get: asyncio would log it."""
    if not exchange.cancelled():
        exchange.exception()
