import assert from "node:assert/strict";
import test from "node:test";
import { applyDelta, applySnapshot, emptyChannel } from "../src/channel";

const point = (version: number) => [1000 * version, version, 2, 2.1];

test("a delta replaces values and lists, and appends to points, evaluations and events", () => {
  const channel = emptyChannel();
  const volunteers = [{ id: "vol_a" }, { id: "vol_b" }];
  applySnapshot(channel, 5, { samples_per_s: 10, loss: null, volunteers, points: [point(1)] });
  const outcome = applyDelta(channel, 6, {
    samples_per_s: 12,
    volunteers: [{ id: "vol_b" }],
    points: [point(2), point(3)],
    events: [{ seq: 1 }],
  });
  assert.equal(outcome, "applied");
  assert.deepEqual(channel.data, {
    samples_per_s: 12,
    loss: null,
    volunteers: [{ id: "vol_b" }],
    points: [point(1), point(2), point(3)],
    events: [{ seq: 1 }],
  });
});

test("what was handed out before a delta stays as it was", () => {
  const channel = emptyChannel();
  applySnapshot(channel, 1, { points: [point(1)], version: 1 });
  const seen = channel.data;
  applyDelta(channel, 2, { points: [point(2)], version: 2 });
  assert.deepEqual(seen, { points: [point(1)], version: 1 });
});

test("a delta before any snapshot is a gap", () => {
  assert.equal(applyDelta(emptyChannel(), 1, {}), "gap");
});

test("a gap is not applied, nor anything after it, until the next snapshot", () => {
  const channel = emptyChannel();
  applySnapshot(channel, 5, { version: 5 });
  assert.equal(applyDelta(channel, 7, { version: 7 }), "gap");
  assert.equal(applyDelta(channel, 6, { version: 6 }), "gap");
  assert.deepEqual(channel.data, { version: 5 });
  applySnapshot(channel, 8, { version: 8 });
  assert.equal(applyDelta(channel, 9, { version: 9 }), "applied");
  assert.deepEqual(channel.data, { version: 9 });
});

test("a delta that was already applied changes nothing", () => {
  const channel = emptyChannel();
  applySnapshot(channel, 5, { points: [point(1)] });
  assert.equal(applyDelta(channel, 5, { points: [point(1)] }), "duplicate");
  assert.equal(applyDelta(channel, 4, { points: [point(0)] }), "duplicate");
  assert.deepEqual(channel.data, { points: [point(1)] });
});

test("600 points and 20 events are kept, the newest ones", () => {
  const channel = emptyChannel();
  applySnapshot(channel, 0, {
    points: Array.from({ length: 700 }, (_, v) => point(v)),
    events: [],
  });
  for (let seq = 1; seq <= 50; seq++) {
    applyDelta(channel, seq, { points: [point(699 + seq)], events: [{ seq }] });
  }
  const data = channel.data as { points: number[][]; events: { seq: number }[] };
  assert.equal(data.points.length, 600);
  assert.deepEqual(data.points[599], point(749));
  assert.deepEqual(
    data.events.map((e) => e.seq),
    Array.from({ length: 20 }, (_, k) => 31 + k),
  );
});

test("when the overview turns to another job, its curve starts anew", () => {
  const channel = emptyChannel();
  applySnapshot(channel, 1, { job: "job_a", points: [point(1)] });
  applyDelta(channel, 2, { job: "job_a", points: [point(2)] });
  assert.deepEqual(channel.data?.points, [point(1), point(2)]);
  applyDelta(channel, 3, { job: "job_b", points: [point(9)] });
  assert.deepEqual(channel.data, { job: "job_b", points: [point(9)] });
  applyDelta(channel, 4, { job: null });
  assert.deepEqual(channel.data, { job: null, points: [] });
});
