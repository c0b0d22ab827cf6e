"""All that is wrong with a deployment. Pure."""

from __future__ import annotations

from .facts import Facts
from .finding import Finding
from .http_findings import http_findings
from .loss_findings import loss_findings
from .sidecar_findings import sidecar_findings
from .socket_findings import socket_findings
from .trainer_findings import trainer_findings


def findings(facts: Facts) -> list[Finding]:
    """What the facts come to, in the order in which it is best mended."""
    return [
        *socket_findings(facts),
        *http_findings(facts),
        *trainer_findings(facts),
        *loss_findings(facts),
        *sidecar_findings(facts),
    ]
