"""``python -m sotto`` is the ``sotto`` command."""

import sys

from sotto_cli import main

sys.exit(main())
