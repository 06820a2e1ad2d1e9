import assert from "node:assert/strict";
import test from "node:test";
import { RETRY_FIRST_MS, RETRY_MAX_MS, retryCeilingMs, retryDelayMs } from "../src/backoff";

test("the ceiling doubles from 0.5 s and stops at 30 s", () => {
  const ceilings = [0, 1, 2, 3, 4, 5, 6, 7, 1000].map(retryCeilingMs);
  assert.deepEqual(ceilings, [500, 1000, 2000, 4000, 8000, 16000, 30000, 30000, 30000]);
});

test("full jitter: any wait from nothing up to the ceiling, never more", () => {
  for (let failures = 0; failures < 20; failures++) {
    assert.equal(retryDelayMs(failures, 0), 0);
    const longest = retryDelayMs(failures, 1 - Number.EPSILON);
    assert.ok(longest < retryCeilingMs(failures) && longest <= RETRY_MAX_MS);
    assert.equal(retryDelayMs(failures, 0.5), Math.floor(retryCeilingMs(failures) / 2));
  }
  assert.equal(RETRY_FIRST_MS, 500);
});
