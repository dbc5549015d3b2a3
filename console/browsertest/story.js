// The story of the console by hand, from signing up to signing out, in any browser.

import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Api, eventually, newAccount, people, receive, signature } from "./kindred.js";

const secret = "a secret of 24 characters";

export async function story(hand, { scripts }) {
  const account = newAccount(), files = await mkdtemp(join(tmpdir(), "people-")), receiver = await receive();
  try {
    await tell(hand, scripts, account, receiver, files);
  } finally {
    receiver.close();
    await rm(files, { recursive: true });
  }
}

async function tell(hand, scripts, account, receiver, files) {
  await hand.open("sign-up");
  await hand.send("/sign-up", { company_name: account.company, email: account.email, password: account.password });
  await hand.has("First steps");
  await hand.has("0 of 5 done");

  await hand.open("developers");
  await hand.send("/developers/keys", { name: "backend" });
  await hand.has("It is shown this once");
  const key = (await hand.text()).match(/kin_live_[\w-]+/)[0];
  await hand.follow("main a.btn.main");
  await hand.has("backend");
  assert.ok(!(await hand.text()).includes(key), "the key is shown twice");
  const api = await Api.exchange(key);

  await hand.open("settings");
  await hand.send("/console/settings", { on: true });
  await hand.has("Saved.");

  const file = join(files, "people.ndjson");
  await writeFile(file, people(60));
  await hand.open("users");
  await hand.send("/users/import", { file: { file } });
  assert.match(hand.path(), /^\/console\/imports\//);
  await hand.soon("60 of 60 lines", () => hand.open(hand.path().slice("/console/".length)));
  await hand.open("users");
  await hand.send("/console/users", { external_id: "maya <1>", traits: '{"plan": "pro", "age": 31, "city": "Lisbon", "rides": 12}' });
  await hand.has("maya <1>");
  const user = hand.path();
  await hand.soon("What each trait adds");
  await hand.send(`${user}/match`);
  await hand.has("Recorded.");

  await hand.open("settings");
  await hand.send("/settings/layers", { name: "Segments", trait_paths: "age, plan, city, rides" });
  await hand.has("Segments");
  await hand.page.goto(new URL(user, hand.page.url()).href);
  await hand.send("/consent", {}, "button[value=granted]");
  await hand.has("Consent recorded.");
  await hand.open("settings");
  await hand.send("/grant", { source: "signup form", agreed: true });
  await hand.has("Consent recorded.");
  const [layer] = await api.list("/api/v1/consent_layers");
  await hand.send(`/runs?layer=${layer.id}`, { k: "2" });
  assert.match(hand.path(), /^\/console\/runs\//);
  await hand.soon("To the clusters", () => hand.open(hand.path().slice("/console/".length)));
  await hand.follow('main a[href^="/console/clusters/"]');
  await hand.has("What sets it apart");
  assert.ok(await hand.count('main a[href^="/console/users/"]') > 0, "the cluster has no members");

  await hand.open("campaigns");
  await hand.send("/console/campaigns", { name: "Spring", budget_minor: "5,000.50" });
  await hand.has("EUR 5,000.50");
  await hand.send(hand.path(), {}, "button[value=running]");
  await hand.has("Running.");

  await hand.open("webhooks");
  await hand.send("/console/webhooks", { url: receiver.url, secret });
  if ((await hand.text()).includes("It is shown this once")) await hand.follow("main a.btn.main");
  else await hand.follow('main a[href^="/console/webhooks/"]');
  const hook = hand.path();
  assert.match(hook, /^\/console\/webhooks\/whk_/);
  receiver.got.length = 0;
  await hand.send(`${hook}/test`);
  await hand.has("A test delivery is on its way.");
  const test = await eventually("the test is delivered", () => receiver.got.find((d) => JSON.parse(d.body).event_type === "match.computed"));
  assert.equal(test.headers["x-service-signature"], signature(secret, test.body));
  await hand.soon("delivered 1", () => hand.page.goto(new URL(`${hook}?status=delivered`, hand.page.url()).href));
  await hand.follow(`main a[href*="/deliveries/"]`);
  await hand.has("It answered 200.");
  await hand.has("thanks");

  await live(hand, scripts, api);

  await hand.open("history");
  await hand.follow('main td a[href^="/console/history/"]');
  const event = hand.page.url();
  if (scripts) {
    await verdicts(hand, 4);
    await hand.page.goto(event); // the head that was kept is compared now
    const said = await verdicts(hand, 4);
    assert.deepEqual(said.filter((v) => v.tone !== "good"), [], "verdicts");
  } else await hand.has("Without JavaScript");

  await hand.open("first-steps");
  await hand.soon("5 of 5 done");

  await hand.page.goto(new URL(user, hand.page.url()).href);
  await hand.send(`${user}/erase`, { confirm: "maya <1>" });
  await hand.has("Erased for good.");
  await hand.open(`users?find=${encodeURIComponent("maya <1>")}`);
  await hand.has("Nobody has the id");

  await hand.send("/sign-out");
  await hand.has("You are signed out.");
  await hand.open("users");
  assert.equal(hand.path(), "/console/sign-in");
}

// live: what happens elsewhere appears while Developers is looked at, or in the overview.
async function live(hand, scripts, api) {
  await hand.open(scripts ? "developers" : "");
  if (scripts) await eventually("the stream is open", () => hand.page.evaluate(() => document.querySelector("[data-live-state]").textContent === "live"));
  const other = await api.post("/api/v1/users", { external_id: `live-${scripts}`, traits: { plan: "pro", age: 50, city: "Oslo", rides: 45 } });
  await api.post(`/api/v1/users/${other.id}/matches`, { limit: 1 });
  if (scripts) await eventually("the event is shown", () => hand.page.evaluate((id) => document.querySelector("[data-live]").innerText.includes(id), other.id));
  else await hand.soon(`live-${scripts}`);
}

// verdicts are the chips of a verified event, once there are as many.
export async function verdicts(hand, many) {
  const chips = () => hand.page.evaluate(() => Array.from(document.querySelectorAll("[data-verdict] .chip"), (c) => ({ tone: c.classList[1], text: c.textContent })));
  // The page may lead to itself, with the size that was kept.
  return eventually("the verdicts", async () => {
    const said = await chips().catch(() => []);
    return (said.length >= many || said.some((v) => v.tone === "bad")) && said;
  });
}
