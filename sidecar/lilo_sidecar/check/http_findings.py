"""What is wrong over HTTP: what a reader of the figures runs into."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from ..asking import AskError, Trouble
from ..socket_probe import SocketState
from ..whereabouts import url_file
from .facts import Facts
from .finding import Finding

_UNSEEN: Final = "Its figures could not be looked at."
_OWN_HOSTS: Final = ("127.0.0.1", "::1", "localhost")
_WHERE: Final = "the sidecar's first line on stdout has the address"


def http_findings(facts: Facts) -> Iterator[Finding]:
    """Why the sidecar could not be asked, and whether it was the right one."""
    if facts.url is None:
        if facts.socket is not None and facts.socket.state is SocketState.LISTENING:
            yield Finding(
                "no_address",
                "Where the sidecar serves HTTP is not known: there is no "
                f"{url_file(facts.socket.path)} that this user may read and trust.",
                _UNSEEN,
                f"Add --http HOST:PORT; {_WHERE}.",
            )
        return
    if _is_another(facts):
        yield Finding(
            "another_sidecar",
            f"The sidecar at {facts.url} is not the one at the socket, which serves HTTP at "
            f"{facts.announced}.",
            "What is said here of its trainer is of another deployment.",
            "Leave --http out, or name the socket that belongs to it with --socket.",
        )
    if facts.trouble is not None:
        code, what, do = _no_answer(facts, facts.url, facts.trouble)
        yield Finding(code, what, _UNSEEN, do)


def _no_answer(facts: Facts, url: str, why: AskError) -> tuple[str, str, str]:
    """Code, what is wrong, what to do."""
    match why.trouble:
        case Trouble.UNREACHABLE:
            return (
                "no_http",
                f"Nobody answers at {url}: {why}.",
                f"Start the sidecar, or correct the address; {_WHERE}.",
            )
        case Trouble.CERTIFICATE:
            return (
                "certificate",
                f"{url} cannot be asked: {why}.",
                "Ask by a name that the certificate is for; name the file of the authority that "
                "signed it in the variable SSL_CERT_FILE; or ask the sidecar itself on its own "
                "machine, with --http HOST:PORT.",
            )
        case Trouble.PLAIN:
            return (
                "no_tls",
                f"Whoever listens at {url} was asked for https, and {why}.",
                "A sidecar itself speaks plain HTTP: ask it with http:// instead. If a proxy with "
                "TLS is before it, correct the address.",
            )
        case Trouble.HUNG_UP:
            return (
                "hung_up",
                f"Whoever listens at {url} hung up without a whole answer.",
                "If it is the sidecar, it was stopped just now, or has no room for another reader "
                "(128 at once): ask again. Else correct the address.",
            )
        case Trouble.SLOW:
            return (
                "slow_http",
                f"At {url} there is {why}.",
                "If it is the sidecar, it is stopped, or hangs, or gets no processor time: look at "
                "its machine and its log, and start it again.",
            )
        case Trouble.FOREIGN:
            return (
                "not_a_sidecar",
                f"What answers at {url} is no lilo-sidecar: {why}.",
                f"Correct the address; {_WHERE}.",
            )
        case Trouble.TOKEN if facts.token_file is None:
            return (
                "token_missing",
                f"The sidecar at {url} wants its token.",
                "Add --token-file with the file that the sidecar was started with.",
            )
        case Trouble.TOKEN:
            return (
                "token_wrong",
                f"The sidecar at {url} refuses the token in {facts.token_file}.",
                "Give the file that it was started with; if the file has changed since, start the "
                "sidecar again, which reads it once.",
            )
        case Trouble.HOST:
            return (
                "host_refused",
                f"The sidecar does not answer under the name in {url}: {why}.",
                "Do as it says.",
            )
        case Trouble.MISSING | Trouble.FAULT:
            return (
                "no_answer",
                f"The sidecar at {url} has no answer: {why}.",
                "If it is older than this command, update it; if it failed, its log says why.",
            )


def _is_another(facts: Facts) -> bool:
    """Whether a sidecar of this machine was asked that is not the announced one."""
    if facts.url is None or facts.announced is None or facts.health is None:
        return False
    given, announced = urlsplit(facts.url), urlsplit(facts.announced)
    return given.hostname in _OWN_HOSTS and given.port != announced.port
