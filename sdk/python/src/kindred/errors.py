"""What can go wrong in a call or with a delivery."""

from __future__ import annotations

from typing import Any, Literal

from . import types as t


class KindredError(Exception):
    """Any fault of a call; ``attempts`` tells how often the request was sent."""

    attempts: int = 0


class RefusedError(KindredError):
    """A refusal of the service. Decide by ``code``, never by ``detail``."""

    def __init__(self, status: int, request_id: str, retry_after: float, problem: Any) -> None:
        if not isinstance(problem, dict):
            problem = {}
        self.status = status
        self.request_id = request_id
        self.retry_after = retry_after
        #: Empty where something on the way has answered.
        self.code: str = str(problem.get("code") or "")
        self.detail: str = str(problem.get("detail") or "something on the way to kindred has answered")
        #: Each place of the input that is wrong.
        self.errors: list[t.FieldError] = _places(problem.get("errors"))
        text = f"{status} {self.code}: {self.detail}"
        for e in self.errors:
            text += f"; {e['pointer']} {e['detail']}"
        super().__init__(text + (f" ({request_id})" if request_id else ""))

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy it, as pools of processes do of what their workers raise."""
        return type(self), (self.status, self.request_id, self.retry_after, None), {**self.__dict__, "args": self.args}


def _places(errors: Any) -> list[t.FieldError]:
    """What is of kindred's form: what is on the way has problems of others."""
    if not isinstance(errors, list):
        return []
    return [e for e in errors if isinstance(e, dict) and isinstance(e.get("pointer"), str) and isinstance(e.get("detail"), str)]  # type: ignore[misc]


class BrokenConnectionError(KindredError):
    """Nothing, or half an answer, came back."""

    _lost: bool = True  # nobody knows what became of the request
    _passes: bool = True  # another attempt may go better


class TookTooLongError(KindredError):
    """The call took longer than it may."""


class AnswerError(KindredError):
    """What came back is not an answer of kindred."""


class UsageError(KindredError):
    """The arguments cannot be used."""


Reason = Literal["signature_missing", "signature_wrong", "timestamp", "event", "other_client"]


class WebhookError(KindredError):
    """A delivery that is refused, and why."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason: Reason = reason
