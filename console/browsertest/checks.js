// What is checked of a page, in its browser.

// accessible are the violations that axe finds, a line each.
export async function accessible(page, axe) {
  if (!await page.evaluate(() => "axe" in window)) await page.evaluate(axe.source);
  const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
  return violations.flatMap((v) => v.nodes.map((node) => `${v.id}: ${node.target.join(" ")} (${(node.any[0] ?? node.all[0] ?? node.none[0])?.message ?? v.help})`));
}

// fits are the elements that reach beyond the right edge, where the page as a whole scrolls to the side.
export function fits(page) {
  return page.evaluate(() => {
    const wide = document.documentElement.clientWidth;
    if (document.documentElement.scrollWidth <= wide) return [];
    const beyond = Array.from(document.querySelectorAll("body *")).filter((e) => e.getBoundingClientRect().right > wide + 1);
    return [`${document.documentElement.scrollWidth} px`, ...beyond.slice(0, 3).map((e) => `${e.tagName.toLowerCase()}.${e.className}`)];
  });
}
