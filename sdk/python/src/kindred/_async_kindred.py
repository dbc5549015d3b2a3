"""The client."""

from __future__ import annotations

from types import TracebackType

import httpx

from . import _common as common
from ._async_api import AsyncResources
from ._async_client import AsyncCaller


class AsyncKindred(AsyncResources):
    """Calls the API. One serves a whole process.

    What is left out comes from ``KINDRED_API_KEY`` and ``KINDRED_URL``. A ``token`` of a login takes the
    place of a key, and is not renewed; so does the secret of a ``session``, whose tokens are. With a session,
    ``sandbox`` is the id of one beside its client that they are to be of. ``timeout`` bounds a call with all
    its repetitions (a minute, an hour for imports and exports), ``attempt_timeout`` one attempt; both in
    seconds.
    """

    def __init__(
        self,
        *,
        api_key: str | None = None,
        session: str | None = None,
        token: str | None = None,
        sandbox: str | None = None,
        base_url: str | None = None,
        timeout: float | None = None,
        attempt_timeout: float = 35.0,
        max_retries: int = 4,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        settings = common.settings(api_key, session, token, sandbox, base_url, timeout, attempt_timeout, max_retries)
        self._caller = AsyncCaller(settings, transport)
        super().__init__(self._caller)

    async def client_id(self) -> str:
        """The id of the client that the key or token is of."""
        return await self._caller.client_id()

    async def close(self) -> None:
        """Close the connections."""
        await self._caller.close()

    async def __aenter__(self) -> AsyncKindred:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"AsyncKindred({self._caller.base!r})"
