/**
 * Calls the API of kindred and verifies its webhooks, on Node 20, Deno and workers, with nothing but `fetch`.
 * It is for servers: a key in a browser is refused, since whoever opens the page would have it.
 */
import { Resources } from "./api.gen.js";
import { Caller, version } from "./caller.js";
import { UsageError } from "./errors.js";

export type * from "./api.gen.js";
export type * from "./types.gen.js";
export type { Answer, CallOptions, ExportOptions, ImportOptions, Lines } from "./caller.js";
export { AnswerError, ConnectionError, KindredError, RefusedError, TimeoutError, UsageError } from "./errors.js";
export { Verifier, WebhookError, sign, signed } from "./webhooks.js";
export type { HeadersLike, VerifierOptions, WebhookEvent } from "./webhooks.js";
export { version };

/** How to reach the service; what is left out comes from `KINDRED_API_KEY` and `KINDRED_URL`. */
export interface Options {
  apiKey?: string | undefined;
  /** One of a login, instead of an API key; it is not renewed. */
  token?: string | undefined;
  /** The secret of a session, instead of an API key; its tokens are renewed. */
  session?: string | undefined;
  /** With a session: the sandbox beside its client, `cli_…`, that its tokens are to be of. */
  sandbox?: string | undefined;
  /** https, or http to this machine. */
  baseUrl?: string | undefined;
  /** Of a call with all its repetitions: a minute, or an hour for imports and exports, where it is left out. */
  timeoutMs?: number | undefined;
  /** Of one attempt; 35 s by default. */
  attemptTimeoutMs?: number | undefined;
  /** Of a call; 4 by default. */
  maxRetries?: number | undefined;
  fetch?: typeof globalThis.fetch | undefined;
}

/** Calls the API. One serves a whole process. */
export class Kindred extends Resources {
  readonly #caller: Caller;

  constructor(options: Options = {}) {
    const g = globalThis as { process?: { env?: Record<string, string | undefined> } };
    const env = g.process?.env ?? {};
    const token = options.token ?? "";
    const session = token ? "" : (options.session ?? "");
    const key = token || session ? "" : (options.apiKey ?? env["KINDRED_API_KEY"] ?? "");
    if (inBrowser()) throw new UsageError("keys and tokens are for servers: whoever opens this page would have them");
    if (/[^!-~]/.test(key + token + session)) throw new UsageError("the API key, token or session has a space, a line break or a character that is not ASCII in it");
    if (options.sandbox && !session) throw new UsageError("sandbox goes with a session: a key or token is of one client");
    const base = baseOf(options.baseUrl ?? env["KINDRED_URL"] ?? "");
    if (!options.fetch && isProxied(new URL(base))) throw new UsageError("a proxy of the environment would get the key in the clear: name the host of the baseUrl in NO_PROXY");
    const caller = new Caller({
      base,
      key,
      session,
      sandbox: options.sandbox ?? "",
      token,
      timeoutMs: options.timeoutMs,
      attemptTimeoutMs: options.attemptTimeoutMs ?? 35_000,
      maxRetries: Math.max(0, options.maxRetries ?? 4),
      fetch: options.fetch ?? globalThis.fetch.bind(globalThis),
    });
    super(caller);
    this.#caller = caller;
  }

  /** The id of the client that the key or token is of. It exchanges the key if that was not done yet. */
  async clientId(): Promise<string> {
    return (await this.#caller.token()).client;
  }

  /** Names the service and hides the key, like everything that prints a client. */
  override toString(): string {
    return `Kindred(${this.#caller.base})`;
  }

  toJSON(): string {
    return this.toString();
  }

  [Symbol.for("nodejs.util.inspect.custom")](): string {
    return this.toString();
  }
}

/** A page, or a worker of one: nothing but browsers calls itself Mozilla. */
function inBrowser(): boolean {
  const g = globalThis as { window?: unknown; document?: unknown; navigator?: { userAgent?: string } };
  return (g.window !== undefined && g.document !== undefined) || g.navigator?.userAgent?.startsWith("Mozilla/") === true;
}

/** Whether fetch hands what goes over http to a proxy of the environment: Bun's and Deno's do, and Node's where it is told to. */
function isProxied(base: URL): boolean {
  const g = globalThis as { Bun?: unknown; Deno?: unknown; process?: { env?: Record<string, string | undefined>; execArgv?: string[] } };
  if (base.protocol !== "http:") return false;
  const env = g.process?.env ?? {};
  const told = env["NODE_USE_ENV_PROXY"] === "1" || `${env["NODE_OPTIONS"]} ${g.process?.execArgv?.join(" ")}`.includes("--use-env-proxy");
  if (!(g.Bun || g.Deno || told) || !(env["http_proxy"] || env["HTTP_PROXY"])) return false;
  const spared = (env["no_proxy"] ?? env["NO_PROXY"] ?? "").split(/[\s,]+/);
  return !["*", base.host, base.hostname].some((one) => spared.includes(one));
}

function baseOf(text: string): string {
  if (!text) throw new UsageError("no baseUrl is given, nor KINDRED_URL");
  let url: URL;
  try {
    url = new URL(text);
  } catch {
    throw new UsageError("the baseUrl is not a URL");
  }
  if (url.username || url.password || /[?#]/.test(text)) throw new UsageError("the baseUrl must be a scheme, a host and at most a path");
  const loopback = /^(localhost|127(\.\d+){3}|\[::1\])$/.test(url.hostname);
  if (url.protocol !== "https:" && !(url.protocol === "http:" && loopback)) throw new UsageError("keys are sent over https, or over http to this machine alone");
  return url.href.replace(/\/+$/, "");
}
