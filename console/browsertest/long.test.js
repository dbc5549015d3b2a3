// The golden pages, some with names of nearly 200 letters: they fit, and no name takes the place of all else.

import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { test } from "node:test";
import { chromium } from "./browsers.js";
import { fits } from "./checks.js";

const golden = new URL("../testdata/pages/", import.meta.url), style = readFileSync(new URL("../static/console.css", import.meta.url), "utf8");

// opened is a page that answers with the golden pages.
async function opened(browser) {
  const page = await browser.newPage();
  await page.route("**/*.css", (route) => route.fulfill({ contentType: "text/css", body: style }));
  await page.route("**/*.html", (route) => route.fulfill({ contentType: "text/html; charset=utf-8", body: readFileSync(new URL(new URL(route.request().url()).pathname.slice(1), golden), "utf8").replace(/^.*\n/, "") }));
  await page.route("**/*.js", (route) => route.fulfill({ contentType: "text/javascript", body: "" }));
  return page;
}

test("the golden pages fit narrow screens, and names of 200 letters are clamped where they are not alone", async () => {
  const browser = await chromium(), page = await opened(browser), wrong = [];
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

test("on a narrow screen why two are alike is seen without scrolling", async () => {
  const browser = await chromium(), page = await opened(browser);
  await page.setViewportSize({ width: 360, height: 900 });
  for (const name of ["user.html", "user-long.html"]) {
    await page.goto(`http://golden.test/${name}`);
    const [shown, wide] = await page.evaluate(() => [document.querySelectorAll(".alike svg.terms").length, Math.max(...Array.from(document.querySelectorAll(".scroll:has(.alike)"), (e) => e.scrollWidth - e.clientWidth))]);
    assert.ok(shown > 0 && wide <= 0, `${name} shows ${shown} and is ${wide} px too wide`);
  }
  await browser.close();
});

test("where there is little room the tables of a page are read without scrolling, on a wide screen how to verify", async () => {
  const browser = await chromium(), page = await opened(browser), wrong = [];
  const looks = ["account", "campaign", "campaigns", "clusters", "developers", "developers-revoke", "history", "overview", "requests", "segment", "segments", "settings", "settings-remove", "settings-retire", "settings-sandbox", "traits", "user", "users", "webhook", "webhooks"].flatMap((name) => [360, 680, 720, 768, 960, 1020].map((width) => [width, name, ".scroll"]));
  looks.push(...["account", "campaigns", "clusters", "developers", "history", "requests", "segments", "settings", "traits", "users", "webhook", "webhooks"].flatMap((name) => [360, 680].map((width) => [width, `${name}-long`, ".scroll"])), [1440, "webhook", "section:not(.c12) > pre"]);
  for (const [width, name, selector] of looks) {
    await page.setViewportSize({ width, height: 900 });
    await page.goto(`http://golden.test/${name}.html`);
    const all = await page.locator(`main ${selector}`).evaluateAll((all) => all.filter((e) => !e.closest(".wide, figure, details")).map((e) => e.scrollWidth - e.clientWidth)); // the table of a picture may
    if (!(all.length > 0 && Math.max(...all) <= 0)) wrong.push(`${name} at ${width} px is ${all} px too wide`);
  }
  await browser.close();
  assert.deepEqual(wrong, []);
});

test("an amount stands beside its currency", async () => {
  const browser = await chromium(), page = await opened(browser);
  await page.setViewportSize({ width: 360, height: 900 });
  await page.goto("http://golden.test/campaigns.html");
  const parted = await page.locator("td.num").evaluateAll((all) => all.filter((td) => {
    const currency = document.createRange();
    currency.setStart(td.firstChild, 0);
    currency.setEnd(td.firstChild, 5);
    return new Set(Array.from(currency.getClientRects(), ({ top }) => top)).size > 1;
  }).map((td) => td.textContent));
  await browser.close();
  assert.deepEqual(parted, []);
});

test("the builder shows each comparison whole, and no field for one that compares with nothing", async () => {
  const browser = await chromium(), page = await opened(browser);
  for (const width of [360, 768, 1440]) {
    await page.setViewportSize({ width, height: 900 });
    await page.goto("http://golden.test/segments-built.html");
    const [has, needs] = await page.locator(".rule [name=comparison]").first().evaluate((choice) => {
      const has = choice.offsetWidth;
      choice.style.width = "max-content";
      return [has, choice.offsetWidth];
    });
    assert.ok(has >= needs, `at ${width} px a comparison has ${has} px of ${needs}`);
    for (const [comparison, shown] of [["older", true], ["missing", false], ["there", false], ["is", true]]) {
      await page.locator(".rule [name=comparison]").first().selectOption(comparison);
      assert.equal(await page.locator(".rule [name=value]").first().isVisible(), shown, `${comparison} at ${width} px`);
    }
  }
  await browser.close();
});

test("a picture of days is seen whole from 1200 px on, with letters of 11 px", async () => {
  const browser = await chromium(), page = await opened(browser);
  for (const width of [1200, 1440]) {
    await page.setViewportSize({ width, height: 900 });
    await page.goto("http://golden.test/overview.html");
    const [cut, letters] = await page.locator(".wide.newest").first().evaluate((wide) => {
      const days = wide.querySelector("svg:not(.axis)");
      return [wide.scrollWidth - wide.clientWidth, parseFloat(getComputedStyle(days.querySelector("text")).fontSize) * days.getBoundingClientRect().width / 720];
    });
    assert.ok(cut === 0 && letters >= 11, `at ${width} px ${cut} px are out of sight, letters have ${letters} px`);
  }
  await browser.close();
});

test("a sum stands below its currency before it is parted", async () => {
  const browser = await chromium(), page = await opened(browser);
  await page.setViewportSize({ width: 360, height: 900 });
  await page.goto("http://golden.test/campaign.html");
  const lines = await page.locator(".figure:has(.unit)").first().evaluate((figure) => ["4.50", "4,321.50", "54,321.50", "654,321.50"].map((sum) => {
    figure.querySelector(".sum").innerHTML = sum.replaceAll(",", ",<wbr>");
    return Math.round(figure.querySelector(".sum").offsetHeight / parseFloat(getComputedStyle(figure).lineHeight));
  }));
  assert.deepEqual(lines, [1, 1, 1, 1]);
  await browser.close();
});

test("on paper the golden pages say all: rules, whole samples and names, and nothing that is folded", async () => {
  const browser = await chromium(), page = await opened(browser), wrong = [];
  await page.setViewportSize({ width: 718, height: 1000 }); // A4 within its margins
  await page.emulateMedia({ media: "print" });
  for (const name of ["segment.html", "segment-viewer.html", "campaign.html", "history.html", "settings-long.html", "clusters-long.html", "users-long.html", "webhooks.html"]) {
    await page.goto(`http://golden.test/${name}`);
    wrong.push(...await page.evaluate((name) => {
      const shown = (selector) => Array.from(document.querySelectorAll(selector)).filter((e) => e.checkVisibility());
      return [
        ...shown("main details:not([open])").map((e) => `${name}: ${e.innerText} is folded`),
        ...shown("main .card").filter((card) => !card.innerText.trim()).map(() => `${name}: a card is empty`),
        ...shown("main pre, main .clamped").filter((e) => e.scrollWidth > e.clientWidth + 1 || e.scrollHeight > e.clientHeight + 1).map((e) => `${name}: ${e.textContent.slice(0, 40)} is cut off`),
        ...shown("td.events").flatMap((td) => td.textContent.split(", ").flatMap((type) => {
          const word = document.createRange();
          word.setStart(td.firstChild, td.textContent.indexOf(type));
          word.setEnd(td.firstChild, td.textContent.indexOf(type) + type.length);
          return word.getClientRects().length > 1 ? [`${name}: ${type} is broken`] : [];
        })),
        ...(name.startsWith("segment") && !shown("main code").some((e) => e.textContent === "traits.age > 30") ? [`${name} lacks its rule`] : []),
      ];
    }, name));
  }
  await browser.close();
  assert.deepEqual(wrong, []);
});

test("in forced colours a chip that is chosen can be read, and a bar shows how far it is", async () => {
  const browser = await chromium(), page = await opened(browser);
  await page.emulateMedia({ forcedColors: "active" });
  await page.goto("http://golden.test/campaign.html");
  const [chip, rail] = await page.evaluate(() => [".chip", ".rail a"].map((of) => {
    const { color, backgroundColor } = getComputedStyle(document.querySelector(`${of}[aria-current]`));
    return { color, backgroundColor };
  }));
  assert.deepEqual(chip, rail);
  assert.notEqual(chip.color, chip.backgroundColor);
  await page.goto("http://golden.test/import.html");
  const seen = [];
  for (const value of [0, 0.5, 1]) {
    await page.locator("progress").evaluate((bar, value) => { bar.value = value; }, value);
    seen.push((await page.locator("progress").screenshot()).toString("base64"));
  }
  assert.equal(new Set(seen).size, seen.length);
  await browser.close();
});

test("at four times the size no word of a heading is broken, no sum, and no day of a table", async () => {
  const browser = await chromium(), page = await opened(browser), wrong = [];
  await page.setViewportSize({ width: 320, height: 256 });
  for (const name of ["overview.html", "campaign.html", "webhook.html", "traits.html"]) {
    await page.goto(`http://golden.test/${name}`);
    wrong.push(...await fits(page), ...await page.evaluate((name) => {
      for (const folded of document.querySelectorAll("details")) folded.open = true;
      const lines = (node, from, to) => {
        const range = document.createRange();
        range.setStart(node, from);
        range.setEnd(node, to);
        return new Set(Array.from(range.getClientRects(), ({ top }) => top)).size;
      };
      const broken = (e) => {
        const walker = document.createTreeWalker(e, NodeFilter.SHOW_TEXT);
        for (let node; (node = walker.nextNode());) for (const { 0: word, index } of node.data.matchAll(/\S+/g)) if (lines(node, index, index + word.length) > 1) return true;
        return false;
      };
      const all = (selector) => Array.from(document.querySelectorAll(selector));
      return [
        ...all("main .card > h2").filter(broken),
        ...all(".c3 .figure").filter((e) => e.offsetHeight > 1.5 * parseFloat(getComputedStyle(e).lineHeight)),
        ...all(".card details tbody tr > :first-child").filter((e) => /^\d+ [A-Z][a-z]{2}$/.test(e.innerText) && e.offsetHeight > 50),
      ].map((e) => `${name}: ${e.innerText}`);
    }, name));
  }
  await browser.close();
  assert.deepEqual(wrong, []);
});
