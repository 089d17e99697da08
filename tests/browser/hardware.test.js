// What the hardware did meanwhile, under a cell; `hardware.js` says what that was.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { DARK, DESK, PAPER, PHONE, barriers, opened, out, shot } from "./browser.js";

const LOOKS = { light: DESK, dark: DARK, phone: PHONE, plain: { ...DESK, javaScriptEnabled: false } };
const PAGES = { hardware: 6, "hardware-pairs": 3 };

/** Opens the panel of the cell at a place in the record; its part on hardware. */
async function meanwhile(page, at) {
  await page.locator(`a[href="#c${at}"]`).locator("visible=true").first().click();
  const panel = page.locator(`#c${at}:target`);
  await panel.waitFor();
  await panel.getByRole("heading", { name: "The hardware meanwhile" }).scrollIntoViewIfNeeded();
  return panel;
}

for (const [look, options] of Object.entries(LOOKS)) {
  for (const [name, cells] of Object.entries(PAGES)) {
    test(`${name}, ${look}: each quantity is drawn, and nothing keeps a reader from it`, () =>
      opened(name, options, async (page) => {
        for (let at = 0; at < cells; at += 1) {
          const panel = await meanwhile(page, at);
          const [wide, room] = await panel.evaluate((panel) => [panel.scrollWidth, panel.clientWidth]);
          assert.ok(wide <= room, `the panel's content is ${wide} wide in ${room}`);
          assert.ok((await panel.locator(".sparks figure", { hasText: "host CPU" }).count()) === 1);
          if (look !== "plain") {
            await panel.getByRole("heading", { name: "The hardware meanwhile" }).evaluate((it) => it.scrollIntoView());
            await shot(page, `${name}-${look}-cell-${at}`);
            assert.deepEqual(await barriers(page, ".cell:target"), []);
          }
          await panel.locator(".close").click();
        }
      }));
  }
}
