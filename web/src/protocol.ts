// The shapes of docs/PROTOCOL.md that the dashboard reads: the live stream raven.v1 and the parts
// of REST it calls. Losses are nats; null means not measured yet.

export type JobStateName = "queued" | "running" | "completed" | "cancelled" | "failed";
export type VolunteerStateName = "training" | "uploading" | "idle" | "offline";
export type LossUnit = "bits/byte" | "nats" | "of the start's variance";
export type Severity = "info" | "warn" | "error";

/** time_ms, version, loss, smoothed loss */
export type Point = [number, number, number | null, number | null];
/** time_ms, version, held-out loss, accuracy 0 … 1 */
export type Evaluation = [number, number, number | null, number | null];

export interface RavenEvent {
  seq: number;
  type: string;
  severity: Severity;
  subject: string;
  text: string;
  at: string;
}

export interface Traffic {
  uplink_bytes: number;
  uplink_fp32_bytes: number;
  downlink_bytes: number;
  downlink_fp32_bytes: number;
}

export interface UpdateCounts {
  updates_applied: number;
  updates_stale: number;
  updates_refused: number;
}

export interface OverviewJob {
  id: string;
  name: string;
  state: JobStateName;
  version: number;
  samples: number;
  total_samples: number;
  loss_smoothed: number | null;
  held_out_loss: number | null;
  held_out_accuracy: number | null;
  unit: LossUnit;
}

/** What a volunteer's controller decided for its next leases, and from what; 0: not measured. */
export interface Choice {
  steps: number;
  /** coordinates that an update keeps of each chunk */
  k: number;
  /** leases to hold, the current one included */
  ahead: number;
  step_ms: number;
  up_bytes_per_s: number;
  down_bytes_per_s: number;
  transfer_ms: number;
  compute_ms: number;
  reason: string;
}

export interface Volunteer {
  id: string;
  label: string;
  state: VolunteerStateName;
  samples_per_s: number | null;
  rtt_ms: number | null;
  /** how far its clock is ahead of the coordinator's; null: offline */
  clock_offset_ms: number | null;
  loss: number | null;
  updates_applied: number;
  samples: number;
  staleness: number | null;
  /** share of the time spent computing, 0 … 1, since the agent's start; 0: not measured */
  utilisation: number | null;
  choice: Choice | null;
}

export interface Overview extends Traffic, UpdateCounts {
  volunteers_total: number;
  volunteers_connected: number;
  volunteers_training: number;
  jobs_running: number;
  samples_per_s: number;
  updates_per_s: number;
  staleness: number[];
  job: string | null;
  points: Point[];
  jobs: OverviewJob[];
  volunteers: Volunteer[];
  events: RavenEvent[];
}

export interface JobDetail extends Traffic, UpdateCounts {
  id: string;
  name: string;
  state: JobStateName;
  reason: string | null;
  preset: string;
  parameters: number;
  version: number;
  samples: number;
  total_samples: number;
  loss: number | null;
  loss_smoothed: number | null;
  held_out_loss_first: number | null;
  held_out_loss: number | null;
  held_out_accuracy: number | null;
  unit: LossUnit;
  samples_per_s: number | null;
  updates_per_s: number | null;
  staleness: number[];
  learning_rate: number | null;
  outer_rate: number | null;
  hash: string;
  spec: JobSpec;
  points: Point[];
  evaluations: Evaluation[];
  volunteers: Volunteer[];
  events: RavenEvent[];
}

export type SpecValue =
  string | number | boolean | null | SpecValue[] | { [key: string]: SpecValue };
export type JobSpec = { [key: string]: SpecValue };

/** GET /v1/jobs/{id}: what is left when a job's live channel is gone. */
export interface RestJob {
  id: string;
  name: string;
  state: JobStateName;
  reason: string | null;
  created_at: string;
  started_at: string | null;
  finished_at: string | null;
  spec: JobSpec;
  progress: RestProgress | null;
}

export interface RestProgress extends UpdateCounts {
  version: number;
  samples: number;
  total_samples: number;
  parameters: number;
  volunteers: number;
  loss: number | null;
  loss_smoothed: number | null;
  held_out_loss_first: number | null;
  held_out_loss: number | null;
  held_out_accuracy: number | null;
  uplink_bytes: number;
  downlink_bytes: number;
  staleness: number[];
  hash: string;
}

export interface Me {
  id: string;
  scopes: string[];
}

export interface Invite {
  id: string;
  token: string;
  max_uses: number;
  expires_at: string;
  command: string;
}

export interface Problem {
  title?: string;
  status?: number;
  detail?: string;
  request_id?: string;
  errors?: { pointer: string; code: string; detail: string }[];
}

export interface ChannelMap {
  overview: Overview;
  [job: `job:${string}`]: JobDetail;
}

export type ServerMessage =
  | { t: "welcome"; epoch: string; server_time: string; hz: number }
  | { t: "snap"; ch: string; epoch: string; seq: number; d: Record<string, unknown> }
  | { t: "d"; ch: string; seq: number; d: Record<string, unknown> }
  | { t: "hb"; ts: number }
  | { t: "gone"; ch: string }
  | { t: "bye"; code: string; retry_ms?: number };

export type ClientMessage =
  | { t: "hello"; epoch: string; seq: Record<string, number>; sub: string[] }
  | { t: "sub"; add: string[]; del: string[] }
  | { t: "resync"; ch: string };
