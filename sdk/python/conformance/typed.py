"""What mypy has to take: it is checked, and run by nobody."""

from __future__ import annotations

from email.message import Message
from typing import assert_type

from kindred import Kindred, Verifier
from kindred.types import ClusteringCompletedData, EventDelivery, MatchComputedData, PublicEvent


def typed(kindred: Kindred) -> None:
    """What is pulled or followed is told apart by its type, as what is delivered is."""
    for event in kindred.events.follow():
        if event["event_type"] == "match.computed":
            assert_type(event["data"], MatchComputedData)
        handled(event)
    for event in kindred.events.pull():
        if event["event_type"] == "clustering.completed":
            assert_type(event["data"], ClusteringCompletedData)


def handled(event: EventDelivery | PublicEvent) -> None:
    if event["event_type"] == "match.computed":
        assert_type(event["data"], MatchComputedData)


def received(verifier: Verifier, headers: Message, body: bytes) -> None:
    """The headers of http.server, like Flask's, are no Mapping."""
    handled(verifier.verify(headers, body).delivery)
    handled(verifier.verify_contract(headers, body).delivery)
