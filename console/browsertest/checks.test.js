// The checks themselves: each sees what is wrong.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import axe from "axe-core";
import { chromium, watch } from "./browsers.js";
import { accessible, fits } from "./checks.js";
import { url } from "./kindred.js";

let browser;
before(async () => { browser = await chromium(); });
after(() => browser?.close());

// broken is the page of signing in, with something in it that is wrong.
async function broken(what) {
  const page = await browser.newPage({ viewport: { width: 360, height: 900 }, colorScheme: "dark" }), complaints = await watch(page);
  await page.route("**/console/sign-in", async (route) => {
    const answer = await route.fetch();
    await route.fulfill({ response: answer, body: (await answer.text()).replace("</main>", what + "</main>") });
  });
  await page.goto(`${url}/console/sign-in`);
  return { page, complaints };
}

test("a page as it is passes", async () => {
  const { page, complaints } = await broken("");
  assert.deepEqual([complaints, await accessible(page, axe), await fits(page)], [[], [], []]);
});

test("what the policy forbids is seen", async () => {
  const { complaints } = await broken('<p style="color: red">red</p><script>document.title = "inline"</script><img src="http://127.0.0.1:9/x.png" alt="">');
  for (const directive of ["style-src-attr", "script-src-elem", "img-src"]) assert.ok(complaints.some((c) => c.includes(`CSP: ${directive}`)), `${directive}: ${complaints}`);
});

test("an error of a script is seen", async () => {
  const { page, complaints } = await broken("");
  await page.evaluate(() => { setTimeout(() => { throw new Error("broken script"); }); });
  await page.waitForEvent("pageerror").catch(() => {});
  assert.match(complaints.join(), /broken script/);
});

test("a field without a name is seen", async () => {
  const { page } = await broken("<input>");
  assert.match((await accessible(page, axe)).join(), /label: .*input/);
});

test("what is wider than a narrow screen is seen", async () => {
  const { page } = await broken(`<img class="wide" alt="wide" width="900" height="9">`);
  await page.evaluate(() => { document.querySelector(".wide").style.maxWidth = "none"; });
  assert.ok((await fits(page)).length > 0);
});
