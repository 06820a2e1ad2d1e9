// One channel of the live stream: a snapshot, then deltas whose sequence grows by exactly one. Pure
// functions on plain objects; nothing here knows sockets or the page. A delta that does not follow
// is never applied: the caller asks for a snapshot instead, so wrong figures are never shown.

/** Lists that a delta appends to, with the entries that are kept. */
const APPENDED: Record<string, number> = { points: 600, evaluations: 600, events: 20 };

export interface Channel {
  /** null: nothing received, or what was received cannot be continued */
  seq: number | null;
  data: Record<string, unknown> | null;
}

export type Outcome = "applied" | "duplicate" | "gap";

export function emptyChannel(): Channel {
  return { seq: null, data: null };
}

export function applySnapshot(channel: Channel, seq: number, d: Record<string, unknown>): void {
  channel.seq = seq;
  channel.data = trimmed(d);
}

export function applyDelta(channel: Channel, seq: number, d: Record<string, unknown>): Outcome {
  if (channel.seq === null || channel.data === null) return "gap";
  if (seq <= channel.seq) return "duplicate";
  if (seq !== channel.seq + 1) {
    channel.seq = null;
    return "gap";
  }
  channel.seq = seq;
  channel.data = merged(channel.data, d);
  return "applied";
}

function trimmed(d: Record<string, unknown>): Record<string, unknown> {
  const out = { ...d };
  for (const [key, keep] of Object.entries(APPENDED)) {
    const list = out[key];
    if (Array.isArray(list) && list.length > keep) out[key] = list.slice(-keep);
  }
  return out;
}

function merged(
  before: Record<string, unknown>,
  d: Record<string, unknown>,
): Record<string, unknown> {
  const out = { ...before };
  // The overview's curve belongs to one job; points of another one must not continue it.
  if (d.job !== undefined && d.job !== before.job) out.points = [];
  for (const [key, value] of Object.entries(d)) {
    const keep = APPENDED[key];
    const old = out[key];
    if (keep !== undefined && Array.isArray(value) && Array.isArray(old)) {
      out[key] = [...old, ...value].slice(-keep);
    } else {
      out[key] = value;
    }
  }
  return out;
}
