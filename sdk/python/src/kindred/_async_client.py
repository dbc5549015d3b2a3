"""Sends requests."""

from __future__ import annotations

import dataclasses
import itertools
import os
import time
from collections.abc import AsyncIterator, Callable
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any

import httpx

from . import _common as common
from ._common import Answer, Call, Final, Request, Settings, Token
from ._events import EventParser, Place
from ._tokens import AsyncTokens
from ._waiting import AsyncLines, AsyncReader, answered_async, pause_async, sent_async
from .errors import AnswerError, BrokenConnectionError, KindredError, RefusedError, TookTooLongError, UsageError

__all__ = ["AsyncCaller", "AsyncLines"]


class AsyncCaller:
    def __init__(self, settings: Settings, transport: httpx.AsyncBaseTransport | None) -> None:
        self._s, self._transport = settings, transport
        self._open()

    def _open(self) -> None:
        self._tokens = AsyncTokens(self._s, self._exchange)
        limits = httpx.Limits(max_keepalive_connections=100)  # no call waits for one: each that comes or goes costs httpcore the whole queue
        trusts = common.trusts_environment(self._s.base)
        cookies = CookieJar(DefaultCookiePolicy(allowed_domains=()))  # none is kept: a call is of its token, whatever came before
        self._http = httpx.AsyncClient(transport=self._transport, limits=limits, cookies=cookies, follow_redirects=False, trust_env=trusts)
        self._process = os.getpid()  # last: another thread goes by it

    def _open_again_in_a_fork(self) -> None:
        """Share no connection with another process, whose answers would come here, nor wait for its threads."""
        if self._process != os.getpid():
            self._open()

    @property
    def base(self) -> str:
        return self._s.base

    async def close(self) -> None:
        await self._http.aclose()

    async def client_id(self) -> str:
        self._open_again_in_a_fork()
        return (await self._tokens.get(common.EXCHANGE_TIMEOUT)).client

    async def _exchange(self) -> Token:
        asked = time.monotonic()
        answer = await self.answer(common.renewal(self._s), Call(timeout=common.EXCHANGE_TIMEOUT))
        return common.token_of(answer, asked)

    async def answer(self, r: Request, call: Call) -> Any:
        """The JSON that is answered."""
        return await self._whole(r, call, common.parsed)

    async def done(self, r: Request, call: Call) -> None:
        """Call an operation that answers nothing."""
        await self._whole(r, call, common.check_is_nothing)

    async def _whole(self, r: Request, call: Call, take: Callable[[httpx.Response, bytes], Any]) -> Any:
        timeout = common.timeout_of(call, self._s, common.CALL_TIMEOUT if r.lines is None else common.STREAM_TIMEOUT)
        deadline = time.monotonic() + timeout

        async def read(response: httpx.Response, ends: float) -> Any:
            return take(response, await self._read(response, ends))

        return await self._send(r, call, deadline, read)

    async def items(self, r: Request, call: Call) -> AsyncIterator[Any]:
        """Read a list page by page; no more than one page is held."""
        cursor: str | None = None
        kept: str | None = None
        for pages in itertools.count(1):
            query = r.query if cursor is None else {**r.query, "cursor": cursor}
            page = await self.answer(Request(r.operation, r.method, r.path, query=query), call)
            for one in common.data_of(page):
                yield one
            cursor = page.get("next_cursor", "")  # one that is missing says nothing of an end
            if cursor is None:
                return
            if not isinstance(cursor, str) or not cursor:
                raise AnswerError("its next_cursor is none")
            if cursor == kept:
                raise AnswerError("its next_cursor is that of a page before")
            if pages & (pages - 1) == 0:
                kept = cursor  # pages that go round come to it again, however many those are

    async def exported(self, r: Request, call: Call) -> AsyncIterator[bytes]:
        """Stream lines. What was yielded is not asked for again, so a connection that breaks ends it."""
        deadline = time.monotonic() + common.timeout_of(call, self._s, common.STREAM_TIMEOUT)
        accept = r.accept or "application/x-ndjson"

        async def begin(response: httpx.Response, ends: float) -> tuple[httpx.Response, list[bytes], AsyncIterator[bytes]]:
            common.check_is_of(response, accept)
            lines = self._lines(response, deadline)
            async for line in lines:
                return response, [line], lines
            return response, [], lines

        response, first, rest = await self._send(dataclasses.replace(r, accept=accept), call, deadline, begin)
        try:
            for line in first:
                yield line
            async for line in rest:
                yield line
        finally:
            await response.aclose()

    async def _lines(self, response: httpx.Response, deadline: float) -> AsyncIterator[bytes]:
        rest = bytearray()
        try:
            async for part in self._parts(response):
                if time.monotonic() > deadline:
                    raise TookTooLongError("the export took too long")
                rest += part
                if b"\n" in part:
                    lines = bytes(rest).split(b"\n")
                    rest = bytearray(lines.pop())
                    for line in lines:
                        yield line
                if len(rest) > common.LONGEST_LINE:
                    raise AnswerError("a line is longer than 16 MiB")
        except httpx.HTTPError as cause:
            raise BrokenConnectionError("the connection broke") from cause
        if rest:
            raise BrokenConnectionError("the last line was cut")

    async def csv(self, r: Request, call: Call) -> AsyncIterator[str]:
        """Stream CSV, line by line with their ends."""
        async for line in self.exported(dataclasses.replace(r, accept="text/csv"), call):
            try:
                text = line.decode()
            except UnicodeDecodeError as cause:
                raise AnswerError("a line is not UTF-8") from cause
            yield text + "\n"

    async def pulled(self, r: Request, call: Call) -> AsyncIterator[Any]:
        """Read events page by page and go on behind the last. Where pages are waited for it ends with an error alone."""
        place, soon = Place(), 0
        query = dict(r.query)
        waits = (query.get("wait") or 0) > 0
        call = dataclasses.replace(call, timeout=common.timeout_of(call, self._s, common.SILENCE))
        while True:
            asked = time.monotonic()
            page = await self.answer(dataclasses.replace(r, query=query, persists=True), call)
            fresh = False
            for event in common.data_of(page):
                if place.take(event):
                    fresh = True
                    yield event
            if page["data"] and not fresh:
                raise AnswerError("its events are those of the page before")
            if not page.get("has_more") and not waits:
                return
            if page.get("last_id"):
                query |= {"after": page["last_id"]}
            if page["data"] or time.monotonic() - asked >= common.TOO_SOON:
                soon = 0
            else:
                soon += 1
                await pause_async(common.jitter_of(soon))

    async def followed(self, r: Request, call: Call) -> AsyncIterator[Any]:
        """Read Server-Sent Events, and connect again behind the last. It ends with an error alone."""
        place, failures = Place(), 0
        bears = common.timeout_of(call, self._s, common.SILENCE)
        last = time.monotonic()
        r = dataclasses.replace(r, accept="text/event-stream", persists=True)
        lost: KindredError | None = None

        async def begin(response: httpx.Response, ends: float) -> httpx.Response:
            common.check_is_of(response, "text/event-stream")
            return response

        while True:
            if time.monotonic() - last > bears:
                raise TookTooLongError("nothing came for too long") from lost
            response = await self._send(r, call, last + bears, begin)
            heard = False
            try:
                parser = EventParser()
                async for part in self._parts(response):
                    for event in parser.feed(part):
                        heard = True
                        if event and place.take(event):
                            yield event
                            r = dataclasses.replace(r, last_event_id=event["id"])  # for the next connection
                    last = time.monotonic()  # whoever takes an event may take its time
            except httpx.HTTPError as cause:
                lost = BrokenConnectionError("the connection broke")
                lost.__cause__ = cause
            finally:
                await response.aclose()
            failures = 0 if heard else failures + 1
            await pause_async(common.jitter_of(failures))  # or a stream that ends whenever it began would be asked for without end

    async def _send(self, r: Request, call: Call, deadline: float, read: AsyncReader) -> Any:
        """Send a request until an answer of 2xx was read, and repeat it where it may be."""
        self._open_again_in_a_fork()
        if self._http.is_closed:
            raise UsageError("the client is closed")
        headers = common.common_headers(r, call)
        if not time.monotonic() < deadline:
            raise TookTooLongError("the call had no time")
        repeatable, lost, renewed, retries, attempts = r.repeatable(call), False, False, 0, 0
        while True:
            attempts += 1
            used: Token | None = None
            try:
                if not r.open:
                    used = await self._token(deadline, r.persists)
                return await self._attempt(r, call, headers, used, attempts, deadline, read)
            except Final as last:
                raise last.fault from None
            except KindredError as e:
                fault = e
            fault.attempts = attempts
            if lost and r.method == "DELETE" and common.is_gone(fault):
                return None  # the one before has done it
            if common.is_lost(fault):
                lost = True
                if not repeatable:
                    fault.args = (f"{fault}; it may have taken effect",)
            if time.monotonic() >= deadline:
                late = TookTooLongError(f"the call took too long: {fault}")
                late.attempts = attempts
                raise late from fault
            if isinstance(fault, RefusedError) and fault.status == 401 and used and not used.fixed and not renewed:
                renewed = True
                self._tokens.refuse(used)
                if r.rewindable:
                    continue
            wait = common.pause_before(fault, retries, repeatable)
            if wait is None or (retries >= self._s.max_retries and not r.persists) or not r.rewindable or time.monotonic() + wait > deadline:
                raise fault
            retries += 1
            await pause_async(wait)

    async def _token(self, deadline: float, persists: bool) -> Token:
        try:
            return await self._tokens.get(max(0.001, deadline - time.monotonic()))
        except KindredError as e:
            if persists:
                raise
            raise Final(e) from None

    async def _attempt(
        self, r: Request, call: Call, common_headers: httpx.Headers, used: Token | None, attempts: int, deadline: float, read: AsyncReader
    ) -> Any:
        headers = httpx.Headers(common_headers)
        path = r.path
        if used:
            path = path.replace(common.CLIENT, common.segment(used.client))
            headers["Authorization"] = f"Bearer {used.text}"
        ends = min(deadline, time.monotonic() + self._s.attempt_timeout) if r.lines is None else deadline
        streamed: Any = None  # no local holds a body: tracebacks may show them
        if r.lines is not None:
            headers["Content-Type"] = "text/csv" if r.csv else "application/x-ndjson"
            if common.whole(r.lines) is None:
                streamed = sent_async(r.lines, ends)
        elif r.body is not None:
            headers["Content-Type"] = "application/json"
        left = min(max(0.001, ends - time.monotonic()), common.LONGEST_TIMEOUT)
        try:
            request = self._http.build_request(
                r.method,
                self._s.base + path,
                params=common.query_of(r.query) or None,
                content=streamed or common.content_of(r),
                headers=headers,
                timeout=left,
            )
            response = await answered_async(self._http, request, left)
        except httpx.InvalidURL:
            raise UsageError(f"{r.operation}: an id or what is asked for is too long for a URL") from None
        except httpx.HTTPError as cause:
            raise common.broken(cause) from cause
        try:
            id = response.headers.get("X-Request-Id", "")
            if call.on_answer:
                call.on_answer(Answer(response.status_code, id, response.headers.get("ETag", ""), attempts, response.headers))
            if 200 <= response.status_code <= 299:
                return await read(response, ends)
            raise common.refusal(response, await self._read(response, ends))
        except BaseException:
            await response.aclose()
            raise

    async def _parts(self, response: httpx.Response) -> AsyncIterator[bytes]:
        """The body of an answer, unpacked, as it comes."""
        unpacker = common.Unpacker(response)
        if response.is_stream_consumed:  # by a transport of tests, which has it in memory
            yield response.content
            return
        stream: Any = response.stream  # aiter_raw would lend the connection to others at its end
        async for part in stream:
            yield unpacker.part(part)
        if common.is_followed(response):
            await response.extensions["network_stream"].aclose()
        await response.aclose()
        unpacker.end()

    async def _read(self, response: httpx.Response, ends: float) -> bytes:
        content = bytearray()
        response.request.extensions["timeout"]["read"] = max(0.001, ends - time.monotonic())  # what is left of it
        try:
            async for part in self._parts(response):
                content += part
                if len(content) > common.LARGEST_ANSWER:
                    raise AnswerError("it is larger than 64 MiB")
                if time.monotonic() > ends:  # a body that comes drop by drop
                    raise BrokenConnectionError("no answer came in time")
        except httpx.HTTPError as cause:
            raise BrokenConnectionError("the connection broke") from cause
        return bytes(content)
