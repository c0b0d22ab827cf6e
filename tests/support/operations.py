"""Operations as an engine hands them to its observers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Operation:
    """A command with the attributes that the Observer interface names."""

    model_id: str
    seq_id: int = 0
    kind: Any = "forward_backward"
    payload: Any = field(default_factory=dict)

    @property
    def request_id(self) -> str:
        return f"{self.model_id}:{self.seq_id}"
