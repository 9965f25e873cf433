"""Helpers are shared with the tests of mechanisms and of pipelines."""

import sys
from pathlib import Path

for folder in ("mechanisms", "pipelines"):
    sys.path.insert(0, str(Path(__file__).parent.parent / folder))
