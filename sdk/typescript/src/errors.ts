import type { FieldError, ProblemCode } from "./types.gen.js";

/** Any fault of a call; `attempts` tells how often the request was sent. */
export class KindredError extends Error {
  attempts = 0;
  override readonly name: string = "KindredError";
}

/** What is of kindred's form: what is on the way has problems of others. */
function isPlace(e: Partial<FieldError> | null): e is FieldError {
  return typeof e?.pointer === "string" && typeof e.detail === "string";
}

/** A refusal of the service. Decide by `code`, never by `detail`. */
export class RefusedError extends KindredError {
  override readonly name = "RefusedError";
  readonly status: number;
  /** Empty where something on the way has answered. */
  readonly code: ProblemCode | "";
  readonly detail: string;
  readonly requestId: string;
  /** Each place of the input that is wrong. */
  readonly errors: FieldError[];
  /** How long the service asks to wait, in milliseconds. */
  readonly retryAfterMs: number;

  constructor(status: number, requestId: string, retryAfterMs: number, problem: unknown) {
    const p = (typeof problem === "object" && problem !== null ? problem : {}) as Record<string, unknown>;
    const code = typeof p["code"] === "string" ? p["code"] : "";
    const detail = typeof p["detail"] === "string" ? p["detail"] : "something on the way to kindred has answered";
    const errors = Array.isArray(p["errors"]) ? (p["errors"] as (Partial<FieldError> | null)[]).filter(isPlace) : [];
    const places = errors.map((e) => `; ${e.pointer} ${e.detail}`).join("");
    super(`${status} ${code}: ${detail}${places}${requestId && ` (${requestId})`}`);
    this.status = status;
    this.code = code;
    this.detail = detail;
    this.errors = errors;
    this.requestId = requestId;
    this.retryAfterMs = retryAfterMs;
  }
}

/** Nothing, or half an answer, came back. */
export class ConnectionError extends KindredError {
  override readonly name = "ConnectionError";
  /**
   * Whether nobody knows what became of the request.
   * @internal
   */
  lost = true;
  /**
   * Whether another attempt may go better.
   * @internal
   */
  passes = true;
}

/** The call took longer than it may. */
export class TimeoutError extends KindredError {
  override readonly name = "TimeoutError";
}

/** What came back is not an answer of kindred. */
export class AnswerError extends KindredError {
  override readonly name = "AnswerError";
}

/** The arguments cannot be used. */
export class UsageError extends KindredError {
  override readonly name = "UsageError";
}

/** A delivery that is refused, and why. */
export class WebhookError extends KindredError {
  override readonly name = "WebhookError";
  readonly reason: "signature_missing" | "signature_wrong" | "timestamp" | "event" | "other_client";

  constructor(reason: WebhookError["reason"]) {
    super(reason);
    this.reason = reason;
  }
}
