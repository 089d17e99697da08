// Writes into the journal of a simulated run what machines would have been like meanwhile: `node hardware.js JOURNAL`.
//
// The cells in their order: as it should be; one GPU gets hot; one falls off the bus, and others have names that want to be
// more than text; no GPU; twenty of them; one, of which little is known. Of more cells, and of further launches of a cell, the
// same again.

import { readFileSync, writeFileSync } from "node:fs";

const GIB = 2 ** 30;
const series = (of, points = 60) => {
  const all = Array.from({ length: points }, (_, at) => of(at));
  return { min: Math.min(...all), mean: all.reduce((sum, it) => sum + it, 0) / points, max: Math.max(...all), points: all };
};
/** The same in every run, and no two alike. */
const noise = (at, line) => Math.sin(at * 12.9898 + line * 78.233) * Math.cos(at * 4.1414 + line * 3.77);

const gpu = (index, more = {}) => ({
  index,
  name: "NVIDIA H200",
  energy: 18_750,
  power: series((at) => 610 + 4 * index + 45 * noise(at, index)),
  utilisation: series((at) => 96.5 + 3 * noise(at, index)),
  memory: series(() => 131.2 * GIB),
  "sm-clock": series((at) => 1980 - 15 * Math.round(2 + 2 * noise(at, index))),
  "memory-clock": series(() => 3201),
  temperature: series((at) => Math.round(56 + index + at / 12)),
  throttled: { "power-cap": 0.3 },
  "ecc-corrected": 0,
  "ecc-uncorrected": 0,
  ...more,
});
const gpus = (count, changed = {}) => Array.from({ length: count }, (_, index) => gpu(index, changed[index]));
const hot = (index) => ({
  "sm-clock": series((at) => (at < 22 ? 1980 : 1290 + 10 * noise(at, index))),
  temperature: series((at) => (at < 22 ? 60 + 1.4 * at : 91)),
  power: series((at) => (at < 22 ? 640 : 410) + 20 * noise(at, index)),
  throttled: { "thermal-software": 0.62, "power-cap": 0.3 },
});

const MACHINES = [
  () => ({ gpus: gpus(8) }),
  () => ({ gpus: gpus(8, { 3: hot(3) }) }),
  () => ({
    gpus: gpus(4, {
      0: { name: "</small><script>alert(13)</script>" },
      1: { name: "<svg onload=alert(14)>&amp;\u202egnp\u001b[31m" + "long".repeat(60), foreign: ["4711 (</p><img src=x onerror=alert(15)>)"] },
      2: { lost: "GPU is lost", xid: [79], "ecc-uncorrected": 3, power: series((at) => 600, 20) },
    }),
    notes: ["GPU 2 could not be asked: </p><iframe src=javascript:alert(16)>"],
  }),
  () => ({ gpus: [] }),
  () => ({ gpus: gpus(20) }),
  () => ({ gpus: [{ index: 0, name: "AMD Instinct MI300X", power: series(() => 0, 1), "sm-clock": series((at) => 2100 - at, 3) }] }),
];

const [journal] = process.argv.slice(2);
const lines = readFileSync(journal, "utf8").trimEnd().split("\n").map((line) => {
  const event = JSON.parse(line);
  const { cell, round = 0, state } = event["cell-finished"] ?? {};
  if (!state?.measured) return line;
  state.measured.telemetry = {
    seconds: 30,
    samples: 150,
    host: { cpu: series((at) => 12 + 3 * noise(at, 99)), memory: series((at) => (212.5 + at / 60) * GIB) },
    ...MACHINES[(cell + round) % MACHINES.length](),
  };
  return JSON.stringify(event);
});
writeFileSync(journal, `${lines.join("\n")}\n`);
