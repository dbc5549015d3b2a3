"""Verifies and reads the history of a client, with nothing but Python's standard library.

    with open("export", "rb") as lines:
        for event in history.verified(lines, jwks, kept):
            print(event.recorded_at, event.type)

It follows the page "Verify a history" of the documentation and shares no code with the service. At a shell:

    python -m kindred.history AUDIT-JWKS.json EXPORT.ndjson [KEPT-HEAD ...]

A file with a head that was kept is a JWS, a proof, or an older export. Exit status: 0 genuine, 1 not, 2 the
arguments cannot be used.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
import struct
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal, TypeVar, Union

from . import _ed25519
from ._json import loads
from .errors import KindredError

__all__ = ["Event", "Fault", "NotGenuineError", "Result", "User", "events", "fold", "frame", "heads", "users", "verified", "verify"]

FAULTS_KEPT = 1000
Lines = Iterable[Union[bytes, str]]
S = TypeVar("S")


@dataclass(frozen=True)
class Event:
    """What happened.

    ``personal`` holds what was sealed, of an export with ``personal="open"``; ``erased`` names what nobody can
    open any more. Neither is covered by the signatures, nor is ``position``.
    """

    ordinal: int
    id: str
    type: str
    version: int
    stream: str
    revision: int
    recorded_at: datetime
    actor: str
    data: Mapping[str, Any]
    hash: str
    causation_id: str = ""
    correlation_id: str = ""
    position: str = ""
    personal: Mapping[str, Any] = field(default_factory=dict)
    erased: Sequence[str] = ()

    def row(self) -> dict[str, Any]:
        """The event as a row of a table."""
        head = {
            "ordinal": self.ordinal, "recorded_at": self.recorded_at, "type": self.type, "stream": self.stream,
            "revision": self.revision, "actor": self.actor, "id": self.id,
        }  # fmt: skip
        return head | {f"data.{k}": v for k, v in self.data.items()} | {f"personal.{k}": v for k, v in self.personal.items()}


@dataclass(frozen=True)
class User:
    """An end user as some events left it. Traits and external id are there if the export has them open."""

    id: str
    created_at: datetime
    updated_at: datetime
    external_id: str | None = None
    traits: Mapping[str, Any] = field(default_factory=dict)
    erased: bool = False

    def row(self) -> dict[str, Any]:
        """The user as a row of a table."""
        head = {
            "id": self.id, "external_id": self.external_id, "created_at": self.created_at, "updated_at": self.updated_at, "erased": self.erased,
        }  # fmt: skip
        return head | {f"traits.{k}": v for k, v in self.traits.items()}


@dataclass(frozen=True)
class Fault:
    """What is wrong with an export. The line counts from 1; 0 is the export as a whole."""

    line: int
    what: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.what}"


class NotGenuineError(KindredError):
    """The export is not what the audit keys have signed."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(str(fault))
        self.fault = fault


@dataclass(frozen=True)
class Result:
    """What a verification has found.

    Where no head that was kept was given, what happened after the events may have been cut off.
    """

    client: str
    events: int
    root: str
    faults: Sequence[Fault]  # the first 1,000
    faults_found: int
    compared: bool  # with a head that was kept

    @property
    def genuine(self) -> bool:
        """Whether nothing is wrong."""
        return self.faults_found == 0


def verify(lines: Lines, jwks: Mapping[str, Any], kept: Iterable[str] = ()) -> Result:
    """Read an export and tell all that is wrong with it.

    ``jwks`` are the audit keys, ``/.well-known/audit-jwks.json``; ``kept`` are heads that you kept, as ``heads``
    finds them.
    """
    check = _Check(jwks, kept)
    faults: list[Fault] = []
    found = 0
    for told in check.read(lines):
        if isinstance(told, Fault):
            found += 1
            if found <= FAULTS_KEPT:
                faults.append(told)
    return Result(check.client or "", check.tree.size, check.tree.root().hex(), faults, found, bool(check.kept))


def verified(lines: Lines, jwks: Mapping[str, Any], kept: Iterable[str] = ()) -> Iterator[Event]:
    """Read the events of an export and verify them on the way.

    The first fault raises ``NotGenuineError``. What was read before counts once the iterator has ended: the head
    that commits to it comes after.
    """
    for told in _Check(jwks, kept).read(lines):
        if isinstance(told, Fault):
            raise NotGenuineError(told)
        yield told


def events(lines: Lines) -> Iterator[Event]:
    """Read the events of an export that was verified before."""
    for text in lines:
        if not text.strip():
            continue
        line = _parse(text)
        if "head" not in line and line.get("ordinal") is not None and not line.get("missing"):
            yield _event(line)


def heads(lines: Lines) -> list[str]:
    """The signed heads in a text: a JWS by itself, or JSON lines with one in "head", which a proof and an export are."""
    found = []
    for text in lines:
        one = (text.decode() if isinstance(text, bytes) else text).strip()
        head = json.loads(one).get("head") if one.startswith("{") else one
        if head:
            found.append(head)
    if not found:
        raise ValueError("there is no head in it")
    return found


def fold(events: Iterable[Event], state: S, by: Mapping[str, Callable[[S, Event], S]]) -> S:
    """Fold events into a state, by a function for each type. Other types are passed over: new ones may be added."""
    for event in events:
        step = by.get(event.type)
        if step is not None:
            state = step(state, event)
    return state


def users(events: Iterable[Event]) -> dict[str, User]:
    """The end users as the events left them, by their ids."""

    def created(all: dict[str, User], e: Event) -> dict[str, User]:
        all[e.data["user_id"]] = User(e.data["user_id"], e.recorded_at, e.recorded_at, e.personal.get("external_id"), e.personal.get("traits", {}))
        return all

    def changed(all: dict[str, User], e: Event) -> dict[str, User]:
        all[e.data["user_id"]] = replace(all[e.data["user_id"]], updated_at=e.recorded_at, traits=e.personal.get("traits", {}))
        return all

    def erased(all: dict[str, User], e: Event) -> dict[str, User]:
        all[e.data["user_id"]] = replace(all[e.data["user_id"]], updated_at=e.recorded_at, external_id=None, traits={}, erased=True)
        return all

    start: dict[str, User] = {}
    return fold(events, start, {"end_user.created": created, "end_user.traits_changed": changed, "end_user.erased": erased})


def frame(items: Iterable[Event | User], library: Literal["pandas", "polars"] | None = None) -> Any:
    """Make a DataFrame with a row for each event or user, of the library that is installed, pandas first.

    What is nested stands in it as JSON, and so does a column whose values are of several types.
    """
    if library is None:
        library = "pandas" if importlib.util.find_spec("pandas") else "polars"
    made = importlib.import_module(library)
    rows = [item.row() for item in items]
    names = dict.fromkeys(name for row in rows for name in row)
    return made.DataFrame({name: _column([row.get(name) for row in rows]) for name in names})


def _column(values: list[Any]) -> list[Any]:
    kinds = {"number" if type(v) in (int, float) else type(v).__name__ for v in values if v is not None}
    if len(kinds) <= 1 and not kinds & {"dict", "list"}:
        return values
    return [v if v is None else json.dumps(v, ensure_ascii=False, default=str) for v in values]


# ---- What a line of an export is

FIELDS = {
    "head", "ordinal", "position", "id", "type", "version", "stream", "revision", "recorded_at", "actor",
    "causation_id", "correlation_id", "data", "meta", "hash", "personal", "erased", "missing",
}  # fmt: skip
UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, RecursionError, struct.error)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose names differ: of two that are alike, readers show one or the other."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("a field that is there twice")
    return fields


def _parse(text: bytes | str) -> dict[str, Any]:
    line = loads(text, object_pairs_hook=_once)
    if not isinstance(line, dict):
        raise ValueError("it is no object")
    return line


def _event(line: Mapping[str, Any]) -> Event:
    return Event(
        ordinal=line["ordinal"], id=line["id"], type=line["type"], version=line["version"], stream=line["stream"], revision=line["revision"],
        recorded_at=datetime.fromisoformat(line["recorded_at"]), actor=line.get("actor", ""), data=loads(line["data"]), hash=line["hash"],
        causation_id=line.get("causation_id", ""), correlation_id=line.get("correlation_id", ""), position=line.get("position", ""),
        personal=line.get("personal") or {}, erased=tuple(line.get("erased") or ()),
    )  # fmt: skip


# ---- Verification

_ALPHABET = "0123456789abcdefghijklmnopqrstuv"


def event_bytes(name: str) -> bytes:
    """The 16 bytes of an event's id."""
    if not name.startswith("evt_") or len(name) != 30:
        raise ValueError(f"{name} is no event id")
    n = 0
    for c in name[4:]:
        n = n << 5 | _ALPHABET.index(c)
    if n & 3:
        raise ValueError(f"{name} is no event id")
    return (n >> 2).to_bytes(16, "big")


def event_hash(line: Mapping[str, Any]) -> bytes:
    """The hash of an event, from its line."""
    h = hashlib.sha256(b"kindred.event.1")
    for part in (
        event_bytes(line["id"]), line["stream"].encode(), struct.pack(">q", line["revision"]), line["type"].encode(),
        line["data"].encode("utf-8", "surrogatepass"), line["meta"].encode("utf-8", "surrogatepass"),
    ):  # fmt: skip
        h.update(struct.pack(">Q", len(part)))
        h.update(part)
    return h.digest()


def _sha(*parts: bytes) -> bytes:
    return hashlib.sha256(b"".join(parts)).digest()


class Tree:
    """The Merkle tree of RFC 9162, of which the peaks alone are held."""

    def __init__(self) -> None:
        self.size = 0
        self._peaks: list[bytes] = []

    def append(self, event: bytes) -> None:
        """Add a leaf, by the hash of its event."""
        node, n = _sha(b"\0", event), self.size
        while n & 1:
            node, n = _sha(b"\1", self._peaks.pop(), node), n >> 1
        self._peaks.append(node)
        self.size += 1

    def root(self) -> bytes:
        """The root of the leaves so far."""
        if not self._peaks:
            return _sha()
        root = self._peaks[-1]
        for peak in reversed(self._peaks[:-1]):
            root = _sha(b"\1", peak, root)
        return root


def _unbase64(text: str) -> bytes:
    """Base64 for URLs without padding (RFC 7515, section 2), and nothing else."""
    if "=" in text or "+" in text or "/" in text:
        raise ValueError("not base64url")
    return base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True)


class _Check:
    """One verification of an export."""

    def __init__(self, jwks: Mapping[str, Any], kept: Iterable[str]) -> None:
        self.keys = {k["kid"]: _unbase64(k["x"]) for k in jwks["keys"] if k["crv"] == "Ed25519"}
        self.kept = [self._open(head) for head in kept]
        self.tree = Tree()
        self.client: str | None = None
        self._tips: dict[str, tuple[int, str]] = {}  # of each stream

    def _open(self, jws: str) -> dict[str, Any]:
        """What a head commits to: a JWS, compact, EdDSA."""
        header, payload, signature = jws.split(".")
        h = json.loads(_unbase64(header))
        if h.get("alg") != "EdDSA" or h.get("typ") != "kindred-head" or h.get("kid") not in self.keys:
            raise ValueError("not signed by a known audit key")
        if not _ed25519.verify(self.keys[h["kid"]], f"{header}.{payload}".encode(), _unbase64(signature)):
            raise ValueError("the signature is wrong")
        said = json.loads(_unbase64(payload))
        if not isinstance(said, dict):
            raise ValueError("it is no head")
        return said

    def read(self, lines: Lines) -> Iterator[Event | Fault]:
        """The events that can be read, and all that is wrong."""
        last_is_head = False
        for n, text in enumerate(lines, 1):
            if not text.strip():
                continue  # it is no part of an export
            try:
                line = _parse(text)
                last_is_head = "head" in line
                if (last_is_head and len(line) > 1) or line.keys() - FIELDS:
                    raise ValueError("fields that no such line has")
                if last_is_head:
                    yield from (Fault(n, what) for what in self._head(line["head"]))
                    continue
                wrong = self._line(line)
                yield from (Fault(n, what) for what in wrong)
                if not wrong:
                    yield _event(line)
            except UNREADABLE as e:
                last_is_head = False
                yield Fault(n, f"cannot be read: {e!r}")
                continue
            for head in self.kept:
                if head["size"] == self.tree.size and (head["root"] != self.tree.root().hex() or head["client"] != self.client):
                    yield Fault(n, f"the first {self.tree.size} events are not what the head that was kept commits to")
        if not last_is_head:
            yield Fault(0, "the export does not end with a signed head")
        if any(head["size"] > self.tree.size for head in self.kept):
            yield Fault(0, "a head that was kept commits to more events than there are")

    def _head(self, jws: str) -> list[str]:
        head = self._open(jws)
        self.client = self.client or head["client"]
        if head["client"] != self.client or head["size"] != self.tree.size or head["root"] != self.tree.root().hex():
            return [f"the {self.tree.size} events before it are not what the head commits to"]
        return []

    def _line(self, line: Mapping[str, Any]) -> list[str]:
        """What is wrong with an event."""
        name, wrong = f"event {line['ordinal']}, {line.get('id')}", []
        if line["ordinal"] is None:
            return [name + ": it was inserted into the log"]
        if type(line["ordinal"]) is not int:
            raise ValueError("an ordinal is a whole number")
        if line["ordinal"] != self.tree.size:
            wrong.append(f"{name}: out of order, {self.tree.size} comes next")
        if line.get("missing"):
            self.tree.append(bytes.fromhex(line["hash"]))
            return [*wrong, name + ": it was taken out of the log"]
        digest = event_hash(line)
        if digest.hex() != line["hash"]:
            wrong.append(name + ": it was changed")
        self.tree.append(digest)
        meta = json.loads(line["meta"])
        self.client = self.client or meta["client"]
        shown = (line.get("actor", ""), line["version"], line.get("causation_id", ""), line.get("correlation_id", ""))
        said = (meta["actor"], meta["version"], meta.get("causation", ""), meta.get("correlation", ""))
        if meta["client"] != self.client or shown != said or line["recorded_at"] != meta["recorded_at"]:
            wrong.append(name + ": what is shown of it is not what its envelope says")
        revision, before = self._tips.get(line["stream"], (-1, ""))
        previous = meta.get("previous", "")
        # What one client has given back, another may claim: the events between are in the histories of others.
        others = line["stream"].startswith(("email-", "slug-")) and line["revision"] > revision + 1 and previous != ""
        if not others and (line["revision"] != revision + 1 or previous != before):
            wrong.append(name + ": the event before it in its stream is missing, or was changed")
        self._tips[line["stream"]] = line["revision"], digest.hex()
        return wrong


def main(arguments: Sequence[str]) -> int:
    """Verify the export of a file."""
    if len(arguments) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    jwks, export, *kept = arguments
    name = jwks
    try:
        with open(jwks, encoding="utf-8") as file:
            keys = json.load(file)
        given: list[str] = []
        for name in kept:
            with open(name, encoding="utf-8") as file:
                given += heads(file)
        name = export
        with open(export, "rb") as lines:
            result = verify(lines, keys, given)
    except (OSError, *UNREADABLE) as e:
        print(f"{name} cannot be used: {e!r}", file=sys.stderr)
        return 2
    for fault in result.faults:
        print(fault)
    if result.faults_found > len(result.faults):
        print(f"and {result.faults_found - len(result.faults)} more")
    if not result.genuine:
        print("not genuine")
        return 1
    print(f"genuine: {result.events} events of {result.client}, root {result.root}")
    if not result.compared:
        print("No head that was kept is given: what happened after these events may have been cut off.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
