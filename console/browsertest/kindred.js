// The service that is tested, its API, and what a test needs of it.

import assert from "node:assert/strict";
import { createHmac, randomUUID } from "node:crypto";
import { createServer } from "node:http";

export const url = process.env.KINDRED_URL;
assert.ok(url, "KINDRED_URL is not set: make test-browser sets it");

// patience bounds each wait, in ms: machines that build are slow.
export const patience = 60_000;

// eventually waits until look returns something, and returns that; of many people it takes longer.
export async function eventually(what, look, many = 0) {
  for (const until = Date.now() + patience + 10 * many; ;) {
    const found = await look();
    if (found) return found;
    assert.ok(Date.now() < until, `not in time: ${what}`);
    await new Promise((again) => setTimeout(again, 100));
  }
}

export const newAccount = (company = "Juniper Rides") => ({ company, email: `ada-${randomUUID()}@example.com`, password: `pw-${randomUUID()}` });

// Api calls the API with a token.
export class Api {
  constructor(token, client) { Object.assign(this, { token, client }); }

  // send repeats what the service has no time for yet.
  static async send(method, path, body, token, type = "application/json") {
    const key = method === "POST" && token && randomUUID();
    for (const until = Date.now() + 5 * patience; ;) {
      const answer = await fetch(url + path, {
        method, body: body === undefined || typeof body === "string" ? body : JSON.stringify(body), signal: AbortSignal.timeout(patience),
        headers: { ...(body !== undefined && { "Content-Type": type }), ...(token && { Authorization: `Bearer ${token}` }), ...(key && { "Idempotency-Key": key }) },
      });
      const text = await answer.text();
      if (answer.status === 503 && Date.now() < until) {
        await new Promise((again) => setTimeout(again, 1000 * (answer.headers.get("Retry-After") ?? 1)));
        continue;
      }
      assert.ok(answer.ok, `${method} ${path}: ${answer.status} ${text}`);
      return text ? JSON.parse(text) : undefined;
    }
  }

  // signUp makes an account, and speaks for it.
  static async signUp(account) {
    const up = await Api.send("POST", "/auth/signup", { email: account.email, password: account.password, company_name: account.company });
    return new Api(up.token, up.client.id);
  }

  // exchange speaks with an API key.
  static async exchange(key) {
    const token = (await Api.send("POST", "/auth/exchange", { api_key: key })).data.token;
    return new Api(token, JSON.parse(Buffer.from(token.split(".")[1], "base64url")).aud);
  }

  get(path) { return Api.send("GET", path, undefined, this.token); }
  async list(path) { return (await this.get(path)).data; }
  post(path, body, type) { return Api.send("POST", path, body, this.token, type); }
  patch(path, body) { return Api.send("PATCH", path, body, this.token); }
  under(path) { return `/api/v1/clients/${this.client}${path}`; }
}

// receive is an endpoint for webhooks on 127.0.0.1, which answers with status.
export async function receive(status = 200) {
  const got = [];
  const server = createServer(async (request, response) => {
    const parts = [];
    for await (const part of request) parts.push(part);
    got.push({ headers: request.headers, body: Buffer.concat(parts) });
    response.writeHead(status).end(status < 300 ? "thanks" : "no");
  });
  await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
  return { url: `http://127.0.0.1:${server.address().port}/hooks`, got, close: () => { server.close(); server.closeAllConnections(); } };
}

export const signature = (secret, body) => createHmac("sha256", secret).update(body).digest("hex");

// people are the lines of a file: two groups that a run tells apart.
export function people(count) {
  const cities = ["Lisbon", "Oslo", "Turin", "Ghent"], names = ["ada", "ben", "cem", "dora", "eli", "fay", "gus", "hana"];
  return Array.from({ length: count }, (_, i) => JSON.stringify({
    external_id: `${names[i % names.length]}-${i}`,
    traits: { plan: ["free", "pro"][i % 2], age: 22 + (i % 2) * 28 + i % 7, city: cities[i % 4], rides: (i % 2) * 40 + i % 11, newsletter: i % 3 === 0 },
  })).join("\n") + "\n";
}

// populated is an account with something on every page; long adds to names what fits no screen.
export async function populated(long = "long".repeat(30), many = 240) {
  const account = newAccount(), api = await Api.signUp(account);
  const file = await api.post("/api/v1/users/import?async=true", people(many), "application/x-ndjson");
  await eventually("the file is imported", async () => (await api.get(`/api/v1/users/imports/${file.id}`)).status === "completed", many);
  await api.post("/api/v1/users", { external_id: `zoe${long}`, traits: { plan: "pro", age: 31, ...(long && { [`a ${long.slice(0, 60)}`]: "seen" }), note: `About me: ${long} ${"and so on ".repeat(long.length / 10)}` } });
  const layer = await api.post("/api/v1/consent_layers", { name: "Segments", trait_paths: ["age", "plan", "city", "rides"] });
  await api.post("/api/v1/consent_layers", { name: `Offers ${long}`, trait_paths: ["age"] });
  await api.post(`/api/v1/consent_layers/${layer.id}/grants`, { all: true });
  const user = await api.post("/api/v1/users", { external_id: "maya", traits: { plan: "pro", age: 31, city: "Lisbon", rides: 12 } });
  const good = await receive(), bad = await receive(500);
  const types = ["match.computed"];
  const hook = await api.post(api.under("/webhooks"), { url: good.url, event_types: types, secret: "a secret of 24 characters" });
  const failing = await api.post(api.under("/webhooks"), { url: `${bad.url}/${long}`, event_types: types });
  for (let run = 0; run < 2; run++) {
    const begun = await api.post("/api/v1/clustering_runs", { consent_layer_id: layer.id, k: 2 });
    await eventually("the run has ended", async () => (await api.get(`/api/v1/clustering_runs/${begun.id}`)).status === "completed");
  }
  const [cluster] = await api.list("/api/v1/clusters");
  const segment = await api.post("/api/v1/segments", { name: "Grown-up pros", rule: 'traits.plan == "pro" && traits.age > 30' });
  await api.post("/api/v1/segments", { name: `Riders ${long}`, rule: `traits.rides > 3 || traits.note == "${long}" || in_segment("${segment.id}")` });
  await eventually("the segments are ready", async () => (await api.list("/api/v1/segments")).every(({ state }) => state === "ready"));
  for (const [name, status] of [["Spring", "running"], [`Autumn ${long}`, "draft"]]) {
    const campaign = await api.post("/api/v1/campaigns", { name, budget_minor: 500_000, currency: "EUR", cluster_ids: [cluster.id], ends_at: new Date(Date.now() + 20 * 864e5).toISOString() });
    if (status !== "running") continue;
    await api.patch(`/api/v1/campaigns/${campaign.id}`, { status });
    for (let i = 0; i < 12; i++) {
      const shown = await api.post(`/api/v1/campaigns/${campaign.id}/engagements`, { type: "impression", user_id: `ext:${["ada", "ben", "cem", "dora"][i % 4]}-${i % 4 + 8 * i}` });
      if (i % 3 === 0) await api.post(`/api/v1/campaigns/${campaign.id}/engagements`, { type: "click", impression_id: shown.impression_id });
    }
    await api.post(`/api/v1/campaigns/${campaign.id}/spend`, { amount_minor: 123_450, spend_id: "invoice-1" });
  }
  await api.post(`/api/v1/users/${user.id}/matches`, { limit: 4 });
  await eventually("both endpoints were tried", () => good.got.length > 0 && bad.got.length > 0);
  const begun = await api.post("/api/v1/users/import?async=true", people(3) + "{no json}\n", "application/x-ndjson");
  await api.post(api.under("/sandboxes"), { name: `Staging ${long}`, expires_in: 3 * 86_400 });
  await api.post(api.under("/api_keys"), { name: "production server", scopes: ["read", "write"] });
  await api.post(api.under("/members"), { email: `viewer-${account.email}`, password: account.password, role: "viewer" });
  good.close();
  bad.close();
  return { account, api, user, hook, failing, layer, cluster, begun };
}
