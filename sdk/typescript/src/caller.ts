import type { Exchanged, LoggedIn } from "./types.gen.js";
import { AnswerError, ConnectionError, KindredError, RefusedError, TimeoutError, UsageError } from "./errors.js";

export const version = "0.1.0";

/** @internal */
export const clientInPath = "{client_id}";

const largestAnswer = 64 << 20; // bytes; a page is about 8 MiB
/** Characters of an export, or of an event. */
export const longestLine = 16 << 20;
const firstPause = 250;
const longestPause = 10_000;
const streamTimeout = 3_600_000;
const exchangeTimeout = 60_000;
const renewBefore = 30_000;
/** Of the timers of JavaScript, which take what is longer as nothing: 24 days. */
export const longestTimer = 2 ** 31 - 1;

/** What changes one call. */
export interface CallOptions {
  /**
   * Names a POST, so that it takes effect once however often it is called. Without it the SDK makes one
   * for each call, which all repetitions of that call carry.
   */
  idempotencyKey?: string | undefined;
  /** Refuses the change where the object is no longer what this ETag says. */
  ifMatch?: string | undefined;
  /** `*` refuses a PUT where the object is there already. */
  ifNoneMatch?: "*" | undefined;
  /** Reads at once from what is there, without waiting for what was written. */
  eventual?: boolean | undefined;
  /** Bounds this call with all its repetitions, in milliseconds. Nought lets it send nothing: it ends with a `TimeoutError`. */
  timeoutMs?: number | undefined;
  /** Cancels the call. */
  signal?: AbortSignal | undefined;
  /** Is told what was answered beside the body. */
  onAnswer?: ((answer: Answer) => void) | undefined;
}

/** What changes an import. */
export interface ImportOptions extends CallOptions {
  /** The lines are CSV, with the names of the traits in the first. */
  csv?: boolean | undefined;
}

/** What changes an export. */
export interface ExportOptions extends CallOptions {
  /** `open` shows what is sealed, opened; it takes the scope `admin`. */
  personal?: "sealed" | "open" | undefined;
}

/** What an answer tells beside its body. */
export interface Answer {
  status: number;
  requestId: string;
  etag: string;
  /** How often the request was sent. */
  attempts: number;
  headers: Headers;
}

/** What an import takes: objects, lines as they are, or parts of bytes. Texts, bytes and arrays can be sent again. */
export type Lines<T> = string | Uint8Array | ReadableStream<Exclude<T, string> | Uint8Array> | AsyncIterable<T | Uint8Array> | Iterable<T | Uint8Array>;

/** @internal */
export interface Request {
  operation: string;
  method: string;
  path: string;
  query?: object;
  body?: unknown;
  lines?: Lines<unknown>;
  csv?: boolean;
  takesKey?: boolean;
  open?: boolean;
  /** Of an answer that is streamed. */
  accept?: string;
  lastEventId?: string;
  /** It is not to be packed. */
  plain?: boolean;
  /** It is repeated for as long as its time lets it. */
  persists?: boolean;
  /** Ends the call in the place of its time. */
  over?: AbortSignal;
}

interface Token {
  readonly text: string;
  readonly client: string;
  readonly until: number;
  readonly fixed: boolean;
}

/** @internal */
export interface Settings {
  base: string;
  key: string;
  session: string;
  sandbox: string;
  token: string;
  timeoutMs: number | undefined;
  attemptTimeoutMs: number;
  maxRetries: number;
  fetch: typeof globalThis.fetch;
}

/** Marks a fault that no repetition mends. */
class Final {
  constructor(readonly fault: unknown) {}
}

/**
 * Sends requests.
 * @internal
 */
export class Caller {
  readonly #s: Settings;
  #current: Token | undefined;
  #pending: Promise<Token> | undefined;

  constructor(settings: Settings) {
    this.#s = settings;
    if (settings.token) {
      this.#current = { text: settings.token, client: audience(settings.token), until: Infinity, fixed: true };
    }
  }

  get base(): string {
    return this.#s.base;
  }

  get timeoutMs(): number | undefined {
    return this.#s.timeoutMs;
  }

  /** A token that is valid for a while. However many calls need a new one, it is asked for once. */
  token(): Promise<Token> {
    if (this.#current && performance.now() < this.#current.until) return Promise.resolve(this.#current);
    if (!this.#s.key && !this.#s.session) return Promise.reject(new UsageError("no API key is given, nor KINDRED_API_KEY"));
    this.#pending ??= this.#renew().finally(() => (this.#pending = undefined));
    return this.#pending;
  }

  async #renew(): Promise<Token> {
    const asked = performance.now();
    const given = await (this.#s.session ? this.#renewSession() : this.#exchange());
    if (typeof given?.token !== "string" || !given.token || !Number.isFinite(given.expires_in)) throw new AnswerError("it holds no token");
    const life = given.expires_in * 1000;
    this.#current = { text: given.token, client: audience(given.token), until: asked + life - Math.min(renewBefore, life / 2), fixed: false };
    return this.#current;
  }

  async #exchange(): Promise<Exchanged["data"] | undefined> {
    const r: Request = { operation: "exchangeAPIKey", method: "POST", path: "/auth/exchange", body: { api_key: this.#s.key }, open: true };
    return (await this.send<Exchanged | undefined>(r, { timeoutMs: exchangeTimeout }, readJSON))?.data;
  }

  #renewSession(): Promise<LoggedIn | undefined> {
    const body = { secret: this.#s.session, ...(this.#s.sandbox && { client_id: this.#s.sandbox }) };
    const r: Request = { operation: "getSessionToken", method: "POST", path: "/auth/sessions/token", body, open: true };
    return this.send<LoggedIn | undefined>(r, { timeoutMs: exchangeTimeout }, readJSON);
  }

  /** Sends a request until `read` has taken an answer of 2xx, and repeats it where it may. */
  async send<T>(r: Request, options: CallOptions = {}, read: (response: Response, watch: (on: boolean) => void) => Promise<T>): Promise<T> {
    if (r.path.includes("\0")) throw new UsageError(`${r.operation}: an id is no text, empty, made of dots or no Unicode`);
    if ("lines" in r && !areLines(r.lines)) throw new UsageError(`${r.operation} takes a text, bytes, a stream, or users or lines to iterate over`);
    r = { ...r, path: r.path + queryOf(r.query) };
    const headers = new Headers({ Accept: r.accept ?? "application/json", "User-Agent": `kindred-typescript/${version}` });
    const set = (name: string, value: string | undefined) => {
      if (value === undefined) return;
      if (!/^[ -~]*$/.test(value)) throw new UsageError(`${r.operation}: ${name} takes printable ASCII`);
      headers.set(name, value);
    };
    set("Idempotency-Key", options.idempotencyKey ?? (r.takesKey ? crypto.randomUUID() : undefined));
    set("If-Match", options.ifMatch);
    set("If-None-Match", options.ifNoneMatch);
    set("Last-Event-ID", r.lastEventId);
    if (r.plain) headers.set("Accept-Encoding", "identity");
    if (options.eventual) headers.set("X-Kindred-Consistency", "eventual");
    const timeout = options.timeoutMs ?? this.#s.timeoutMs ?? (r.lines === undefined ? 60_000 : streamTimeout);
    if (!(timeout > 0)) throw new TimeoutError("the call had no time");
    const deadline = performance.now() + timeout;
    const { over, stop } = r.over ? { over: r.over, stop: () => undefined } : timeOf(timeout);
    const ends = options.signal ? AbortSignal.any([over, options.signal]) : over;
    const again = r.lines === undefined || typeof r.lines === "string" || r.lines instanceof Uint8Array || Array.isArray(r.lines);
    const repeatable = isRepeatable(r, options);
    let lost = false;
    let renewed = false;
    let retries = 0;
    try {
      for (let attempts = 1; ; attempts++) {
        let used: Token | undefined;
        let fault: unknown;
        try {
          if (!r.open) used = await this.#waitForToken(ends, r.persists === true);
          return await this.#attempt(r, headers, used, attempts, options, ends, read);
        } catch (e) {
          fault = e;
        }
        if (lost && r.method === "DELETE" && isGone(fault)) return undefined as T; // the one before has done it
        lost ||= isLost(fault);
        const doubt = isLost(fault) && !repeatable ? "; it may have taken effect" : "";
        if (fault instanceof KindredError) Object.assign(fault, { attempts, message: fault.message + doubt });
        options.signal?.throwIfAborted();
        if (over.aborted) {
          const why = fault instanceof KindredError ? `: ${fault.message}` : "";
          throw Object.assign(new TimeoutError(`the call took too long${why}`, { cause: fault }), { attempts });
        }
        if (fault instanceof Final) throw fault.fault;
        if (fault instanceof RefusedError && fault.status === 401 && !r.open && !renewed && used && !used.fixed) {
          renewed = true;
          if (this.#current === used) this.#current = undefined;
          if (again) continue;
        }
        const pause = pauseBefore(fault, retries, repeatable);
        if (pause === undefined || (retries >= this.#s.maxRetries && !r.persists) || !again || performance.now() + pause > deadline) throw fault;
        retries++;
        await sleep(pause, ends);
      }
    } finally {
      stop();
    }
  }

  /** A call that gives up takes nobody's token away: it stops to wait, and the exchange goes on. */
  async #waitForToken(ends: AbortSignal, persists: boolean): Promise<Token> {
    try {
      return await unlessAborted(this.token(), ends);
    } catch (e) {
      throw persists ? e : new Final(e);
    }
  }

  async #attempt<T>(
    r: Request, common: Headers, used: Token | undefined, attempts: number, options: CallOptions, ends: AbortSignal,
    read: (response: Response, watch: (on: boolean) => void) => Promise<T>,
  ): Promise<T> {
    const headers = new Headers(common);
    let path = r.path;
    if (used) {
      path = path.replace(clientInPath, encodeURIComponent(used.client));
      headers.set("Authorization", `Bearer ${used.text}`);
    }
    let broken: Final | undefined; // by what made the lines, and by no connection
    const over = new AbortController(); // with the attempt
    const init: RequestInit & { duplex?: "half" } = { method: r.method, headers, redirect: "manual" };
    if (r.lines !== undefined) {
      headers.set("Content-Type", r.csv ? "text/csv" : "application/x-ndjson");
      init.body = linesOf(r.lines, over.signal, (by) => (broken = new Final(by))) as NonNullable<RequestInit["body"]>;
      init.duplex = "half";
    } else if (r.body !== undefined) {
      headers.set("Content-Type", "application/json");
      init.body = jsonOf(r.body);
    }
    const slow = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const watch = (on: boolean) => {
      clearTimeout(timer);
      if (on) timer = setTimeout(() => slow.abort(new ConnectionError("no answer came in time")), Math.min(this.#s.attemptTimeoutMs, longestTimer));
    };
    if (r.lines === undefined) watch(true); // an import takes as long as it takes to send
    init.signal = AbortSignal.any([ends, slow.signal]);
    try {
      let response: Response;
      try {
        response = await this.#s.fetch(this.#s.base + path, init);
      } catch (cause) {
        throw broken ?? unanswered(cause);
      }
      const requestId = response.headers.get("X-Request-Id") ?? "";
      options.onAnswer?.({ status: response.status, requestId, etag: response.headers.get("ETag") ?? "", attempts, headers: response.headers });
      if (response.status >= 200 && response.status <= 299) return await read(response, watch);
      const said = await readBounded(response);
      throw new RefusedError(response.status, requestId, retryAfter(response.headers.get("Retry-After")), problemOf(response, said));
    } finally {
      watch(false);
      over.abort();
    }
  }
}

/**
 * Whether a lost answer may be asked for again: the request does the same however often it arrives. One with a
 * condition is refused then, and so is one that names the password from before.
 */
function isRepeatable(r: Request, options: CallOptions): boolean {
  if (r.method === "PATCH" || r.lines !== undefined || r.operation === "changePassword") return false;
  if (r.method === "PUT") return options.ifMatch === undefined && options.ifNoneMatch === undefined;
  return r.method !== "POST" || r.takesKey === true || r.operation === "exchangeAPIKey" || r.operation === "getSessionToken";
}

/** Whether nobody knows what became of a request. */
function isLost(fault: unknown): boolean {
  if (fault instanceof RefusedError) return fault.status === 502 || fault.status === 504;
  return fault instanceof ConnectionError ? fault.lost : fault instanceof TimeoutError; // of an exchange
}

/** What an attempt without an answer ends with. Nothing was sent where a certificate is not trusted, which no repetition mends, or where no connection was made. */
function unanswered(cause: unknown): ConnectionError {
  const why = ((cause as { cause?: unknown } | undefined)?.cause ?? cause) as { code?: unknown; syscall?: unknown; message?: unknown } | undefined; // Bun tells it outside
  const code = String(why?.code);
  const [, deno] = /client error \(Connect\): (.*)/.exec(String(why?.message)) ?? []; // behind a URL, which may hold ids of users
  const text = deno ?? String(why?.message || code);
  if (untrusted.test(code) || deno?.includes("certificate")) {
    return Object.assign(new ConnectionError(`the certificate of the server is not trusted: ${text}`, { cause }), { lost: false, passes: false });
  }
  if (unmade.test(code) || why?.syscall === "connect" || deno !== undefined) return Object.assign(new ConnectionError(`no connection was made: ${text}`, { cause }), { lost: false });
  return new ConnectionError("the connection broke", { cause });
}

/** What Node and Bun call a certificate that they do not trust. */
const untrusted = /^(?!ERR_SSL).*(CERT|SELF_SIGNED|LEAF_SIGNATURE|HOSTNAME_MISMATCH|INVALID_CA|INVALID_PURPOSE)/;

/** What they call a server that is not found or does not listen. */
const unmade = /^(ECONNREFUSED|ENOTFOUND|EAI_AGAIN|UND_ERR_CONNECT_TIMEOUT)$/;

/** Whether kindred, and nothing on the way to it, has not found what was asked for. */
function isGone(fault: unknown): boolean {
  return fault instanceof RefusedError && fault.status === 404 && fault.code !== "";
}

/** How long to wait before a fault may have passed, or undefined where it does not. */
function pauseBefore(fault: unknown, retries: number, repeatable: boolean): number | undefined {
  const jitter = jitterOf(retries);
  if (fault instanceof ConnectionError && !fault.lost) return fault.passes ? jitter : undefined; // nothing was sent
  if (!(fault instanceof RefusedError)) return repeatable && isLost(fault) ? jitter : undefined;
  const pause = Math.max(jitter, fault.retryAfterMs);
  switch (fault.status) {
    case 429:
    case 503:
      return pause;
    case 500:
    case 502:
    case 504:
      return repeatable ? pause : undefined;
    case 409:
      return fault.code === "in_flight" ? pause : undefined;
    default:
      return undefined;
  }
}

/**
 * How long to wait before a retry: any time up to twice what the one before had at most.
 * @internal
 */
export function jitterOf(retries: number): number {
  return Math.random() * Math.min(longestPause, firstPause * 2 ** retries);
}

/** @internal */
export function answer<T>(c: Caller, r: Request, options?: CallOptions): Promise<T> {
  return whole<T>(c, r, options, readJSON);
}

/** @internal */
export async function done(c: Caller, r: Request, options?: CallOptions): Promise<void> {
  await whole(c, r, options, readNothing);
}

async function whole<T>(c: Caller, r: Request, options: CallOptions = {}, read: (response: Response) => Promise<T>): Promise<T> {
  const { own, untie } = tied(options.signal);
  try {
    return await c.send<T>(r, { ...options, signal: own.signal }, read);
  } finally {
    untie();
  }
}

/** What aborts with a caller's signal, by one listener: Node warns where a signal has more than ten. */
class Ties {
  static readonly #of = new WeakMap<AbortSignal, Ties>();
  readonly #tied = new Set<AbortController>();

  constructor(readonly signal: AbortSignal) {}

  static to(signal: AbortSignal): Ties {
    const ties = Ties.#of.get(signal) ?? new Ties(signal);
    Ties.#of.set(signal, ties);
    return ties;
  }

  add(one: AbortController): void {
    if (this.signal.aborted) one.abort(this.signal.reason);
    if (this.#tied.size === 0) this.signal.addEventListener("abort", this);
    this.#tied.add(one);
  }

  delete(one: AbortController): void {
    this.#tied.delete(one);
    if (this.#tied.size === 0) this.signal.removeEventListener("abort", this);
  }

  handleEvent(): void {
    for (const one of this.#tied) one.abort(this.signal.reason);
  }
}

/**
 * What aborts with a caller's signal until it is untied. Node 20 notes what AbortSignal.any makes of a signal for as long
 * as that lives, which may be the process.
 * @internal
 */
export function tied(signal: AbortSignal | undefined): { own: AbortController; untie: () => void } {
  const own = new AbortController();
  const ties = signal && Ties.to(signal);
  ties?.add(own);
  return { own, untie: () => ties?.delete(own) };
}

/**
 * Reads a list page by page; no more than one page is held.
 * @internal
 */
export async function* items<T>(c: Caller, r: Request, options?: CallOptions): AsyncGenerator<T, void, undefined> {
  let cursor: string | null = null;
  let kept: string | null = null;
  for (let pages = 1; ; pages++) {
    const query: object = cursor === null ? { ...r.query } : { ...r.query, cursor };
    const page: { data: T[]; next_cursor: string | null } = await answer(c, { ...r, query }, options);
    yield* dataOf(page);
    cursor = page.next_cursor;
    if (cursor === null) return; // one that is missing says nothing of an end
    if (typeof cursor !== "string" || cursor === "") throw new AnswerError("its next_cursor is none");
    if (cursor === kept) throw new AnswerError("its next_cursor is that of a page before");
    if ((pages & (pages - 1)) === 0) kept = cursor; // pages that go round come to it again, however many those are
  }
}

/**
 * What a page of a list holds.
 * @internal
 */
export function dataOf<T>(page: { data: T[] }): T[] {
  if (!Array.isArray(page.data)) throw new AnswerError("it is no page of a list");
  return page.data;
}

/**
 * Streams lines. What was yielded is not asked for again, so a connection that breaks ends it.
 * @internal
 */
export async function* exported(c: Caller, r: Request, options: CallOptions = {}): AsyncGenerator<string, void, undefined> {
  const { own, untie } = tied(options.signal);
  const timeoutMs = options.timeoutMs ?? c.timeoutMs ?? streamTimeout;
  const { over, stop } = timeOf(timeoutMs);
  try {
    const accept = r.accept ?? "application/x-ndjson";
    const read = async (response: Response, watch: (on: boolean) => void) => {
      const lines = linesIn(plain(isOf(response, accept)), watch);
      return { lines, first: await lines.next() };
    };
    const { lines, first } = await c.send({ ...r, accept, over, plain: true }, { ...options, timeoutMs, signal: own.signal }, read);
    if (first.done) return;
    yield first.value;
    yield* lines;
  } catch (e) {
    options.signal?.throwIfAborted();
    if (e instanceof ConnectionError && over.aborted) throw new TimeoutError("the call took too long", { cause: e });
    throw e;
  } finally {
    stop();
    untie();
    own.abort();
  }
}

/**
 * Streams CSV, line by line with their ends.
 * @internal
 */
export async function* csv(c: Caller, r: Request, options?: CallOptions): AsyncGenerator<string, void, undefined> {
  for await (const line of exported(c, { ...r, accept: "text/csv" }, options)) yield `${line}\n`;
}

/**
 * Refuses an answer of another type, such as a page of something on the way.
 * @internal
 */
export function isOf(response: Response, want: string): Response {
  const type = response.headers.get("Content-Type") ?? "";
  if (mediaOf(type) !== want) throw new AnswerError(`its Content-Type is ${JSON.stringify(type.slice(0, 60))}`);
  return response;
}

/** What is packed and ends early, fetch takes as whole: of lines, nobody would miss those behind. */
function plain(response: Response): Response {
  const coding = response.headers.get("Content-Encoding") ?? "identity";
  if (coding !== "identity") throw new AnswerError(`its Content-Encoding is ${JSON.stringify(coding.slice(0, 60))}`);
  return response;
}

/** A page of something on the way is no sign that kindred has done anything. */
async function readNothing(response: Response): Promise<void> {
  if ((await readBounded(response)).length > 0) isOf(response, "application/json");
}

async function readJSON<T>(response: Response): Promise<T> {
  const body = await readBounded(response);
  isOf(response, "application/json");
  let value: unknown;
  try {
    value = jsonIn(body);
  } catch (cause) {
    if (response.headers.has("Content-Encoding")) throw new ConnectionError("the answer was cut", { cause }); // fetch does not tell
    throw new AnswerError("it is not JSON", { cause });
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw new AnswerError("it is no object");
  return value as T;
}

async function readBounded(response: Response): Promise<Uint8Array[]> {
  const body: Uint8Array[] = [];
  if (!response.body) return body;
  let size = 0;
  for await (const part of chunks(response.body)) {
    size += part.length;
    if (size > largestAnswer) throw new AnswerError("it is larger than 64 MiB");
    body.push(part);
  }
  return body;
}

/**
 * UTF-8 as it is: what is none is no text, and a byte order mark no part of JSON.
 * @internal
 */
export function utf8(): TextDecoder {
  return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
}

function jsonIn(body: Uint8Array[]): unknown {
  const decoder = utf8();
  let text = "";
  for (const part of body) text += decoder.decode(part, { stream: true });
  return JSON.parse(text + decoder.decode());
}

async function* chunks(body: ReadableStream<Uint8Array>): AsyncGenerator<Uint8Array, void, undefined> {
  const reader = body.getReader();
  try {
    for (;;) {
      let part;
      try {
        part = await reader.read();
      } catch (cause) {
        throw new ConnectionError("the connection broke", { cause });
      }
      if (part.done) return;
      yield part.value;
    }
  } finally {
    reader.cancel().catch(() => undefined); // it has ended, or nobody wants the rest
  }
}

/** An export takes as long as it moves. */
async function* linesIn(response: Response, watch: (on: boolean) => void): AsyncGenerator<string, void, undefined> {
  if (!response.body) return;
  try {
    watch(true);
    yield* linesOfBody(response.body, watch);
  } finally {
    watch(false);
  }
}

/** @internal */
export async function* linesOfBody(body: ReadableStream<Uint8Array>, watch: (on: boolean) => void): AsyncGenerator<string, void, undefined> {
  const decoder = utf8();
  let rest = "";
  for await (const part of chunks(body)) {
    try {
      rest += decoder.decode(part, { stream: true });
    } catch (cause) {
      throw new AnswerError("it is not UTF-8", { cause });
    }
    let begin = 0;
    for (let end = rest.indexOf("\n"); end >= 0; end = rest.indexOf("\n", begin)) {
      watch(false); // who takes a line may take its time
      yield rest.slice(begin, end);
      begin = end + 1;
    }
    rest = rest.slice(begin);
    watch(true);
    if (rest.length > longestLine) throw new AnswerError("a line is longer than 16 MiB");
  }
  try {
    rest += decoder.decode(); // fails in the middle of a character
  } catch (cause) {
    throw new ConnectionError("the last line was cut", { cause });
  }
  if (rest !== "") throw new ConnectionError("the last line was cut");
}

/** JavaScript has no types: one user may be given, or what is undefined. */
function areLines(lines: unknown): boolean {
  return typeof lines === "string" || (typeof lines === "object" && lines !== null && (Symbol.asyncIterator in lines || Symbol.iterator in lines));
}

/**
 * The body of an import. Where no more lines can be made, `broken` is told why. What makes them ends when the
 * request is `over`: fetch reads on behind an answer that came early.
 */
function linesOf(lines: Lines<unknown>, over: AbortSignal, broken: (by: unknown) => void): string | Uint8Array | ReadableStream<Uint8Array> {
  if (typeof lines === "string") return unicode(lines);
  if (lines instanceof Uint8Array) return lines;
  const encoder = new TextEncoder();
  const from = Symbol.asyncIterator in lines ? lines[Symbol.asyncIterator]() : lines[Symbol.iterator]();
  const web = lines instanceof ReadableStream; // whose parts nothing tells from lines where they are text
  const cut = (lines as { readableObjectMode?: boolean }).readableObjectMode === false; // a stream of Node's, of bytes or text
  let open = true;
  const end = async () => {
    if (open) await from.return?.();
    open = false;
  };
  over.addEventListener("abort", () => void end().catch(() => undefined), { once: true });
  return new ReadableStream<Uint8Array>({
    async pull(controller) {
      if (over.aborted) return controller.error(over.reason);
      let text = "";
      while (text.length < 16_384) {
        let next;
        try {
          next = await from.next();
          if (web && typeof next.value === "string") throw new UsageError("a stream of text may be cut anywhere: pipe it through a TextEncoderStream");
          if (!next.done && !(next.value instanceof Uint8Array)) text += cut ? unicode(String(next.value)) : lineOf(next.value);
        } catch (by) {
          broken(by);
          throw by;
        }
        if (next.done) {
          open = false;
          if (text) controller.enqueue(encoder.encode(text));
          return controller.close();
        }
        if (next.value instanceof Uint8Array) { // a part, wherever it was cut
          controller.enqueue(encoder.encode(text));
          return controller.enqueue(next.value);
        }
      }
      controller.enqueue(encoder.encode(text));
    },
    cancel: end,
  });
}

/**
 * JSON has no such numbers and times, and null, which JSON.stringify writes, would take a trait away. Of a Map or a
 * Set it writes an empty object.
 */
function told(this: Record<string, unknown>, name: string, value: unknown): unknown {
  if (typeof value === "number" && !Number.isFinite(value)) throw new UsageError(`${name} is a number that JSON has not`);
  if (value instanceof Map || value instanceof Set) throw new UsageError(`${name} is a Map or a Set: JSON has objects and arrays`);
  if (value === null && this[name] instanceof Date) throw new UsageError(`${name} is a Date that is no time`);
  return value;
}

function jsonOf(value: unknown): string {
  try {
    return JSON.stringify(value, told);
  } catch (cause) {
    throw cause instanceof UsageError ? cause : new UsageError("it cannot be sent as JSON", { cause });
  }
}

function lineOf(line: unknown): string {
  if (typeof line !== "string") return `${jsonOf(line)}\n`;
  return unicode(line).endsWith("\n") ? line : `${line}\n`;
}

function queryOf(query: object | undefined): string {
  const values = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value !== undefined && value !== null) values.set(name, unicode(Array.isArray(value) ? value.join(",") : String(value)));
  }
  const text = values.toString();
  return text && `?${text}`;
}

/** Of a pair of surrogates, which is no character: another would be sent in its place. */
const half = /\p{Surrogate}/u;

function unicode(text: string): string {
  if (half.test(text)) throw new UsageError("a text is no Unicode");
  return text;
}

/**
 * An id as a part of a path.
 * @internal
 */
export function segment(id: string): string {
  if (typeof id !== "string" || id === "" || id === "." || id === ".." || half.test(id)) return "\0";
  return encodeURIComponent(id).replaceAll("%3A", ":");
}

function problemOf(response: Response, body: Uint8Array[]): unknown {
  if (mediaOf(response.headers.get("Content-Type") ?? "") !== "application/problem+json") return undefined;
  try {
    return jsonIn(body);
  } catch {
    return undefined; // it is told as something that was on the way
  }
}

/** A type without its parameters, or nothing where two are told. */
function mediaOf(type: string): string {
  return type.includes(",") ? "" : (type.split(";")[0] ?? "").trim().toLowerCase();
}

/** The three forms of a date of HTTP (RFC 9110, section 5.6.7). */
const date = new RegExp(
  "^([A-Z][a-z]{2}, \\d\\d [A-Z][a-z]{2} \\d{4} \\d\\d:\\d\\d:\\d\\d GMT" +
    "|[A-Z][a-z]+day, \\d\\d-[A-Z][a-z]{2}-\\d\\d \\d\\d:\\d\\d:\\d\\d GMT" +
    "|[A-Z][a-z]{2} [A-Z][a-z]{2} [ \\d]\\d \\d\\d:\\d\\d:\\d\\d \\d{4})$",
);

/** Milliseconds, from digits, which are seconds, or from a date (RFC 9110, section 10.2.3), and from nothing else. */
function retryAfter(text: string | null): number {
  text = (text ?? "").trim(); // undici leaves spaces at the end
  if (/^\d+$/.test(text)) return Math.min(Number(text), 2 ** 31) * 1000;
  if (!date.test(text)) return 0;
  const at = Date.parse(/:\d\d \d{4}$/.test(text) ? `${text} GMT` : text); // as asctime writes it: in UTC (RFC 9110, section 5.6.7)
  return Math.max(0, at - Date.now()) || 0;
}

/** The client's id in a token, which is not verified: the service does that. */
function audience(text: string): string {
  try {
    const payload = (text.split(".")[1] ?? "").replaceAll("-", "+").replaceAll("_", "/");
    const { aud } = JSON.parse(atob(payload)) as { aud?: string | string[] };
    return (Array.isArray(aud) ? aud[0] : aud) ?? "";
  } catch {
    return "";
  }
}

/** Aborts when a call has had its time, unless it is stopped first: Node holds an AbortSignal.timeout until then, 2 kB a call. */
function timeOf(ms: number): { over: AbortSignal; stop: () => void } {
  const own = new AbortController();
  const timer: unknown = setTimeout(() => own.abort(), Math.min(Math.max(0, Math.ceil(ms) || 0), longestTimer));
  (timer as { unref?: () => void }).unref?.(); // no process of Node's waits for it
  return { over: own.signal, stop: () => clearTimeout(timer as ReturnType<typeof setTimeout>) };
}

function unlessAborted<T>(work: Promise<T>, ends: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const abort = () => reject(ends.reason as Error);
    work.then(resolve, reject).finally(() => ends.removeEventListener("abort", abort));
    if (ends.aborted) return abort();
    ends.addEventListener("abort", abort, { once: true });
  });
}

/**
 * Waits, at most until the call ends; whoever called finds that out.
 * @internal
 */
export function sleep(ms: number, ends: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const stop = () => {
      clearTimeout(timer);
      ends.removeEventListener("abort", stop);
      resolve();
    };
    const timer = setTimeout(stop, Math.min(ms, longestTimer));
    ends.addEventListener("abort", stop, { once: true });
  });
}
