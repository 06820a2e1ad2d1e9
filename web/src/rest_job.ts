// A finished job has no live channel: REST's last figures, in the shape that the job page draws.
// What REST does not tell (curves, contributions) stays empty.
import type { JobDetail, LossUnit, RestJob, RestProgress } from "./protocol";

const NOTHING: RestProgress = {
  version: 0,
  samples: 0,
  total_samples: 0,
  parameters: 0,
  volunteers: 0,
  updates_applied: 0,
  updates_stale: 0,
  updates_refused: 0,
  loss: null,
  loss_smoothed: null,
  held_out_loss_first: null,
  held_out_loss: null,
  held_out_accuracy: null,
  uplink_bytes: 0,
  downlink_bytes: 0,
  staleness: [],
  hash: "",
};

/** By the kind of the data, as the coordinator says it in the live channel. */
const UNITS: Record<string, LossUnit> = {
  text: "bits/byte",
  synthetic: "of the start's variance",
};

function field(value: unknown, key: string): unknown {
  return typeof value === "object" && value !== null
    ? (value as Record<string, unknown>)[key]
    : undefined;
}

export function fromRest(job: RestJob): JobDetail {
  const p = job.progress ?? NOTHING;
  const unit = UNITS[String(field(job.spec.data, "kind"))] ?? "nats";
  const total = p.total_samples || Number(field(job.spec.training, "total_samples") ?? 0);
  return {
    ...p,
    id: job.id,
    name: job.name,
    state: job.state,
    reason: job.reason,
    preset: String(field(job.spec.model, "preset") ?? ""),
    total_samples: total,
    unit,
    samples_per_s: null,
    updates_per_s: null,
    uplink_fp32_bytes: 0,
    downlink_fp32_bytes: 0,
    learning_rate: null,
    outer_rate: null,
    spec: job.spec,
    points: [],
    evaluations: [],
    volunteers: [],
    events: [],
  };
}
