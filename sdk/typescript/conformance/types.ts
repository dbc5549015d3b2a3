// What tsc has to take: it is checked, and run by nobody.
import type { EventDelivery, Kindred, PublicEvent } from "kindred";

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
