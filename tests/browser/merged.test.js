// A run in two shards, one of them cut and resumed: the page reads as one run and says what was done.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { DESK, PHONE, opened, out } from "./browser.js";

const record = JSON.parse(readFileSync(path.join(out, "merged", "record.json"), "utf8"));

for (const [look, options] of Object.entries({ desk: DESK, phone: PHONE, plain: { ...DESK, javaScriptEnabled: false } })) {
  test(`${look}: what was done to make one run of its parts`, () =>
    opened("merged", options, async (page) => {
      assert.match(await page.locator(".subject").innerText(), /2 shards merged; resumed once/);
      assert.equal(await page.locator(".matrix td > a").count(), record.header.cells.length);
      const run = page.getByRole("region", { name: "Run", exact: true });
      const fact = (name) => run.locator("dl > div", { has: page.locator(`dt:text-is("${name}")`) }).locator("dd");
      const shards = record.header.merged.shards;
      assert.equal(shards.length, 2);
      for (const { shard, run: of } of shards) {
        const said = await fact(`shard ${shard}`).innerText();
        assert.ok(said.includes(`9 cells, run ${of["run-id"]}, seed 7`), said);
        assert.equal(said.includes("resumed once"), shard === 2, said);
      }
      assert.ok((await fact("resumed").innerText()).includes(record.resumptions[0].started));
      assert.equal(await fact("seed").count(), 0, "shards have seeds of their own");
    }));
}
