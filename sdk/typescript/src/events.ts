import type { PublicEvent } from "./types.gen.js";
import type { CallOptions, Caller, Request } from "./caller.js";
import { answer, dataOf, isOf, jitterOf, linesOfBody, longestLine, longestTimer, sleep, tied } from "./caller.js";
import { AnswerError, ConnectionError, TimeoutError } from "./errors.js";

const silence = 600_000; // that a follower bears
const remembered = 1024; // ids of events
const tooSoon = 1000; // for an empty page that was to be waited for

/** Where a follower is. It passes over events that come twice. */
class Place {
  readonly #seen = new Set<string>();

  /** Whether an event is new. */
  take(id: string): boolean {
    if (this.#seen.has(id)) return false;
    this.#seen.add(id);
    if (this.#seen.size > remembered) {
      for (const oldest of this.#seen) {
        this.#seen.delete(oldest);
        break;
      }
    }
    return true;
  }
}

interface Page {
  data: PublicEvent[];
  has_more: boolean;
  last_id: string | null;
}

/**
 * Reads events page by page and goes on behind the last. Where pages are waited for it ends with an error alone.
 * @internal
 */
export async function* pulled(c: Caller, r: Request, options: CallOptions = {}): AsyncGenerator<PublicEvent, void, undefined> {
  const place = new Place();
  const call = { ...options, timeoutMs: options.timeoutMs ?? c.timeoutMs ?? silence };
  let query: Record<string, unknown> = { ...r.query };
  const waits = Number(query["wait"] ?? 0) > 0;
  for (let soon = 0; ; ) {
    const asked = performance.now();
    const page: Page = await answer(c, { ...r, query, persists: true }, call);
    let fresh = false;
    for (const event of dataOf(page)) {
      if (!place.take(idOf(event))) continue;
      fresh = true;
      yield event;
    }
    if (page.data.length > 0 && !fresh) throw new AnswerError("its events are those of the page before");
    if (!page.has_more && !waits) return;
    if (page.last_id) query = { ...query, after: page.last_id };
    if (page.data.length > 0 || performance.now() - asked >= tooSoon) soon = 0;
    else await sleep(jitterOf(++soon), options.signal ?? new AbortController().signal);
    options.signal?.throwIfAborted();
  }
}

/**
 * Reads Server-Sent Events, and connects again behind the last. It ends with an error alone.
 * @internal
 */
export async function* followed(c: Caller, r: Request, options: CallOptions = {}): AsyncGenerator<PublicEvent, void, undefined> {
  const place = new Place();
  const bears = options.timeoutMs ?? c.timeoutMs ?? silence;
  const { own, untie } = tied(options.signal);
  let failures = 0;
  let last = performance.now();
  let lost: unknown;
  const request: Request = { ...r, accept: "text/event-stream", persists: true };
  try {
    for (;;) {
      const left = bears - (performance.now() - last);
      if (left <= 0) throw new TimeoutError("nothing came for too long", { cause: lost });
      let heard = false;
      const over = new AbortController();
      let quiet = setTimeout(() => over.abort(), Math.min(left, longestTimer));
      try {
        const stream = await c.send({ ...request, over: over.signal }, { ...options, signal: own.signal, timeoutMs: left }, readEvents);
        for await (const event of stream) {
          clearTimeout(quiet); // whoever takes the event may take its time
          heard = true;
          if (event && place.take(event.id)) {
            yield event;
            request.lastEventId = event.id; // for the next connection
          }
          last = performance.now();
          quiet = setTimeout(() => over.abort(), Math.min(bears, longestTimer));
        }
      } catch (e) {
        options.signal?.throwIfAborted();
        if (!(e instanceof ConnectionError) || !e.passes) throw e;
        lost = e;
      } finally {
        clearTimeout(quiet);
      }
      failures = heard ? 0 : failures + 1;
      await sleep(jitterOf(failures), own.signal); // or a stream that ends whenever it began would be asked for without end
      options.signal?.throwIfAborted();
    }
  } finally {
    untie();
    own.abort();
  }
}

async function readEvents(response: Response, watch: (on: boolean) => void): Promise<AsyncGenerator<PublicEvent | undefined, void, undefined>> {
  return eventsIn(isOf(response, "text/event-stream"), watch);
}

/** The events of a stream (HTML standard, section 9.2), and undefined for a comment. What is cut is no event. */
async function* eventsIn(response: Response, watch: (on: boolean) => void): AsyncGenerator<PublicEvent | undefined, void, undefined> {
  let id = "";
  let data: string | undefined;
  if (!response.body) return;
  try {
    watch(true);
    for await (const whole of linesOfBody(response.body, watch)) {
      const line = whole.endsWith("\r") ? whole.slice(0, -1) : whole;
      const colon = line.indexOf(":");
      const name = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? "" : line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1);
      if (line === "") {
        yield data === undefined ? undefined : read(id, data);
        id = "";
        data = undefined;
      } else if (name === "id") {
        id = value;
      } else if (name === "data") {
        data = data === undefined ? value : `${data}\n${value}`;
        if (data.length > longestLine) throw new AnswerError("an event is longer than 16 MiB");
      } else if (name === "" && id === "" && data === undefined) {
        yield undefined; // it says that the stream lives
      }
    }
  } finally {
    watch(false);
  }
}

function read(id: string, data: string): PublicEvent {
  let body: PublicEvent;
  try {
    body = JSON.parse(data) as PublicEvent;
  } catch (cause) {
    throw new AnswerError("an event is not JSON", { cause });
  }
  const event = { ...body, id };
  idOf(event);
  return event;
}

function idOf(event: PublicEvent): string {
  const data: unknown = event?.data;
  if (typeof event?.id !== "string" || !event.id || typeof event.event_type !== "string") throw new AnswerError("an event has no id or type");
  if (typeof data !== "object" || data === null || Array.isArray(data)) throw new AnswerError("an event has no data");
  return event.id;
}
