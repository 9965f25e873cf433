"""Put this folder on the path, and `tests` for the helpers that its subfolders share.

This folder comes first: folders of `tests` bear the names of the packages that they test.

Property tests try the same examples in every run, and have no deadline: a busy machine is no
fault of the code.
"""

from __future__ import annotations

import sys
from pathlib import Path

from hypothesis import settings

ROOT = Path(__file__).parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

settings.register_profile("sotto", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("sotto")
