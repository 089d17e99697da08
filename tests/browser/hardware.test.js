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

test("hardware: hostile names are text, and stay in their column", () =>
  opened("hardware", DESK, async (page) => {
    const panel = await meanwhile(page, 2);
    const seen = await panel.evaluate((panel) => ({
      text: panel.textContent,
      foreign: [...panel.querySelectorAll("script, img, iframe, foreignObject")].length,
      svg: [...panel.querySelectorAll("svg")].filter((svg) => !["gauge", "spark"].includes(svg.getAttribute("class"))).length,
      wide: [...panel.querySelectorAll(".gpus th small")].map((name) => name.scrollWidth - name.clientWidth),
    }));
    for (const said of ["</small><script>alert(13)</script>", "<svg onload=alert(14)>&amp;", "</p><img src=x onerror=alert(15)>", "</p><iframe src=javascript:alert(16)>"]) {
      assert.ok(seen.text.includes(said), `${said} is shown as it is written`);
    }
    assert.deepEqual([seen.foreign, seen.svg], [0, 0]);
    assert.ok(seen.wide.length === 4 && seen.wide.every((more) => more <= 0), `${seen.wide}`);
    assert.doesNotMatch(seen.text, /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/);
  }));

test("hardware: eight GPUs are told side by side, each in two lines or so, and on paper", () =>
  opened("hardware", { ...DESK, viewport: PAPER }, async (page) => {
    const panel = await meanwhile(page, 1);
    const rows = panel.locator(".gpus tbody tr");
    assert.equal(await rows.count(), 8);
    assert.match(await rows.nth(3).innerText(), /least 1 28\d[\s\S]*91 °C[\s\S]*throttled by heat, 62 %/);
    const heights = await rows.evaluateAll((all) => all.map((row) => row.getBoundingClientRect().height));
    assert.ok(heights.every((height) => height < 60), `${heights}`);
    assert.equal(await panel.locator("figure", { hasText: "SM clock" }).locator("polyline.line").count(), 8);
    await panel.locator(".close").click();
    await page.emulateMedia({ media: "print" });
    const printed = page.locator(".cell.eye");
    assert.ok(await printed.first().locator("figure", { hasText: "SM clock" }).isVisible(), "what needs an eye is on paper, drawings and all");
    const edges = await printed.locator("figure, table").evaluateAll((all) => all.map((it) => it.getBoundingClientRect().right));
    assert.ok(edges.length > 0 && edges.every((edge) => edge <= PAPER.width), `${edges} on ${PAPER.width}`);
    await shot(page, "hardware-print", { fullPage: true });
  }));
