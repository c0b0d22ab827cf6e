"""`python -m lilo_sidecar`: the same as the `lilo-sidecar` command."""

import sys

from .cli import main

sys.exit(main())
