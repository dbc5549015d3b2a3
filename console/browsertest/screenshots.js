// Makes the pictures of docs/console.md.

import { mkdir } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { Hand, chromium, signIn } from "./browsers.js";
import { patience, populated } from "./kindred.js";

const folder = fileURLToPath(new URL("../../docs/screenshots/", import.meta.url));
await mkdir(folder, { recursive: true });

const full = await populated(""), browser = await chromium();
try {
  const take = async (name, path, look = {}) => {
    const context = await browser.newContext({ viewport: { width: 1200, height: 760 }, ...look });
    context.setDefaultTimeout(patience);
    const page = await context.newPage(), hand = new Hand(page);
    await signIn(hand, full.account);
    await hand.open(path);
    if (name === "history") {
      await hand.soon("is signed by key", () => page.waitForEvent("domcontentloaded", { timeout: 1000 }).catch(() => {}));
      await page.reload();
      await hand.soon("the head that this browser kept", () => page.waitForEvent("domcontentloaded", { timeout: 1000 }).catch(() => {}));
    }
    await page.waitForFunction(() => !document.querySelector("[data-later]"));
    await page.screenshot({ path: `${folder}${name}.png`, animations: "disabled" });
    await context.close();
  };
  await take("overview", "");
  await take("user", `users/${full.user.id}`);
  await take("clusters", `clusters?layer=${full.layer.id}`);
  await take("segments", `segments?preview=1&rule=${encodeURIComponent('traits.plan == "pro" && traits.age > 52')}`);
  await take("webhook", `webhooks/${full.hook.id}`, { colorScheme: "dark" });
  await take("history", "history/3");
  await take("narrow", "campaigns", { viewport: { width: 360, height: 760 } });
} finally {
  await browser.close();
}
