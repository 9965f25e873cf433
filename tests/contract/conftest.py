"""The helpers of the tests of mechanisms are shared."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "mechanisms"))
