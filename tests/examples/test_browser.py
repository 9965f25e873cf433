"""A page's reports: the bytes and draws of the SDK, its ledger, and a real browser."""

from __future__ import annotations

import contextlib
import json
import secrets
import subprocess
from pathlib import Path
from typing import Any

import pytest
from plan_texts import plan_head
from serving import counted, served, wait_until

from deploy.browser import NODE
from examples.browser.__main__ import main, page, pinned, reporter
from mechanisms.coins import shard_of
from sotto.plan.compile import parse_plan
from sotto.wire.batch import split_messages
from sotto.wire.format import Row, decode_message, encode_message

TEXT = plan_head(
    "look", (4, 6), collector="page.example", period="1h", resolution="1s", minimum_reports=1
)
TEXT += """\
  speed: {type: number, range: [0, 1], outside: clip, window: 1h, ladder: [{epsilon: 1}]}
  theme: {type: category, domain: [light, dark], outside: other, mechanism: grr, window: 1h,
    ladder: [{epsilon: 0.5}, {epsilon: 1, after: 1m}, {epsilon: 2, after: 5m}]}
"""
PLAN = parse_plan(TEXT).compile()
THEME = PLAN.metric("theme")

#: A browser, as far as the reporter sees one.
BROWSER = """
const held = new Map();
globalThis.localStorage = {
  getItem: (key) => held.get(key) ?? null,
  setItem: (key, value) => void held.set(key, value),
};
Object.defineProperty(globalThis, "navigator", {
  value: { locks: { request: (key, how) => {
    const turn = (navigator.turn ?? Promise.resolve()).then(how);
    navigator.turn = turn.catch(() => {});
    return turn;
  } } }, configurable: true });
let now = 1_800_000_000_000;
Date.now = () => now;
const posted = [];
let status = 204;
globalThis.fetch = async (url, options) => {
  posted.push([url, toHex(options.body), Object.keys(options).sort()]);
  return { status };
};
"""


def node(script: str, given: object = None) -> Any:
    """Run a script behind the reporter's and return what it gives to ``done``."""
    ends = "const done = (value) => console.log(JSON.stringify(value));\n"
    begins = f"const given = {json.dumps(given)};\nconst PLAN = {json.dumps(pinned(PLAN))};\n"
    run = subprocess.run(
        [NODE, "-"],
        input=f"{reporter()}\n{begins}{ends}(async () => {{{script}}})();",
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def agreed(script: str, given: object = None) -> Any:
    """Run a script in a page whose reporter ``r`` has consent and one value of a theme."""
    begins = """
        const r = new Reporter(PLAN, "https://c.example");
        await r.giveConsent();
        await r.record("theme", "dark");
    """
    return node(BROWSER + begins + script, given)


@pytest.mark.real_randomness
def test_draws_are_those_of_the_sdk_for_every_word() -> None:
    chain = THEME.mechanism.chain
    draws = (chain.strongest, *reversed(chain.steps))
    edges = [0, 2**64 - 1]
    for draw in draws:
        edges += [draw.keep - 1, draw.keep, draw.keep + draw.other - 1, draw.keep + draw.other]
    words = [[word] * 3 for word in edges]
    words += [[secrets.randbits(64) for _ in range(3)] for _ in range(300)]
    given = [[symbol, [str(word) for word in each]] for each in words for symbol in range(3)]
    found = node(
        "const { draws } = PLAN.metrics.theme;"
        "done(given.map(([symbol, words]) => chain(draws, symbol, words.map(BigInt))));",
        given,
    )
    for (symbol, texts), outputs in zip(given, found, strict=True):
        expected, current = [], symbol
        for draw, word in zip(draws, texts, strict=True):
            current = draw.apply(current, int(word))
            expected.insert(0, current)
        assert outputs == expected


@pytest.mark.real_randomness
def test_messages_are_byte_for_byte_those_of_the_sdk() -> None:
    rows = [
        Row(level, secrets.token_bytes(16), secrets.token_bytes(16), event, bytes([payload]))
        for level, event, payload in ((0, 0, 0), (2, 1_800_000_000_000, 2), (1, -3_600_000, 255))
    ]
    given = [[r.level, r.pseudonym.hex(), r.chain.hex(), r.event, r.payload[0]] for r in rows]
    found = node(
        "done(given.map(([level, pseudonym, chain, event, payload]) => toHex(encode(PLAN,"
        " PLAN.metrics.theme, { level, event, payload, pseudonym: fromHex(pseudonym),"
        " chain: fromHex(chain) }))));",
        given,
    )
    for row, text in zip(rows, found, strict=True):
        shard = shard_of(row.pseudonym, PLAN.shards)
        assert text == encode_message(PLAN.fingerprint, shard, [(THEME.index, [row])]).hex()


@pytest.mark.real_randomness
def test_a_page_charges_before_it_sends_and_never_more_than_the_ceilings() -> None:
    outcomes, stored = node(
        BROWSER
        + """
        const r = new Reporter(PLAN, "https://c.example");
        const outcomes = [await r.record("theme", "dark")];
        await r.giveConsent();
        for (const hours of [0, 0, 1, -1, 1, 1]) {
          now += hours * 3_600_000;
          outcomes.push(await r.record("theme", "dark"));
        }
        outcomes.push(await r.record("theme", "dark").then(() => r.read().spent));
        done([outcomes, [...held.values()].join()]);
        """
    )
    assert outcomes == [
        *("no_consent", "accepted", "period_full", "accepted", "clock_behind", "period_full"),
        *("accepted", 6_000_000),
    ]
    assert "dark" not in stored
    refused = """
        const r = new Reporter({ ...PLAN, ceilings: { period: 4e6, lifetime: 1.9e6 } }, "");
        await r.giveConsent();
        done(await r.record("theme", "light"));
    """
    assert node(BROWSER + refused) == "over_budget"


@pytest.mark.real_randomness
def test_a_browser_answers_in_one_period_of_each_cycle_of_its_panel() -> None:
    cycles = node(
        """
        const found = [];
        for (let browser = 0; browser < 200; browser++) {
          const turns = {};
          const mine = [...Array(15).keys()].filter((n) => inPanel(5, n, turns));
          found.push(mine);
        }
        done(found);
        """
    )
    assert all([period // 5 for period in each] == [0, 1, 2] for each in cycles)
    # Each of 3 * 5 periods is missing with a probability of 0.8 ** 200.
    assert {period for each in cycles for period in each} == set(range(15))


@pytest.mark.real_randomness
def test_what_fails_is_sent_again_as_the_same_bytes_and_a_withdrawal_erases_it() -> None:
    posted, left, erased = agreed(
        """
        await r.flush();
        now += 2000;
        status = 503;
        await r.flush().catch(() => {});
        status = 204;
        await r.flush();
        now += 60_000;
        await r.flush();
        const left = r.read().pending.length;
        await r.withdrawConsent();
        now += 3_600_000;
        await r.flush();
        done([posted, left, r.read()]);
        """
    )
    assert left == 1
    assert len(posted) == 3
    assert posted[0] == posted[1] != posted[2]
    url, body, options = posted[0]
    assert url == "https://c.example/v1/reports"
    assert {"cache", "credentials", "redirect", "referrerPolicy"} < set(options)
    (message,) = split_messages(bytes.fromhex(body))
    (group,) = decode_message(message).groups
    assert (group.metric, group.rows[0].level) == (THEME.index, 0)
    assert (erased["consent"], erased["pending"], erased["spent"]) == (False, [], 2_000_000)


@pytest.mark.real_randomness
def test_reports_of_two_periods_leave_at_different_times() -> None:
    posted = agreed(
        """
        now += 3_600_000;
        await r.record("theme", "dark");
        now += 600_000;
        const found = [];
        for (const wait of [0, 1000, 59_000, 60_000]) {
          now += wait;
          await r.flush();
          found.push(posted.splice(0).map(([, body]) => body.slice(2 * 53, 2 * 69)));
        }
        done(found);
        """
    )
    assert [len(each) for each in posted] == [3, 0, 0, 3]
    (one,), (other,) = {*posted[0]}, {*posted[3]}
    assert one != other


@pytest.mark.real_randomness
@pytest.mark.parametrize("where", ["the same tab", "another tab"])
def test_nothing_leaves_after_a_withdrawal_also_amid_a_batch(where) -> None:
    posted, erased = agreed(
        """
        const tab = given === "the same tab" ? r : new Reporter(PLAN, "https://c.example");
        now += 600_000;
        const passed = fetch;
        globalThis.fetch = async (...asked) => {
          await tab.withdrawConsent();
          return passed(...asked);
        };
        await r.flush().catch(() => {});
        await r.giveConsent();
        await r.flush().catch(() => {});
        done([posted.length, r.read().pending]);
        """,
        where,
    )
    # Three levels were due.
    assert (posted, erased) == (1, [])


@pytest.mark.real_randomness
def test_a_withdrawal_aborts_the_request_under_way() -> None:
    aborted = agreed(
        """
        now += 600_000;
        let begun;
        const asked = new Promise((resolve) => { begun = resolve; });
        globalThis.fetch = (url, { signal }) => new Promise((resolve, reject) => {
          signal.onabort = () => reject(new Error("aborted"));
          begun(signal);
        });
        const flushed = r.flush().catch((error) => error.message);
        const signal = await asked;
        await r.withdrawConsent();
        done([signal.aborted, await flushed]);
        """
    )
    assert aborted == [True, "aborted"]


@pytest.mark.real_randomness
def test_what_objects_inherit_is_neither_a_category_nor_a_metric() -> None:
    inherited = ["constructor", "toString", "__proto__", "hasOwnProperty", "valueOf"]
    payloads, refused = node(
        BROWSER
        + """
        // The strongest level keeps every symbol, so that payloads are symbols.
        const draws = PLAN.metrics.theme.draws.map(() => ({ keep: String(2n ** 64n), other: "1" }));
        const plan = { ...PLAN, metrics: { theme: { ...PLAN.metrics.theme, draws } } };
        const payloads = [], refused = [];
        for (const word of [...given, "light", "dark"]) {
          held.clear();
          const r = new Reporter(plan, "");
          await r.giveConsent();
          await r.record("theme", word);
          payloads.push(...r.read().pending.map(({ message }) => fromHex(message)[89]));
          try { await r.record(word, "dark"); } catch (error) { refused.push(error.name); }
        }
        done([payloads, refused]);
        """,
        inherited,
    )
    symbols = [pinned(PLAN)["metrics"]["theme"]["outside"]] * len(inherited)
    symbols += [THEME.symbols["light"], THEME.symbols["dark"]]
    assert payloads == [symbol for symbol in symbols for _ in THEME.ladder]
    assert refused == ["RangeError"] * len(symbols)


@pytest.mark.real_randomness
def test_a_category_of_any_name_comes_into_the_page() -> None:
    text = TEXT.replace("[light, dark]", "[__proto__, constructor]")
    compiled = parse_plan(text).compile()
    html = page(compiled, "https://c.example")
    script = html[html.index("const reporter") : html.index("const byId")]
    found = node(script + "done(Object.entries(reporter.plan.metrics.theme.symbols));")
    assert dict(found) == compiled.metric("theme").symbols


@pytest.mark.real_randomness
def test_clicks_begin_no_further_loop_that_sends() -> None:
    html = page(PLAN, "https://c.example")
    script = html[html.index("const reporter") : html.rindex("</script>")]
    browser = """
    const buttons = [], loops = [];
    const element = () => ({ append() {} });
    const button = () => buttons[buttons.push(element()) - 1];
    globalThis.document = {
      getElementById: element,
      createElement: (name) => (name === "button" ? button() : element()),
    };
    globalThis.setInterval = globalThis.setTimeout = (what) => void loops.push(what);
    """
    clicks = """
    await reporter.giveConsent();
    for (const button of [...buttons, ...buttons]) await button.onclick();
    done([buttons.length, loops.length]);
    """
    assert node(BROWSER + browser + script + clicks) == [len(THEME.symbols), 1]


#: Two pseudonyms with messages, a fixed chance, and a collector that answers the first one's
#: messages as it likes; gives what left when, of which pseudonym.
ANSWERED = (
    BROWSER
    + """
    crypto.getRandomValues = ((draw, seed) => (array) => {
      for (let at = 0; at < array.length; at++) {
        seed = (seed * 6364136223846793005n + 1442695040888963407n) & MASK;
        array[at] = typeof array[0] === "bigint" ? seed : Number(seed >> 40n);
      }
      return array;
    })(0, 7n);
    const left = [];
    let target;
    globalThis.fetch = async (url, { body }) => {
      const pseudonym = toHex(body).slice(2 * 53, 2 * 69);
      target ??= pseudonym;
      left.push([now, pseudonym === target]);
      if (pseudonym !== target || given === null) return { status: 204 };
      if (given === "hangs up") throw new TypeError("failed to fetch");
      return { status: given[0], headers: new Headers({ "Retry-After": given[1] }) };
    };
    const r = new Reporter(PLAN, "https://c.example");
    await r.giveConsent();
    await r.record("theme", "dark");
    now += 3_600_000;
    await r.record("theme", "light");
    for (let second = 0; second < 4_000; second++) {
      now += 1000;
      // As the page does, which a person closes for a while.
      if (second < 300 || second > 900) await r.flush().catch(() => {});
    }
    done(left);
    """
)


@pytest.mark.real_randomness
@pytest.mark.parametrize("answer", [[503, "1200"], [429, "86400"], [500, ""], "hangs up"])
def test_no_answer_to_one_pseudonym_changes_when_another_s_messages_leave(answer) -> None:
    """The attack: the collector puts one pseudonym off, and looks whose traffic pauses with it."""
    undisturbed, disturbed = node(ANSWERED, None), node(ANSWERED, answer)
    of_other = [at for at, target in undisturbed if not target]
    assert len(of_other) == 3
    assert [at for at, target in disturbed if not target] == of_other


def test_a_page_is_made_of_a_plan_that_it_can_report(tmp_path, capsys) -> None:
    path = tmp_path / "plan.json"
    path.write_bytes(PLAN.to_json())
    assert main([str(path), "https://c.example/</script>"]) == 0
    shown = capsys.readouterr().out
    assert PLAN.fingerprint_hex in shown
    assert shown.count("</script>") == 2
    assert "@" not in shown.replace("@page.example", "")
    none = parse_plan(TEXT.replace("mechanism: grr", "mechanism: oue")).compile()
    path.write_bytes(none.to_json())
    assert main([str(path), "https://c.example"]) == 2
    assert "no metric that this page can report" in capsys.readouterr().err


@pytest.mark.real_randomness
@pytest.mark.slow
def test_a_real_browser_reports(browser: Any, tmp_path: Path) -> None:
    plan, html = tmp_path / "plan.json", tmp_path / "page.html"
    plan.write_bytes(PLAN.to_json())
    with served(tmp_path, plan) as (_, url):
        html.write_text(page(PLAN, url), encoding="utf-8")
        with contextlib.closing(browser.new_context()) as context:
            shown = context.new_page()
            shown.goto(html.as_uri())
            shown.locator("#consent").check()
            shown.wait_for_function("reporter.read().consent")
            shown.locator("button").first.click()
            wait_until(lambda: counted(tmp_path / "build/serve/state") == [1])
