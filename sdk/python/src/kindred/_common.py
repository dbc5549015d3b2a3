"""What both clients share: what is sent, what is repeated, and how answers are read."""

from __future__ import annotations

import base64
import binascii
import email.utils
import ipaddress
import json
import os
import random
import re
import secrets
import ssl
import time
import urllib.parse
import zlib
from collections.abc import AsyncIterable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC
from typing import Any

import httpx

from ._json import encode, loads
from .errors import AnswerError, BrokenConnectionError, KindredError, RefusedError, TookTooLongError, UsageError

VERSION = "0.1.0"
CLIENT = "{client_id}"
LARGEST_ANSWER = 64 << 20  # bytes; a page is about 8 MiB
LONGEST_TIMEOUT = 1e6  # seconds: sockets and locks take no endless one
LONGEST_LINE = 16 << 20  # bytes of an export
FIRST_PAUSE = 0.25
LONGEST_PAUSE = 10.0
CALL_TIMEOUT = 60.0
STREAM_TIMEOUT = 3600.0
EXCHANGE_TIMEOUT = 60.0
SILENCE = 600.0  # that a follower bears
REMEMBERED = 1024  # ids of events
TOO_SOON = 1.0  # for an empty page that was to be waited for
RENEW_BEFORE = 30.0


@dataclass(frozen=True)
class Answer:
    """What an answer tells beside its body."""

    status: int
    request_id: str
    etag: str
    attempts: int  # how often the request was sent
    headers: Mapping[str, str]


OnAnswer = Callable[[Answer], None]


@dataclass(frozen=True)
class Request:
    """One call of an operation."""

    operation: str
    method: str
    path: str
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Any = field(default=None, repr=False)  # it may hold a key, or personal data
    lines: Any = field(default=None, repr=False)
    csv: bool = False  # they are of that
    takes_key: bool = False
    open: bool = False
    accept: str = ""  # of an answer that is streamed
    last_event_id: str = ""
    persists: bool = False  # it is repeated for as long as its time lets it

    def repeatable(self, call: Call) -> bool:
        """Whether a lost answer may be asked for again: the request does the same however often it arrives.

        One with a condition is refused then, and so is one that names the password from before.
        """
        if self.method == "PATCH" or self.lines is not None or self.operation == "changePassword":
            return False
        if self.method == "PUT" and (call.if_match is not None or call.if_none_match is not None):
            return False
        return self.method != "POST" or self.takes_key or self.operation in ("exchangeAPIKey", "getSessionToken")

    @property
    def rewindable(self) -> bool:
        """Whether the body can be sent again."""
        return self.lines is None or isinstance(self.lines, (bytes, str, list, tuple))


@dataclass(frozen=True)
class Call:
    """What changes one call."""

    idempotency_key: str | None = None
    if_match: str | None = None
    if_none_match: str | None = None
    eventual: bool = False
    timeout: float | None = None
    on_answer: OnAnswer | None = None


@dataclass(frozen=True)
class Token:
    """A token that the service gave."""

    text: str = field(repr=False)
    client: str
    until: float  # of the monotonic clock: it is renewed then
    fixed: bool = False  # it cannot be renewed


@dataclass(frozen=True)
class Settings:
    """How to reach the service."""

    base: str
    key: str = field(repr=False)
    session: str = field(repr=False)
    token: str = field(repr=False)
    sandbox: str
    timeout: float | None
    attempt_timeout: float
    max_retries: int


class Final(Exception):
    """Marks a fault that no repetition mends."""

    def __init__(self, fault: KindredError) -> None:
        self.fault = fault


def settings(
    api_key: str | None,
    session: str | None,
    token: str | None,
    sandbox: str | None,
    base_url: str | None,
    timeout: float | None,
    attempt_timeout: float,
    max_retries: int,
) -> Settings:
    token = token or ""
    session = "" if token else session or ""
    key = "" if token or session else api_key or os.environ.get("KINDRED_API_KEY", "")
    if any(not "!" <= c <= "~" for c in key + session + token):
        raise UsageError("the API key, session or token has a space, a line break or a character that is not ASCII in it")
    if sandbox and not session:
        raise UsageError("sandbox goes with a session: a key or token is of one client")
    base = base_of(base_url or os.environ.get("KINDRED_URL", ""))
    return Settings(base, key, session, token, sandbox or "", timeout, attempt_timeout, max(0, max_retries))


def base_of(text: str) -> str:
    if not text:
        raise UsageError("no base_url is given, nor KINDRED_URL")
    try:
        url = urllib.parse.urlsplit(text.strip())
        host = url.hostname or ""
    except ValueError:
        raise UsageError("the base_url is not a URL") from None
    if not host or url.username is not None or "?" in text or "#" in text:
        raise UsageError("the base_url must be a scheme, a host and at most a path")
    if url.scheme != "https" and not (url.scheme == "http" and loopback(host)):
        raise UsageError("keys are sent over https, or over http to this machine alone")
    return url.geturl().rstrip("/")  # whose scheme is in lower case


def loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def segment(id: str) -> str:
    """An id as a part of a path."""
    if not isinstance(id, str) or id in ("", ".", ".."):
        return "\0"
    return urllib.parse.quote(utf8(id), safe=":")


def utf8(text: str) -> bytes:
    """A text as it is sent. Half of a pair of surrogates is no character."""
    try:
        return text.encode()
    except UnicodeEncodeError as cause:
        raise UsageError(f"a text is no Unicode: {cause.reason}") from None


def trusts_environment(base: str) -> bool:
    """Whether a proxy of the environment may stand between: what goes to this machine over http is sent to no other."""
    return base.startswith("https:")


def timeout_of(call: Call, s: Settings, default: float) -> float:
    """How long a call may take. None is left to the next; nought is no time at all."""
    if call.timeout is not None:
        return call.timeout
    return default if s.timeout is None else s.timeout


def common_headers(r: Request, call: Call) -> httpx.Headers:
    if "\0" in r.path:
        raise UsageError(f"{r.operation}: an id is no text, empty or made of dots")
    headers = {"Accept": r.accept or "application/json", "Accept-Encoding": "gzip", "User-Agent": f"kindred-python/{VERSION}"}
    if call.idempotency_key is not None:
        headers["Idempotency-Key"] = call.idempotency_key
    elif r.takes_key:
        headers["Idempotency-Key"] = secrets.token_urlsafe(18)
    if call.if_match is not None:
        headers["If-Match"] = call.if_match
    if call.if_none_match is not None:
        headers["If-None-Match"] = call.if_none_match
    if r.last_event_id:
        headers["Last-Event-ID"] = r.last_event_id
    if call.eventual:
        headers["X-Kindred-Consistency"] = "eventual"
    for name, value in headers.items():
        if not (value.isascii() and value.isprintable()):
            raise UsageError(f"{r.operation}: {name} takes printable ASCII")
    return httpx.Headers(headers)  # which print no Authorization


def query_of(query: Mapping[str, Any]) -> dict[str, str]:
    out: dict[str, str] = {}
    for name, value in query.items():
        if value is None:
            continue
        if isinstance(value, bool):
            out[name] = "true" if value else "false"
        elif isinstance(value, (list, tuple)):
            out[name] = ",".join(map(str, value))
        else:
            out[name] = str(value)
        utf8(out[name])
    return out


def content_of(r: Request) -> bytes | None:
    """The body, but for lines that are not in memory."""
    if r.lines is not None:
        return whole(r.lines)
    return None if r.body is None else encode(r.body)


def lines_of(lines: Any) -> Any:
    """What an import is given. Types let one user be given, whose fields were sent as lines, and bytes that are read one by one."""
    if isinstance(lines, (bytearray, memoryview)):
        return bytes(lines)
    if isinstance(lines, Mapping) or not isinstance(lines, (Iterable, AsyncIterable)):
        raise UsageError("an import takes a file, a text, bytes, or users or lines to iterate over")
    return lines


def line_of(line: Any) -> bytes:
    """A line of an import, from an object or as it is."""
    if isinstance(line, str):
        line = utf8(line)
    if isinstance(line, bytes):
        return line if line.endswith(b"\n") else line + b"\n"
    return encode(line) + b"\n"


def whole(lines: Any) -> bytes | None:
    """The lines at once, where they are in memory already."""
    if isinstance(lines, str):
        return utf8(lines)
    return lines if isinstance(lines, bytes) else None


def jitter_of(retries: int) -> float:
    """How long to wait before a retry: any time up to twice what the one before had at most."""
    return random.uniform(0, min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(retries, 10)))


def is_lost(fault: KindredError) -> bool:
    """Whether nobody knows what became of a request."""
    if isinstance(fault, RefusedError):
        return fault.status in (502, 504)
    if isinstance(fault, BrokenConnectionError):
        return fault._lost
    return isinstance(fault, TookTooLongError)  # of an exchange


def broken(cause: httpx.HTTPError) -> BrokenConnectionError:
    """What an attempt without an answer ends with.

    Nothing was sent where a certificate is not trusted, which no repetition mends, or where no connection was made.
    """
    at: BaseException | None = cause
    while at is not None:
        if isinstance(at, ssl.SSLCertVerificationError):
            fault = BrokenConnectionError(f"the certificate of the server is not trusted: {at.verify_message}")
            fault._lost = fault._passes = False
            return fault
        at = at.__cause__ or at.__context__
    if isinstance(cause, (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)):
        fault = BrokenConnectionError(f"no connection was made: {cause}".rstrip(": "))
        fault._lost = False
        return fault
    return BrokenConnectionError("the connection broke, or no answer came in time")


def is_gone(fault: KindredError) -> bool:
    """Whether kindred, and nothing on the way to it, has not found what was asked for."""
    return isinstance(fault, RefusedError) and fault.status == 404 and fault.code != ""


def pause_before(fault: KindredError, retries: int, repeatable: bool) -> float | None:
    """How long to wait before a fault may have passed, or None where it does not."""
    jitter = jitter_of(retries)
    if isinstance(fault, BrokenConnectionError) and not fault._lost:
        return jitter if fault._passes else None  # nothing was sent
    if not isinstance(fault, RefusedError):
        return jitter if repeatable and is_lost(fault) else None
    pause = max(jitter, fault.retry_after)
    if fault.status in (429, 503):
        return pause
    if fault.status in (500, 502, 504):
        return pause if repeatable else None
    if fault.status == 409 and fault.code == "in_flight":
        return pause
    return None


def refusal(response: httpx.Response, said: bytes) -> RefusedError:
    problem = None
    if media_of(response) == "application/problem+json":
        try:
            problem = loads(said)
        except ValueError:
            pass  # it is told as something that was on the way
    retry_after = seconds_of(response.headers.get("Retry-After"))
    return RefusedError(response.status_code, response.headers.get("X-Request-Id", ""), retry_after, problem)


def check_is_of(response: httpx.Response, want: str) -> None:
    """Refuse an answer of another type, such as a page of something on the way."""
    if media_of(response) != want:
        raise AnswerError(f"its Content-Type is {response.headers.get('Content-Type', '')[:60]!r}")


def is_followed(response: httpx.Response) -> bool:
    """Whether more has come than an answer that was read to its end.

    The next request on its connection would get that for an answer, and so on: httpcore keeps it, and tells nobody.
    """
    kept: Any = response.stream
    for name in ("_stream", "_httpcore_stream", "_stream", "_connection", "_h11_state", "trailing_data"):
        kept = getattr(kept, name, None)  # a transport of tests has none
    return bool(kept and kept[0])


class Unpacker:
    """Reads the body of an answer as it came.

    httpx takes what is packed and ends early as whole, and unpacks all codings of an answer at once, each of which
    grows a thousandfold.
    """

    def __init__(self, response: httpx.Response) -> None:
        coding = response.headers.get("Content-Encoding", "identity")
        if coding.lower() not in ("gzip", "identity"):
            raise AnswerError(f"its Content-Encoding is {coding[:60]!r}")
        self._packed = coding.lower() == "gzip"
        self._member: Any = None  # of those that a gzip file may have, the one that was begun last

    def part(self, packed: bytes) -> bytes:
        """What a part holds."""
        if not self._packed:
            return packed
        out = b""
        try:
            while packed:
                if self._member is None or self._member.eof:
                    self._member = zlib.decompressobj(zlib.MAX_WBITS | 16)
                out += self._member.decompress(packed)
                packed = self._member.unused_data
        except zlib.error as cause:
            raise BrokenConnectionError("the answer cannot be unpacked") from cause
        return out

    def end(self) -> None:
        """Tell where the end is missing."""
        if self._member is not None and not self._member.eof:
            raise BrokenConnectionError("the answer was cut")


def check_is_nothing(response: httpx.Response, content: bytes) -> None:
    """A page of something on the way is no sign that kindred has done anything."""
    if content:
        check_is_of(response, "application/json")


def parsed(response: httpx.Response, content: bytes) -> Any:
    check_is_of(response, "application/json")
    try:
        value = loads(content)
    except ValueError as cause:
        raise AnswerError("it is not JSON") from cause
    if not isinstance(value, dict):
        raise AnswerError("it is no object")
    return value


def media_of(response: httpx.Response) -> str:
    """The type of an answer, or nothing where two are told."""
    text = str(response.headers.get("Content-Type", ""))
    return "" if "," in text else text.split(";")[0].strip().lower()


# The three forms of a date of HTTP (RFC 9110, section 5.6.7).
_DATE = re.compile(
    r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT"
    r"|[A-Z][a-z]+day, \d\d-[A-Z][a-z]{2}-\d\d \d\d:\d\d:\d\d GMT"
    r"|[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}",
    re.ASCII,
)


def seconds_of(text: str | None) -> float:
    """Seconds, from those, which are digits, or from a date (RFC 9110, section 10.2.3), and from nothing else."""
    if not text:
        return 0.0
    if text.isascii() and text.isdecimal():
        return float(min(int(text.lstrip("0")[:12] or "0"), 2**31))
    if not _DATE.fullmatch(text):
        return 0.0
    try:
        at = email.utils.parsedate_to_datetime(text)
        if at.tzinfo is None:  # as asctime writes it: in UTC (RFC 9110, section 5.6.7)
            at = at.replace(tzinfo=UTC)
        return max(0.0, at.timestamp() - time.time())
    except (ValueError, OverflowError):
        return 0.0


def renewal(s: Settings) -> Request:
    """What asks for a token."""
    if s.session:
        body = {"secret": s.session, "client_id": s.sandbox} if s.sandbox else {"secret": s.session}
        return Request("getSessionToken", "POST", "/auth/sessions/token", body=body, open=True)
    return Request("exchangeAPIKey", "POST", "/auth/exchange", body={"api_key": s.key}, open=True)


def token_of(answer: Any, asked: float) -> Token:
    try:
        data = answer.get("data", answer)  # a session's stands outside
        text, life = str(data["token"] or ""), float(data["expires_in"])
    except (AttributeError, KeyError, TypeError, ValueError):
        text, life = "", 0.0
    if not text:
        raise AnswerError("it holds no token")
    return Token(text, audience(text), asked + life - min(RENEW_BEFORE, life / 2))


def data_of(page: Any) -> list[Any]:
    """What a page of a list holds."""
    data = page.get("data")
    if not isinstance(data, list):
        raise AnswerError("it is no page of a list")
    return data


def audience(token: str) -> str:
    """The client's id in a token, which is not verified: the service does that."""
    try:
        payload = token.split(".")[1]
        aud = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))["aud"]
    except (IndexError, ValueError, KeyError, TypeError, binascii.Error):
        return ""
    return str(aud[0] if isinstance(aud, list) and aud else aud)
