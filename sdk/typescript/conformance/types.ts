// What tsc has to take: it is checked, and run by nobody.
import type { CallOptions, EventDelivery, Options, PublicEvent } from "kindred";
import { Kindred } from "kindred";

/** What is pulled or followed is told apart by its type, as what is delivered is. */
export async function typed(kindred: Kindred): Promise<number> {
  let sum = 0;
  for await (const event of kindred.events.follow()) {
    if (event.event_type === "match.computed") sum += event.data.score;
    sum += handled(event);
  }
  for await (const event of kindred.events.pull()) {
    if (event.event_type === "clustering.completed") sum += event.data.clusters.length + event.id.length;
  }
  return sum;
}

function handled(event: EventDelivery | PublicEvent): number {
  return event.event_type === "match.computed" ? event.data.score : 0;
}

/** What may be left out may be undefined, also under exactOptionalPropertyTypes: it comes of the environment, or of a page. */
export async function optional(env: Record<string, string | undefined>, next: string | undefined, signal: AbortSignal | undefined): Promise<void> {
  const options: Options = { apiKey: env["KEY"], baseUrl: env["URL"] };
  const call: CallOptions = { signal, timeoutMs: undefined };
  await new Kindred(options).users.listPage({ cursor: next }, call);
}
