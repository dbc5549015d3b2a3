"""Drives the SDK for the suite in sdk/conformance, which says what is read and written."""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import sys
import threading
import traceback
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx

import kindred
from kindred import AsyncKindred, Kindred, Verifier, sign, signed
from kindred._json import encode
from kindred.testing import FakeKindred

Command = dict[str, Any]
writing = threading.Lock()
fake = FakeKindred()
ASIDE = ("verify", "sign", "signed", "memory", "fake", "fake_answer", "fake_refuse", "fake_requests")


def reply(id: int, **more: Any) -> None:
    with writing:
        print(encode({"id": id, **more}).decode(), flush=True)


def seconds(options: dict[str, Any]) -> dict[str, Any]:
    return {k.removesuffix("_ms"): v / 1000 if k.endswith("_ms") else v for k, v in options.items()}


def made(n: int) -> Iterator[dict[str, Any]]:
    for i in range(n):
        yield {"external_id": f"u{i:06d}", "traits": {"age": i % 90, "plan": "pro"}}


def bound(k: Any, c: Command, seen: list[kindred.Answer]) -> Any:
    """Call a method by its name."""
    method = "import_" if c["method"] == "import" else str(c["method"])
    args: list[Any] = list(c.get("path", []))
    if "users" in c:
        args.append(made(c["users"]))
    elif "lines" in c:
        args.append(c["lines"])
    elif "body" in c:
        args.append(c["body"])
    more = {{"from": "from_"}.get(k, k): v for k, v in c.get("params", {}).items()}
    more |= seconds(c.get("options", {}))
    more["on_answer"] = seen.append
    return getattr(getattr(k, c["resource"]), method)(*args, **more)


def aside(c: Command) -> Any:
    """Commands that no client is needed for."""
    body = base64.b64decode(c.get("delivered", ""))
    if c["do"] == "verify":
        v = Verifier(secrets=c.get("secrets", []), public_keys=c.get("public_keys", []), client_id=c.get("client_id") or None, now=lambda: float(c["now"]))
        event = (v.verify_contract if c.get("scheme") == "contract" else v.verify)(c.get("headers", {}), body)
        return {"id": event.id or "", "event_type": event.delivery["event_type"]}
    if c["do"] == "sign":
        return sign(c["secrets"][0], c["client"], c["now"], "match.computed", body)
    if c["do"] == "signed":
        headers, delivered = signed(c["secrets"][0], "match.computed", c["body"], at=c["now"])
        return {"headers": headers, "body": delivered.decode()}
    if c["do"] == "fake":
        fake.__enter__()
        return {"url": fake.url, "api_key": fake.api_key, "client_id": fake.client_id}
    if c["do"] == "fake_answer":
        return fake.answer(c["method"], c["path"][0], 200, c["body"])
    if c["do"] == "fake_refuse":
        return fake.refuse(c["method"], c["path"][0], 409, "a_code")
    if c["do"] == "fake_requests":
        return [f"{r.method} {r.path}" for r in fake.requests]
    if not tracemalloc.is_tracing():
        tracemalloc.start()
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


class Followed:
    """What was told of events."""

    def __init__(self, c: Command) -> None:
        self.ids: list[str] = []
        self.count, self.last, self.most = 0, None, c.get("most")

    def enough(self, event: Any) -> bool:
        self.count += 1
        self.last = event
        if self.count <= 1000:
            self.ids.append(event["id"])
        return self.count == self.most

    def told(self) -> Any:
        return {"ids": self.ids, "count": self.count, "last": self.last}


def events_of(k: Any, c: Command) -> Any:
    return getattr(k.events, c["method"])(**c.get("params", {}), **seconds(c.get("options", {})))


def whole(value: Any, seen: list[kindred.Answer]) -> Any:
    last = seen[-1] if seen else None
    return {
        "value": value,
        "etag": last.etag if last else "",
        "request_id": last.request_id if last else "",
        "attempts": last.attempts if last else 0,
    }


def told(e: BaseException) -> dict[str, Any]:
    message = str(e)
    if isinstance(e, kindred.RefusedError):
        pointers = [f["pointer"] for f in e.errors]
        return {"kind": "refused", "status": e.status, "code": e.code, "request_id": e.request_id, "pointers": pointers,
                "attempts": e.attempts, "message": message}
    if isinstance(e, kindred.WebhookError):
        return {"kind": "webhook", "reason": e.reason, "message": message}
    kinds: list[tuple[type[BaseException], str]] = [
        (kindred.TookTooLongError, "timeout"), (kindred.AnswerError, "answer"), (kindred.BrokenConnectionError, "connection"),
        (asyncio.CancelledError, "cancelled"), (kindred.UsageError, "usage"),
    ]
    kind = next((kind for of, kind in kinds if isinstance(e, of)), "other")
    return {"kind": kind, "attempts": getattr(e, "attempts", 0), "message": f"{type(e).__name__} {message}"}


def shown(e: BaseException, c: Command) -> dict[str, Any]:
    """All that a traceback with its locals shows, as reporters of errors keep it."""
    if not c.get("show"):
        return {}
    return {"shown": "".join(traceback.TracebackException.from_exception(e, capture_locals=True).format()) + repr(e)}


def raw(options: dict[str, str]) -> Any:
    """Read the list of users without the SDK."""
    count, params = 0, {"limit": "200"}
    with httpx.Client(headers={"Authorization": f"Bearer {options['token']}"}) as http:
        while True:
            page = http.get(options["base_url"] + "/api/v1/users", params=params).json()
            for _ in page["data"]:
                count += 1
            if page["next_cursor"] is None:
                return {"count": count}
            params["cursor"] = page["next_cursor"]


async def raw_async(options: dict[str, str]) -> Any:
    count, params = 0, {"limit": "200"}
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {options['token']}"}) as http:
        while True:
            page = (await http.get(options["base_url"] + "/api/v1/users", params=params)).json()
            for _ in page["data"]:
                count += 1
            if page["next_cursor"] is None:
                return {"count": count}
            params["cursor"] = page["next_cursor"]


def act(clients: dict[str, Kindred], c: Command) -> Any:
    if c["do"] in ASIDE:
        return aside(c)
    if c["do"] == "new":
        clients[c["client"]] = Kindred(**seconds(c.get("options", {})))
        return None
    if c["do"] == "raw":
        return raw(c["options"])
    k = clients[c["client"]]
    if c["do"] == "print":
        return f"{k!r} {k} {k._caller._s!r} {vars(k)!r}"
    if c["do"] == "client_id":
        return k.client_id()
    if c["do"] == "put_back":
        return [k.users.put(user["id"], {"traits": user["traits"]}) for user in k.users.list()]
    if c["do"] == "import_back":
        return k.users.import_([{"external_id": user["external_id"], "traits": user["traits"]} for user in k.users.list()])
    if c["do"] == "events":
        followed = Followed(c)
        for event in events_of(k, c):
            if followed.enough(event):
                break
        return followed.told()
    seen: list[kindred.Answer] = []
    out = k.history.export() if c["do"] == "export" else bound(k, c, seen)
    if not isinstance(out, Iterator):
        return whole(out, seen)
    count, first, last = 0, None, None
    for one in out:
        count, first, last = count + 1, first if count else one, one
        if count == c.get("most"):
            break
    return {"count": count, "first": text(first), "last": text(last)}


async def act_async(clients: dict[str, AsyncKindred], c: Command) -> Any:
    if c["do"] in ASIDE:
        return aside(c)
    if c["do"] == "new":
        clients[c["client"]] = AsyncKindred(**seconds(c.get("options", {})))
        return None
    if c["do"] == "raw":
        return await raw_async(c["options"])
    k = clients[c["client"]]
    if c["do"] == "print":
        return f"{k!r} {k} {k._caller._s!r} {vars(k)!r}"
    if c["do"] == "client_id":
        return await k.client_id()
    if c["do"] == "put_back":
        return [await k.users.put(user["id"], {"traits": user["traits"]}) async for user in k.users.list()]
    if c["do"] == "import_back":
        return await k.users.import_([{"external_id": user["external_id"], "traits": user["traits"]} async for user in k.users.list()])
    if c["do"] == "events":
        followed = Followed(c)
        async for event in events_of(k, c):
            if followed.enough(event):
                break
        return followed.told()
    seen: list[kindred.Answer] = []
    out = k.history.export() if c["do"] == "export" else bound(k, c, seen)
    if not isinstance(out, AsyncIterator):
        return whole(await out, seen)
    count, first, last = 0, None, None
    async for one in out:
        count, first, last = count + 1, first if count else one, one
        if count == c.get("most"):
            break
    return {"count": count, "first": text(first), "last": text(last)}


def text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


def threads() -> None:
    clients: dict[str, Kindred] = {}

    def run(c: Command) -> None:
        try:
            reply(c["id"], ok=act(clients, c))
        except Exception as e:
            reply(c["id"], error=told(e) | shown(e, c))

    with ThreadPoolExecutor(256) as pool:
        for line in sys.stdin:
            pool.submit(run, json.loads(line))


async def tasks() -> None:
    clients: dict[str, AsyncKindred] = {}
    running: dict[int, asyncio.Task[None]] = {}

    async def run(c: Command) -> None:
        try:
            if c["do"] == "cancel":
                running[c["target"]].cancel()
                reply(c["id"], ok=None)
            else:
                reply(c["id"], ok=await act_async(clients, c))
        except (Exception, asyncio.CancelledError) as e:
            reply(c["id"], error=told(e) | shown(e, c))

    while line := await asyncio.to_thread(sys.stdin.readline):
        c = json.loads(line)
        running[c["id"]] = asyncio.create_task(run(c))


if __name__ == "__main__":
    if "--async" in sys.argv:
        asyncio.run(tasks())
    else:
        threads()
