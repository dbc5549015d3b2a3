/**
 * Plays kindred, for tests of programs that call it:
 *
 *     const fake = new FakeKindred();
 *     fake.answer("POST", "/api/v1/users/ext:u1/matches", 200, { data: [] });
 *     await program(new Kindred(fake.options));
 *
 * It keeps users in memory: they are made, put, changed, read, listed, imported and erased. Everything else
 * answers what a test says, or 501. Deliveries of webhooks are made by `signed`.
 */
import type { ImportError, ImportResult, ProblemCode, User } from "./types.gen.js";
import type { Options } from "./index.js";

export { sign, signed } from "./webhooks.js";

/** A request that came. */
export interface Received {
  method: string;
  path: string;
  query: URLSearchParams;
  idempotencyKey: string;
  body: string;
}

interface Given {
  status: number;
  body?: unknown;
}

type Traits = Record<string, unknown>;

const users = "/api/v1/users";

/** What Node's http module has of what is needed here: the SDK is typed without Node. */
interface NodeHttp {
  createServer(handler: (request: NodeRequest, response: NodeResponse) => void): {
    listen(port: number, host: string, listening: () => void): void;
    address(): { port: number };
    close(): void;
    closeAllConnections(): void;
  };
}
type NodeRequest = AsyncIterable<Uint8Array> & { url: string; method: string; headers: Record<string, string> };
interface NodeResponse {
  writeHead(status: number, headers: Record<string, string>): { end(body: string): void };
}

/** Plays kindred. Any API key will do. */
export class FakeKindred {
  readonly apiKey = "kin_test";
  readonly clientId = `cli_${made()}`;
  /** Those that came, without those for tokens. */
  readonly requests: Received[] = [];
  readonly #users = new Map<string, User>(); // by external id
  readonly #answers = new Map<string, Given>(); // by method and path
  readonly #repeated = new Map<string, { request: string; given: Given }>(); // by Idempotency-Key

  /** What makes a `Kindred` whose calls come here, without a network. */
  get options(): Options {
    return { apiKey: this.apiKey, baseUrl: "http://localhost", fetch: this.fetch };
  }

  /** Says what a request is answered from now on, users too. */
  answer(method: string, path: string, status: number, body?: unknown): void {
    this.#answers.set(`${method} ${path}`, { status, body });
  }

  /** Says that a request is refused from now on. */
  refuse(method: string, path: string, status: number, code: ProblemCode): void {
    this.#answers.set(`${method} ${path}`, refusal(status, code, "a test wants it so"));
  }

  /** Answers like the `fetch` of a service. */
  readonly fetch: typeof globalThis.fetch = async (input, init) => {
    const request = new Request(input, init);
    const url = new URL(request.url);
    const type = request.headers.get("Content-Type") ?? "";
    const { status, body } = this.#respond(
      {
        method: request.method,
        path: decodeURIComponent(url.pathname),
        query: url.searchParams,
        idempotencyKey: request.headers.get("Idempotency-Key") ?? "",
        body: await request.text(),
      },
      url.pathname,
      type === "application/x-ndjson",
      request.headers.has("If-None-Match"),
    );
    const headers = new Headers({ "X-Request-Id": "req_test" });
    if (body === undefined) return new Response(null, { status, headers });
    headers.set("Content-Type", status >= 400 ? "application/problem+json" : "application/json");
    return new Response(JSON.stringify(body), { status, headers });
  };

  /** Serves on this machine, on Node, for programs that take a URL. */
  async listen(): Promise<{ url: string; close(): void }> {
    const module = "node:http";
    const { createServer } = (await import(module)) as NodeHttp;
    const server = createServer((request, response) => void this.#serve(request, response));
    await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
    const close = () => {
      server.close();
      server.closeAllConnections();
    };
    return { url: `http://127.0.0.1:${server.address().port}`, close };
  }

  async #serve(request: NodeRequest, response: NodeResponse): Promise<void> {
    const decoder = new TextDecoder();
    let body = "";
    for await (const part of request) body += decoder.decode(part, { stream: true });
    const { method, headers } = request;
    const init = method === "GET" ? { method, headers } : { method, headers, body };
    const answer = await this.fetch(`http://localhost${request.url}`, init);
    response.writeHead(answer.status, Object.fromEntries(answer.headers)).end(await answer.text());
  }

  #respond(r: Received, escaped: string, lines: boolean, onlyNew: boolean): Given {
    if (r.path === "/auth/exchange" || r.path === "/auth/sessions/token") {
      const token = { token: `e30.${btoa(JSON.stringify({ aud: this.clientId }))}.c2ln`, expires_in: 900, scopes: ["admin"] };
      return { status: 200, body: r.path === "/auth/exchange" ? { data: token } : token };
    }
    this.requests.push(r);
    const request = `${r.method} ${escaped}?${r.query}\n${r.body}`;
    const before = this.#repeated.get(r.idempotencyKey);
    if (before) return before.request === request ? before.given : refusal(422, "idempotency_key_reused", "the key came with another request before");
    const given = this.#answers.get(`${r.method} ${r.path}`) ?? this.#ofUsers(r, escaped, lines, onlyNew);
    if (r.idempotencyKey && given.status < 300) this.#repeated.set(r.idempotencyKey, { request, given });
    return given;
  }

  #ofUsers(r: Received, escaped: string, lines: boolean, onlyNew: boolean): Given {
    const name = r.path.slice(users.length + 1);
    if (r.path === users && r.method === "GET") return this.#page(r);
    if (name === "import" && r.method === "POST" && lines && r.query.get("async") !== "true") return this.#import(r);
    if (!(r.path === users && r.method === "POST") && (!r.path.startsWith(`${users}/`) || escaped.slice(users.length + 1).includes("/"))) {
      return refusal(501, "not_played", `say what is answered: answer("${r.method}", "${r.path}", …)`);
    }
    let body: { external_id?: string; traits?: Traits } = {};
    try {
      if (r.method !== "GET" && r.method !== "DELETE") body = JSON.parse(r.body) as typeof body;
    } catch {
      return refusal(400, "invalid_json", "the body is no JSON");
    }
    const traits = body.traits ?? {};
    if (r.path === users) {
      const external = body.external_id ?? "";
      if (!external) return refusal(422, "invalid", "the external_id is empty");
      if (this.#users.has(external)) return refusal(409, "user_exists", "there is a user with this external_id");
      return { status: 201, body: this.#put(external, traits) };
    }
    const external = name.startsWith("ext:") ? name.slice(4) : ([...this.#users.values()].find((u) => u.id === name)?.external_id ?? "");
    const user = this.#users.get(external);
    if (!user && r.method === "PUT" && external) return { status: 201, body: this.#put(external, traits) };
    if (!user) return refusal(404, "user_unknown", "there is no such user");
    switch (r.method) {
      case "GET":
        return { status: 200, body: user };
      case "PUT":
        if (onlyNew) return refusal(412, "stale", "the user is there");
        return { status: 200, body: this.#put(external, traits) };
      case "PATCH":
        return { status: 200, body: this.#put(external, merged(user.traits, traits)) };
      case "DELETE":
        this.#users.delete(external);
        return { status: 204 };
      default:
        return refusal(405, "method_not_allowed", "this cannot be done with a user");
    }
  }

  #put(external: string, traits: Traits): User {
    const now = new Date().toISOString();
    const before = this.#users.get(external);
    const user = { id: before?.id ?? `usr_${made()}`, external_id: external, traits, created_at: before?.created_at ?? now, updated_at: now };
    this.#users.set(external, user);
    return user;
  }

  #import(r: Received): Given {
    const errors: ImportError[] = [];
    const result: ImportResult = { created: 0, updated: 0, failed: 0, errors };
    for (const [i, line] of r.body.split("\n").entries()) {
      if (!line) continue;
      const one = userOf(line);
      if (!one) {
        result.failed++;
        errors.push({ line: i + 1, code: "invalid", detail: "the line is no user", errors: [] });
        continue;
      }
      const before = this.#users.get(one.external_id);
      if (before) result.updated++;
      else result.created++;
      const traits = one.traits ?? {};
      this.#put(one.external_id, before && r.query.get("mode") !== "replace" ? merged(before.traits, traits) : traits);
    }
    return { status: 200, body: result };
  }

  #page(r: Received): Given {
    const all = [...this.#users.values()];
    const begin = Number(r.query.get("cursor") ?? 0);
    const end = begin + Number(r.query.get("limit") ?? 50);
    return { status: 200, body: { data: all.slice(begin, end), next_cursor: end < all.length ? String(end) : null } };
  }
}

/** The user of a line, if it is one. */
function userOf(line: string): { external_id: string; traits?: Traits } | undefined {
  try {
    const one = JSON.parse(line) as { external_id?: unknown } | null;
    return typeof one?.external_id === "string" && one.external_id ? (one as { external_id: string }) : undefined;
  } catch {
    return undefined;
  }
}

/** Applies a change as a JSON merge patch does (RFC 7396). */
function merged(before: unknown, change: Traits): Traits {
  const after = new Map(Object.entries(isObject(before) ? before : {}));
  for (const [name, value] of Object.entries(change)) {
    if (value === null) after.delete(name);
    else after.set(name, isObject(value) ? merged(after.get(name), value) : value);
  }
  return Object.fromEntries(after);
}

function isObject(value: unknown): value is Traits {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function refusal(status: number, code: ProblemCode, detail: string): Given {
  return { status, body: { type: "about:blank", title: code, status, detail, code, request_id: "req_test" } };
}

function made(): string {
  return crypto.randomUUID().replaceAll("-", "").slice(0, 26);
}
