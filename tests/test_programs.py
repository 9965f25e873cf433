"""Programs that tests use: what a run says without them, and how Chromium is pinned."""

from __future__ import annotations

import json

from programs import not_tested

from deploy.browser import SOURCE


def test_one_line_says_what_was_not_tested_and_what_brings_it():
    reasons = [
        "root may write everywhere",
        *["Skipped: needs caddy"] * 2,
        "Skipped: needs promtool",
    ]
    assert not_tested(reasons[:1]) == ""
    assert not_tested([*reasons, "Java is not installed: install Java", "needs python3.14"]) == (
        "not tested for want of programs: caddy (2), java (1), promtool (1), python3.14 (1); to "
        "test it: apt-get install caddy default-jre-headless prometheus && pyenv install 3.14"
    )


def test_every_package_of_the_browser_is_pinned_by_its_hash_from_any_registry():
    lock = json.loads((SOURCE / "package-lock.json").read_text("utf-8"))
    packages = {name: package for name, package in lock["packages"].items() if name}
    assert packages
    assert all("integrity" in each and "resolved" not in each for each in packages.values())
