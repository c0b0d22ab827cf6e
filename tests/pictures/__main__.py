"""``python -m pictures [NAME ...]``, or `make pictures`: makes the documents' pictures anew."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pictures import charts, page

PICTURES: Final[dict[str, Callable[[Path], None]]] = {
    "charts": charts.make,
    "page": page.make,
}
"""By name: each writes into the folder of documents that it is given."""


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="pictures", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(PICTURES)}; or all")
    parser.add_argument("--docs", type=Path, default=Path("docs"), help="where to write")
    options = parser.parse_args()
    if unknown := set(options.names) - PICTURES.keys():
        parser.error(f"there is no picture {min(unknown)!r}; there is {', '.join(PICTURES)}")
    for name in options.names or PICTURES:
        PICTURES[name](options.docs)


if __name__ == "__main__":
    main()
