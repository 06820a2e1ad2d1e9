// One job: from its live channel while it has one, else from REST as it was left.
import { useSignal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { cancelJob, readJob } from "../api";
import { accuracyCurve, heldOutCurve, lossAndHeldOut } from "../curves";
import * as f from "../format";
import { mayI } from "../live";
import { Name, Num, Panel, Progress, State } from "../parts/basic";
import { Chart } from "../parts/chart";
import { Dialog } from "../parts/dialog";
import { Events, Staleness, Updates } from "../parts/panels";
import { Settings } from "../parts/settings";
import { Tile } from "../parts/tile";
import { useChannel } from "../parts/use_channel";
import { column, VolunteerTable } from "../parts/volunteers";
import type { JobDetail, LossUnit, RestJob, Volunteer } from "../protocol";
import { fromRest } from "../rest_job";
import { Link } from "../router";

type Fallback = { rest: RestJob | null; problem: string };

/** REST's answer, asked only when the coordinator says that the job has no live channel. */
function useRestJob(id: string, wanted: boolean): Fallback {
  const found = useSignal<Fallback>({ rest: null, problem: "" });
  useEffect(() => {
    if (!wanted) return;
    void readJob(id).then((answer) => {
      found.value = answer.ok
        ? { rest: answer.data, problem: "" }
        : { rest: null, problem: answer.text };
    });
  }, [id, wanted]);
  return found.value;
}

export function JobPage({ id }: { id: string }) {
  const view = useChannel(`job:${id}`).value;
  const { rest, problem } = useRestJob(id, view.kind === "gone");
  return (
    <main id="main" tabIndex={-1}>
      <nav class="crumbs" aria-label="Breadcrumb">
        <Link to="/">Overview</Link> <span aria-hidden="true">/</span> Job
      </nav>
      {view.kind === "here" ? (
        <Body j={view.data} live={true} />
      ) : rest?.progress ? (
        <Body j={fromRest(rest)} live={false} />
      ) : rest ? (
        <Ended rest={rest} />
      ) : (
        <Missing problem={problem} />
      )}
    </main>
  );
}

function Missing({ problem }: { problem: string }) {
  return (
    <>
      <h1>Job</h1>
      {problem ? (
        <p class="problem" role="alert">
          {problem}
        </p>
      ) : (
        <p class="empty">Waiting for the job's figures…</p>
      )}
    </>
  );
}

/** All figures are gone with the live channel; what is known for ever is shown. */
function Ended({ rest }: { rest: RestJob }) {
  const times: [string, string | null][] = [
    ["submitted", rest.created_at],
    ["started", rest.started_at],
    ["ended", rest.finished_at],
  ];
  const j = fromRest(rest);
  return (
    <>
      <header class="job-head">
        <Title j={j} />
      </header>
      <Panel title="Times" note={f.zone(new Date().getTimezoneOffset())}>
        <dl class="rows">
          {times.map(([word, at]) => (
            <div key={word}>
              <dt>{word}</dt>
              <dd>
                {at ? (
                  <time dateTime={at} title={at}>
                    {f.fullTime(new Date(at))}
                  </time>
                ) : (
                  "not yet"
                )}
              </dd>
            </div>
          ))}
        </dl>
        <p class="empty">This job is not live, so it has no figures and curves here.</p>
      </Panel>
      <Settings spec={j.spec} id={j.id} hash={j.hash} parameters={j.parameters} />
    </>
  );
}

function Body({ j, live }: { j: JobDetail; live: boolean }) {
  return (
    <>
      <Head j={j} live={live} />
      <Tiles j={j} />
      <LossPanel j={j} />
      <div class="columns halves">
        <HeldOutPanel j={j} />
        <AccuracyPanel j={j} />
        <Staleness buckets={j.staleness} />
        <Updates counts={j} />
      </div>
      <Contributions volunteers={j.volunteers} unit={j.unit} />
      <div class="columns wide-right">
        <Events events={j.events} />
        <Settings spec={j.spec} id={j.id} hash={j.hash} parameters={j.parameters} />
      </div>
    </>
  );
}

function Title({ j }: { j: JobDetail }) {
  return (
    <>
      <div class="page-head">
        <h1>
          <Name text={j.name} fallback={j.id} />
        </h1>
        <State name={j.state} />
        <CancelJob j={j} />
      </div>
      {j.reason && (
        <p class="reason">
          Reason: <bdi>{j.reason}</bdi>
        </p>
      )}
    </>
  );
}

function Head({ j, live }: { j: JobDetail; live: boolean }) {
  const left = j.total_samples - j.samples;
  const eta =
    j.state === "running" && j.samples_per_s && left > 0
      ? `about ${f.duration(left / j.samples_per_s)} left`
      : "";
  return (
    <header class="job-head">
      <Title j={j} />
      {!live && <p class="note">Not live any more: these are the last known figures.</p>}
      <div class="job-progress">
        <Progress label="Progress" part={j.samples} whole={j.total_samples} />
        <p>
          <Num amount={f.share(j.samples, j.total_samples)} class="strong" />
          <span>
            {f.grouped(j.samples)} of {f.grouped(j.total_samples)} samples
          </span>
          <span>version {f.grouped(j.version)}</span>
          {eta && <span>{eta}</span>}
        </p>
      </div>
    </header>
  );
}

function CancelJob({ j }: { j: JobDetail }) {
  const asking = useSignal(false);
  const ended = j.state !== "running" && j.state !== "queued";
  const allowed = mayI("jobs:write");
  const why = ended ? `The job is ${j.state} already` : "Your key lacks the scope jobs:write";
  const off = ended || !allowed;
  return (
    <>
      <button
        type="button"
        class="button danger"
        disabled={off}
        title={off ? why : undefined}
        onClick={() => (asking.value = true)}
      >
        Cancel job
      </button>
      {asking.value && !ended && <ConfirmCancel j={j} onClose={() => (asking.value = false)} />}
    </>
  );
}

function ConfirmCancel({ j, onClose }: { j: JobDetail; onClose: () => void }) {
  const reason = useSignal("");
  const problem = useSignal("");
  const busy = useSignal(false);
  const confirm = async (event: Event) => {
    event.preventDefault();
    busy.value = true;
    const answer = await cancelJob(j.id, reason.value.trim());
    busy.value = false;
    if (answer.ok) onClose();
    else problem.value = answer.text;
  };
  return (
    <Dialog title="Cancel this job?" onClose={onClose}>
      <form onSubmit={confirm}>
        <p>
          <Name text={j.name} fallback={j.id} /> stops for all volunteers and cannot be started
          again. What it has learned up to version {f.grouped(j.version)} is kept.
        </p>
        <label class="field">
          Reason (optional)
          <input
            type="text"
            maxLength={200}
            value={reason.value}
            onInput={(e) => (reason.value = e.currentTarget.value)}
          />
        </label>
        {problem.value && (
          <p class="problem" role="alert">
            {problem.value}
          </p>
        )}
        <div class="actions">
          <button type="button" class="button" onClick={onClose}>
            Keep it running
          </button>
          <button type="submit" class="button danger solid" disabled={busy.value}>
            Cancel the job
          </button>
        </div>
      </form>
    </Dialog>
  );
}

/** Payload of one update on the uplink: the fp32 figure says how many were sent. */
function bytesPerUpdate(j: JobDetail): number | null {
  const sent = j.parameters > 0 ? j.uplink_fp32_bytes / (4 * j.parameters) : 0;
  return sent > 0 ? j.uplink_bytes / sent : null;
}

function LearningTile({ j }: { j: JobDetail }) {
  const note = j.outer_rate === null ? "" : `each update counts ${f.rounded(j.outer_rate)}×`;
  return <Tile label="Learning rate" amount={f.learningRate(j.learning_rate)} note={note} />;
}

/** What accuracy counts, which goes with the loss. */
const RIGHT: Record<LossUnit, string> = {
  "bits/byte": "of held-out bytes right",
  nats: "of held-out images right",
  "of the start's variance": "of parameters near the optimum",
};

function Tiles({ j }: { j: JobDetail }) {
  const saving = f.saving(j.uplink_bytes, j.uplink_fp32_bytes);
  const first = f.loss(j.held_out_loss_first, j.unit);
  const training = j.volunteers.filter((v) => v.state === "training" || v.state === "uploading");
  return (
    <div class="tiles" role="group" aria-label="Key figures">
      <Tile
        id="loss"
        label="Loss, smoothed"
        amount={f.loss(j.loss_smoothed, j.unit)}
        note={
          <>
            newest <Num amount={f.loss(j.loss, j.unit)} />
          </>
        }
      />
      <Tile
        label="Held-out loss"
        amount={f.loss(j.held_out_loss, j.unit)}
        note={
          first.unit ? (
            <>
              first <Num amount={first} />
            </>
          ) : (
            "not evaluated yet"
          )
        }
      />
      {j.held_out_accuracy !== null && (
        <Tile
          label="Held-out accuracy"
          amount={f.percent(j.held_out_accuracy)}
          note={RIGHT[j.unit]}
        />
      )}
      <Tile
        label="Throughput"
        amount={f.rate(j.samples_per_s, "samples/s")}
        note={
          <>
            <Num amount={f.rate(j.updates_per_s, "updates/s")} /> from{" "}
            {f.counted(training.length, "volunteer")}
          </>
        }
      />
      <LearningTile j={j} />
      <Tile
        label="One update"
        amount={f.bytes(bytesPerUpdate(j))}
        note={
          <>
            {saving === null ? "" : `${f.times(saving)} smaller than fp32; `}
            <Num amount={f.bytes(j.uplink_bytes)} /> up,{" "}
            <Num amount={f.bytes(j.downlink_bytes)} /> down so far
          </>
        }
      />
    </div>
  );
}

function LossPanel({ j }: { j: JobDetail }) {
  const curves = useMemo(
    () => lossAndHeldOut(j.points, j.evaluations, j.unit),
    [j.points, j.evaluations, j.unit],
  );
  return (
    <Panel title="Loss" note={`last ${f.counted(j.points.length, "update")}`}>
      {curves.x.length === 0 ? (
        <p class="empty">The curve starts with the first update that is applied.</p>
      ) : (
        <Chart
          label={`Loss of ${j.name}`}
          unit={f.lossUnit(j.unit)}
          digits={3}
          height={300}
          series={[
            { label: "raw", colour: "--series-raw", width: 1 },
            { label: "smoothed", colour: "--series-smoothed", width: 2 },
            { label: "held out", colour: "--series-held-out", width: 1.5, dots: true },
          ]}
          x={curves.x}
          ys={curves.ys}
        />
      )}
    </Panel>
  );
}

function HeldOutPanel({ j }: { j: JobDetail }) {
  const curve = useMemo(() => heldOutCurve(j.evaluations, j.unit), [j.evaluations, j.unit]);
  if (curve.x.length === 0) return null;
  return (
    <Panel title="Held-out loss" note={`whole run, ${f.counted(curve.x.length, "evaluation")}`}>
      <Chart
        label={`Held-out loss of ${j.name}`}
        unit={f.lossUnit(j.unit)}
        digits={3}
        height={150}
        series={[{ label: "held out", colour: "--series-held-out", width: 1.5, dots: true }]}
        x={curve.x}
        ys={curve.ys}
      />
    </Panel>
  );
}

function AccuracyPanel({ j }: { j: JobDetail }) {
  const curve = useMemo(() => accuracyCurve(j.evaluations), [j.evaluations]);
  if (curve.x.length === 0) return null;
  return (
    <Panel title="Accuracy" note={RIGHT[j.unit]}>
      <Chart
        label={`Held-out accuracy of ${j.name}`}
        unit="%"
        digits={1}
        height={150}
        series={[{ label: "held out", colour: "--series-held-out", width: 1.5, dots: true }]}
        x={curve.x}
        ys={curve.ys}
      />
    </Panel>
  );
}

function Contributions({ volunteers, unit }: { volunteers: Volunteer[]; unit: LossUnit }) {
  const samples = volunteers.reduce((sum, v) => sum + v.samples, 0);
  const ordered = [...volunteers].sort((a, b) => b.samples - a.samples);
  const columns = [
    column.state,
    column.shareOf(samples),
    column.trained,
    column.applied,
    ...column.controller,
    column.speed,
    column.lossIn(unit),
    column.staleness,
  ];
  return (
    <Panel title="Contributions" note={f.counted(volunteers.length, "volunteer")}>
      {volunteers.length === 0 ? (
        <p class="empty">
          Nobody trains this job yet. Connected volunteers pick it up by themselves.
        </p>
      ) : (
        <VolunteerTable label="Contributions" volunteers={ordered} columns={columns} />
      )}
    </Panel>
  );
}
