// From signing up to the map of one's own people, by the pages alone. KINDRED_ADULT names UCI's
// census records, of whom it takes all; without it the people are made up. What it takes is said
// and not asserted: it depends on what else the machine does.

import assert from "node:assert/strict";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { Hand, chromium, watch } from "./browsers.js";
import { eventually, newAccount, patience, people } from "./kindred.js";

const columns = "external_id,age,workclass,education,education_num,marital_status,occupation,relationship,race,sex,capital_gain,capital_loss,hours_per_week,native_country,income";

// own is a CSV file as somebody may have it, and how many it holds.
async function own() {
  if (process.env.KINDRED_ADULT) {
    const lines = (await readFile(process.env.KINDRED_ADULT, "utf8")).trim().split("\n");
    // fnlwgt, the third, says nothing of the person; ? is a missing value.
    const rows = lines.map((line, i) => [`p${i + 1}`, ...line.split(", ").toSpliced(2, 1).map((value) => (value === "?" ? "" : value))].join(","));
    return { text: [columns, ...rows].join("\n") + "\n", many: rows.length };
  }
  const rows = people(600).trim().split("\n").map((line) => JSON.parse(line)).map(({ external_id: id, traits: t }) => [id, t.plan, t.age, t.city, t.rides].join(","));
  return { text: ["external_id,plan,age,city,rides", ...rows].join("\n") + "\n", many: rows.length };
}

test("a first map of one's own CSV takes no terminal", async (t) => {
  const browser = await chromium(), files = await mkdtemp(join(tmpdir(), "own-")), file = join(files, "people.csv"), { text, many } = await own();
  try {
    await writeFile(file, text);
    const page = await (await browser.newContext()).newPage(), complaints = await watch(page), hand = new Hand(page), account = newAccount();
    page.setDefaultTimeout(patience);
    const begun = performance.now(), said = [];
    const step = (what) => said.push(`${what} ${((performance.now() - begun) / 1000).toFixed(1)} s`);

    await hand.open("sign-up");
    await hand.send("/sign-up", { company_name: account.company, email: account.email, password: account.password });
    await hand.follow('main a[href="/console/users#add"]');
    await hand.attach("input[type=file]", file);
    await page.locator("button[data-shows]").click();
    await eventually("what is in the file", () => hand.says("Read as"));
    step("the file was looked into after");
    await hand.turn(() => page.locator('form[action$="/users/import"] button.main').click());
    await eventually("the import has ended", () => hand.says("completed").catch(() => false), many);
    step(`${many} people were added after`);

    await page.locator('.rail a[href="/console/clusters"]').click();
    await hand.follow('main a[href="/console/settings#layers"]');
    await hand.send("/settings/layers", { name: "Groups" });
    await hand.send("/grant", { source: "our own records", agreed: true });
    await eventually("all have agreed", () => hand.says("Consent recorded.").catch(() => false), many);
    step("consent was recorded after");
    await hand.turn(() => page.locator('form[action^="/console/runs"] button.main').click());
    await eventually("the run has ended", () => hand.says("To the clusters").catch(() => false), many);
    step("groups were found after");
    await hand.follow('main p.actions a[href^="/console/clusters"]');
    await page.waitForSelector("#map svg", { timeout: patience });
    // What is drawn of a cluster whose people stand in one row has no height, which counts as hidden.
    await page.waitForSelector("#map svg .dot, #map svg .square", { state: "attached", timeout: patience });
    step("the map was there after");

    t.diagnostic(said.join(", "));
    assert.deepEqual(complaints, []);
  } finally {
    await browser.close();
    await rm(files, { recursive: true });
  }
});
