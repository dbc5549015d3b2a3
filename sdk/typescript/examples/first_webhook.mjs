// Signs up, subscribes to an event, has one sent and verifies it.
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:http";

import { Kindred, Verifier } from "kindred";

const secret = "whsec_Zmlyc3Qtc3RlcHMtd2l0aC1raW5kcmVkLQ==";
const baseUrl = process.env["KINDRED_URL"] ?? "http://127.0.0.1:8080";

const up = await new Kindred({ baseUrl }).authentication.signUp({
  email: `${randomUUID()}@example.com`,
  password: randomUUID(),
  company_name: "Acme",
});
const key = await new Kindred({ baseUrl, token: up.token }).apiKeys.create({ name: "backend" });
const kindred = new Kindred({ baseUrl, apiKey: key.raw_key });

// What a server of yours would have: it answers 204 to what it has verified, and 401 to everything else.
const verifier = new Verifier({ secrets: [secret], clientId: up.client.id });
const server = createServer(async (request, response) => {
  try {
    const parts = [];
    for await (const part of request) parts.push(part);
    const event = await verifier.verify(request.headers, Buffer.concat(parts));
    response.writeHead(204).end();
    server.emit("event", event);
  } catch {
    response.writeHead(401).end();
  }
});
server.listen(0, "127.0.0.1");
await once(server, "listening");
const address = server.address();
if (address === null || typeof address === "string") throw new Error("the server has no port");
const { port } = address;

const hook = await kindred.webhooks.create({ url: `http://127.0.0.1:${port}/hooks`, event_types: ["match.computed"], secret });
const arrived = once(server, "event", { signal: AbortSignal.timeout(60_000) });
await kindred.webhooks.test(hook.id, { event_type: "match.computed" });
const [event] = await arrived;
console.log("verified", event.event_type, event.id);
server.close();
server.closeAllConnections();
