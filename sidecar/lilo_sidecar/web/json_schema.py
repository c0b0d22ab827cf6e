"""What the schemas of the answers are made of: numbers, records, texts about them."""

from __future__ import annotations

from typing import Any, Final

SECONDS: Final = {"type": "number", "minimum": 0}
COUNT: Final = {"type": "integer", "minimum": 0}


def described(schema: dict[str, Any], text: str) -> dict[str, Any]:
    """A schema with a text about it."""
    return {**schema, "description": text}


def nullable(schema: dict[str, Any], text: str) -> dict[str, Any]:
    """As `described`, of what may be null, too."""
    return {**schema, "type": [schema["type"], "null"], "description": text}


def record(properties: dict[str, Any], text: str) -> dict[str, Any]:
    """An object that has all of these; later releases may add to them."""
    return {
        "type": "object",
        "description": text,
        "required": list(properties),
        "properties": properties,
    }


def reference(name: str) -> dict[str, Any]:
    """To one of the document's schemas, by its name."""
    return {"$ref": f"#/components/schemas/{name}"}
