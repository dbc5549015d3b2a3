// Every page: whole on narrow screens, readable by everybody, within its policy, and small.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import axe from "axe-core";
import { Hand, chromium, signIn, watch } from "./browsers.js";
import { Api, eventually, newAccount, patience, populated, url } from "./kindred.js";
import { accessible, fits } from "./checks.js";

let browser, full;
before(async () => {
  browser = await chromium();
  full = await populated();
});
after(() => browser?.close());

// templateOf is the route of a path, with what differs from one to the other left out.
const templateOf = (path) => path.replace(/[?#].*/, "").replace(/\/(\w{3}_\w+|\d+)(?=\/|$)/g, "/{}");

// walk opens one page of each route that links lead to, from the overview on.
async function walk(hand, more, look) {
  const seen = new Map(), queue = ["/console/", ...more];
  for (let at; (at = queue.shift());) {
    if (seen.has(templateOf(at))) continue;
    seen.set(templateOf(at), at);
    await hand.page.goto(url + at);
    queue.push(...await hand.page.evaluate(() => Array.from(document.querySelectorAll('a[href^="/console/"]:not([href*=".csv"], [href$=".ndjson"])'), (a) => a.getAttribute("href"))));
    await look(at);
  }
  return seen;
}

const widths = [360, 1440];

// everyWay looks at a page as each reader has it.
async function everyWay(page, at) {
  const wrong = [];
  await page.evaluate(() => { for (const d of document.querySelectorAll("details")) d.open = true; });
  for (const width of widths) {
    await page.setViewportSize({ width, height: 900 });
    const wide = await fits(page);
    if (wide.length) wrong.push(`${at} at ${width} px is wider than the screen: ${wide.join(", ")}`);
    for (const colorScheme of ["light", "dark"]) {
      await page.emulateMedia({ colorScheme });
      for (const violation of await accessible(page, axe)) wrong.push(`${at} at ${width} px, ${colorScheme}: ${violation}`);
    }
  }
  return wrong;
}

async function opened(account) {
  const context = await browser.newContext();
  context.setDefaultTimeout(patience);
  const page = await context.newPage(), complaints = await watch(page), hand = new Hand(page);
  if (account) await signIn(hand, account);
  return { page, hand, complaints, close: () => context.close() };
}

test("every page is accessible and fits, in light and dark, wide and narrow", async () => {
  const { page, hand, complaints, close } = await opened(full.account);
  const wrong = [], documentation = new Set(), more = [`/console/imports/${full.begun.id}`, `/console/webhooks/${full.failing.id}`, `/console/users/${full.user.id}`, `/console/clusters/${full.cluster.id}`, "/console/account"];
  const seen = await walk(hand, more, async (at) => {
    wrong.push(...await everyWay(page, at));
    for (const link of await page.evaluate(() => Array.from(document.querySelectorAll('a[href^="/docs"]'), (a) => a.getAttribute("href")))) documentation.add(link);
  });
  for (const link of documentation) {
    const answer = await fetch(url + link), [, part] = link.split("#");
    if (!answer.ok || part && !(await answer.text()).includes(`id="${part}"`)) wrong.push(`${link} leads nowhere`);
  }
  assert.ok(documentation.size > 8, `${documentation.size} links`);
  assert.deepEqual(wrong, []);
  assert.deepEqual(complaints, []);

  // None is left out: these are the pages that console/routes.go serves.
  const routes = readFileSync(new URL("../routes.go", import.meta.url), "utf8");
  const pages = Array.from(routes.matchAll(/\bget\("([^"]*)"/g), ([, path]) => "/console/" + path.replace("{$}", "").replace(/\{\w+\}/g, "{}")).filter((path) => path !== "/console/live" && path !== "/console/secret" && !/\.(csv|ndjson)$/.test(path)); // the next test looks at the secret
  assert.ok(pages.length > 15, "the routes are not read");
  assert.deepEqual(pages.filter((path) => !seen.has(path)), [], "pages that no link leads to, or that populated() lacks something for");
  await close();
});

test("what is empty, what was refused, and what is before signing in is accessible and fits", async () => {
  const account = newAccount("A company whose name is so long that it cannot stand in one line of any rail");
  await Api.signUp(account);
  const { page, hand, complaints, close } = await opened();
  const wrong = [], look = async () => wrong.push(...await everyWay(page, hand.path()));
  for (const at of ["sign-up", "sign-in"]) {
    await hand.open(at);
    await look();
  }
  await signIn(hand, account);
  for (const at of ["", "first-steps", "users", "users?find=nobody", "traits", "segments", "clusters", "campaigns", "webhooks", "developers", "history", "settings"]) {
    await hand.open(at);
    await look();
  }
  await hand.open("developers");
  await hand.send("/developers/keys", { name: "backend" });
  await hand.has("It is shown this once");
  assert.match(hand.path(), /secret$/);
  await look();
  assert.deepEqual(complaints.splice(0), []);

  await hand.open("users");
  await hand.send("/console/users", { external_id: "ann", traits: '{"age": ' });
  await hand.has("must be a JSON object");
  await look();
  await hand.open("users/usr_none");
  await look();
  await hand.open("nowhere");
  await look();
  // Chromium's console tells of each answer from 400 on.
  assert.deepEqual(complaints.filter((c) => !/Failed to load resource.* 4\d\d/.test(c)), []);
  assert.deepEqual(wrong, []);
  await close();
});

test("what has a name that fits in no line fits on its own page", async () => {
  const { page, hand, close } = await opened(full.account);
  const wrong = [], long = "long".repeat(30);
  await page.setViewportSize({ width: 360, height: 800 });
  for (const list of [`users?find=zoe${long}`, "segments", "campaigns", "webhooks"]) {
    await hand.open(list);
    const named = await page.evaluate((long) => Array.from(document.querySelectorAll("main td a"), (a) => a.textContent.includes(long) && a.getAttribute("href")).filter(Boolean), long);
    assert.ok(named.length, `${list} has no long name`);
    for (const at of named) {
      await page.goto(url + at);
      const wide = await fits(page);
      wide.push(...await page.evaluate(() => Array.from(document.querySelectorAll("th[scope=row] + td")).filter((value) => value.getBoundingClientRect().left + 60 > innerWidth).map((value) => `${value.textContent.slice(0, 20)} is out of sight`)));
      if (wide.length) wrong.push(`${at}: ${wide.join(", ")}`);
    }
  }
  assert.deepEqual(wrong, []);
  await close();
});

test("on a phone a picture of days begins at the newest, with its axis in sight, also once it was read again", async () => {
  const { page, hand, close } = await opened(full.account);
  await page.setViewportSize({ width: 360, height: 800 });
  await hand.open("");
  const picture = () => page.evaluate(() => {
    const wide = document.querySelector(".wide.newest"), at = (e) => e.getBoundingClientRect(), days = wide.querySelector("svg:not(.axis)");
    return { cut: at(days).width - at(wide).width, end: at(days).right - at(wide).right, axis: at(wide.querySelector(".axis")).left - at(wide).left, letters: parseFloat(getComputedStyle(days.querySelector("text")).fontSize) * at(days).width / 720 };
  });
  const readAgain = () => page.evaluate(() => { const part = document.querySelector(".wide.newest"); part.replaceWith(part.cloneNode(true)); });
  for (const look of [() => {}, readAgain]) {
    await look();
    const { cut, end, axis, letters } = await picture();
    assert.ok(cut > 100, "the picture is not wider than the screen");
    assert.ok(Math.abs(end) < 2 && Math.abs(axis) < 2, `the newest day is ${end} px beyond the edge, the axis ${axis} px`);
    assert.ok(letters > 11, `letters of ${letters} px`);
  }
  await close();
});

test("pictures of clusters and their tables are seen whole, and so is what is in a file", async () => {
  const { page, hand, close } = await opened(full.account), wrong = [];
  const look = async () => wrong.push(...await page.evaluate(() => Array.from(document.querySelectorAll(".scroll, .whole > svg, .wide:not(.newest) > svg"), (e) => {
    const room = e.matches("svg") ? e.parentElement.clientWidth : e.clientWidth, wide = e.matches("svg") ? e.getBoundingClientRect().width : e.scrollWidth;
    return wide > room + 1 && e.checkVisibility() && `${e.closest("section").querySelector("h2").textContent}: ${wide} px in ${room}, of a window of ${innerWidth}`;
  }).filter(Boolean)));
  for (const width of [1200, ...widths]) {
    await page.setViewportSize({ width, height: 900 });
    await hand.open(`clusters?map=1&layer=${full.layer.id}`);
    assert.equal(await hand.count(".whole > svg"), 2);
    await look();
  }
  await page.setViewportSize({ width: 1200, height: 900 });
  await hand.open("traits?path=age");
  assert.equal(await hand.count(".wide > .axis"), 1);
  await look();
  await hand.open("users");
  await page.setInputFiles("#add [type=file]", { name: "people.ndjson", mimeType: "application/x-ndjson", buffer: Buffer.from('{"external_id": "u1", "traits": {"favourite_genres": ["jazz"], "religion": "none", "note": "about me"}}\n'.repeat(3)) });
  await page.click("button[data-shows]");
  await page.waitForSelector("#preview table");
  await page.evaluate(() => document.querySelectorAll("section.card:not(:has(#preview))").forEach((e) => e.remove()));
  await look();
  assert.deepEqual(wrong, []);
  await close();
});

test("every page of the documentation fits, on paper too, and begins on the first screen", async () => {
  const { page, close } = await opened();
  const wrong = [], seen = new Set(), queue = ["/docs", "/docs/errors/in_flight", "/docs/search?q=budget"];
  for (let at; (at = queue.shift());) {
    if (seen.has(at)) continue;
    seen.add(at);
    for (const width of widths) {
      await page.setViewportSize({ width, height: 900 });
      await page.goto(url + at);
      const wide = await fits(page), title = await page.locator("h1").first().boundingBox();
      if (wide.length) wrong.push(`${at} at ${width} px is wider than the screen: ${wide.join(", ")}`);
      const broken = await page.evaluate(() => Array.from(document.querySelectorAll("td code")).filter((e) => /^[\w.]+$/.test(e.textContent) && e.getClientRects().length > 1).map((e) => e.textContent));
      if (broken.length) wrong.push(`${at} at ${width} px breaks names: ${broken.slice(0, 3).join(", ")}`);
      if (title.y > 450) wrong.push(`${at} at ${width} px has its title at ${title.y} px`);
    }
    await page.setViewportSize({ width: 718, height: 1000 }); // A4 within its margins
    await page.emulateMedia({ media: "print" });
    const cut = await page.evaluate(() => Array.from(document.querySelectorAll("pre, .wide")).filter((e) => e.scrollWidth > e.clientWidth + 1 || e.scrollHeight > e.clientHeight + 1).map((e) => e.textContent.slice(0, 40)));
    if (cut.length) wrong.push(`${at} on paper is cut off: ${cut.slice(0, 3).join(", ")}`);
    await page.emulateMedia({ media: null });
    queue.push(...await page.evaluate(() => Array.from(document.querySelectorAll("nav.side a, main a[href*='/adr/']"), (a) => a.pathname).filter((path) => /^\/docs[^.]*$/.test(path))));
  }
  assert.ok(seen.size > 40, `only ${seen.size} pages`);
  assert.deepEqual(wrong, []);
  await close();
});

test("a sandbox says that it is one, on pages that are accessible and fit", async () => {
  const { page, hand, complaints, close } = await opened(full.account);
  const wrong = [];
  await hand.open("settings");
  await hand.send("/open");
  for (const at of ["", "users", "settings", "account"]) {
    await hand.open(at);
    await hand.has("nothing here is live");
    wrong.push(...await everyWay(page, hand.path()));
  }
  await hand.open("settings");
  await hand.send("/settings/clock", { hours: "0" });
  await hand.has("from 1 to 8,784");
  wrong.push(...await everyWay(page, hand.path()));
  await hand.send("/leave-sandbox");
  await hand.has("Sandboxes");
  await hand.send("/open");
  await hand.open("account");
  assert.equal(await hand.count("[type=password], table"), 0, "a sandbox has a password or sessions");
  await hand.turn(() => page.click("button[value=account]"));
  assert.equal(hand.path(), "/console/account");
  await hand.has("Change your password");
  assert.deepEqual(wrong, []);
  assert.deepEqual(complaints.filter((c) => !/Failed to load resource.* 422/.test(c)), []);
  await close();
});

test("a page of a sandbox that was left in another tab takes no part of the client beside it", async () => {
  const { page, hand, close } = await opened(full.account);
  await page.clock.install();
  await hand.open("settings");
  await hand.send("/open");
  await hand.open("first-steps");
  const steps = () => page.locator("#steps").innerHTML(), before = await steps();
  const other = new Hand(await page.context().newPage());
  await other.open("settings");
  await other.send("/leave-sandbox");
  const answered = page.waitForResponse("**/console/first-steps");
  await page.clock.runFor(3000);
  const theirs = await (await answered).text();
  assert.ok(!theirs.includes("nothing here is live"), "the sandbox is open still");
  await page.clock.runFor(1);
  assert.equal(await steps(), before);
  await close();
});

for (const scripts of [true, false]) test(`what takes long comes once the page is there, ${scripts ? "with" : "or is asked for without"} JavaScript`, async () => {
  const context = await browser.newContext({ javaScriptEnabled: scripts });
  context.setDefaultTimeout(patience);
  const page = await context.newPage(), complaints = await watch(page), hand = new Hand(page);
  await signIn(hand, full.account);
  const there = (text) => eventually(text, () => hand.says(text).catch(() => false)); // a page may lead to another meanwhile
  const send = async (action, fields, button) => {
    for (const [name, value] of Object.entries(fields)) await page.locator(`form[method=get][action$="${action}"] [name="${name}"]`).fill(value);
    await hand.turn(() => page.locator(`form[method=get][action$="${action}"] ${button}`).click());
  };
  const user = `users/${full.user.id}`;
  await hand.open(user);
  await send(user, { at: new Date(Date.now() - 864e5).toISOString().slice(0, 16) }, "button");
  await there("This user was not there yet. Events until then: 0.");
  if (!scripts) await hand.follow('#feed a[href*="feed=1"]');
  await there("similar");
  await hand.open("segments");
  await page.fill("textarea[name=rule]", 'traits.plan == "pro"');
  await hand.turn(() => page.locator('button[formaction="/console/segments#add"]').click());
  await there("Set apart by");
  const seen = (opacity) => eventually(`an answer of opacity ${opacity}`, () => page.evaluate((o) => getComputedStyle(document.querySelector("#named > :not(h2)")).opacity === o, opacity));
  await page.fill("textarea[name=rule]", "traits.plan ==");
  if (scripts) { // the answer to another rule is greyed until there is one to this
    await seen("0.35");
    await page.fill("textarea[name=rule]", 'traits.plan == "pro"');
    await seen("1");
    await page.fill("textarea[name=rule]", "traits.age > 40");
    await seen("0.35");
    await seen("1");
    await page.fill("textarea[name=rule]", "traits.plan ==");
  }
  if (scripts) { // what is not whole yet, while it is typed, is no error; what is asked for is
    await hand.turn(() => page.locator('button[formaction="/console/segments#add"]').click());
    await there("something is missing");
  }
  await hand.open("history-at");
  await send("history-at", { at: "2020-01-01T00:00" }, "button");
  await there("There was none of this then.");
  assert.deepEqual(complaints.filter((c) => !/Failed to load resource.* 422/.test(c)), []);
  await context.close();
});

for (const scripts of [true, false]) test(`consent of so many that it takes more than one request ${scripts ? "goes on by itself" : "goes on by a button, without JavaScript"}`, async () => {
  const context = await browser.newContext({ javaScriptEnabled: scripts }), sent = [];
  context.setDefaultTimeout(patience);
  const page = await context.newPage(), complaints = await watch(page), hand = new Hand(page);
  await signIn(hand, full.account);
  await hand.open("settings");
  const settings = await page.content();
  await page.route("**/grant", async (route) => {
    if (route.request().method() !== "POST" || sent.push(route.request().postData()) > 1) return route.continue();
    const fields = Array.from(new URLSearchParams(sent[0]), ([name, value]) => `<input type="hidden" name="${name}" value="${value}">`).join("");
    // As console/testdata/pages/granting.html.
    const main = `<h1>It is under way</h1><form method="post" action="${new URL(route.request().url()).pathname}" data-goes-on>${fields}<button class="btn main">Go on</button></form>`;
    await route.fulfill({ status: 202, contentType: "text/html", body: settings.replace(/<main[^]*<\/main>/, `<main class="page" id="main">${main}</main>`) });
  });
  await page.locator("summary:has-text('Record that all users agreed')").first().click();
  await page.locator('form[action$="/grant"] [name=source]').first().fill("signup form");
  await page.locator('form[action$="/grant"] [name=agreed]').first().check();
  await page.locator('form[action$="/grant"] button').first().click();
  await eventually("the first answer", () => hand.says("It is under way").catch(() => false));
  if (!scripts) await page.locator("form[data-goes-on] button").click();
  await eventually("the whole is recorded", () => hand.says("Consent recorded.").catch(() => false));
  assert.equal(sent.length, 2);
  assert.equal(sent[0], sent[1], "it is another request");
  assert.deepEqual(complaints, []);
  await context.close();
});

test("on paper nothing is cut off, nothing is left of a form, and times are said whole", async () => {
  const { page, hand, close } = await opened(full.account);
  const wrong = [];
  await page.setViewportSize({ width: 718, height: 1000 }); // A4 within its margins
  await page.emulateMedia({ media: "print" });
  for (const at of ["", "users", "developers", "history", "settings", "clusters", "segments", `users/${full.user.id}`, `webhooks/${full.hook.id}`]) {
    await hand.open(at);
    const left = await fits(page);
    left.push(...await page.evaluate(() => {
      const shown = (selector) => Array.from(document.querySelectorAll(selector)).filter((e) => e.checkVisibility());
      return [
        ...shown("main input, main select, main textarea, main button").map((e) => `a field ${e.name} is left`),
        ...shown("main .card").filter((card) => !card.matches(":has(svg), [data-later]") && card.innerText.trim() === card.querySelector("h2")?.innerText.trim()).map((card) => `of a card only “${card.innerText}” is left`),
        ...shown("main time[title]").filter((time) => !getComputedStyle(time, "::after").content.includes("20")).map((time) => `a time is said as ${time.textContent}`),
      ];
    }));
    if (left.length) wrong.push(`${at}: ${left.slice(0, 5).join(", ")}`);
  }
  assert.deepEqual(wrong, []);
  await close();
});

test("events are followed again after an answer that is no stream, as of a proxy whose replica is gone", async () => {
  const { page, hand, close } = await opened(full.account);
  let asked = 0;
  await page.route("**/console/live*", (route) => (++asked === 1 ? route.fulfill({ status: 502, body: "Bad Gateway" }) : route.continue()));
  await hand.open("developers");
  await eventually("the stream is open", () => page.evaluate(() => document.querySelector("[data-live-state]").textContent === "live"));
  assert.equal(asked, 2);
  await close();
});

test("the buttons of a form rest once it is sent, and can be pressed again after the reader has stopped it", async () => {
  const { page, hand, close } = await opened(full.account);
  await page.clock.install();
  await hand.open("users");
  let sent = 0;
  await page.route("**/console/users", (route) => { sent++; route.fulfill({ status: 204 }); }); // the page stays, as after Stop
  const button = page.locator('form[method=post][action="/console/users"] button');
  await button.evaluate(({ form }) => form.replaceWith(form.cloneNode(true))); // as a part that was read again
  await page.locator('input[name="external_id"]').fill("ann");
  await button.click();
  await eventually("the form is sent", () => sent === 1);
  await page.clock.runFor(1);
  assert.ok(await button.isDisabled(), "it could be sent twice");
  await page.clock.runFor(10_000);
  assert.ok(await button.isEnabled(), "it cannot be sent again");
  await close();
});

test("whoever comes back to a form that made something and sends it as it was makes no second one", async () => {
  const account = newAccount(), api = await Api.signUp(account);
  const { page, hand, close } = await opened(account);
  const named = async (path) => (await Api.send("GET", path, undefined, api.token)).data.map(({ name }) => name);
  const again = async (at, fields = {}) => {
    await page.goBack();
    await hand.send(at, fields);
  };
  await hand.open("campaigns");
  await hand.send("/console/campaigns", { name: "Spring", budget_minor: "10.00" });
  const made = hand.path();
  await again("/console/campaigns", { name: "Spring", budget_minor: "10.00" });
  assert.equal(hand.path(), made);
  assert.deepEqual(await named("/api/v1/campaigns"), ["Spring"]);
  await again("/console/campaigns", { name: "Summer", budget_minor: "10.00" });
  await hand.has("This form was sent before");
  await hand.send("/console/campaigns");
  assert.deepEqual((await named("/api/v1/campaigns")).sort(), ["Spring", "Summer"]);
  await hand.open("developers");
  await hand.send("/developers/keys", { name: "backend" });
  await again("/developers/keys", { name: "backend" });
  await hand.has("cannot be shown again");
  assert.deepEqual(await named(`/api/v1/clients/${api.client}/api_keys`), ["backend"]);
  await hand.send("/developers/keys"); // to make another one, as it says
  assert.deepEqual(await named(`/api/v1/clients/${api.client}/api_keys`), ["backend", "backend"]);
  await hand.open("campaigns");
  await hand.send("/console/campaigns", { name: "Spring", budget_minor: "10.00" }); // a page that is opened anew makes another
  assert.equal((await named("/api/v1/campaigns")).length, 3);
  await close();
});

test("whoever comes back to a rule that was typed sees whom it names", async () => {
  const { page, hand, close } = await opened(full.account);
  await hand.open("segments");
  await page.fill("textarea[name=rule]", "traits.age > 40");
  const named = () => eventually("the rule is answered", () => page.evaluate(() => document.querySelector("#named .figure:not(.row:has(.ahead) *)")?.textContent));
  const members = await named();
  await hand.open("users");
  await page.goBack();
  assert.equal(await page.inputValue("textarea[name=rule]"), "traits.age > 40");
  assert.equal(await named(), members);
  await close();
});

test("what was done or refused is in the title or focused, and a page that was refused stays live", async () => {
  const { page, hand, close } = await opened(full.account);
  const focused = () => page.evaluate(() => document.activeElement.name ?? document.activeElement.innerText);
  await hand.open(`webhooks/${full.hook.id}`);
  await hand.send("/remove", { confirm: "no" });
  assert.match(await page.title(), /^Some of this is not valid · http/);
  assert.equal(await focused(), "confirm");
  for (let i = 0; i < 2; i++) await page.waitForResponse((answer) => answer.request().resourceType() === "fetch" && answer.ok());
  assert.equal(await page.locator("[data-tail]").textContent(), "live");
  await hand.send(`/webhooks/${full.hook.id}`, {}, "button[value=paused]");
  assert.equal(await focused(), "Paused.");
  await hand.send(`/webhooks/${full.hook.id}`, {}, "button[value=active]");
  await hand.open("developers");
  await page.goto(`${url}/console/developers/keys`); // as from the address bar, after a form that was refused
  assert.equal(hand.path(), "/console/developers");
  await close();
});

test("a download that is refused says why", async () => {
  const { page, hand, close } = await opened(full.account);
  await page.route("**/console/users.csv", (route) => route.fulfill({ status: 503, contentType: "text/html", body: "<main>Too much at once</main>" }));
  await hand.open("users");
  await hand.follow("main a[href$='.csv']");
  await hand.has("Too much at once");
  await close();
});

test("a file whose session has ended before its preview is told so, and its buttons can be pressed again", async () => {
  const { page, hand, close } = await opened(full.account);
  await hand.open("users");
  await page.setInputFiles("#add [type=file]", { name: "people.txt", mimeType: "text/plain", buffer: Buffer.from("external_id,age\nu1,31\n") });
  await page.click("button[data-shows]");
  await eventually("it is read as CSV", () => hand.says("Read as CSV."));
  await page.context().clearCookies();
  await page.click("button[data-shows]");
  await eventually("the reader is told", () => hand.says("what you sent was not taken"));
  assert.ok(await page.locator("button[data-shows]").isEnabled());
  await close();
});

test("a reader's zone is told where the one before begins with its name", async () => {
  const context = await browser.newContext({ timezoneId: "Etc/GMT+1" });
  await context.addCookies([{ name: "kindred-zone", value: "Etc/GMT+10", domain: new URL(url).hostname, path: "/console/" }]);
  const page = await context.newPage();
  await new Hand(page).open("sign-in");
  assert.deepEqual((await context.cookies(`${url}/console/`)).filter(({ name }) => name === "kindred-zone").map(({ value }) => value), ["Etc/GMT+1"]);
  await context.close();
});

test("a secret is gone after signing out, whichever button leads back", async () => {
  const { page, hand, close } = await opened(full.account);
  await hand.open("developers");
  await hand.send("/developers/keys", { name: "backend" });
  const key = (await hand.text()).match(/kin_live_[\w-]+/)[0];
  await hand.follow("main a.btn.main");
  await hand.send("/sign-out");
  for (let i = 0; i < 4; i++) {
    await page.goBack().catch(() => {});
    assert.ok(!(await page.content()).includes(key), `${page.url()} shows the key`);
    assert.ok(!(await page.content()).includes(full.account.email), `${page.url()} shows who was signed in`);
  }
  await close();
});

test("a first view is at most 100 KB in at most 3 requests", async () => {
  for (const at of ["sign-in", "", "users", "clusters"]) {
    const { page, hand, close } = await opened(at !== "sign-in" && full.account);
    const cookies = await page.context().cookies();
    await close();
    const context = await browser.newContext(); // whose cache is empty
    await context.addCookies(cookies);
    const first = await context.newPage(), answers = [];
    // What is fetched, a map, comes once the page is there.
    first.on("response", (answer) => { if (answer.url().startsWith("http") && answer.request().resourceType() !== "fetch") answers.push(answer); });
    await first.goto(`${url}/console/${at}`, { waitUntil: "load" });
    const bytes = (await Promise.all(answers.map((answer) => answer.body()))).reduce((sum, body) => sum + body.length, 0);
    assert.ok(answers.length >= 2 && answers.length <= 3, `${at}: ${answers.map((answer) => answer.url())}`);
    assert.ok(bytes > 10_000 && bytes <= 100_000, `${at}: ${bytes} bytes`);
    await context.close();
  }
});
