// Full jitter: a random wait below a ceiling that doubles. After a restart of the coordinator every
// open page would otherwise come back in the same instant.

export const RETRY_FIRST_MS = 500;
export const RETRY_MAX_MS = 30_000;

export function retryCeilingMs(failures: number): number {
  return Math.min(RETRY_MAX_MS, RETRY_FIRST_MS * 2 ** Math.min(failures, 16));
}

/** random: 0 ≤ random < 1. failures: attempts in a row that came to nothing. */
export function retryDelayMs(failures: number, random: number): number {
  return Math.floor(retryCeilingMs(failures) * random);
}
