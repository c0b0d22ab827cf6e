"""What a Dockerfile says, as far as tests go by it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Dockerfile:
    """The instructions, in their order, each in one line."""

    instructions: list[tuple[str, str]]

    @classmethod
    def read(cls, path: Path) -> Dockerfile:
        """Parse the file."""
        lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
        whole = "\n".join(lines).replace("\\\n", " ").splitlines()
        split = (line.split(maxsplit=1) for line in whole if line.strip())
        return cls([(name, rest) for name, rest in split])

    def all(self, name: str) -> list[str]:
        """What follows each instruction of that name."""
        return [rest for found, rest in self.instructions if found == name]

    def command(self, name: str) -> list[str]:
        """The last instruction of that name, which is a JSON list at its end."""
        text = self.all(name)[-1]
        found = json.loads(text[text.index("[") :])
        return [str(each) for each in found]
