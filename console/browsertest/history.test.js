// A history that was tampered with does not pass in the reader's browser.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Hand, chromium, signIn, watch } from "./browsers.js";
import { Api, newAccount, url } from "./kindred.js";
import { verdicts } from "./story.js";

let browser, context, hand, api, complaints;
before(async () => {
  browser = await chromium();
  const account = newAccount();
  api = await Api.signUp(account);
  await api.post("/api/v1/users", { external_id: "maya", traits: { plan: "pro" } });
  context = await browser.newContext();
  const page = await context.newPage();
  complaints = await watch(page);
  hand = new Hand(page);
  await signIn(hand, account);
});
after(() => browser?.close());

// said opens an event whose material was changed on its way, and returns the verdicts.
async function said(change, many = 1) {
  await hand.page.route("**/console/history/1*", async (route) => {
    const answer = await route.fetch(), page = await answer.text();
    const changed = page.replace(/data-material="([^"]*)"/, (_, text) => {
      const unescape = { "&#34;": '"', "&#39;": "'", "&lt;": "<", "&gt;": ">", "&amp;": "&", "&#43;": "+" };
      const material = JSON.parse(text.replace(/&(#34|#39|#43|lt|gt|amp);/g, (entity) => unescape[entity]));
      change(material);
      return `data-material="${JSON.stringify(material).replace(/[&"<>]/g, (c) => `&#${c.charCodeAt(0)};`)}"`;
    });
    assert.ok(change === unchanged || changed !== page, "nothing was changed");
    await route.fulfill({ response: answer, body: changed });
  });
  await hand.open("history/1");
  const found = await verdicts(hand, many);
  await hand.page.unroute("**/console/history/1*");
  return found.map((v) => `${v.tone}: ${v.text}`);
}

const unchanged = () => {};
const flip = (text, at) => text.slice(0, at) + (text[at] === "0" ? "1" : "0") + text.slice(at + 1);
const kept = () => hand.page.evaluate((client) => JSON.parse(localStorage.getItem(`kindred-head-${client}`)), api.client);
const keep = (head) => hand.page.evaluate(([client, h]) => (h ? localStorage.setItem(`kindred-head-${client}`, JSON.stringify(h)) : localStorage.removeItem(`kindred-head-${client}`)), [api.client, head]);

test("the bytes of an event, its path, the root, the head and the key are all checked", async () => {
  for (const [what, change, refusal] of [
    ["a byte of the data", (m) => { m.event.data = m.event.data.replace(/[a-z]/, (c) => (c === "z" ? "y" : "z")); }, "The event's bytes do not have its hash"],
    ["a byte of the metadata", (m) => { m.event.meta += " "; }, "The event's bytes do not have its hash"],
    ["the type", (m) => { m.event.type += "x"; }, "The event's bytes do not have its hash"],
    ["the revision", (m) => { m.event.revision++; }, "The event's bytes do not have its hash"],
    ["another place", (m) => { m.event.ordinal = 0; }, "The event is not under the root"],
    ["a step of the path", (m) => { m.proof.inclusion[0] = flip(m.proof.inclusion[0], 5); }, "The event is not under the root"],
    ["the root", (m) => { m.proof.root = flip(m.proof.root, 5); }, "The event is not under the root"],
    ["a head of another size", (m) => { m.client = "cli_other"; }, "The head is about something else"],
    ["a key that is not published", (m) => { m.keys.keys = []; }, "not published"],
    ["the signature", (m) => { const parts = m.proof.head.split("."); parts[2] = (parts[2][0] === "A" ? "B" : "A") + parts[2].slice(1); m.proof.head = parts.join("."); }, "signature is wrong"],
  ]) {
    const found = await said(change, 4);
    assert.ok(found.at(-1).startsWith("bad: ") && found.at(-1).includes(refusal), `${what}: ${found.join(" | ")}`);
    assert.equal(await kept(), null, `${what}: its head was kept`);
  }
  assert.ok(!(await said(unchanged, 4)).some((v) => v.startsWith("bad")), "what was not changed is refused");
});

test("a head that was kept is held against the history", async () => {
  await keep(null);
  await said(unchanged, 4);
  const head = await kept();
  assert.ok(head.size > 1);
  const wrong = { ...head, root: flip(head.root, 5) };
  for (const [size, refusal] of [[head.size, "not the one of the head"], [head.size - 1, "does not begin with"], [head.size + 1, "has become shorter"]]) {
    await keep({ ...wrong, size });
    const found = await said(unchanged, 4);
    assert.ok(found.at(-1).startsWith("bad: ") && found.at(-1).includes(refusal), `${size}: ${found.join(" | ")}`);
    assert.deepEqual(await kept(), { ...wrong, size }, "the head that was kept is gone");
  }

  await keep(head);
  await api.post("/api/v1/users", { external_id: "noor", traits: { plan: "free" } });
  const grown = await said(unchanged, 4);
  assert.ok(grown.every((v) => v.startsWith("good")) && grown.at(-1).includes(`begins with the ${head.size} events`), grown.join(" | "));
  assert.ok((await kept()).size > head.size);
  assert.deepEqual(complaints, []);
});
