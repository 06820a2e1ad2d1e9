import assert from "node:assert/strict";
import test from "node:test";
import * as f from "../src/format";

const words = (a: f.Amount) => `${a.text} ${a.unit}`.trim();

test("bytes: binary units, about three digits, no 1024 KiB", () => {
  assert.equal(words(f.bytes(0)), "0 B");
  assert.equal(words(f.bytes(1023)), "1,023 B");
  assert.equal(words(f.bytes(1024)), "1.00 KiB");
  assert.equal(words(f.bytes(2319)), "2.26 KiB");
  assert.equal(words(f.bytes(1024 * 1024 - 1)), "1.00 MiB");
  assert.equal(words(f.bytes(548864 * 120)), "62.8 MiB");
  assert.equal(words(f.bytes(5 * 2 ** 30)), "5.00 GiB");
  assert.equal(words(f.bytes(2 ** 60)), "1,024 PiB");
});

test("what is not known is a dash without a unit, never 0 or NaN", () => {
  for (const nothing of [null, undefined, Number.NaN, Number.POSITIVE_INFINITY]) {
    assert.deepEqual(f.bytes(nothing), f.NONE);
    assert.deepEqual(f.rate(nothing, "samples/s"), f.NONE);
    assert.deepEqual(f.loss(nothing, "nats"), f.NONE);
    assert.deepEqual(f.percent(nothing), f.NONE);
    assert.deepEqual(f.milliseconds(nothing), f.NONE);
    assert.deepEqual(f.learningRate(nothing), f.NONE);
  }
});

test("pain_F3: a clock that is wrong by a minute or more is named, with unit and cure", () => {
  const right = [0, 59_999, -59_999, null, undefined, Number.NaN];
  for (const offset of right) assert.equal(f.clockWarning(offset), null);
  assert.match(f.clockWarning(3_600_123) ?? "", /^Its clock is 1 h 0 min fast: set the time/);
  assert.match(f.clockWarning(-60_000) ?? "", /^Its clock is 1 min slow: .*NTP/);
});

test("rates", () => {
  const rates = [0, 0.0004, 0.042, 0.9, 1.254, 9.996, 48.32, 99.96, 312.4, 12345.6].map(f.rounded);
  assert.deepEqual(rates, [
    "0",
    "< 0.001",
    "0.042",
    "0.9",
    "1.25",
    "10.0",
    "48.3",
    "100",
    "312",
    "12,346",
  ]);
});

test("losses arrive in nats; bits per byte divide by ln 2", () => {
  assert.deepEqual(f.loss(Math.LN2 * 2.407, "bits/byte"), { text: "2.407", unit: "bits/byte" });
  assert.deepEqual(f.loss(0.0931, "nats"), { text: "0.093", unit: "nats" });
  assert.deepEqual(f.loss(20, "nats"), { text: "20.0", unit: "nats" });
  assert.deepEqual(f.loss(0, "nats"), { text: "0.000", unit: "nats" });
});

test("shares and savings", () => {
  assert.equal(words(f.share(31104, 72000)), "43.2 %");
  assert.equal(words(f.share(72100, 72000)), "100.0 %");
  assert.deepEqual(f.share(0, 0), f.NONE);
  assert.equal(f.times(f.saving(1000, 237000)), "237×");
  assert.equal(f.saving(0, 0), null);
  assert.equal(f.times(null), "—");
});

test("learning rates keep their digits", () => {
  assert.equal(f.learningRate(0.0027412).text, "0.00274");
  assert.equal(f.learningRate(0.003).text, "0.003");
  assert.equal(f.learningRate(0.0000123).text, "1.23e-5");
  assert.equal(f.learningRate(0.000445).text, "4.45e-4");
  assert.equal(f.learningRate(0).text, "0");
});

test("counts, durations, zones", () => {
  assert.equal(f.counted(1, "update"), "1 update");
  assert.equal(f.counted(1204, "update"), "1,204 updates");
  const spans = [48.4, 60, 725, 3599.7, 11520, 187200].map(f.duration);
  assert.deepEqual(spans, ["48 s", "1 min", "12 min 5 s", "1 h 0 min", "3 h 12 min", "2 d 4 h"]);
  assert.equal(f.zone(-120), "UTC+02:00");
  assert.equal(f.zone(210), "UTC−03:30");
  assert.equal(f.zone(0), "UTC+00:00");
});

test("a time that cannot be read is a dash", () => {
  assert.equal(f.fullTime(new Date("yesterday")), "—");
  assert.equal(f.fullTime(new Date(2026, 10, 30, 2, 4, 9)), "2026-11-30 02:04:09");
});

test("0 stands for what is not measured, where nothing real is 0", () => {
  assert.equal(f.measured(0.5), 0.5);
  for (const nothing of [0, -1, null, undefined, Number.NaN])
    assert.equal(f.measured(nothing), null);
});

test("a link's speed: bytes per second as Mbit/s", () => {
  assert.equal(words(f.linkSpeed(612_500)), "4.90 Mbit/s");
  assert.equal(words(f.linkSpeed(6_250_000)), "50.0 Mbit/s");
  assert.equal(words(f.linkSpeed(160_600_000)), "1,285 Mbit/s");
  assert.equal(words(f.linkSpeed(1_000)), "0.008 Mbit/s");
  assert.deepEqual(f.linkSpeed(null), f.NONE);
});

test("short times: ms below a second", () => {
  assert.equal(words(f.span(0.68)), "0.68 ms");
  assert.equal(words(f.span(25.3)), "25.3 ms");
  assert.equal(words(f.span(999.6)), "1.00 s");
  assert.equal(words(f.span(5454)), "5.45 s");
  assert.deepEqual(f.span(null), f.NONE);
});

test("a synthetic job's loss has a short unit, and is no number of nats", () => {
  const unit = "of the start's variance";
  assert.deepEqual(f.loss(1.997, unit), { text: "1.997", unit: "× variance" });
  assert.equal(f.lossValue(0.5, unit), 0.5);
});
