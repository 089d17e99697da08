// Two runs beside each other: `tokgate compare --format html` of two variants of one run, and of two suites with hostile names.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { DARK, DESK, PAPER, PHONE, barriers, fits, opened, out, shot } from "./browser.js";

const LOOKS = { light: DESK, dark: DARK, phone: PHONE, plain: { ...DESK, javaScriptEnabled: false } };
const told = JSON.parse(readFileSync(path.join(out, "beside", "comparison.json"), "utf8"));

for (const [look, options] of Object.entries(LOOKS)) {
  test(`beside, ${look}: what is worse comes first and leads to its line`, () =>
    opened("beside", options, async (page) => {
      if (look !== "plain") {
        await shot(page, `beside-${look}`, { fullPage: true });
        assert.deepEqual(await barriers(page), []);
      }
      await fits(page);
      const worse = told.cells.flatMap((cell) => cell.rows.filter((row) => row.standing === "worse"));
      assert.ok(worse.length > 0, "the suite has a loss");
      assert.match(await page.locator(".verdict").innerText(), /Rules are broken[\s\S]*relative rules: \d+ broken/);
      const first = page.getByRole("region", { name: "What is worse" }).locator("li").first();
      const greatest = Math.max(...worse.map((row) => Math.abs(Math.log(row.ratio))));
      const most = worse.find((row) => Math.abs(Math.log(row.ratio)) === greatest);
      assert.ok((await first.innerText()).includes(most.ratio.toFixed(3)), await first.innerText());
      await first.locator("a").click();
      const line = page.locator("tr:target");
      assert.match(await line.innerText(), /▼ worse/);
      assert.ok(await line.isVisible());
    }));
}

test("beside: every figure of both sides is there, with its ratio, interval and word", () =>
  opened("beside", DESK, async (page) => {
    const shown = await page.locator(".compared tbody").evaluateAll((all) =>
      all.map((body) => [...body.rows].slice(1).map((row) => [...row.cells].map((cell) => cell.textContent.trim()))),
    );
    assert.equal(shown.length, told.cells.length);
    told.cells.forEach((cell, at) => {
      assert.equal(shown[at].length, cell.rows.length);
      cell.rows.forEach((row, line) => {
        const [metric, , , ratio, interval, , word] = shown[at][line];
        assert.equal(metric, row.unit ? `${row.metric}, ${row.unit}` : row.metric);
        assert.equal(ratio, row.ratio.toFixed(3));
        assert.equal(interval, `[${row.interval.map((bound) => bound.toFixed(3)).join(", ")}]`);
        assert.equal(word.replace(/^\S+ /, "").replaceAll(" ", "-"), row.standing);
        assert.equal(row.pairs, 4);
      });
    });
    const changed = page.getByRole("region", { name: "What changed" }).first();
    assert.match(await changed.innerText(), /variant\s+old\s+new/);
    const rules = page.locator("#rules li");
    assert.equal(await rules.count(), told.rules.length);
    assert.match(await rules.first().innerText(), /✗ broken\s+mean ratio/);
    const broken = told.rules.filter((rule) => rule.held === "broken").length;
    assert.equal(await page.locator("#rules > ol > li").count(), broken, "only what is broken is unfolded");
  }));

test("beside: by style alone only what changed is left", () =>
  opened("beside", { ...DESK, javaScriptEnabled: false }, async (page) => {
    const calm = page.locator(".compared tbody.calm").first();
    const loud = page.locator(".compared tbody:not(.calm)").first();
    assert.ok((await calm.isVisible()) && (await loud.isVisible()));
    await page.locator("label[for=only]").click();
    assert.ok(!(await calm.isVisible()) && (await loud.isVisible()));
  }));

test("beside: by keyboard to the results, and on paper", () =>
  opened("beside", { ...DESK, viewport: PAPER }, async (page) => {
    await page.keyboard.press("Tab");
    assert.equal(await page.evaluate(() => document.activeElement.className), "to-main");
    await page.keyboard.press("Enter");
    assert.equal(new URL(page.url()).hash, "#main");
    await page.emulateMedia({ media: "print" });
    const edges = await page.locator("table").evaluateAll((all) => all.map((it) => it.getBoundingClientRect().right));
    assert.ok(edges.length > 0 && edges.every((edge) => edge <= PAPER.width), `${edges} on ${PAPER.width}`);
    await shot(page, "beside-print", { fullPage: true });
  }));

test("beside: hostile names are text", () =>
  opened("beside-hostile", DESK, async (page) => {
    assert.deepEqual(await barriers(page), []);
    const seen = await page.evaluate(() => ({
      text: document.documentElement.textContent,
      scripts: document.scripts.length,
      foreign: [...document.querySelectorAll("img, iframe, object, embed, form, link, base, foreignObject, animate, set, use")].map((e) => e.outerHTML),
      attributes: [...document.querySelectorAll("*")].flatMap((element) =>
        [...element.attributes].filter(({ name }) => name.startsWith("on") || name === "src" || name === "style").map(({ name }) => name),
      ),
      links: [...document.querySelectorAll("[href]")].map((link) => link.getAttribute("href")).filter((to) => !to.startsWith("#")),
      svg: [...document.querySelectorAll("svg")].filter((svg) => svg.getAttribute("class") !== "gauge").length,
    }));
    for (const said of ["</td><script>alert(7)</script>", "]]>--><b>bold</b>`a`@team::error::x", "evil/<svg onload=alert(5)>&amp;"]) {
      assert.ok(seen.text.includes(said), `${said} is shown as it is written`);
    }
    assert.deepEqual([seen.scripts, seen.svg, seen.foreign, seen.attributes, seen.links], [0, 0, [], [], []]);
    assert.doesNotMatch(seen.text, /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/);
  }));
