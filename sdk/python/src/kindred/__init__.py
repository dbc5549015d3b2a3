"""Calls the API of kindred and verifies its webhooks.

``Kindred`` is for threads, ``AsyncKindred`` for asyncio. Both exchange an API key for tokens, renew them,
repeat what may be repeated, and read lists page by page.
"""

from . import types
from ._async_kindred import AsyncKindred
from ._common import VERSION as __version__
from ._common import Answer
from ._sync_kindred import Kindred
from .errors import (
    AnswerError,
    BrokenConnectionError,
    KindredError,
    RefusedError,
    TookTooLongError,
    UsageError,
    WebhookError,
)
from .webhooks import Event, HeadersLike, Verifier, sign, signed

__all__ = [
    "Answer",
    "AnswerError",
    "AsyncKindred",
    "BrokenConnectionError",
    "Event",
    "HeadersLike",
    "Kindred",
    "KindredError",
    "RefusedError",
    "TookTooLongError",
    "UsageError",
    "Verifier",
    "WebhookError",
    "__version__",
    "sign",
    "signed",
    "types",
]
