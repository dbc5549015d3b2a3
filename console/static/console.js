// What makes pages nicer: they are whole without it. The server puts the words before it.
const put = (text, value) => text.replace("{0}", () => value);

// The reader's time zone, so that the server writes times in it.
const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
if (zone && !document.cookie.split("; ").includes("kindred-zone=" + zone)) {
  document.cookie = "kindred-zone=" + zone + "; path=/console/; max-age=31536000; samesite=lax" + (location.protocol === "https:" ? "; secure" : "");
}

// A button that copies, beside each sample and secret.
if (navigator.clipboard) for (const sample of document.querySelectorAll("pre, .secret")) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "btn small";
  button.textContent = words.copy;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(sample.textContent.trim());
    button.textContent = words.copied;
    setTimeout(() => { button.textContent = words.copy; }, 1500);
  });
  sample.after(button);
}

// A form that was refused begins at what is wrong in it, and another page at what was done, or why it was not.
for (const wrong of document.querySelectorAll(".wrong")) wrong.closest("label, fieldset")?.querySelector("input, select, textarea")?.setAttribute("aria-invalid", "true");
const invalid = document.querySelector("[aria-invalid]"), told = document.querySelector("main > :is([role=alert], [role=status])");
if (invalid) invalid.focus();
else if (told && !document.querySelector("[autofocus]")) { // screen readers read out what is focused, not what a page begins with
  told.tabIndex = -1;
  told.focus();
}

// Forms are sent once, also of parts that were read again. Nothing tells that a reader stops one that loads, so its buttons
// rest for 10 s.
addEventListener("submit", ({ target }) => {
  if (target.matches("[method=post]")) for (const button of target.querySelectorAll("button")) {
    setTimeout(() => { button.disabled = true; });
    setTimeout(() => { button.disabled = false; }, 10_000);
  }
});
// Whoever comes back to a form that has made something, and sends it as it was, makes no second one: it has its key again.
const returned = performance.getEntriesByType("navigation")[0]?.type === "back_forward";
for (const { action, elements: { key } } of document.querySelectorAll("form[data-makes]")) {
  const had = returned && history.state?.[action];
  if (had) key.value = had;
  else history.replaceState({ ...history.state, [action]: key.value }, "");
}
// Work that takes more than one request goes on while it is looked at.
for (const form of document.querySelectorAll("form[data-goes-on]")) setTimeout(() => form.requestSubmit(), 1000);
addEventListener("pageshow", () => { for (const b of document.querySelectorAll("form button")) b.disabled = false; });

// pageOf is an answer as a page; null where there is none, as when one goes on to another page meanwhile. part finds a part
// of it, unless it was refused, or is of another client than this page: a sandbox was opened or left in another tab. A form
// that was refused is at an address that leads to its page.
const pageOf = async (url, options) => {
  try {
    const answer = await fetch(url, options), page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const client = (of) => of.querySelector(".where")?.textContent;
    return { page, ok: answer.ok, status: answer.status, part: (id) => answer.ok && client(page) === client(document) && page.getElementById(id) };
  } catch { return null; }
};

// A file is looked into before it is imported: its beginning goes, and it stays chosen.
for (const button of document.querySelectorAll("button[data-shows]")) button.addEventListener("click", async (e) => {
  const file = button.form.querySelector("[type=file]").files[0], part = document.getElementById(button.dataset.shows);
  if (!file) return;
  e.preventDefault();
  button.disabled = true;
  part.textContent = words.reading;
  const body = new FormData();
  body.append("file", file.slice(0, 16 << 20), file.name);
  const answer = await pageOf(button.formAction, { method: "POST", body });
  part.replaceChildren(...(answer?.part(part.id)?.childNodes ?? answer?.page.querySelectorAll("[role=alert], .note[role=status]") ?? []));
  if (!part.childNodes.length) part.textContent = words.the_file_could_not;
  button.disabled = false;
});

// A part that changes by itself is read again while it is looked at and nothing is typed.
for (const part of document.querySelectorAll("[data-refresh]")) {
  const live = (of) => of?.querySelector("[data-tail]")?.removeAttribute("hidden");
  live(part);
  setInterval(async () => {
    const now = document.getElementById(part.id);
    if (document.hidden || now.contains(document.activeElement) || now.querySelector("details[open], button:disabled")) return;
    const next = (await pageOf(location.href))?.part(part.id);
    live(next);
    const tail = now.querySelector("[data-tail]");
    if (tail && !next) tail.textContent = words.not_connected_tries_again;
    if (next && next.innerHTML !== now.innerHTML) now.replaceWith(next);
  }, 1000 * part.dataset.refresh);
}

// A part that takes long is asked for once the page is there. The page says why there is none.
for (const part of document.querySelectorAll("[data-later]")) (async () => {
  const button = part.querySelector(".btn"), said = button?.textContent;
  if (button) button.textContent = words.reading;
  part.setAttribute("aria-busy", "true");
  const answer = await pageOf(part.dataset.later), next = answer?.part(part.id);
  part.removeAttribute("aria-busy");
  if (button) button.textContent = said;
  if (next) part.replaceWith(next);
  else if (answer?.status === 422) location.replace(part.dataset.later);
})();

// Whom a rule names, while it is typed, and once it is typed again by a browser that comes back to the page.
for (const rule of document.querySelectorAll("[data-count]")) {
  const question = (text = rule.value) => encodeURIComponent(text.trim()) + (rule.form.elements.layer?.value ? "&layer=" + rule.form.elements.layer.value : "");
  let typed, answered = question(rule.defaultValue);
  const ask = () => {
    clearTimeout(typed);
    const asked = question();
    rule.classList.toggle("ahead", asked !== answered); // of what stands beside it, which is greyed
    if (asked !== answered) typed = setTimeout(async () => {
      const answer = await pageOf(rule.dataset.count + asked);
      const next = asked === question() && answer?.part("named"); // what is not whole yet is refused
      if (!next) return;
      document.getElementById("named").replaceChildren(...next.childNodes);
      rule.classList.remove("ahead");
      answered = asked;
    }, 400);
  };
  rule.form.addEventListener("input", ask);
  addEventListener("pageshow", ask);
}

// On a narrow screen the rail is a bar, which shows where one is.
document.querySelector(".rail [aria-current=page]")?.scrollIntoView({ block: "nearest", inline: "center" });

// "/" finds.
addEventListener("keydown", (e) => {
  const find = document.querySelector("input[name=find]");
  if (e.key === "/" && find && !/^(input|textarea|select)$/i.test(document.activeElement.tagName)) {
    e.preventDefault();
    find.focus();
  }
});

// A choice that leads to another page, without its button.
for (const choice of document.querySelectorAll("select[data-go]")) {
  choice.addEventListener("change", () => choice.form.submit());
  choice.form.querySelector("button")?.setAttribute("hidden", "");
}

// Events as they come, while the page is looked at.
const live = document.querySelector("[data-live]");
if (live && "EventSource" in window) {
  const list = live.querySelector("tbody"), state = document.querySelector("[data-live-state]");
  const say = (text) => { state.hidden = false; if (state.textContent !== text) state.textContent = text; }; // which readers of screens say aloud
  let source, again;
  const follow = () => {
    source?.close();
    clearTimeout(again);
    source = new EventSource("/console/live" + (live.dataset.after ? "?after=" + encodeURIComponent(live.dataset.after) : ""));
    source.onopen = () => say(words.live);
    source.onerror = () => {
      say(words.not_connected_tries_again);
      if (source.readyState === EventSource.CLOSED && !document.hidden) again = setTimeout(follow, 3000); // a browser tries no more after an answer that is no stream, as of a proxy
    };
    source.onmessage = (e) => {
      const event = JSON.parse(e.data), row = document.createElement("tr");
      live.dataset.after = e.lastEventId;
      [new Date(event.timestamp).toLocaleTimeString([], { hour12: false }), event.event_type, JSON.stringify(event.data)].forEach((text, i) => {
        const cell = row.insertCell();
        cell.className = live.rows[0].cells[i].className;
        cell.textContent = text;
      });
      list.prepend(row);
      while (list.rows.length > 100) list.deleteRow(-1);
      document.querySelector("[data-live-empty]")?.remove();
    };
  };
  document.addEventListener("visibilitychange", () => {
    clearTimeout(again);
    if (document.hidden) source?.close(); else follow();
  });
  if (!document.hidden) follow();
}

// A history is verified here, from the bytes that were answered: docs/history.md says how.
const material = document.querySelector("[data-material]");
if (material) verify(JSON.parse(material.dataset.material)).catch((e) => say("bad", put(words.this_could_not_be, e.message)));

function say(tone, text) {
  const line = document.createElement("span");
  line.className = "chip " + tone;
  line.textContent = text;
  document.querySelector("[data-verdict]").append(line);
}

async function verify({ event, proof, keys, client }) {
  if (!crypto.subtle) {
    say("warn", words.browsers_verify_on_https);
    return;
  }
  const text = new TextEncoder();
  const sha = async (...parts) => new Uint8Array(await crypto.subtle.digest("SHA-256", join(parts)));
  const join = (parts) => {
    const all = new Uint8Array(parts.reduce((n, p) => n + p.length, 0));
    let at = 0;
    for (const p of parts) { all.set(p, at); at += p.length; }
    return all;
  };
  const hex = (b) => Array.from(b, (x) => x.toString(16).padStart(2, "0")).join("");
  const bytes = (h) => Uint8Array.from(h.match(/../g) ?? [], (x) => parseInt(x, 16));
  const whole = (n) => { const b = new Uint8Array(8); new DataView(b.buffer).setBigUint64(0, BigInt(n)); return b; };
  const base64 = (s) => Uint8Array.from(atob(s.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));
  const same = (a, b) => hex(a) === hex(b);
  const node = (l, r) => sha(Uint8Array.of(1), l, r);

  // The event's hash, from its stored bytes.
  let number = 0n;
  for (const c of event.id.slice(4)) number = number * 32n + BigInt("0123456789abcdefghijklmnopqrstuv".indexOf(c));
  const id = bytes((number >> 2n).toString(16).padStart(32, "0"));
  const parts = [id, text.encode(event.stream), whole(event.revision), text.encode(event.type), text.encode(event.data), text.encode(event.meta)];
  const hash = await sha(text.encode("kindred.event.1"), ...parts.flatMap((p) => [whole(p.length), p]));
  if (hex(hash) !== event.hash) return say("bad", words.the_events_bytes_do);
  say("good", words.the_hash_follows_from);

  // Inclusion: RFC 9162, 2.1.3.2.
  let fn = BigInt(event.ordinal), sn = BigInt(proof.size) - 1n, r = await sha(Uint8Array.of(0), hash);
  for (const step of (proof.inclusion ?? []).map(bytes)) {
    if (sn === 0n) return say("bad", words.the_path_to_the);
    if (fn & 1n || fn === sn) {
      r = await node(step, r);
      while (!(fn & 1n) && fn !== 0n) { fn >>= 1n; sn >>= 1n; }
    } else r = await node(r, step);
    fn >>= 1n; sn >>= 1n;
  }
  if (sn !== 0n || hex(r) !== proof.root) return say("bad", words.the_event_is_not);
  say("good", put(words.it_is_in_the, proof.size.toLocaleString("en")));

  // The head: a JWS over the root, with a published key.
  const [head, payload, signature] = proof.head.split(".");
  const kid = JSON.parse(atob(head.replaceAll("-", "+").replaceAll("_", "/"))).kid;
  const jwk = keys.keys.find((k) => k.kid === kid);
  if (!jwk) return say("bad", words.the_head_is_signed);
  const signed = JSON.parse(new TextDecoder().decode(base64(payload)));
  if (signed.root !== proof.root || signed.size !== proof.size || signed.client !== client) return say("bad", words.the_head_is_about);
  let key;
  try {
    key = await crypto.subtle.importKey("jwk", { kty: jwk.kty, crv: jwk.crv, x: jwk.x }, { name: "Ed25519" }, false, ["verify"]);
  } catch {
    return say("warn", words.this_browser_knows_no);
  }
  if (!await crypto.subtle.verify("Ed25519", key, base64(signature), text.encode(head + "." + payload))) return say("bad", words.the_heads_signature_is);
  say("good", put(words.the_head_is_signed2, kid.slice(0, 8)));

  // Consistency with the head that this browser kept: RFC 9162, 2.1.4.2.
  const place = "kindred-head-" + client, kept = JSON.parse(localStorage.getItem(place) ?? "null");
  if (!kept) {
    say("warn", words.this_browser_keeps_this);
  } else if (kept.size === proof.size) {
    if (kept.root !== proof.root) return say("bad", words.the_history_is_not);
    say("good", words.it_is_the_head);
  } else if (kept.size > proof.size) {
    return say("bad", put(words.this_browser_kept_a, kept.size.toLocaleString("en")));
  } else if (proof.from_size !== kept.size) {
    location.replace(location.pathname + "?from_size=" + kept.size);
    return;
  } else if (!await consistent(BigInt(kept.size), BigInt(proof.size), bytes(kept.root), bytes(proof.root), (proof.consistency ?? []).map(bytes))) {
    return say("bad", words.the_history_does_not);
  } else say("good", put(words.it_begins_with_the, kept.size.toLocaleString("en")));
  localStorage.setItem(place, JSON.stringify({ size: proof.size, root: proof.root }));

  async function consistent(first, second, one, two, path) {
    if ((first & (first - 1n)) === 0n) path = [one, ...path];
    let fn = first - 1n, sn = second - 1n;
    while (fn & 1n) { fn >>= 1n; sn >>= 1n; }
    let fr = path[0], sr = path[0];
    for (const c of path.slice(1)) {
      if (sn === 0n) return false;
      if (fn & 1n || fn === sn) {
        fr = await node(c, fr);
        sr = await node(c, sr);
        while (!(fn & 1n) && fn !== 0n) { fn >>= 1n; sn >>= 1n; }
      } else sr = await node(sr, c);
      fn >>= 1n; sn >>= 1n;
    }
    return same(fr, one) && same(sr, two) && sn === 0n;
  }
}
