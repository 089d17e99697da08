// Makes a record of 10 000 cells, or as many as are asked for, out of a finished one: `node large.js RECORD OUT [CELLS [ACROSS]]`.
//
// Cells of the first test with two axes are repeated in other contexts and concurrencies, each with all that was observed.

import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";

const CELLS = Number(process.argv[4] ?? 10_000);
const ACROSS = Number(process.argv[5] ?? 100);
const [source, out] = process.argv.slice(2);
const record = JSON.parse(readFileSync(source, "utf8"));
const fresh = (value) => JSON.parse(JSON.stringify(value));
const kinds = record.header.cells.flatMap((cell, at) => (cell.axes.length === 2 && record.cells[at].state.measured ? [at] : []));
const [planned, outcomes] = [record.header.cells, record.cells];
[record.header.cells, record.cells] = [[], []];
for (let at = 0; at < CELLS; at += 1) {
  const like = kinds[at % kinds.length];
  const cell = fresh(planned[like]);
  const [context, concurrency] = [1024 * (1 + Math.floor(at / ACROSS)), 1 + (at % ACROSS)];
  for (const axis of cell.axes) axis[1] = axis[0] === "context" ? { tokens: context } : { integer: concurrency };
  cell.id = `context=${context / 1024}K,concurrency=${concurrency}`;
  record.header.cells.push(cell);
  record.cells.push(outcomes[like]);
}
mkdirSync(out, { recursive: true });
writeFileSync(path.join(out, "record.json"), JSON.stringify(record));
