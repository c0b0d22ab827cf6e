"""Where `top` has its overviews from. Blocks for some seconds at most."""

from __future__ import annotations

from dataclasses import replace

from ..asking import Asker, AskError
from ..check.facts import Facts
from ..check.gather import located
from ..check.http_findings import http_findings
from ..check.socket_findings import socket_findings
from ..options_asking import AskOptions
from ..socket_probe import SocketState
from .overview import Overview, overview_of

OVERVIEW_PATH = "/api/v1/overview"


class NoAnswerError(Exception):
    """There is nothing to show. The message says what is wrong and what to do, as `check` does."""


class Source:
    """One sidecar, wherever it is by now: one that was started again may serve at another port.
    One thread at a time."""

    def __init__(self, options: AskOptions) -> None:
        """Raises `StartError` for a token that cannot be read."""
        self._options = options
        self._token = options.token()
        self._asker: Asker | None = None

    @property
    def url(self) -> str:
        """Where the last overview came from."""
        return "" if self._asker is None else self._asker.url

    def look(self) -> Overview:
        """The overview by now. Raises `NoAnswerError`; then the sidecar is looked for anew."""
        facts: Facts | None = None
        if self._asker is None:
            facts = located(self._options)
            if facts.url is None:
                raise NoAnswerError(_reason(facts))
            try:
                self._asker = Asker(facts.url, self._token)
            except AskError as error:
                raise NoAnswerError(_reason(replace(facts, trouble=error))) from None
        try:
            return overview_of(self._asker.get(OVERVIEW_PATH))
        except AskError as error:
            url = self._asker.url
            self.close()
            facts = facts or located(self._options)
            raise NoAnswerError(_reason(replace(facts, url=url, trouble=error))) from None

    def close(self) -> None:
        """Hang up."""
        asker, self._asker = self._asker, None
        if asker is not None:
            asker.close()


def _reason(facts: Facts) -> str:
    """In the words of `check`. Where nobody listens at the socket, that explains all else."""
    socket, http = list(socket_findings(facts)), list(http_findings(facts))
    listening = facts.socket is None or facts.socket.state is SocketState.LISTENING
    first, *_ = [*http, *socket] if listening else [*socket, *http]
    return f"{first.what} {first.do}"
