import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { FirefoxHand, Hand, chromium, firefox, watch } from "./browsers.js";
import { patience } from "./kindred.js";
import { story } from "./story.js";

let browser;
before(async () => { browser = await chromium(); });
after(() => browser?.close());

for (const scripts of [true, false]) {
  test(`the story by hand in Chromium, ${scripts ? "with" : "without"} JavaScript`, async () => {
    const context = await browser.newContext({ javaScriptEnabled: scripts });
    context.setDefaultTimeout(patience);
    const page = await context.newPage(), complaints = await watch(page);
    await story(new Hand(page), { scripts });
    assert.deepEqual(complaints, []);
    await context.close();
  });
}

test("the story by hand in Firefox ESR", async () => {
  const fox = await firefox();
  try {
    const page = await fox.newPage(), complaints = await watch(page);
    page.setDefaultTimeout(patience);
    await story(new FirefoxHand(page), { scripts: true });
    assert.deepEqual(complaints, []);
  } finally {
    await fox.close();
  }
});
