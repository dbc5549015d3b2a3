"""Verifies deliveries of webhooks, with nothing but the standard library."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol, cast

from . import _ed25519
from . import types as t
from ._json import loads
from .errors import UsageError, WebhookError

__all__ = ["Event", "HeadersLike", "Verifier", "WebhookError", "sign", "signed"]


class HeadersLike(Protocol):
    """A dictionary, or what a framework or ``http.server`` has; Flask's headers are no ``Mapping``."""

    def items(self) -> Iterable[tuple[str, str]]: ...


@dataclass(frozen=True)
class Event:
    """What a delivery tells. ``id`` is the same at every attempt and redelivery; the contract's scheme has none."""

    id: str | None
    delivery: t.EventDelivery


class Verifier:
    """Verifies deliveries.

    It accepts what any of its secrets or keys has signed, so a receiver that holds the old and the new ones
    goes on through a rotation, whichever side changes first. Public keys are those of the client, ``whpk_…``,
    for ``v1a``; set ``client_id`` with them, so that events of others are refused.
    """

    def __init__(
        self,
        *,
        secrets: Sequence[str] = (),
        public_keys: Sequence[str] = (),
        client_id: str | None = None,
        tolerance: float = 300,
        now: Callable[[], float] = time.time,
    ) -> None:
        if isinstance(secrets, str) or isinstance(public_keys, str):  # which is a sequence of texts, too
            raise UsageError("secrets and public_keys are lists: each letter of a text would be a secret")
        self._secrets = tuple(secrets)
        self._keys = tuple(_base64(key.strip().removeprefix("whpk_")) or b"" for key in public_keys)
        self._client, self._tolerance, self._now = client_id, tolerance, now

    def verify(self, headers: HeadersLike, body: bytes) -> Event:
        """Check Standard Webhooks signatures, ``v1`` and ``v1a``, and the time. The body must be the bytes that came."""
        body = _bytes_of(body)
        id, at = _header(headers, "webhook-id"), _header(headers, "webhook-timestamp")
        signatures = _header(headers, "webhook-signature").split()
        if not id or not at or not signatures or not (self._secrets or self._keys):
            raise WebhookError("signature_missing")
        if not re.fullmatch("0|[1-9][0-9]{0,14}", at) or not abs(int(self._now()) - int(at)) < self._tolerance:
            raise WebhookError("timestamp")
        message = f"{id}.{at}.".encode(errors="surrogatepass") + body  # a server may leave halves of pairs for bytes that are no text
        right = False
        for one in signatures:
            scheme, _, text = one.partition(",")
            given = _base64(text)
            if given is None:
                continue
            if scheme == "v1":
                for secret in self._secrets:
                    right = _signs(_standard_key(secret), message, given) or right
            elif scheme == "v1a":
                for key in self._keys:
                    right = _ed25519.verify(key, message, given) or right
        if not right:
            raise WebhookError("signature_wrong")
        return Event(id, self._open(body))

    def verify_contract(self, headers: HeadersLike, body: bytes) -> Event:
        """Check ``X-Service-Signature``.

        It covers the body alone: whoever has seen a delivery can send it again. Prefer ``verify``.
        """
        body = _bytes_of(body)
        text = _header(headers, "x-service-signature")
        if not re.fullmatch("([0-9a-f]{2})+", text) or not self._secrets:
            raise WebhookError("signature_missing")
        right = False
        for secret in self._secrets:
            right = _signs(secret.encode(), body, bytes.fromhex(text)) or right
        if not right:
            raise WebhookError("signature_wrong")
        return Event(None, self._open(body))

    def _open(self, body: bytes) -> t.EventDelivery:
        try:
            event = loads(body)
            typed = isinstance(event["event_type"], str) and bool(event["event_type"])
            client = event["data"].get("client_id")
        except (ValueError, KeyError, TypeError, AttributeError):
            raise WebhookError("event") from None
        if not typed:
            raise WebhookError("event")
        if self._client is not None and client != self._client:
            raise WebhookError("other_client")
        return cast(t.EventDelivery, event)


def sign(secret: str, id: str, at: int, event_type: t.EventType, body: bytes) -> dict[str, str]:
    """Make the headers with which kindred would deliver a body, for tests of receivers."""
    if not _standard_key(secret):
        raise UsageError("the secret is empty")
    signature = base64.b64encode(_sum(_standard_key(secret), f"{id}.{at}.".encode() + body)).decode()
    return {
        "content-type": "application/json",
        "x-service-event": event_type,
        "x-service-signature": _sum(secret.encode(), body).hex(),
        "webhook-id": id,
        "webhook-timestamp": str(at),
        "webhook-signature": "v1," + signature,
    }


def signed(
    secret: str, event_type: t.EventType, data: Mapping[str, Any], *, id: str | None = None, at: float | None = None
) -> tuple[dict[str, str], bytes]:
    """Make a delivery of an event, for tests of receivers: its headers and its body.

    An id is made up and the time is now where they are left out.
    """
    at = time.time() if at is None else at
    timestamp = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    body = json.dumps({"event_type": event_type, "data": dict(data), "timestamp": timestamp}).encode()
    return sign(secret, id or "evt_" + secrets.token_hex(13), int(at), event_type, body), body


def _standard_key(secret: str) -> bytes:
    """What kindred signs with: the bytes that stand in base64 behind ``whsec_``, or the text of any other secret."""
    if secret.startswith("whsec_"):
        text = re.sub("[\r\n]", "", secret[6:]).rstrip("=")
        try:
            return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
        except ValueError:
            pass  # it is of another form
    return secret.encode()


def _signs(key: bytes, message: bytes, given: bytes) -> bool:
    """Whether a key has signed; an empty one, which anybody has, never has."""
    return bool(key) and hmac.compare_digest(given, _sum(key, message))


def _sum(key: bytes, message: bytes) -> bytes:
    return hmac.new(key, message, hashlib.sha256).digest()


def _bytes_of(body: bytes) -> bytes:
    """Whoever checks no types may give what a framework has parsed, or a text."""
    if not isinstance(body, (bytes, bytearray, memoryview)):
        raise UsageError("the body must be the bytes that came, before anything has parsed them")
    return bytes(body)


def _header(headers: HeadersLike, name: str) -> str:
    for key, value in headers.items():
        if key.lower() == name:
            return value
    return ""


def _base64(text: str) -> bytes | None:
    """Canonical base64 alone: of the texts that decode to the same bytes, one is taken."""
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return raw if base64.b64encode(raw).decode() == text else None
