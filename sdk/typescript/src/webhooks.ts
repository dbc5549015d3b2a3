import type { EventDelivery, EventType } from "./types.gen.js";
import { UsageError, WebhookError } from "./errors.js";

export { WebhookError } from "./errors.js";

/** The event of a delivery. `id` is the same at every attempt and redelivery; the contract's scheme has none. */
export type WebhookEvent = EventDelivery & { id?: string };

/** Headers as fetch or Node's http module have them. */
export type HeadersLike = Headers | Record<string, string | string[] | undefined>;

export interface VerifierOptions {
  /** Of the subscription, `whsec_…` or any text. What any of them has signed is accepted. */
  secrets?: string[] | undefined;
  /** Of the client, `whpk_…`, for `v1a`. */
  publicKeys?: string[] | undefined;
  /** `cli_…`; events of others are refused. Set it with `publicKeys`. */
  clientId?: string | undefined;
  /** Seconds between the signature's time and now; 300 by default. */
  toleranceSeconds?: number | undefined;
  /** Milliseconds since 1970, for tests. */
  now?: (() => number) | undefined;
}

const encoder = new TextEncoder();
const hmac = { name: "HMAC", hash: "SHA-256" };

/**
 * Verifies deliveries. It accepts what any of its secrets or keys has signed, so a receiver that holds the
 * old and the new ones goes on through a rotation, whichever side changes first.
 */
export class Verifier {
  readonly #o: VerifierOptions;

  constructor(options: VerifierOptions) {
    if (typeof options.secrets === "string" || typeof options.publicKeys === "string") {
      throw new UsageError("secrets and publicKeys are lists: each letter of a text would be a secret"); // JavaScript has no types
    }
    this.#o = options;
  }

  /** Checks Standard Webhooks signatures, `v1` and `v1a`, and the time. The body must be the bytes that came. */
  async verify(headers: HeadersLike, body: string | ArrayBuffer | ArrayBufferView): Promise<WebhookEvent> {
    const id = headerOf(headers, "webhook-id");
    const at = headerOf(headers, "webhook-timestamp");
    const signatures = headerOf(headers, "webhook-signature").split(" ").filter(Boolean);
    const { secrets = [], publicKeys = [], toleranceSeconds = 300, now = Date.now } = this.#o;
    if (!id || !at || signatures.length === 0 || secrets.length + publicKeys.length === 0) throw new WebhookError("signature_missing");
    if (!/^(0|[1-9]\d{0,14})$/.test(at) || !(Math.abs(Math.floor(now() / 1000) - Number(at)) < toleranceSeconds)) throw new WebhookError("timestamp");
    const bytes = bytesOf(body);
    const message = joined(encoder.encode(`${id}.${at}.`), bytes);
    let right = false;
    for (const one of signatures) {
      const comma = one.indexOf(",");
      const scheme = one.slice(0, comma);
      const given = fromBase64(one.slice(comma + 1));
      if (!given) continue;
      if (scheme === "v1") {
        for (const secret of secrets) right = (await mac(standardKey(secret), given, message)) || right;
      } else if (scheme === "v1a") {
        for (const key of publicKeys) right = (await ed25519(key, given, message)) || right;
      }
    }
    if (!right) throw new WebhookError("signature_wrong");
    return { ...this.#open(bytes), id };
  }

  /**
   * Checks `X-Service-Signature`, which covers the body alone: whoever has seen a delivery can send it again.
   * Prefer `verify`.
   */
  async verifyContract(headers: HeadersLike, body: string | ArrayBuffer | ArrayBufferView): Promise<WebhookEvent> {
    const text = headerOf(headers, "x-service-signature");
    const { secrets = [] } = this.#o;
    if (!/^([0-9a-f]{2})+$/.test(text) || secrets.length === 0) throw new WebhookError("signature_missing");
    const given = Uint8Array.from(text.match(/../g) ?? [], (pair) => parseInt(pair, 16));
    const bytes = bytesOf(body);
    let right = false;
    for (const secret of secrets) right = (await mac(encoder.encode(secret), given, bytes)) || right;
    if (!right) throw new WebhookError("signature_wrong");
    return this.#open(bytes);
  }

  #open(body: Uint8Array): EventDelivery {
    let event: EventDelivery;
    try {
      event = JSON.parse(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(body)) as EventDelivery;
    } catch {
      throw new WebhookError("event");
    }
    const data: unknown = event?.data;
    if (typeof event?.event_type !== "string" || !event.event_type || typeof data !== "object" || data === null || Array.isArray(data)) throw new WebhookError("event");
    if (this.#o.clientId !== undefined && event.data.client_id !== this.#o.clientId) throw new WebhookError("other_client");
    return event;
  }
}

/** Makes the headers with which kindred would deliver a body, for tests of receivers. */
export async function sign(secret: string, id: string, atSeconds: number, eventType: EventType, body: string): Promise<Record<string, string>> {
  if (standardKey(secret).length === 0) throw new UsageError("the secret is empty");
  const standard = await made(standardKey(secret), encoder.encode(`${id}.${atSeconds}.${body}`));
  const contract = await made(encoder.encode(secret), encoder.encode(body));
  return {
    "content-type": "application/json",
    "x-service-event": eventType,
    "x-service-signature": Array.from(contract, (b) => b.toString(16).padStart(2, "0")).join(""),
    "webhook-id": id,
    "webhook-timestamp": String(atSeconds),
    "webhook-signature": `v1,${btoa(String.fromCharCode(...standard))}`,
  };
}

/**
 * Makes a delivery of an event, for tests of receivers. An id is made up and the time is now where they are left
 * out.
 */
export async function signed(
  secret: string,
  event: Pick<WebhookEvent, "event_type" | "data"> & { id?: string; timestamp?: string },
): Promise<{ headers: Record<string, string>; body: string }> {
  const { event_type, data, id = `evt_${crypto.randomUUID().replaceAll("-", "")}`, timestamp = new Date().toISOString() } = event;
  const body = JSON.stringify({ event_type, data, timestamp });
  return { headers: await sign(secret, id, Math.floor(Date.parse(timestamp) / 1000), event_type, body), body };
}

/** What kindred signs with: the bytes that stand in base64 behind `whsec_`, or the text of any other secret. */
function standardKey(secret: string): Uint8Array {
  const text = /^whsec_([A-Za-z0-9+/]*)=*$/.exec(secret.replace(/[\r\n]/g, ""))?.[1];
  if (text === undefined || text.length % 4 === 1) return encoder.encode(secret);
  return Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
}

/** Whether a key has signed; an empty one, which anybody has, never has. */
async function mac(key: Uint8Array, given: Uint8Array, message: Uint8Array): Promise<boolean> {
  if (key.length === 0) return false;
  const imported = await crypto.subtle.importKey("raw", key as BufferSource, hmac, false, ["verify"]);
  return crypto.subtle.verify("HMAC", imported, given as BufferSource, message as BufferSource);
}

async function made(key: Uint8Array, message: Uint8Array): Promise<Uint8Array> {
  const imported = await crypto.subtle.importKey("raw", key as BufferSource, hmac, false, ["sign"]);
  return new Uint8Array(await crypto.subtle.sign("HMAC", imported, message as BufferSource));
}

async function ed25519(text: string, given: Uint8Array, message: Uint8Array): Promise<boolean> {
  const key = fromBase64(text.trim().replace(/^whpk_/, ""));
  if (key?.length !== 32) return false;
  const imported = await crypto.subtle.importKey("raw", key as BufferSource, { name: "Ed25519" }, false, ["verify"]);
  return crypto.subtle.verify({ name: "Ed25519" }, imported, given as BufferSource, message as BufferSource);
}

/** JavaScript lets anything be given, such as what a framework has parsed. */
function bytesOf(body: string | ArrayBuffer | ArrayBufferView): Uint8Array {
  if (typeof body === "string") return encoder.encode(body);
  if (ArrayBuffer.isView(body)) return new Uint8Array(body.buffer, body.byteOffset, body.byteLength);
  if (Object.prototype.toString.call(body) === "[object ArrayBuffer]") return new Uint8Array(body); // of another realm, too
  throw new UsageError("the body must be the bytes that came, before anything has parsed them");
}

function headerOf(headers: HeadersLike, name: string): string {
  const { get } = headers as Headers;
  if (typeof get === "function") return get.call(headers, name) ?? ""; // of another module's Headers, too
  for (const [key, value] of Object.entries(headers)) {
    if (key.toLowerCase() === name) return (Array.isArray(value) ? value[0] : value) ?? "";
  }
  return "";
}

function joined(a: Uint8Array, b: Uint8Array): Uint8Array {
  const out = new Uint8Array(a.length + b.length);
  out.set(a);
  out.set(b, a.length);
  return out;
}

/** Canonical base64 alone: of the texts that decode to the same bytes, one is taken. */
function fromBase64(text: string): Uint8Array | undefined {
  try {
    const binary = atob(text);
    if (btoa(binary) !== text) return undefined;
    return Uint8Array.from(binary, (c) => c.charCodeAt(0));
  } catch {
    return undefined;
  }
}
