// How a page opens, against one with a word on it; times are told and only their ratio is held to anything.

import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { DESK, cell, opened, out } from "./browser.js";

mkdirSync(path.join(out, "blank"), { recursive: true });
writeFileSync(path.join(out, "blank/report.html"), "<!doctype html><html lang=en><title>blank</title><p>nothing</p></html>");

/** Milliseconds until a page is on the screen; the best of three. */
async function opens(name) {
  let best = Infinity;
  for (let turn = 0; turn < 3; turn += 1) {
    await opened(name, DESK, (page, heard, took) => (best = Math.min(best, took)));
  }
  return best;
}

for (const [name, most] of [["seed", 30], ["large", 200]]) {
  test(`${name} opens within ${most} times a blank page`, async (t) => {
    const [blank, page] = [await opens("blank"), await opens(name)];
    t.diagnostic(`${name}: ${page.toFixed()} ms, a blank page ${blank.toFixed()} ms`);
    assert.ok(page < most * blank, `${page} ms for ${blank} ms`);
  });
}

test("of a large page only what is in sight is laid out", () =>
  opened("large", DESK, async (page) => {
    const shown = () =>
      page.locator(".band").evaluateAll((all) => all.map((band) => band.firstElementChild.checkVisibility({ contentVisibilityAuto: true })));
    const before = await shown();
    assert.equal(before.length, 10);
    assert.ok(before[0] && !before[9], `${before}`);
    await page.evaluate(() => document.getElementById("m9999").scrollIntoView());
    for (let turn = 0; !(await shown())[9]; turn += 1) {
      assert.ok(turn < 300, "the last band comes into sight and is not laid out");
      await page.waitForTimeout(100);
    }
    assert.ok(!(await shown())[0], "the first one, out of sight, is left alone again");
  }));

test("ten thousand cells are there, the last one opens, keys move through them", () =>
  opened("large", DESK, async (page) => {
    assert.equal(await page.locator(".matrix a").count(), 10_000);
    assert.equal(await page.locator(".cell").count(), 10_000);
    const { panel } = await cell(page, "#m9999");
    assert.match(await panel.innerText(), /context=100K,? concurrency=100/);
    await page.keyboard.press("Escape");
    await page.keyboard.press("ArrowUp");
    assert.equal(await page.evaluate(() => document.activeElement.id), "m9899");
  }));
