// Measures what the server takes for each page, in ms, beside the goal: of a member whose EMAIL
// and PASSWORD are given, or of a client with 100,000 users that it makes. What is streamed once
// a page is there stands apart. `scripts/test-browser times.js` runs it; PER_PAGE requests of each.

import { loadavg } from "node:os";
import { populated, url } from "./kindred.js";

const times = Number(process.env.PER_PAGE ?? 50), goal = { p50: 30, p99: 100 };
const account = process.env.EMAIL ? { email: process.env.EMAIL, password: process.env.PASSWORD } : (await populated("", 100_000)).account;
const form = (fields) => ({ method: "POST", redirect: "manual", body: new URLSearchParams(fields) });
const cookie = (await fetch(`${url}/console/sign-in`, form(account))).headers.getSetCookie()[0].split(";")[0];
const look = async (path) => {
  const begun = performance.now(), answer = await fetch(`${url}/console/${path}`, { headers: { cookie } }), text = await answer.text();
  return { took: performance.now() - begun, text, status: answer.status };
};

// link is the first link of a page to another of a kind.
const link = async (page, kind) => (await look(page)).text.match(new RegExp(`href="/console/(${kind}_\\w+)"`))?.[1];
const user = await link("users?find=maya", "users/usr"), hook = await link("webhooks", "webhooks/whk");
const past = new Date(Date.now() - 60_000).toISOString().slice(0, 16), rule = encodeURIComponent('traits.plan == "pro" && traits.age > 52');
const pages = [
  "sign-in", "", "first-steps", "users", `users?filter=${rule}`, user, "traits", "traits?path=age", "segments", await link("segments", "segments/seg"),
  "clusters", await link("clusters", "clusters/clu"), await link("clusters", "runs/run"), "campaigns", await link("campaigns", "campaigns/cam"), "webhooks", hook, await link(hook, `${hook}/deliveries/dlv`),
  "developers", "requests", "history", "history/3", "history-at", `history-at?at=${past}&kind=users`, "settings", "account",
];
const streamed = [`users?filter=${rule}&count=1`, `${user}?feed=1`, `${user}?at=${past}&past=1`, "clusters?map=1", `segments?rule=${rule}&preview=1`, `history-at?at=${past}&kind=users&past=1`];

// measure asks for all in turns, so that what else the machine does disturbs each alike.
async function measure(paths) {
  const all = new Map(paths.map((at) => [at, []])), last = new Map();
  for (let i = 0; i < times; i++) for (const at of paths) {
    const seen = await look(at);
    all.get(at).push(seen.took);
    last.set(at, seen);
  }
  return paths.map((at) => {
    const took = all.get(at).sort((a, b) => a - b), { text, status } = last.get(at);
    const p50 = took[Math.floor(times / 2)], p99 = took[Math.min(times - 1, Math.floor(.99 * times))], high = p50 > goal.p50 || p99 > goal.p99;
    const calls = text.match(/<summary>The calls behind this page \((\d+)\)/)?.[1] ?? 0;
    console.log(`${at.replaceAll(/_\w+/g, "_…").slice(0, 60).padEnd(60)} ${status} ${[took[0], p50, p99].map((ms) => ms.toFixed(0).padStart(5)).join(" ")} ${(text.length / 1024).toFixed(0).padStart(4)} ${String(calls).padStart(5)}${high ? " !" : ""}`);
    return high;
  });
}

const load = () => loadavg()[0].toFixed(1);
console.log(`load ${load()}\n${"page".padEnd(64)} least   p50   p99  KiB calls`);
const over = (await measure(pages.filter((page) => page !== undefined))).filter(Boolean).length;
console.log("streamed once the page is there:");
await measure(streamed);
console.log(`load ${load()}; ${over} pages above p50 ${goal.p50} or p99 ${goal.p99} ms`);
process.exit(0); // what receives deliveries would wait
