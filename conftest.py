"""Put this folder on the path, and `tests` for the helpers that its subfolders share.

This folder comes first: folders of `tests` bear the names of the packages that they test.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
