// Two variants in pairs: a reader finds the mean ratio, each cell's ratio, and the launches behind it.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { DESK, PHONE, cell, opened, out } from "./browser.js";

const record = () => JSON.parse(readFileSync(path.join(out, "compare", "record.json"), "utf8"));

for (const [look, options] of Object.entries({ desk: DESK, phone: PHONE, plain: { ...DESK, javaScriptEnabled: false } })) {
  test(`${look}: from the banner to the mean ratio and its pairs`, () =>
    opened("compare", options, async (page) => {
      const { compare } = record();
      const first = page.locator(".worst li a").first();
      assert.match(await first.textContent(), /fail.*mean ratio, new against old/);
      await first.click();
      const section = page.getByRole("region", { name: /^new against old/ });
      assert.ok(await section.isVisible());
      assert.match(await section.locator(".said").textContent(), /mean ratio 0\.9\d+ of old over 36 cells \[0\.9\d+, 0\.9\d+\]/);
      assert.ok(await section.getByRole("img", { name: /mean ratio of each pair/ }).isVisible());
      await section.locator("summary").click();
      const shown = await section.locator(".pairs tbody tr").allTextContents();
      assert.equal(shown.length, compare.ratios.length);
      shown.forEach((row, at) => assert.ok(row.includes(compare.ratios[at].toFixed(4)), row));
    }));

  test(`${look}: each cell has its ratio, interval, verdict and what it could have seen`, () =>
    opened("compare", options, async (page) => {
      const table = page.locator(".ratios", { hasText: "8K" }).first();
      assert.equal(await table.locator("td > a").count(), 36);
      for (const text of await table.locator("td > a").allTextContents()) {
        assert.match(text, /[✓✗?] ?\w+ ?[01]\.\d+ ?\[\d\.\d+, \d\.\d+\] ?sees \d+(\.\d)? %/);
      }
      const { panel } = await cell(page, ".ratios td.fail > a");
      const launches = panel.getByRole("region", { name: "Launches, output-throughput" });
      assert.equal(await launches.locator("tbody tr").count(), 4);
      assert.deepEqual(await launches.locator("tbody td:nth-child(2)").allTextContents(), ["new", "old", "new", "old"]);
      assert.ok((await panel.getByRole("img").count()) >= 2, "values and ratios are drawn");
    }));
}

test("every ratio is drawn by the name of its cell, and what fails has a cross", () =>
  opened("compare", DESK, async (page) => {
    const charts = page.getByRole("img", { name: /^Chart: the ratio of each cell with its interval/ });
    assert.equal(await charts.count(), 2, "one of each metric");
    const rates = charts.first();
    const names = (await rates.locator("text").allTextContents()).map((text) => text.trim()).filter((text) => text.includes(" × "));
    assert.equal(new Set(names).size, 36);
    assert.ok(names.includes("8K × 16"), names.join());
    const failed = record().cells.filter((cell) => cell.judgement.verdict === "fail").length;
    // A cross has two strokes, and its interval is a third.
    assert.equal(await rates.locator('polyline[stroke="#030000"][stroke-width="3"]').count(), 3 * failed);
  }));
