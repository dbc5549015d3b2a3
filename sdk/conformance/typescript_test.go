package conformance

import (
	"os/exec"
	"slices"
	"testing"
)

// runsNode runs a program of JavaScript that fails where something is not as it should be.
func runsNode(t *testing.T, program string) {
	t.Helper()
	t.Parallel()
	if !slices.Contains(sdks(), "typescript") {
		return
	}
	cmd := exec.CommandContext(t.Context(), "node", "--input-type=module", "-e", program, tokenOf(0))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// A signal that ends with the process is given to every call of it.
func TestASignalOfTypeScriptHoldsNothingOfWhatHasEnded(t *testing.T) {
	runsNode(t, `
import { Kindred } from "../typescript/build/src/index.js";
const fetch = async (url) => new Response(url.includes("members") ? "user_id\n" : "{}", {
  headers: { "Content-Type": url.includes("members") ? "text/csv" : "application/json" },
});
process.on("warning", (warning) => { throw warning; });
const kindred = new Kindred({ baseUrl: "http://127.0.0.1:1", token: process.argv[1], fetch });
const { signal } = new AbortController();
for (let n = 0; n < 50; n++) {
  await kindred.users.get("usr_1", { signal });
  await kindred.users.erase("usr_1", { signal });
  for await (const line of kindred.segments.listMembersCsv("seg_1", { signal })) if (line !== "user_id\n") process.exit(3);
}
await Promise.all(Array.from({ length: 50 }, () => kindred.users.get("usr_1", { signal })));
const held = Object.getOwnPropertySymbols(signal).map((name) => [String(name), signal[name]?.size ?? 0]);
if (held.some(([, size]) => size > 0)) throw new Error(JSON.stringify(held));
const ends = new AbortController();
const calls = [1, 2].map(() => kindred.users.get("usr_1", { signal: ends.signal }).then(() => "done", (fault) => fault));
ends.abort("enough");
for (const call of calls) if ((await call) !== "enough") throw await call;
`)
}

// What AbortSignal.any makes of a signal holds it weakly, so that a collection of garbage took the time away.
func TestAnExportOfTypeScriptEndsInItsTimeAndWhereItIsCancelled(t *testing.T) {
	runsNode(t, `
import { createServer } from "node:http";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { Kindred, TimeoutError } from "../typescript/build/src/index.js";
setFlagsFromString("--expose-gc");
const collect = runInNewContext("gc");
const server = createServer((request, response) => {
  response.writeHead(200, { "Content-Type": "application/x-ndjson" });
  const goesOn = setInterval(() => response.write("{}\n"), 5);
  response.on("close", () => clearInterval(goesOn));
});
server.listen(0, "127.0.0.1", async () => {
  const kindred = new Kindred({ baseUrl: "http://127.0.0.1:" + server.address().port, token: process.argv[1] });
  const read = async (options) => {
    let lines = 0;
    for await (const line of kindred.history.export(options)) {
      collect();
      if (++lines === 3) options.begun?.();
      if (lines > 2000) throw new Error("the export goes on");
    }
  };
  const late = await read({ timeoutMs: 500 }).catch((fault) => fault);
  if (!(late instanceof TimeoutError)) throw late;
  const ends = new AbortController();
  const cancelled = await read({ signal: ends.signal, begun: () => ends.abort("enough") }).catch((fault) => fault);
  if (cancelled !== "enough") throw cancelled;
  process.exit();
});
`)
}

// JavaScript lets a text be given, whose letters were secrets.
func TestATextIsNoListOfSecretsInTypeScript(t *testing.T) {
	runsNode(t, `
import { UsageError, Verifier } from "../typescript/build/src/index.js";
for (const options of [{ secrets: "whsec_c2VjcmV0" }, { publicKeys: "whpk_c2VjcmV0" }]) {
  try {
    new Verifier(options);
  } catch (fault) {
    if (fault instanceof UsageError) continue;
  }
  throw new Error(JSON.stringify(options));
}
`)
}

// A framework that parses bodies hands an object to whoever does not ask for the bytes.
func TestABodyThatWasParsedIsToldAsThatInTypeScript(t *testing.T) {
	runsNode(t, `
import { UsageError, Verifier, signed } from "../typescript/build/src/index.js";
const secret = "whsec_c2VjcmV0";
const { headers, body } = await signed(secret, { event_type: "match.computed", data: { client_id: "cli_1" } });
const verifier = new Verifier({ secrets: [secret] });
for (const parsed of [JSON.parse(body), undefined]) {
  for (const scheme of ["verify", "verifyContract"]) {
    const fault = await verifier[scheme](headers, parsed).catch((fault) => fault);
    if (!(fault instanceof UsageError)) throw fault;
  }
}
`)
}

// Request.arrayBuffer() gives an ArrayBuffer; a test runner has one of another realm.
func TestADeliveryOfTypeScriptMayBeOfAnyBytes(t *testing.T) {
	runsNode(t, `
import { runInNewContext } from "node:vm";
import { Verifier, signed } from "../typescript/build/src/index.js";
const secret = "whsec_c2VjcmV0";
const { headers, body } = await signed(secret, { event_type: "match.computed", data: { client_id: "cli_ü" } });
const verifier = new Verifier({ secrets: [secret] });
const whole = new TextEncoder().encode(body);
const inside = new Uint8Array([1, 2, 3, ...whole, 4]);
for (const one of [
  body, whole, whole.buffer.slice(0, whole.length), new DataView(inside.buffer, 3, whole.length), inside.subarray(3, 3 + whole.length),
  runInNewContext("(bytes) => { const copy = new Uint8Array(bytes.length); copy.set(bytes); return copy.buffer; }")(whole),
]) {
  for (const scheme of ["verify", "verifyContract"]) await verifier[scheme](headers, one);
}
`)
}

// JavaScript has no types, and those of TypeScript let traits be anything: a Set was sent as an empty object.
func TestWhatCannotBeUsedIsAUsageErrorInTypeScript(t *testing.T) {
	runsNode(t, `
import { Kindred, UsageError } from "../typescript/build/src/index.js";
import { FakeKindred } from "../typescript/build/src/testing.js";
const fake = new FakeKindred();
const { users } = new Kindred(fake.options);
const calls = [
  () => users.get(undefined),
  () => users.erase(5),
  () => users.import(undefined),
  () => users.import(null),
  () => users.import({ external_id: "u" }),
  () => users.importLater(5),
];
for (const a of [new Set(["jazz"]), new Map([["a", 1]]), new Date("no time"), [new Set()], NaN]) {
  calls.push(() => users.create({ external_id: "u", traits: { a } }));
  calls.push(() => users.import([{ external_id: "u", traits: { a } }]));
}
for (const call of calls) {
  const fault = await Promise.resolve().then(call).then(() => "it was taken", (fault) => fault);
  if (!(fault instanceof UsageError)) throw new Error(call + ": " + fault, { cause: fault });
}
if (fake.requests.length > 0) throw new Error(JSON.stringify(fake.requests));
const made = await users.create({ external_id: "u", traits: { at: new Date(0), none: null } });
if (made.traits.at !== "1970-01-01T00:00:00.000Z" || made.traits.none !== null) throw new Error(JSON.stringify(made));
`)
}
