// The browsers, and a hand that does in them what a reader does.

import assert from "node:assert/strict";
import { chromium as playwright } from "playwright-core";
import puppeteer from "puppeteer-core";
import { patience, url } from "./kindred.js";

const root = process.getuid() === 0; // Chromium has no sandbox for it

export const chromium = (...args) => playwright.launch({ executablePath: "/usr/bin/chromium", chromiumSandbox: !root, args });

// persistent is Chromium with one context alone, which others that speak to it by a port share.
export const persistent = (...args) => playwright.launchPersistentContext("", { executablePath: "/usr/bin/chromium", chromiumSandbox: !root, args });

export const firefox = () => puppeteer.launch({ browser: "firefox", executablePath: "/usr/bin/firefox-esr", headless: true, timeout: patience });

// watch collects what a page complains of: violations of its policy, errors of its console and its script.
export async function watch(page) {
  const complaints = [];
  const onNew = () => document.addEventListener("securitypolicyviolation", (e) => console.error(`CSP: ${e.violatedDirective} ${e.blockedURI}`));
  await (page.addInitScript ?? page.evaluateOnNewDocument).call(page, onNew);
  page.on("console", (m) => { if (m.type() === "error") complaints.push(`${page.url()}: ${m.text()}`); });
  page.on("pageerror", (e) => complaints.push(`${page.url()}: ${e.message}`));
  return complaints;
}

// Hand fills forms and follows links, in a page of Playwright or of Puppeteer.
export class Hand {
  constructor(page) { this.page = page; }

  open(path) { return this.page.goto(`${url}/console/${path}`); }
  path() { return new URL(this.page.url()).pathname; }
  text() { return this.page.evaluate(() => document.querySelector("main").innerText); }
  async says(text) { // styles may change case, and the room that there is whether cells stand in a line
    const plain = (said) => said.toLowerCase().replace(/\s+/g, " ");
    return plain(await this.text()).includes(plain(text));
  }
  count(selector) { return this.page.evaluate((s) => document.querySelectorAll(s).length, selector); }

  async has(text) {
    assert.ok(await this.says(text), `${this.page.url()} lacks “${text}”:\n${(await this.text()).slice(0, 1000)}`);
  }

  // soon reads the page again until it has the text: what changes by itself does so within patience.
  async soon(text, again = () => this.page.reload()) {
    for (const until = Date.now() + patience; !await this.says(text);) {
      assert.ok(Date.now() < until, `${this.page.url()} never had “${text}”:\n${(await this.text()).slice(0, 1000)}`);
      await again();
    }
  }

  // turn waits for the page that what is done leads to.
  async turn(act) {
    await Promise.all([this.page.waitForNavigation({ timeout: patience }), act()]);
  }

  // follow takes the first link that selector finds.
  async follow(selector) {
    assert.ok(await this.count(selector), `${this.page.url()} has no ${selector}`);
    await this.turn(() => this.first(selector).click());
  }

  // send fills the fields of the form that goes to action, a suffix of its address, and sends it.
  async send(action, fields = {}, button = "button:not([type=button]):not([formaction]):not([formmethod])") {
    const form = `form[method=post][action$="${action}"]`;
    const folded = await this.page.evaluate((s) => document.querySelector(s)?.closest("details:not([open])") !== null, form);
    if (folded) await this.page.locator(`details:not([open]):has(${form}) > summary`).click();
    for (const [name, value] of Object.entries(fields)) {
      const field = `${form} [name="${name}"]`;
      if (value === true) await this.page.locator(field).click();
      else if (Array.isArray(value)) for (const one of value) await this.page.locator(`${field}[value="${one}"]`).click();
      else if (value.file) await this.attach(field, value.file);
      else if (value.choose) await this.choose(field, value.choose);
      else await this.page.locator(field).fill(value);
    }
    await this.turn(() => this.page.locator(`${form} ${button}`).click());
  }

  first(selector) { return this.page.locator(selector).first(); } // looked up as it is clicked: a part may have been read again meanwhile
  attach(selector, file) { return this.page.setInputFiles(selector, file); }
  choose(selector, value) { return this.page.selectOption(selector, value); }
}

// FirefoxHand does the same where Puppeteer calls things otherwise.
export class FirefoxHand extends Hand {
  first(selector) { return this.page.locator(selector); }
  async attach(selector, file) { await (await this.page.$(selector)).uploadFile(file); }
  choose(selector, value) { return this.page.select(selector, value); }
}

// signIn leads to the overview of an account.
export async function signIn(hand, account) {
  await hand.open("sign-in");
  await hand.send("/sign-in", { email: account.email, password: account.password });
  assert.equal(hand.path(), "/console/");
}
