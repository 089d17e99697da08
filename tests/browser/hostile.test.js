// Names, values, reasons and logs that want to be more than text.

import assert from "node:assert/strict";
import { test } from "node:test";
import { DESK, opened } from "./browser.js";

/** Parts of what `hostile/` says, as a reader must see them. */
const SAID = [
  "</style><script>alert(3)</script>",
  "javascript:alert(4)",
  "evil/<svg onload=alert(5)>&amp;",
  "</td><script>alert(7)</script>",
  "]]>--><b>bold</b>`a`@team::error::x",
  "</p><iframe src=javascript:alert(9)>",
  "javascript:alert(10)",
  "RuntimeError: <script>alert(11)</script>",
  "</pre><img src=x onerror=alert(12)>",
];

test("hostile names are text", () =>
  opened("hostile", DESK, async (page) => {
    const seen = await page.evaluate(() => ({
      text: document.documentElement.textContent,
      scripts: document.scripts.length,
      foreign: [...document.querySelectorAll("img, iframe, object, embed, form, link, base, foreignObject, animate, set, use")].map((e) => e.outerHTML),
      attributes: [...document.querySelectorAll("*")].flatMap((element) =>
        [...element.attributes].filter(({ name }) => name.startsWith("on") || name === "src" || name === "style").map(({ name }) => name),
      ),
      links: [...document.querySelectorAll("[href]")].map((link) => link.getAttribute("href")).filter((to) => !/^(#|\.\/)/.test(to)),
      svg: [...document.querySelectorAll("svg")].filter((svg) => !svg.closest(".plot") && !["tally", "gauge", "spark"].includes(svg.getAttribute("class"))).length,
    }));
    for (const said of SAID) assert.ok(seen.text.includes(said), `${said} is shown as it is written`);
    assert.deepEqual([seen.scripts, seen.svg, seen.foreign, seen.attributes, seen.links], [1, 0, [], [], []]);
    assert.doesNotMatch(seen.text, /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/);
  }));

test("a failed launch tells its cause before everything else", () =>
  opened("hostile", DESK, async (page) => {
    const broken = page.locator(".broken").first();
    assert.match(await broken.innerText(), /Launch broken failed[\s\S]*exit code 3[\s\S]*RuntimeError/);
    assert.ok(await broken.evaluate((it) => it.getBoundingClientRect().top < innerHeight), "without scrolling");
    assert.match(await page.locator(".verdict").innerText(), /Failed/);
    for (const verdict of ["fail", "unsure", "xfail", "skip", "unrun", "pass"]) {
      assert.ok((await page.locator(`.matrix td.${verdict}`).count()) > 0, verdict);
    }
  }));
