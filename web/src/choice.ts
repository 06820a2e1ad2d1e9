// Why a volunteer's leases are as they are: its controller's decision as figures with units, sorted
// into what was decided, what was measured and what that predicts. Pure; parts/why.tsx draws it.
import * as f from "./format";
import type { Choice, Volunteer } from "./protocol";

export interface Fact {
  name: string;
  amount: f.Amount;
  note: string;
}

export interface Explanation {
  decided: Fact[];
  measured: Fact[];
  computing: Fact;
  transfer: Fact;
  /** 0 … 1: the lengths of their bars, on one scale */
  computingBar: number;
  transferBar: number;
}

export const CHUNK = "of 4,096";

function unit(value: number, one: string): string {
  return value === 1 ? one : `${one}s`;
}

/** "5.45 s", or nothing where the figure is missing. */
function words(amount: f.Amount): string {
  return amount.unit ? `${amount.text} ${amount.unit}` : "";
}

function computingNote(choice: Choice): string {
  const step = words(f.span(f.measured(choice.step_ms)));
  const ratio = choice.transfer_ms > 0 ? choice.compute_ms / choice.transfer_ms : 0;
  const parts = [
    step && `${f.counted(choice.steps, "step")} × ${step}`,
    ratio > 0 && `${f.times(ratio)} the transfer`,
  ];
  return parts.filter(Boolean).join(", ");
}

/** The prediction leaves out what is not measured, so it says what it lacks. */
function transferNote(choice: Choice): string {
  const up = choice.up_bytes_per_s > 0;
  const down = choice.down_bytes_per_s > 0;
  if (up && down) return "update up, deltas down, and a margin";
  if (up) return "update up and a margin; the downlink is not measured";
  if (down) return "deltas down and a margin; the uplink is not measured";
  return choice.transfer_ms > 0 ? "round trips only; the link is not measured" : "";
}

export function explain(choice: Choice, roundTripMs: number | null): Explanation {
  const compute = f.measured(choice.compute_ms);
  const transfer = f.measured(choice.transfer_ms);
  const longest = Math.max(compute ?? 0, transfer ?? 0, Number.MIN_VALUE);
  return {
    decided: [
      {
        name: "Steps",
        amount: f.count(f.measured(choice.steps), unit(choice.steps, "step")),
        note: "in one lease",
      },
      {
        name: "Kept, k",
        amount: f.count(f.measured(choice.k), CHUNK),
        note: "coordinates of each chunk go up",
      },
      {
        name: "Leases held",
        amount: f.count(f.measured(choice.ahead), unit(choice.ahead, "lease")),
        note: "the current one included",
      },
    ],
    measured: [
      { name: "One step", amount: f.span(f.measured(choice.step_ms)), note: "" },
      { name: "Uplink", amount: f.linkSpeed(f.measured(choice.up_bytes_per_s)), note: "" },
      { name: "Downlink", amount: f.linkSpeed(f.measured(choice.down_bytes_per_s)), note: "" },
      { name: "Round trip", amount: f.span(f.measured(roundTripMs)), note: "" },
    ],
    computing: { name: "Computing", amount: f.span(compute), note: computingNote(choice) },
    transfer: { name: "Transfer", amount: f.span(transfer), note: transferNote(choice) },
    computingBar: (compute ?? 0) / longest,
    transferBar: (transfer ?? 0) / longest,
  };
}

/** In place of the explanation while there is nothing to explain. */
export function noChoice(state: Volunteer["state"]): string {
  return state === "offline"
    ? "Offline. It chooses anew when it is back and has measured its link."
    : "No choice known yet. It chooses each time before it asks for a lease.";
}
