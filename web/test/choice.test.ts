import assert from "node:assert/strict";
import test from "node:test";
import { explain, noChoice, type Explanation, type Fact } from "../src/choice";
import type { Choice } from "../src/protocol";

const CHOICE: Choice = {
  steps: 218,
  k: 64,
  ahead: 3,
  step_ms: 25.02,
  up_bytes_per_s: 612_500,
  down_bytes_per_s: 6_000_000,
  transfer_ms: 1363,
  compute_ms: 5454,
  reason: "more steps",
};

const facts = (e: Explanation): Fact[] => [...e.decided, ...e.measured, e.computing, e.transfer];
const words = (e: Explanation) =>
  Object.fromEntries(facts(e).map((x) => [x.name, `${x.amount.text} ${x.amount.unit}`.trim()]));

test("a choice is spelled with the unit of every figure", () => {
  const e = explain(CHOICE, 21.4);
  assert.deepEqual(words(e), {
    Steps: "218 steps",
    "Kept, k": "64 of 4,096",
    "Leases held": "3 leases",
    "One step": "25.0 ms",
    Uplink: "4.90 Mbit/s",
    Downlink: "48.0 Mbit/s",
    "Round trip": "21.4 ms",
    Computing: "5.45 s",
    Transfer: "1.36 s",
  });
  assert.equal(e.computing.note, "218 steps × 25.0 ms, 4.00× the transfer");
  assert.equal(e.computingBar, 1);
  assert.ok(Math.abs(e.transferBar - 0.25) < 0.001);
});

test("one is one: 1 step, 1 lease", () => {
  const said = words(explain({ ...CHOICE, steps: 1, ahead: 1 }, null));
  assert.equal(said.Steps, "1 step");
  assert.equal(said["Leases held"], "1 lease");
});

test("0 and null are not measured: a dash without a unit, and never a bar or NaN", () => {
  const nothing = { step_ms: 0, up_bytes_per_s: 0, down_bytes_per_s: 0 };
  const e = explain({ ...CHOICE, ...nothing, transfer_ms: 0, compute_ms: 0 }, 0);
  const missing = facts(e).filter((x) => x.amount.unit === "");
  assert.deepEqual(
    missing.map((x) => x.name),
    ["One step", "Uplink", "Downlink", "Round trip", "Computing", "Transfer"],
  );
  assert.deepEqual([e.computing.note, e.transfer.note], ["", ""]);
  assert.deepEqual([e.computingBar, e.transferBar], [0, 0]);
});

test("a prediction says what it leaves out", () => {
  const note = (up: number, down: number) =>
    explain({ ...CHOICE, up_bytes_per_s: up, down_bytes_per_s: down }, 20).transfer.note;
  assert.match(note(1, 1), /update up, deltas down/);
  assert.match(note(1, 0), /downlink is not measured/);
  assert.match(note(0, 1), /uplink is not measured/);
  assert.match(note(0, 0), /link is not measured/);
});

test("where a transfer lasts longer than computing, its bar is the full one", () => {
  const e = explain({ ...CHOICE, transfer_ms: 40_000, compute_ms: 10_000 }, 20);
  assert.deepEqual([e.computingBar, e.transferBar], [0.25, 1]);
  assert.match(e.computing.note, /0\.25× the transfer/);
});

test("without a choice there are words", () => {
  assert.match(noChoice("offline"), /Offline/);
  assert.match(noChoice("idle"), /No choice known yet/);
});
