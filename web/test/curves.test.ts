import assert from "node:assert/strict";
import test from "node:test";
import { accuracyCurve, heldOutCurve, lossAndHeldOut, lossCurves } from "../src/curves";
import type { Evaluation, Point } from "../src/protocol";

const points: Point[] = [
  [1000, 1, Math.LN2, null],
  [3000, 2, null, Math.LN2 * 3],
];

test("points become columns in the job's unit; what is missing stays missing", () => {
  const curves = lossCurves(points, "bits/byte");
  assert.deepEqual(curves, {
    x: [1, 3],
    ys: [
      [1, null],
      [null, 3],
    ],
  });
});

test("held-out losses join at their own times; older ones than the points are left out", () => {
  const evaluations: Evaluation[] = [
    [500, 0, 9, null],
    [2000, 1, 4, null],
    [4000, 2, 2, null],
  ];
  const { x, ys } = lossAndHeldOut(points, evaluations, "nats");
  assert.deepEqual(x, [1, 2, 3, 4]);
  assert.deepEqual(
    ys[2]?.filter((v) => typeof v === "number"),
    [4, 2],
  );
  assert.equal(ys[2]?.[1], 4);
  assert.equal(ys.length, 3);
  assert.deepEqual(heldOutCurve(evaluations, "nats"), { x: [0.5, 2, 4], ys: [[9, 4, 2]] });
});

test("without evaluations there is an empty third column", () => {
  assert.deepEqual(lossAndHeldOut(points, [], "nats").ys[2], [null, null]);
});

test("accuracy is in percent, and absent for text", () => {
  const evaluations: Evaluation[] = [
    [1000, 1, 2, 0.5],
    [2000, 2, 1, null],
  ];
  assert.deepEqual(accuracyCurve(evaluations), { x: [1], ys: [[50]] });
});
