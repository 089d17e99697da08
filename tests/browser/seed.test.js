// The 73 rows of the page that the suite was made from: a reader finds each of their figures.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { DESK, opened } from "./browser.js";

const csv = readFileSync(new URL("../data/seed-measurements.csv", import.meta.url), "utf8").trim().split("\n");
const names = csv[0].split(",");
const rows = csv.slice(1).map((line) => Object.fromEntries(line.split(",").map((value, at) => [names[at], value])));

/** Figures of the run are near those of the page; limits repeat them. */
const near = (shown, figure, share, least = 0) => Math.abs(shown - figure) <= Math.max(Math.abs(figure) * share, least);
const parsed = (text) => Number(text.replace(/[^\d.]/g, ""));

/** What stands in each cell of the page, for each figure that its map can show, and in its panel. */
const read = () => {
  const cells = [];
  // Words with single blanks, and numbers without theirs.
  const plain = (element) => (element?.textContent ?? "").replace(/\s+/g, " ").replace(/(?<=\d) (?=\d{3}\b)/g, "").trim();
  const figures = (panel) =>
    Object.fromEntries([...panel.querySelectorAll("table:not(.bounds) tbody tr")].map((row) => [plain(row.cells[0]), [...row.cells].slice(1).map(plain)]));
  for (const section of document.querySelectorAll("section.test")) {
    const test = section.querySelector("h2").firstChild.textContent.trim();
    const metrics = [...section.querySelectorAll(".switch label")].map(plain);
    for (const link of section.querySelectorAll(".matrix a")) {
      const row = link.closest("tr");
      const list = link.closest(".list");
      const heads = [...link.closest("table").tHead.rows[0].cells].map(plain);
      const panel = document.querySelector(link.hash);
      const values = list
        ? Object.fromEntries([...row.cells].slice(2).map((cell, at) => [heads[at + 2], plain(cell.querySelector("b"))]))
        : Object.fromEntries([...link.querySelectorAll(".v b")].map((value, at) => [metrics[at], plain(value)]));
      cells.push({
        test,
        context: plain(row.cells[0]),
        concurrency: list ? "1" : heads[link.closest("td").cellIndex],
        mark: plain(list ? row.cells[1] : link.querySelector(".k")),
        values,
        below: plain(link.querySelector(".t")),
        limits: [...panel.querySelectorAll(".bounds")].map(plain).join(" "),
        said: plain(panel.querySelector(".said")),
        figures: figures(panel),
      });
    }
  }
  return cells;
};

test("every row of the page is a cell with its figures", () =>
  opened("seed", DESK, async (page) => {
    const cells = await page.evaluate(read);
    assert.equal(rows.length, 73);
    assert.equal(cells.length, rows.length);
    for (const row of rows) {
      const name = `${row.phase} ${row.context} × ${row.concurrency}`;
      const cell = cells.find((it) => it.test === row.phase && it.context === row.context && it.concurrency === row.concurrency);
      assert.ok(cell, `${name} is on the page`);
      if (row.status === "over_capacity") {
        assert.equal(cell.mark, "– over", name);
        assert.match(cell.said, /exceed the engine's KV cache/, name);
        continue;
      }
      assert.equal(cell.mark, "✓ pass", name);
      const told = JSON.stringify(cell);
      const holds = (what, shown, figure, share, least) =>
        assert.ok(near(parsed(shown ?? "none"), Number(figure), share, least), `${name}: ${what} is ${shown} for ${figure}: ${told}`);
      const total = row.phase === "prefill" ? "prefill-throughput, tok/s" : "output-throughput, tok/s";
      holds("the rate", cell.values[total], row.total_tok_s, 0.025);
      holds("the first token", cell.values["ttft.p50, ms"], row.ttft_ms, 0.05, 5);
      // What was asked for is the page's figure to its last digit.
      const asks = (figure) => assert.ok(cell.limits.includes(` of ${Number(figure)} `), `${name}: ${figure} in ${cell.limits}`);
      asks(row.total_tok_s);
      if (row.phase === "prefill") continue;
      asks(row.ttft_ms);
      assert.ok(cell.below.endsWith("TTFT"), name);
      // A stream ended in the first two, and the page's own two rates are apart.
      const odd = row.context === "8K" && ["1", "2"].includes(row.concurrency);
      holds("a request's rate", cell.values["per-request-throughput, tok/s"], row.per_request_tok_s, odd ? 0.05 : 0.03);
      holds("the gap between tokens", cell.values["itl.p50, ms"], row.itl_ms, 0.05, 1.1);
      holds("active streams", cell.figures["active-requests"]?.[0], row.avg_active, 0.01);
      holds("completed requests", cell.figures["completed-requests"]?.[0], row.completed_requests, 0, 2);
      holds("tokens", cell.figures["output-tokens"]?.[0], row.output_tokens, 0.03, 4);
      holds("the time", cell.figures["measured-time"]?.[0], row.measured_s, 0.05);
    }
  }));
