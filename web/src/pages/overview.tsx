// Overview: how the whole fleet does, live. Everything here comes from the channel "overview".
import { useMemo } from "preact/hooks";
import { lossCurves } from "../curves";
import * as f from "../format";
import { AddPc } from "../parts/invite";
import { CodeBlock, Name, Num, Panel, Progress, State, Table } from "../parts/basic";
import { Chart } from "../parts/chart";
import { Events, Staleness } from "../parts/panels";
import { Tile } from "../parts/tile";
import { useChannel } from "../parts/use_channel";
import { column, VolunteerTable } from "../parts/volunteers";
import type { LossUnit, Overview, OverviewJob, Volunteer } from "../protocol";
import { Link } from "../router";

const JOBS_SHOWN = 50;

export function OverviewPage() {
  const view = useChannel("overview").value;
  return (
    <main id="main" tabIndex={-1}>
      <div class="page-head">
        <h1>Overview</h1>
        <AddPc class="primary" />
      </div>
      {view.kind === "here" ? (
        <Body o={view.data} />
      ) : (
        <p class="empty">Waiting for the first figures…</p>
      )}
    </main>
  );
}

function Body({ o }: { o: Overview }) {
  const job = o.jobs.find((j) => j.id === o.job) ?? null;
  return (
    <>
      <Tiles o={o} job={job} />
      <div class="columns wide-left">
        {o.jobs.length === 0 ? <FirstJob /> : <LossPanel o={o} job={job} />}
        <Staleness buckets={o.staleness} />
      </div>
      <Jobs jobs={o.jobs} />
      <Volunteers volunteers={o.volunteers} unit={fleetUnit(o.jobs)} />
      <Events events={o.events} wide />
    </>
  );
}

/** Volunteers report plain losses, whatever their job; a unit only when it is right for all. */
function fleetUnit(jobs: OverviewJob[]): LossUnit {
  const running = jobs.filter((j) => j.state === "running");
  const all = running.length ? running : jobs;
  const unit = all[0]?.unit ?? "nats";
  return all.every((j) => j.unit === unit) ? unit : "nats";
}

function Tiles({ o, job }: { o: Overview; job: OverviewJob | null }) {
  const unit = job?.unit ?? "nats";
  const saving = f.saving(o.uplink_bytes, o.uplink_fp32_bytes);
  const g = f.grouped;
  const saved = f.bytes(Math.max(0, o.uplink_fp32_bytes - o.uplink_bytes));
  return (
    <div class="tiles" role="group" aria-label="Key figures">
      <Tile
        label="Volunteers"
        amount={f.count(o.volunteers_training, "training")}
        note={`${g(o.volunteers_connected)} connected of ${g(o.volunteers_total)} enrolled`}
      />
      <Tile
        label="Throughput"
        amount={f.rate(o.samples_per_s, "samples/s")}
        note={f.counted(o.jobs_running, "running job")}
      />
      <Tile
        label="Updates"
        amount={f.rate(o.updates_per_s, "updates/s")}
        note={
          <>
            {g(o.updates_applied)} applied, {g(o.updates_stale)} stale, {g(o.updates_refused)}{" "}
            refused
          </>
        }
      />
      <Tile
        id="loss"
        label="Loss, smoothed"
        amount={f.loss(job?.loss_smoothed, unit)}
        note={job ? <Name text={job.name} fallback={job.id} /> : "no job yet"}
      />
      <Tile
        label="Held out"
        amount={f.loss(job?.held_out_loss, unit)}
        note={<HeldOutNote job={job} />}
      />
      <Tile
        label="Uplink saving"
        amount={saving === null ? f.NONE : { text: f.rounded(saving), unit: "× smaller" }}
        note={
          saving === null ? (
            "nothing sent yet"
          ) : (
            <>
              <Num amount={saved} /> of fp32 not sent
            </>
          )
        }
      />
    </div>
  );
}

function HeldOutNote({ job }: { job: OverviewJob | null }) {
  if (!job || job.held_out_loss === null) return <>not evaluated yet</>;
  if (job.held_out_accuracy === null) return <>loss on data not trained on</>;
  return (
    <>
      accuracy <Num amount={f.percent(job.held_out_accuracy)} />
    </>
  );
}

function LossPanel({ o, job }: { o: Overview; job: OverviewJob | null }) {
  const unit = job?.unit ?? "nats";
  const curves = useMemo(() => lossCurves(o.points, unit), [o.points, unit]);
  const name = job ? job.name : "Loss";
  return (
    <Panel
      title="Loss"
      note={
        job ? (
          <Link to={`/jobs/${job.id}`}>
            <Name text={job.name} fallback={job.id} />
          </Link>
        ) : (
          ""
        )
      }
    >
      {o.points.length === 0 ? (
        <p class="empty">
          No update has arrived yet. The curve starts with the first volunteer that finishes a
          lease.
        </p>
      ) : (
        <Chart
          key={job?.id}
          label={`Loss of ${name}`}
          unit={f.lossUnit(unit)}
          digits={3}
          height={250}
          series={[
            { label: "raw", colour: "--series-raw", width: 1 },
            { label: "smoothed", colour: "--series-smoothed", width: 2 },
          ]}
          x={curves.x}
          ys={curves.ys}
        />
      )}
    </Panel>
  );
}

/** Works when it is pasted as a whole: the artifact's id is taken out of the first answer. */
function firstJobCommands(here: string): string {
  return `# RAVEN_KEY is your API key, corpus.txt the text to learn
ART=$(curl -sSi ${here}/v1/artifacts -H "Authorization: Bearer $RAVEN_KEY" \\
  -H 'Content-Type: application/json' -H "Idempotency-Key: text-$(date +%s)" -d @- <<END |
{"kind": "dataset_text", "filename": "corpus.txt", "size_bytes": $(stat -c %s corpus.txt),
 "sha256": "$(sha256sum corpus.txt | cut -c 1-64)"}
END
grep -o 'art_[0-9A-Za-z]*' | head -n 1)
curl -sS -X PATCH ${here}/v1/artifacts/$ART/upload -H "Authorization: Bearer $RAVEN_KEY" \\
  -H 'Content-Type: application/offset+octet-stream' -H 'Upload-Offset: 0' \\
  --data-binary @corpus.txt
curl -sS ${here}/v1/jobs -H "Authorization: Bearer $RAVEN_KEY" \\
  -H 'Content-Type: application/json' -H "Idempotency-Key: job-$(date +%s)" -d @- <<END
{"name": "My first GPT",
 "model": {"preset": "gpt", "layers": 2, "width": 64, "heads": 4, "context": 64},
 "data": {"kind": "text", "train": "$ART"},
 "training": {"batch_size": 8, "total_samples": 72000}}
END`;
}

function FirstJob() {
  const text = firstJobCommands(location.origin);
  return (
    <Panel title="Start the first job" note="no job yet">
      <p>Upload a text and submit a job: its loss curve appears here.</p>
      <CodeBlock text={text} label="Commands that start a job" />
    </Panel>
  );
}

const JOB_HEAD = [
  { text: "Job" },
  { text: "State" },
  { text: "Progress", unit: "% of samples" },
  { text: "Version", unit: "commits", number: true },
  { text: "Loss", unit: "smoothed", number: true },
  { text: "Held out", unit: "loss", number: true },
  { text: "Accuracy", unit: "%", number: true },
];

function Jobs({ jobs }: { jobs: OverviewJob[] }) {
  return (
    <Panel title="Jobs" note={f.counted(jobs.length, "job")}>
      {jobs.length === 0 ? (
        <p class="empty">No job yet. The commands above start one.</p>
      ) : (
        <Table label="Jobs" head={JOB_HEAD}>
          {jobs.slice(0, JOBS_SHOWN).map((j) => (
            <JobRow key={j.id} j={j} />
          ))}
        </Table>
      )}
    </Panel>
  );
}

function JobRow({ j }: { j: OverviewJob }) {
  return (
    <tr>
      <th scope="row">
        <Link to={`/jobs/${j.id}`} class="job-link">
          <Name text={j.name} fallback={j.id} />
        </Link>
      </th>
      <td>
        <State name={j.state} />
      </td>
      <td class="with-bar">
        <Progress label={`Progress of ${j.name}`} part={j.samples} whole={j.total_samples} />
        <Num amount={f.share(j.samples, j.total_samples)} />
      </td>
      <td class="right">{f.grouped(j.version)}</td>
      <td class="right">
        <Num amount={f.loss(j.loss_smoothed, j.unit)} />
      </td>
      <td class="right">
        <Num amount={f.loss(j.held_out_loss, j.unit)} />
      </td>
      <td class="right">
        <Num amount={f.percent(j.held_out_accuracy)} />
      </td>
    </tr>
  );
}

const STATE_RANK = { training: 0, uploading: 0, idle: 1, offline: 2 };

function Volunteers({ volunteers, unit }: { volunteers: Volunteer[]; unit: LossUnit }) {
  const ordered = useMemo(() => {
    const rank = (v: Volunteer) => STATE_RANK[v.state] ?? 3;
    return [...volunteers].sort((a, b) => rank(a) - rank(b) || a.label.localeCompare(b.label));
  }, [volunteers]);
  const columns = [
    column.state,
    ...column.controller,
    column.roundTrip,
    column.speed,
    column.lossIn(unit),
    column.applied,
    column.staleness,
  ];
  return (
    <Panel title="Volunteers" note={f.counted(volunteers.length, "volunteer")}>
      {volunteers.length === 0 ? (
        <div class="empty">
          <p>No volunteer yet. Any Linux PC joins with one command.</p>
          <AddPc />
        </div>
      ) : (
        <VolunteerTable label="Volunteers" volunteers={ordered} columns={columns} />
      )}
    </Panel>
  );
}
