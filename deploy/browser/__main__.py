"""``python -m deploy.browser`` fetches Chromium."""

from __future__ import annotations

import sys

from deploy.browser import main

sys.exit(main())
