// What must hold of every page: of a run that passed, of one with a large matrix, of one where things went wrong.

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import path from "node:path";
import { test } from "node:test";
import { DARK, DESK, PAPER, PHONE, barriers, cell, fits, opened, shot, shots } from "./browser.js";

const focused = (page) => page.evaluate(() => document.activeElement.id || document.activeElement.className);

/** The pages, each with the verdict of a cell that is worth opening. */
const WORTH = { smoke: "xfail", seed: "pass", hostile: "fail", compare: "fail", wide: "pass", merged: "pass" };

for (const name of Object.keys(WORTH)) {
  for (const [look, options] of Object.entries({ light: DESK, dark: DARK, phone: PHONE })) {
    test(`${name}, ${look}: no barriers, nothing cut off`, () =>
      opened(name, options, async (page) => {
        await shot(page, `${name}-${look}`, { fullPage: true });
        await fits(page);
        assert.deepEqual(await barriers(page), []);
        const { panel } = await cell(page, `.matrix td.${WORTH[name]} > a`);
        await shot(page, `${name}-${look}-cell`);
        assert.deepEqual(await barriers(page, ".cell:target"), []);
        const [wide, room] = await panel.evaluate((panel) => [panel.scrollWidth, panel.clientWidth]);
        assert.ok(wide <= room, `the panel's content is ${wide} wide in ${room}`);
      }));
  }

  test(`${name}: by keyboard through a matrix, into a cell and back`, () =>
    opened(name, DESK, async (page) => {
      await page.keyboard.press("Tab");
      assert.equal(await focused(page), "to-main");
      assert.ok(await page.locator(".to-main").evaluate((link) => link.getBoundingClientRect().left >= 0), "it is seen");
      await page.keyboard.press("Enter");
      assert.equal(new URL(page.url()).hash, "#main");
      const inMatrix = () => page.evaluate(() => document.activeElement.matches(".matrix:not(.list) td > a"));
      let steps = 0;
      for (; !(await inMatrix()); steps += 1) {
        assert.ok(steps < 80, "Tab comes to no matrix");
        await page.keyboard.press("Tab");
      }
      assert.ok(await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle !== "none"), "focus is seen");
      const at = () =>
        page.evaluate(() => {
          const cell = document.activeElement.closest("td");
          return [cell.parentElement.rowIndex, cell.cellIndex];
        });
      const [row, column] = await at();
      for (const [key, expected] of [
        ["ArrowRight", [row, column + 1]],
        ["ArrowDown", [row + 1, column + 1]],
        ["ArrowLeft", [row + 1, column]],
        ["ArrowUp", [row, column]],
        ["ArrowUp", [row, column]],
        ["ArrowRight", [row, column + 1]],
      ]) {
        await page.keyboard.press(key);
        assert.deepEqual(await at(), expected, key);
      }
      const link = await focused(page);
      const leads = await page.evaluate(() => document.activeElement.hash.slice(1));
      await page.keyboard.press("Enter");
      await page.locator(".cell:target").waitFor();
      assert.equal(await focused(page), leads, "the panel has the focus");
      await page.keyboard.press("Escape");
      assert.equal(await page.locator(".cell:target").count(), 0);
      assert.equal(await focused(page), link, "the focus is where it was");
    }));

  test(`${name}: works without JavaScript`, () =>
    opened(name, { ...DESK, javaScriptEnabled: false }, async (page) => {
      const { panel } = await cell(page, ".matrix:not(.list) td > a");
      assert.ok(await panel.getByText("tokgate run").isVisible());
      await panel.locator(".close").click();
      assert.equal(await page.locator(".cell:target").count(), 0);

      const section = page.locator("section.test", { has: page.locator(".switch") }).first();
      const shown = (which) => section.locator(`.v.m${which} b`).first();
      assert.ok((await shown(0).isVisible()) && !(await shown(1).isVisible()));
      await section.locator(".switch label").nth(1).click();
      assert.ok(!(await shown(0).isVisible()) && (await shown(1).isVisible()), "another figure is shown");

      const calm = page.locator(".matrix td.pass > a").first();
      const opacity = () => calm.evaluate((link) => Number(getComputedStyle(link).opacity));
      assert.equal(await opacity(), 1);
      await page.locator("label[for=only]").click();
      await page.mouse.move(0, 0);
      assert.ok((await opacity()) < 0.5, "what needs no eye steps back");
    }));

  test(`${name}: prints light, with every column of its matrices`, () =>
    opened(name, { ...DARK, viewport: PAPER }, async (page) => {
      await page.emulateMedia({ media: "print", colorScheme: "dark" });
      const paper = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
      assert.equal(paper, "rgb(255, 255, 255)");
      const edges = await page.locator(".matrix").evaluateAll((all) => all.map((it) => it.getBoundingClientRect().right));
      assert.ok(edges.length > 0 && edges.every((edge) => edge <= PAPER.width), `${edges} on ${PAPER.width}`);
      await shot(page, `${name}-print`, { fullPage: true });
      const pdf = await page.pdf({ path: path.join(shots, `${name}.pdf`), preferCSSPageSize: true });
      const sheets = pdf.toString("latin1").match(/\/Type \/Page\b/g)?.length ?? 0;
      assert.ok(sheets >= 2, `${sheets} sheets`);
      assert.match(pdf.toString("latin1"), /\/Subtype \/(Type0|TrueType|Type3)/, "there is text on them");
    }));
}

test("wide: on paper each row is laid in lines, and each cell says its column", () =>
  opened("wide", { ...DESK, viewport: PAPER }, async (page) => {
    await page.emulateMedia({ media: "print" });
    const row = page.locator(".wide tbody tr").first();
    const cells = await row.locator("td").evaluateAll((all) =>
      all.map((cell) => ({ top: cell.getBoundingClientRect().top, right: cell.getBoundingClientRect().right, says: getComputedStyle(cell, "::before").content })),
    );
    assert.equal(cells.length, 18);
    assert.ok(new Set(cells.map(({ top }) => Math.round(top))).size >= 2, "in lines");
    assert.ok(cells.every(({ right }) => right <= PAPER.width), "none is cut");
    cells.forEach(({ says }, at) => assert.equal(says, `"concurrency ${at + 1}"`));
  }));

test("a page asks for nothing and runs nothing, even if something slipped in", async () => {
  let asked = 0;
  const server = createServer((_, answer) => {
    asked += 1;
    answer.end();
  }).listen(0, "127.0.0.1");
  server.unref();
  await once(server, "listening");
  await opened("smoke", DESK, async (page, heard) => {
    const blocked = await page.evaluate(async (elsewhere) => {
      const blocked = new Set();
      document.addEventListener("securitypolicyviolation", (event) => blocked.add(event.effectiveDirective));
      const put = (name, attributes) => {
        const element = Object.assign(document.createElement(name), attributes);
        document.body.append(element);
        return element;
      };
      put("script", { textContent: "window.ran = true" });
      const clicked = put("div");
      clicked.setAttribute("onclick", "window.ran = true");
      clicked.click();
      put("img", { src: elsewhere });
      put("iframe", { src: elsewhere });
      put("style", { textContent: "body { display: none }" });
      await fetch(elsewhere).catch(() => {});
      await new Promise((done) => setTimeout(done, 200));
      return { by: [...blocked].sort(), ran: window.ran === true, hidden: getComputedStyle(document.body).display };
    }, `http://127.0.0.1:${server.address().port}/`);
    const by = ["connect-src", "frame-src", "img-src", "script-src-attr", "script-src-elem", "style-src-elem"];
    assert.deepEqual([blocked, asked], [{ by, ran: false, hidden: "block" }, 0]);
    // The browser tells of what was blocked: provoked, every line of it.
    heard.length = 0;
  });
  server.close();
});
