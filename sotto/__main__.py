"""``python -m sotto`` is the ``sotto`` command."""

import sys

from sotto.cli import main

sys.exit(main())
