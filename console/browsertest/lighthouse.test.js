// Lighthouse on five pages. Its performance depends on what else the machine does (70 and 100 of
// one page, on two loaded cores), so that is not asked for; pages.test.js bounds what a first view loads.

import assert from "node:assert/strict";
import { createServer } from "node:net";
import { test } from "node:test";
import lighthouse from "lighthouse";
import { Hand, persistent, signIn } from "./browsers.js";
import { populated, url } from "./kindred.js";

const freePort = () => new Promise((found) => {
  const server = createServer().listen(0, "127.0.0.1", () => {
    const { port } = server.address();
    server.close(() => found(port));
  });
});

const least = 95, categories = ["accessibility", "best-practices"];

test("five pages reach 95 in accessibility and best practices", async () => {
  const port = await freePort(), context = await persistent(`--remote-debugging-port=${port}`);
  try {
    const full = await populated(), hand = new Hand(await context.newPage());
    await signIn(hand, full.account);
    const measure = async (at) => {
      const { lhr } = await lighthouse(`${url}/console/${at}`, { port, output: "json", logLevel: "error", onlyCategories: categories, throttlingMethod: "provided", clearStorageTypes: ["local_storage"] });
      assert.ok(lhr.finalDisplayedUrl.startsWith(`${url}/console/${at}`) && !lhr.finalDisplayedUrl.includes("sign-in"), `${at} led to ${lhr.finalDisplayedUrl}`);
      const low = categories.filter((name) => !(lhr.categories[name].score * 100 >= least));
      return low.map((name) => `${at}: ${name} ${lhr.categories[name].score * 100}: ${lhr.categories[name].auditRefs.filter((a) => a.weight && lhr.audits[a.id].score !== null && lhr.audits[a.id].score < 0.9).map((a) => a.id)}`);
    };
    const wrong = [];
    for (const at of ["", "users", `users/${full.user.id}`, "clusters", "webhooks"]) wrong.push(...await measure(at));
    assert.deepEqual(wrong, []);
  } finally {
    await context.close();
  }
});
