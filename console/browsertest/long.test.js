// The golden pages, some with names of nearly 200 letters: they fit, and no name takes the place of all else.

import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { test } from "node:test";
import { chromium } from "./browsers.js";
import { fits } from "./checks.js";

const golden = new URL("../testdata/pages/", import.meta.url), style = readFileSync(new URL("../static/console.css", import.meta.url), "utf8");

test("the golden pages fit narrow screens, and names of 200 letters are clamped where they are not alone", async () => {
  const browser = await chromium(), page = await browser.newPage(), wrong = [];
  await page.route("**/*.css", (route) => route.fulfill({ contentType: "text/css", body: style }));
  await page.route("**/*.html", (route) => route.fulfill({ contentType: "text/html; charset=utf-8", body: readFileSync(new URL(new URL(route.request().url()).pathname.slice(1), golden), "utf8").replace(/^.*\n/, "") }));
  await page.route("**/*.js", (route) => route.fulfill({ contentType: "text/javascript", body: "" }));
  for (const width of [360, 768, 1440]) {
    await page.setViewportSize({ width, height: 900 });
    for (const name of readdirSync(golden)) {
      await page.goto(`http://golden.test/${name}`);
      const wide = await fits(page);
      if (wide.length) wrong.push(`${name} at ${width} px is wider than the screen: ${wide.join(", ")}`);
      const tall = await page.evaluate(() => Array.from(document.querySelectorAll("a, .where > strong, td:has(> a, > .clamped)")).filter((e) => e.textContent.includes("ThereIsAWordThatNobodyCanBreak") && !e.querySelector("details") && e.getBoundingClientRect().height > 160).map((e) => `${e.tagName.toLowerCase()}.${e.className} ${Math.round(e.getBoundingClientRect().height)} px`));
      if (tall.length) wrong.push(`${name} at ${width} px has a name that is not clamped: ${tall.join(", ")}`);
    }
  }
  await browser.close();
  assert.deepEqual(wrong, []);
});
