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
