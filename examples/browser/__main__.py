"""Make a page that reports to a collector: ``python -m examples.browser plan.json URL``.

The page holds what it needs of the plan, as an app that is shipped does, and the page that is
printed needs no other file. It asks for the plan's categories, as far as `reporter.js` can report
them: by generalized randomized response, and once in a budget period.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mechanisms.category.grr import GeneralizedRandomizedResponse
from mechanisms.chains.symbols import SymbolChain
from mechanisms.coins import SHARD
from sotto.errors import PlanError, SottoError
from sotto.plan.compiled import CompiledMetric, CompiledPlan
from sotto.plan.segments import cell_of

FOLDER = Path(__file__).parent


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.browser", description=__doc__)
    parser.add_argument("plan", type=Path, help="a compiled plan")
    parser.add_argument("url", help="the collector's, such as http://localhost:8470")
    args = parser.parse_args(arguments)
    try:
        print(page(CompiledPlan.from_file(args.plan), args.url))
    except (SottoError, OSError) as error:
        print(f"browser: error: {error}", file=sys.stderr)
        return 2
    return 0


def page(plan: CompiledPlan, url: str) -> str:
    """Return the page's HTML."""
    template = (FOLDER / "page.html").read_text(encoding="utf-8")
    # As a text: a literal's __proto__ would be no category.
    text = json.dumps(pinned(plan), indent=1)
    parts = {"REPORTER": reporter(), "PLAN": _script(text), "URL": _script(url)}
    for name, text in parts.items():
        template = template.replace(f"@{name}@", text)
    return template


def reporter() -> str:
    """Return the script of the page that makes reports and sends them."""
    text = (FOLDER / "reporter.js").read_text(encoding="utf-8")
    return text.replace("@SHARD@", f"{SHARD:x}")


def pinned(plan: CompiledPlan) -> dict[str, Any]:
    """Return what a page knows of a plan; PlanError if it can report none of its metrics."""
    metrics = {each.name: _metric(each) for each in plan.metrics if _is_simple(each)}
    if not metrics or plan.signed or plan.experiment is not None:
        raise PlanError("the plan has no metric that this page can report")
    return {
        "collector": plan.collector,
        "fingerprint": plan.fingerprint_hex,
        "expires": plan.expires,
        "period": plan.period,
        "resolution": plan.resolution,
        "shards": plan.shards,
        # The page does not say what it is: every segment is other.
        "cell": cell_of(plan.attributes, {}),
        "ceilings": {"period": plan.ceilings.period, "lifetime": plan.ceilings.lifetime},
        "metrics": metrics,
    }


def _is_simple(metric: CompiledMetric) -> bool:
    grr = isinstance(metric.mechanism, GeneralizedRandomizedResponse)
    once = metric.kind == "first" and not metric.missing
    return metric.type == "category" and grr and once and len(metric.symbols) <= 256


def _metric(metric: CompiledMetric) -> dict[str, Any]:
    chain = metric.mechanism.chain
    assert isinstance(chain, SymbolChain)
    return {
        "index": metric.index,
        "symbols": metric.symbols,
        "outside": metric.symbols.get(str(metric.outside), len(metric.symbols)),
        "panel": metric.panel,
        "cost": metric.cost,
        "after": [level.after for level in metric.ladder],
        # Texts, because numbers of JavaScript have 53 bits.
        "draws": [
            {"keep": str(draw.keep), "other": str(draw.other)}
            for draw in (chain.strongest, *reversed(chain.steps))
        ],
    }


def _script(value: str) -> str:
    """Return a value as a literal that can stand in a script of a page."""
    return json.dumps(value).replace("<", "\\u003c")


if __name__ == "__main__":
    raise SystemExit(main())
