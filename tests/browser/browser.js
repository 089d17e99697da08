// The browser that reads the pages, and what every look at a page records.

import assert from "node:assert/strict";
import { existsSync, mkdirSync } from "node:fs";
import { after, before } from "node:test";
import path from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import axe from "axe-core";
import { chromium } from "playwright-core";

const root = fileURLToPath(new URL("../..", import.meta.url));
/** Where pages are found and screenshots go; see `run`. */
export const out = path.resolve(process.env.TOKGATE_PAGES ?? path.join(root, "target/ci/browser"));
export const address = (name) => pathToFileURL(path.join(out, name, "report.html")).href;

const executablePath =
  process.env.CHROMIUM || ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find(existsSync);

export const DESK = { viewport: { width: 1280, height: 900 }, colorScheme: "light" };
export const DARK = { ...DESK, colorScheme: "dark" };
export const PHONE = { viewport: { width: 390, height: 844 }, colorScheme: "light" };

// A4 on its side without the margins, in CSS pixels.
export const PAPER = { width: Math.floor(((297 - 2 * 11) / 25.4) * 96), height: Math.floor(((210 - 2 * 11) / 25.4) * 96) };

export const shots = path.join(out, "screenshots");
mkdirSync(shots, { recursive: true });
export const shot = (page, name, more) => page.screenshot({ path: path.join(shots, `${name}.png`), ...more });

/** What axe-core finds that keeps people from reading the page. */
export async function barriers(page, within = "html") {
  await page.evaluate(axe.source);
  const found = await page.evaluate((within) => window.axe.run(within, { preload: false, resultTypes: ["violations"] }), within);
  return found.violations
    .filter((violation) => ["serious", "critical"].includes(violation.impact))
    .map(({ id, nodes }) => `${id}: ${nodes.slice(0, 3).map((node) => `${node.html} ${node.failureSummary}`).join("\n")}`);
}

/** Nothing is wider than the window, but for what scrolls on its own. */
export async function fits(page) {
  const [wide, room] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
  assert.ok(wide <= room, `the page is ${wide} wide in a window of ${room}`);
}

let browser;
before(async () => (browser = await chromium.launch({ executablePath })));
after(() => browser?.close());

/**
 * Opens a page for `look`, which is given what was heard so far and the milliseconds until the page was on the screen.
 * What the page complains of, asks for or says in a dialog fails the test.
 */
export async function opened(name, options, look) {
  const context = await browser.newContext({ reducedMotion: "reduce", ...options });
  const page = await context.newPage();
  const heard = [];
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) heard.push(`${message.type()}: ${message.text()}`);
  });
  page.on("pageerror", (error) => heard.push(`uncaught: ${error}`));
  page.on("dialog", (dialog) => {
    heard.push(`dialog: ${dialog.message()}`);
    dialog.dismiss();
  });
  page.on("request", (request) => {
    if (request.url().split("#")[0] !== address(name)) heard.push(`request: ${request.url()}`);
  });
  try {
    const begun = performance.now();
    await page.goto(address(name));
    // Without JavaScript nothing calls back.
    if (options.javaScriptEnabled !== false) {
      await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => setTimeout(done))));
    }
    await look(page, heard, performance.now() - begun);
    assert.deepEqual(heard, []);
  } finally {
    await context.close();
  }
}

/** Opens the panel of the first cell that matches; which one. */
export async function cell(page, selector = ".matrix a") {
  const link = page.locator(selector).first();
  await link.click();
  const panel = page.locator(".cell:target");
  await panel.waitFor();
  return { link, panel };
}
