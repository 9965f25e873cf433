// Reports of categories under local differential privacy, made and sent by a page.
//
// An example of docs/spec/formats.md, not an SDK: it knows one mechanism (generalized randomized
// response, with any number of levels), repeat {once: first}, and no signatures.
// `plan` is what `python -m examples.browser` makes of a compiled plan: a page pins it.
"use strict";

const MASK = (1n << 64n) - 1n;
// Of docs/spec/formats.md, "Public hashes": the domain of shards.
const SHARD = 0x@SHARD@n;
// Pseudonyms that commit to a key begin so; these do not.
const SIGNED = [0xed, 0x25, 0x19];

function mix(x) {
  x = ((x ^ (x >> 30n)) * 0xbf58476d1ce4e5b9n) & MASK;
  x = ((x ^ (x >> 27n)) * 0x94d049bb133111ebn) & MASK;
  return x ^ (x >> 31n);
}

function shardOf(pseudonym, shards) {
  const view = new DataView(pseudonym.buffer, pseudonym.byteOffset);
  const [low, high] = [view.getBigUint64(0, true), view.getBigUint64(8, true)];
  return Number(mix(mix(low ^ SHARD) ^ high) % BigInt(shards));
}

// Keep a symbol for `keep` of the 2**64 random words, move to each of the others for `other`.
function apply({ keep, other }, symbol, word) {
  if (word < BigInt(keep)) return symbol;
  const index = Number((word - BigInt(keep)) / BigInt(other));
  return index < symbol ? index : index + 1;
}

// One output a level, weakest first: the strongest from the symbol, each other from the next.
function chain(draws, symbol, words) {
  const outputs = [];
  draws.forEach((draw, place) => outputs.unshift((symbol = apply(draw, symbol, words[place]))));
  return outputs;
}

// A message of one row.
function encode(plan, metric, row) {
  const bytes = new Uint8Array(40 + 8 + 41 + 1);
  const view = new DataView(bytes.buffer);
  bytes.set([0x53, 0x4f, 1, plan.cell]);
  view.setUint16(4, shardOf(row.pseudonym, plan.shards), true);
  view.setUint16(6, 1, true);
  bytes.set(fromHex(plan.fingerprint), 8);
  view.setUint16(40, metric.index, true);
  view.setUint16(42, 1, true);
  view.setUint32(44, 1, true);
  bytes[48] = row.level;
  bytes.set(row.pseudonym, 49);
  bytes.set(row.chain, 65);
  view.setBigInt64(81, BigInt(row.event), true);
  bytes[89] = row.payload;
  return bytes;
}

const toHex = (bytes) => Array.from(bytes, (b) => b.toString(16).padStart(2, "0")).join("");
const fromHex = (text) => Uint8Array.from(text.match(/../g), (pair) => parseInt(pair, 16));
const random = (count) => crypto.getRandomValues(new Uint8Array(count));
// In [0, 1): for times, never for answers.
const chance = () => crypto.getRandomValues(new Uint32Array(1))[0] / 2 ** 32;

function newPseudonym() {
  const drawn = random(16);
  if (SIGNED.every((byte, place) => drawn[place] === byte)) drawn[0] ^= 1;
  return drawn;
}

// Whether it is this browser's turn: it draws one period of each cycle of `panel` periods.
function inPanel(panel, period, turns) {
  const cycle = Math.floor(period / panel);
  if (turns[panel]?.cycle !== cycle) {
    const turn = Number(crypto.getRandomValues(new BigUint64Array(1))[0] % BigInt(panel));
    turns[panel] = { cycle, turn };
  }
  return period - cycle * panel === turns[panel].turn;
}

// What an object itself has by a name: never what all objects inherit, such as `constructor`.
const own = (object, name) => (Object.hasOwn(object, name) ? object[name] : undefined);

// Milliseconds to wait after so many failures in a row, and after what the collector asks for.
function pause(failures, hint) {
  const least = /^[0-9]+$/.test(hint ?? "") ? Math.min(Number(hint), 86_400) * 1000 : 0;
  // The next attempt after a first failure is the page's to time.
  return least + (failures > 1 || least ? Math.min(600_000, 1000 * 2 ** failures) * chance() : 0);
}

// Choose the messages that leave now, by pseudonym. Each pseudonym waits by itself after a failure:
// no answer to one's message has a part in when another's leaves.
function ready(state, now) {
  const chosen = new Set();
  for (const [pseudonym, wait] of Object.entries(state.waits)) {
    if (!state.pending.some((each) => each.pseudonym === pseudonym)) delete state.waits[pseudonym];
    // The page was closed meanwhile: several may be late, and do not leave together.
    else if (wait.until < now - 60_000) wait.until = now + 60_000 * chance();
    else if (wait.until <= now) chosen.add(pseudonym);
  }
  // Messages of two pseudonyms that were not tried yet leave at least a minute apart, whatever
  // becomes of them. Whether over two connections is up to the browser.
  const first = state.pending.find(
    ({ due, pseudonym }) =>
      due <= now &&
      due > (state.waits[pseudonym]?.since ?? -Infinity) &&
      (pseudonym === state.sent || now >= state.quiet),
  );
  if (first !== undefined) {
    state.sent = first.pseudonym;
    state.quiet = now + 60_000 * (1 + chance());
    const wait = (state.waits[first.pseudonym] ??= { until: now, failures: 0 });
    wait.since = now;
    if (wait.until <= now) chosen.add(first.pseudonym);
  }
  return [...chosen].map((pseudonym) => [
    pseudonym,
    state.pending.filter((each) => each.due <= now && each.pseudonym === pseudonym),
  ]);
}

class Reporter {
  constructor(plan, url) {
    this.plan = plan;
    this.url = url;
    this.key = `sotto ${plan.collector}`;
    // By pseudonym, while its messages are being sent.
    this.sending = new Map();
  }

  // What is stored of a browser: its ledger, and messages that are still to be sent.
  read() {
    const { period, lifetime } = this.plan.ceilings;
    const state = JSON.parse(localStorage.getItem(this.key)) ?? {
      consent: false,
      ceilings: { period, lifetime },
      period: null,
      spent: 0,
      quiet: 0,
      turns: {},
      pending: [],
    };
    state.waits ??= {};
    // A later plan may lower the ceilings, never raise them.
    state.ceilings.period = Math.min(state.ceilings.period, period);
    state.ceilings.lifetime = Math.min(state.ceilings.lifetime, lifetime);
    return state;
  }

  // Change what is stored, in one write, with no other tab at it.
  change(how) {
    return navigator.locks.request(this.key, async () => {
      const state = this.read();
      const result = await how(state);
      localStorage.setItem(this.key, JSON.stringify(state));
      return result;
    });
  }

  giveConsent() {
    return this.change((state) => void (state.consent = true));
  }

  // What was spent stays: it has been, or may have been, sent. Nothing leaves any more.
  withdrawConsent() {
    for (const request of this.sending.values()) request?.abort();
    return this.change((state) => {
      Object.assign(state, { consent: false, pending: [], waits: {} });
    });
  }

  // Randomize a value, charge it, and store the reports: the value itself is forgotten here.
  record(name, value) {
    const { plan } = this;
    const metric = own(plan.metrics, name);
    if (metric === undefined) throw new RangeError(`the page's plan has no metric ${name}`);
    return this.change((state) => {
      const now = Date.now();
      const event = Math.floor(now / plan.resolution) * plan.resolution;
      const period = Math.floor(event / plan.period);
      if (!state.consent) return "no_consent";
      if (now >= plan.expires) return "expired";
      if (period < (state.period ?? period)) return "clock_behind";
      if (period !== state.period) {
        Object.assign(state, { period, inPeriod: 0, answered: [], pseudonym: toHex(newPseudonym()) });
      }
      if (!inPanel(metric.panel, period, state.turns)) return "not_in_panel";
      if (state.answered.includes(name)) return "period_full";
      if (state.inPeriod + metric.cost > state.ceilings.period) return "over_budget";
      if (state.spent + metric.cost > state.ceilings.lifetime) return "over_budget";
      state.answered.push(name);
      state.inPeriod += metric.cost;
      state.spent += metric.cost;
      const words = crypto.getRandomValues(new BigUint64Array(metric.draws.length));
      const outputs = chain(metric.draws, own(metric.symbols, value) ?? metric.outside, words);
      const ids = { pseudonym: fromHex(state.pseudonym), chain: random(16) };
      outputs.forEach((payload, level) => {
        const due = event + plan.resolution * (1 + chance()) + metric.after[level];
        const message = encode(plan, metric, { ...ids, level, event, payload });
        state.pending.push({ due, pseudonym: state.pseudonym, message: toHex(message) });
      });
      return "accepted";
    });
  }

  // Send what is due, always as the same bytes; return how many reports the collector has taken.
  async flush() {
    const lanes = await this.change((state) => (state.consent ? ready(state, Date.now()) : []));
    const free = lanes.filter(([pseudonym]) => !this.sending.has(pseudonym));
    free.forEach(([pseudonym]) => this.sending.set(pseudonym, null));
    const ended = await Promise.allSettled(free.map((lane) => this.send(...lane)));
    const failed = ended.find((each) => each.status === "rejected");
    if (failed !== undefined) throw failed.reason;
    return ended.reduce((sum, each) => sum + each.value, 0);
  }

  // Send messages of one pseudonym, until one fails or consent is withdrawn, in whatever tab.
  async send(pseudonym, messages) {
    let sent = 0;
    try {
      for (const { message } of messages) {
        // It leaves with the consent looked at and locked: a withdrawal comes before or after.
        const begun = await navigator.locks.request(this.key, async () => {
          const { consent, pending } = this.read();
          const stays = consent && pending.some((each) => each.message === message);
          return stays && { answer: this.post(pseudonym, fromHex(message)) };
        });
        if (!begun) break;
        const answer = await begun.answer.catch((error) => ({ error }));
        if (answer.status !== 204) {
          await this.fail(pseudonym, answer.headers?.get("Retry-After"));
          throw answer.error ?? new Error(`the collector answered ${answer.status}`);
        }
        await this.change((state) => {
          state.pending = state.pending.filter((each) => each.message !== message);
        });
        sent += 1;
      }
      await this.change((state) => void delete state.waits[pseudonym]);
      return sent;
    } finally {
      this.sending.delete(pseudonym);
    }
  }

  async post(pseudonym, bytes) {
    const body = new Uint8Array(4 + bytes.length);
    new DataView(body.buffer).setUint32(0, bytes.length, true);
    body.set(bytes, 4);
    const request = new AbortController();
    this.sending.set(pseudonym, request);
    const late = setTimeout(() => request.abort(), 30_000);
    try {
      return await fetch(`${this.url}/v1/reports`, {
        method: "POST",
        body,
        headers: { "Content-Type": "application/octet-stream" },
        credentials: "omit",
        referrerPolicy: "no-referrer",
        cache: "no-store",
        redirect: "error",
        signal: request.signal,
      });
    } finally {
      clearTimeout(late);
    }
  }

  fail(pseudonym, hint) {
    return this.change((state) => {
      const wait = state.waits[pseudonym];
      if (wait === undefined) return;
      wait.failures += 1;
      wait.until = Date.now() + pause(wait.failures, hint);
    });
  }
}
