// Drives the SDK for the suite in sdk/conformance, which says what is read and written.
import { createInterface } from "node:readline";
import { inspect } from "node:util";

import { AnswerError, ConnectionError, Kindred, RefusedError, TimeoutError, Verifier, WebhookError, sign, signed } from "../src/index.js";
import type { Answer, CallOptions, Options } from "../src/index.js";
import { FakeKindred } from "../src/testing.js";

interface Command {
  id: number;
  do: string;
  client?: string;
  options?: Record<string, never>;
  resource?: string;
  method?: string;
  path?: string[];
  body?: unknown;
  params?: Record<string, unknown>;
  users?: number;
  lines?: string;
  most?: number;
  target?: number;
  show?: boolean;
  scheme?: string;
  secrets?: string[];
  public_keys?: string[];
  client_id?: string;
  now?: number;
  headers?: Record<string, string>;
  delivered?: string;
}

const clients = new Map<string, Kindred>();
const fake = new FakeKindred();
const running = new Map<number, AbortController>();

async function act(c: Command, signal: AbortSignal): Promise<unknown> {
  const k = clients.get(c.client ?? "") as Kindred;
  const body = Buffer.from(c.delivered ?? "", "base64");
  switch (c.do) {
    case "new":
      clients.set(c.client ?? "", new Kindred(optionsOf(c.options ?? {})));
      return null;
    case "cancel":
      running.get(c.target ?? 0)?.abort();
      return null;
    case "print":
      return [inspect(k, { depth: 9, showHidden: true }), JSON.stringify(k), String(k), `${k}`].join(" ");
    case "memory":
      for (let i = 0; i < 3; i++) { // what has ended is told between two collections, and what hung on it goes with the next
        await new Promise((resolve) => setTimeout(resolve, 20));
        (globalThis as { gc?: () => void }).gc?.();
      }
      return process.memoryUsage().heapUsed;
    case "client_id":
      return k.clientId();
    case "put_back": {
      const users = [];
      for await (const user of k.users.list()) users.push(await k.users.put(user.id, { traits: user.traits ?? {} }));
      return users;
    }
    case "import_back": {
      const users = [];
      for await (const user of k.users.list()) users.push({ external_id: user.external_id, traits: user.traits ?? {} });
      return k.users.import(users);
    }
    case "verify": {
      const v = new Verifier({
        secrets: c.secrets ?? [],
        publicKeys: c.public_keys ?? [],
        ...(c.client_id ? { clientId: c.client_id } : {}),
        now: () => (c.now ?? 0) * 1000,
      });
      const event = await (c.scheme === "contract" ? v.verifyContract(c.headers ?? {}, body) : v.verify(c.headers ?? {}, body));
      return { id: event.id ?? "", event_type: event.event_type };
    }
    case "sign":
      return sign(c.secrets?.[0] ?? "", c.client ?? "", c.now ?? 0, "match.computed", body.toString());
    case "signed":
      return signed(c.secrets?.[0] ?? "", {
        event_type: "match.computed",
        data: c.body as never,
        timestamp: new Date((c.now ?? 0) * 1000).toISOString(),
      });
    case "fake": {
      const { url } = await fake.listen();
      return { url, api_key: fake.apiKey, client_id: fake.clientId };
    }
    case "fake_answer":
      fake.answer(c.method ?? "", c.path?.[0] ?? "", 200, c.body);
      return null;
    case "fake_refuse":
      fake.refuse(c.method ?? "", c.path?.[0] ?? "", 409, "a_code");
      return null;
    case "fake_requests":
      return fake.requests.map((r) => `${r.method} ${r.path}`);
    case "raw":
      return raw(String(c.options?.["base_url"]), String(c.options?.["token"]));
    case "events": {
      const ids: string[] = [];
      let count = 0;
      let last: unknown;
      const options: CallOptions = { ...optionsOf(c.options ?? {}), signal };
      for await (const event of c.method === "pull" ? k.events.pull(c.params, options) : k.events.follow(c.params, options)) {
        if (++count <= 1000) ids.push(event.id);
        last = event;
        if (count === c.most) break;
      }
      return { ids, count, last };
    }
    case "export": {
      let count = 0;
      let last = "";
      for await (const line of k.history.export({ signal })) [count, last] = [count + 1, line];
      return { count, last };
    }
    default:
      return call(c, k, signal);
  }
}

/** Reads the list of users without the SDK. */
async function raw(base: string, token: string): Promise<unknown> {
  let count = 0;
  for (let query = "?limit=200"; ; ) {
    const response = await fetch(`${base}/api/v1/users${query}`, { headers: { Authorization: `Bearer ${token}` } });
    const page = (await response.json()) as { data: unknown[]; next_cursor: string | null };
    for (const _ of page.data) count++;
    if (page.next_cursor === null) return { count };
    query = `?limit=200&cursor=${encodeURIComponent(page.next_cursor)}`;
  }
}

async function call(c: Command, k: Kindred, signal: AbortSignal): Promise<unknown> {
  const resource = (k as unknown as Record<string, Record<string, (...args: unknown[]) => unknown>>)[camel(c.resource ?? "")];
  const method = resource?.[camel(c.method ?? "")];
  if (!resource || !method) throw new Error(`no method ${c.resource}.${c.method}`);
  let seen: Answer | undefined;
  const options: CallOptions = { ...optionsOf(c.options ?? {}), signal, onAnswer: (a) => (seen = a) };
  const args: unknown[] = [...(c.path ?? [])];
  if (c.users !== undefined) args.push(made(c.users));
  else if (c.lines !== undefined) args.push(c.lines);
  else if (c.body !== undefined) args.push(c.body);
  if (c.params !== undefined) args.push(c.params);
  const out = method.call(resource, ...args, options);
  if (typeof out === "object" && out !== null && Symbol.asyncIterator in out) {
    let count = 0;
    let first: unknown = null;
    let last: unknown = null;
    for await (const one of out as AsyncIterable<unknown>) {
      if (count++ === 0) first = one;
      last = one;
      if (count === c.most) break;
    }
    return { count, first, last };
  }
  const value = await out;
  return { value: value ?? null, etag: seen?.etag, request_id: seen?.requestId, attempts: seen?.attempts };
}

function* made(n: number) {
  for (let i = 0; i < n; i++) yield { external_id: `u${String(i).padStart(6, "0")}`, traits: { age: i % 90, plan: "pro" } };
}

function camel(snake: string): string {
  return snake.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());
}

function optionsOf(o: Record<string, unknown>): Options & CallOptions {
  return Object.fromEntries(Object.entries(o).map(([name, value]) => [camel(name), value]));
}

function told(e: unknown, signal: AbortSignal): Record<string, unknown> {
  const message = String(e);
  if (signal.aborted) return { kind: "cancelled", message };
  if (e instanceof RefusedError) {
    return { kind: "refused", status: e.status, code: e.code, request_id: e.requestId, pointers: e.errors.map((f) => f.pointer), attempts: e.attempts, message };
  }
  if (e instanceof WebhookError) return { kind: "webhook", reason: e.reason, message };
  if (e instanceof TimeoutError) return { kind: "timeout", message };
  if (e instanceof AnswerError) return { kind: "answer", attempts: e.attempts, message };
  if (e instanceof ConnectionError) return { kind: "connection", attempts: e.attempts, message };
  return { kind: "usage", message };
}

for await (const line of createInterface({ input: process.stdin })) {
  const c = JSON.parse(line) as Command;
  const stop = new AbortController();
  running.set(c.id, stop);
  void act(c, stop.signal)
    .then(
      (ok) => ({ id: c.id, ok }),
      (e: unknown) => {
        const shown = c.show ? [inspect(e, { depth: 20, showHidden: true }), JSON.stringify(e), String(e)].join(" ") : undefined;
        return { id: c.id, error: { ...told(e, stop.signal), shown } };
      },
    )
    .then((reply) => {
      running.delete(c.id);
      process.stdout.write(JSON.stringify(reply) + "\n");
    });
}
