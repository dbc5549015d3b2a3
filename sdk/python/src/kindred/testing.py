"""Plays kindred, for tests of programs that call it.

    with FakeKindred() as fake:
        fake.answer("POST", "/api/v1/users/ext:u1/matches", 200, {"data": []})
        program(fake.url, fake.api_key)

It keeps users in memory: they are made, put, changed, read, listed, imported and erased. Everything else answers
what a test says, or 501. Deliveries of webhooks are made by ``signed``.
"""

from __future__ import annotations

import base64
import json
import secrets
import threading
import urllib.parse
from dataclasses import dataclass
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

from . import types as t
from ._json import encode, loads
from .webhooks import sign, signed

__all__ = ["FakeKindred", "Received", "sign", "signed"]

USERS = "/api/v1/users"
Answer = tuple[int, Any]


@dataclass(frozen=True)
class Received:
    """A request that came."""

    method: str
    path: str
    query: dict[str, str]
    idempotency_key: str
    body: bytes


class FakeKindred:
    """A server on this machine, while its block runs. Any API key will do."""

    api_key = "kin_test"

    def __init__(self) -> None:
        self.client_id = "cli_" + secrets.token_hex(13)
        #: Those that came, without those for tokens.
        self.requests: list[Received] = []
        self._lock = threading.Lock()
        self._users: dict[str, t.User] = {}  # by external id
        self._answers: dict[tuple[str, str], Answer] = {}
        self._repeated: dict[str, tuple[Received, Answer]] = {}  # by Idempotency-Key
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> FakeKindred:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, method: str, path: str, status: int, body: Any = None) -> None:
        """Say what a request is answered from now on, users too."""
        with self._lock:
            self._answers[method, path] = status, body

    def refuse(self, method: str, path: str, status: int, code: str) -> None:
        """Say that a request is refused from now on."""
        self.answer(method, path, *_refusal(status, code, "a test wants it so"))

    def _respond(self, r: Received, escaped: str, lines: bool, only_new: bool) -> Answer:
        if r.path in ("/auth/exchange", "/auth/sessions/token"):
            payload = base64.urlsafe_b64encode(json.dumps({"aud": self.client_id}).encode()).decode().rstrip("=")
            token = {"token": f"e30.{payload}.c2ln", "expires_in": 900, "scopes": ["admin"]}
            return 200, {"data": token} if r.path == "/auth/exchange" else token
        with self._lock:
            self.requests.append(r)
            if r.idempotency_key in self._repeated:
                before, given = self._repeated[r.idempotency_key]
                return given if before == r else _refusal(422, "idempotency_key_reused", "the key came with another request before")
            given = self._answers.get((r.method, r.path)) or self._of_users(r, escaped, lines, only_new)
            if r.idempotency_key and given[0] < 300:
                self._repeated[r.idempotency_key] = r, given
            return given

    def _of_users(self, r: Received, escaped: str, lines: bool, only_new: bool) -> Answer:
        name = r.path.removeprefix(USERS).removeprefix("/")
        if r.path == USERS and r.method == "GET":
            return self._page(r)
        if r.path == USERS + "/import" and r.method == "POST" and lines and r.query.get("async") != "true":
            return self._import(r)
        if not r.path.startswith(USERS) or "/" in escaped[len(USERS) + 1 :] or (not name and r.method != "POST"):
            return _refusal(501, "not_played", f'say what is answered: answer("{r.method}", "{r.path}", …)')
        if r.method in ("POST", "PUT", "PATCH"):
            try:
                body: dict[str, Any] = loads(r.body)
            except ValueError:
                return _refusal(400, "invalid_json", "the body is no JSON")
            traits = body.get("traits") or {}
        if r.path == USERS:
            if not body.get("external_id"):
                return _refusal(422, "invalid", "the external_id is empty")
            if body["external_id"] in self._users:
                return _refusal(409, "user_exists", "there is a user with this external_id")
            return 201, self._put(body["external_id"], traits)
        external = name[4:] if name.startswith("ext:") else next((e for e, u in self._users.items() if u["id"] == name), "")
        user = self._users.get(external)
        if user is None and r.method == "PUT" and external:
            return 201, self._put(external, traits)
        if user is None:
            return _refusal(404, "user_unknown", "there is no such user")
        if r.method == "GET":
            return 200, user
        if r.method == "PUT" and only_new:
            return _refusal(412, "stale", "the user is there")
        if r.method == "PUT":
            return 200, self._put(external, traits)
        if r.method == "PATCH":
            return 200, self._put(external, _merged(user.get("traits"), traits))
        if r.method == "DELETE":
            del self._users[external]
            return 204, None
        return _refusal(405, "method_not_allowed", "this cannot be done with a user")

    def _put(self, external: str, traits: dict[str, Any]) -> t.User:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        before = self._users.get(external)
        id, created = (before["id"], before["created_at"]) if before else ("usr_" + secrets.token_hex(13), now)
        user: t.User = {"id": id, "external_id": external, "traits": traits, "created_at": created, "updated_at": now}
        self._users[external] = user
        return user

    def _import(self, r: Received) -> Answer:
        errors: list[t.ImportError] = []
        created = updated = 0
        for n, line in enumerate(r.body.splitlines(), 1):
            try:
                one = loads(line)
                external, traits = one["external_id"], one.get("traits") or {}
                if not external:
                    raise ValueError
            except (ValueError, KeyError, TypeError, AttributeError):
                errors.append({"line": n, "code": "invalid", "detail": "the line is no user", "errors": []})
                continue
            before = self._users.get(external)
            created, updated = created + (before is None), updated + (before is not None)
            self._put(external, _merged(before.get("traits"), traits) if before and r.query.get("mode") != "replace" else traits)
        return 200, {"created": created, "updated": updated, "failed": len(errors), "errors": errors}

    def _page(self, r: Received) -> Answer:
        all, begin = list(self._users.values()), int(r.query.get("cursor", "0"))
        end = begin + int(r.query.get("limit", "50"))
        return 200, {"data": all[begin:end], "next_cursor": str(end) if end < len(all) else None}


def _merged(before: Any, change: dict[str, Any]) -> dict[str, Any]:
    """Apply a change as a JSON merge patch does (RFC 7396)."""
    after = dict(before) if isinstance(before, dict) else {}
    for name, value in change.items():
        if value is None:
            after.pop(name, None)
        else:
            after[name] = _merged(after.get(name), value) if isinstance(value, dict) else value
    return after


def _refusal(status: int, code: str, detail: str) -> Answer:
    return status, {"type": "about:blank", "title": code, "status": status, "detail": detail, "code": code, "request_id": "req_test"}


def _handler(fake: FakeKindred) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # an answer goes out at once

        def _answer(self) -> None:
            url = urllib.parse.urlsplit(self.path)
            query = dict(urllib.parse.parse_qsl(url.query))
            key = self.headers.get("Idempotency-Key", "")
            request = Received(self.command, urllib.parse.unquote(url.path), query, key, self._body())
            lines, only_new = self.headers.get("Content-Type") == "application/x-ndjson", "If-None-Match" in self.headers
            status, body = fake._respond(request, url.path, lines, only_new)
            self.send_response(status)
            self.send_header("X-Request-Id", "req_test")
            content = b"" if body is None else encode(body)
            if body is not None:
                self.send_header("Content-Type", "application/problem+json" if status >= 400 else "application/json")
            if status != 204:
                self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length", "0")))
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return body

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler
