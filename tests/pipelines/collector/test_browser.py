"""Pages of another origin send reports with a real browser, which asks before it does."""

from __future__ import annotations

import base64
import contextlib
from typing import Any

import pytest
from live_collector import LiveCollector, body, message
from local_server import Answer, LocalServer
from waiting import wait_until

from pipelines.collector.keys import new_key

pytestmark = pytest.mark.slow

#: Milliseconds that the page may take.
PATIENCE = 300_000

SCRIPT = """
const bytes = text => Uint8Array.from(atob(text), each => each.charCodeAt(0));
const tried = [];
async function attempt(name, work) {
  let outcome;
  try { outcome = await work(); } catch (error) { outcome = error.name; }
  tried.push(`${name}: ${outcome}`);
}
const post = (body, key) => fetch(`${COLLECTOR}/v1/reports`, {
  method: "POST", body: bytes(body),
  headers: {"Content-Type": "application/octet-stream", "Authorization": `Bearer ${key}`},
});
(async () => {
  await attempt("fetch", async () => (await post(FETCHED, KEY)).status);
  await attempt("wrong key", async () => (await post(FETCHED, "wrong")).status);
  await attempt("torn", async () => (await (await post(FETCHED.slice(0, 40), KEY)).json()).status);
  await attempt("beacon", () => navigator.sendBeacon(
    `${COLLECTOR}/v1/reports?key=${KEY}`, bytes(SENT)));
  await attempt("plans", async () => {
    const answer = await fetch(`${COLLECTOR}/v1/plans/fleet.example`);
    const {plans} = await answer.json();
    return `${plans.length} ${plans[0].collector} ${answer.headers.get("etag") !== null}`;
  });
  document.getElementById("tried").textContent = tried.join("; ");
})();
"""


def shown(browser: Any, script: str) -> str:
    """Return what a page with that script shows in the end."""
    text = f'<!doctype html><body><p id="tried"></p><script>{script}</script></body>'
    content = Answer(200, {"Content-Type": "text/html; charset=utf-8"}, text.encode())
    with contextlib.closing(browser.new_context()) as context, LocalServer(content) as server:
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        page.goto(server.url)
        return str(page.locator("#tried:not(:empty)").inner_text())


@pytest.mark.real_randomness
@pytest.mark.parametrize("allowed", [True, False], ids=["any", "others"])
def test_a_page_sends_reports(browser, tmp_path, allowed):
    keys = tmp_path / "keys.json"
    key = new_key(keys, "page")
    options = [] if allowed else ["--origin", "https://app.example"]
    with LiveCollector(tmp_path, "--keys", str(keys), *options) as collector:
        fetched, sent = message(), message()
        values = {
            "COLLECTOR": collector.url,
            "KEY": key,
            "FETCHED": base64.b64encode(body(fetched)).decode(),
            "SENT": base64.b64encode(body(sent)).decode(),
        }
        constants = "".join(f"const {name} = {value!r};\n" for name, value in values.items())
        tried = shown(browser, constants + SCRIPT)
        if allowed:
            assert tried == (
                "fetch: 204; wrong key: 401; torn: 400; beacon: true; plans: 1 fleet.example true"
            )
            wait_until(lambda: len(collector.records()) == 2)
            assert sorted(each.body for each in collector.records()) == sorted([fetched, sent])
        else:
            # The browser keeps pages of other origins from sending, but for beacons, whose answers
            # no page reads: the collector itself refuses these.
            assert tried == (
                "fetch: TypeError; wrong key: TypeError; torn: TypeError; beacon: true; "
                "plans: TypeError"
            )
            collector.stop()
            assert collector.records() == []
        assert collector.output().count("\n") == 1
