// Panels that Overview and the job page share: staleness, where updates ended, events.
import { counted, fullTime, grouped, share, zone } from "../format";
import type { RavenEvent, UpdateCounts } from "../protocol";
import { Num, Panel, State } from "./basic";

/** Versions behind, as the coordinator buckets them. */
const STALENESS_LABELS = ["0", "1", "2", "3–4", "5–8", "9–16", "17–32", ">32"];

function wholePercent(ratio: number): string {
  return ratio < 0.005 ? "< 1" : (ratio * 100).toFixed(0);
}

function Bar({
  value,
  largest,
  whole,
  label,
}: {
  value: number;
  largest: number;
  whole: number;
  label: string;
}) {
  const height = largest > 0 ? `${Math.max(value > 0 ? 2 : 0, (100 * value) / largest)}%` : "0%";
  const behind = `${label} ${label === "1" ? "version" : "versions"} behind`;
  return (
    <li title={`${counted(value, "update")}, ${behind}`}>
      <span class="sr">
        {behind}: {counted(value, "update")}
      </span>
      <span class="hist-share" aria-hidden="true">
        {value > 0 && <Num amount={{ text: wholePercent(value / whole), unit: "%" }} />}
      </span>
      <span class="hist-track" aria-hidden="true">
        <span class="hist-bar" style={{ height }} />
      </span>
      <span class="hist-label" aria-hidden="true">
        {label}
      </span>
    </li>
  );
}

export function Staleness({ buckets }: { buckets: number[] }) {
  const whole = buckets.reduce((sum, v) => sum + v, 0);
  const largest = Math.max(0, ...buckets);
  return (
    <Panel title="Staleness" class="staleness" note={counted(whole, "update")}>
      {whole === 0 ? (
        <p class="empty">
          How many versions behind the updates arrive: shown from the first update on.
        </p>
      ) : (
        <>
          <ol class="hist">
            {STALENESS_LABELS.map((label, k) => (
              <Bar
                key={label}
                value={buckets[k] ?? 0}
                largest={largest}
                whole={whole}
                label={label}
              />
            ))}
          </ol>
          <p class="axis-name">versions behind when the update arrived</p>
        </>
      )}
    </Panel>
  );
}

export function Updates({ counts }: { counts: UpdateCounts }) {
  const { updates_applied: applied, updates_stale: stale, updates_refused: refused } = counts;
  const whole = applied + stale + refused;
  const rows = [
    { name: "applied", value: applied },
    { name: "stale", value: stale },
    { name: "refused", value: refused },
  ];
  return (
    <Panel title="Updates" note={counted(whole, "update")}>
      <div class="stack" aria-hidden="true">
        {rows.map((r) => (
          <span key={r.name} class={`stack-${r.name}`} style={{ flexGrow: whole ? r.value : 0 }} />
        ))}
      </div>
      <dl class="rows">
        {rows.map((r) => (
          <div key={r.name}>
            <dt>
              <span class={`swatch dot stack-${r.name}`} aria-hidden="true" />
              {r.name}
            </dt>
            <dd>
              <span class="num">
                {grouped(r.value)} <span class="unit">{r.value === 1 ? "update" : "updates"}</span>
              </span>
              <Num class="side" amount={share(r.value, whole)} />
            </dd>
          </div>
        ))}
      </dl>
    </Panel>
  );
}

const EVENTS_SHOWN = 20;

export function Events({ events, wide }: { events: RavenEvent[]; wide?: boolean }) {
  const newest = [...events].sort((a, b) => b.seq - a.seq).slice(0, EVENTS_SHOWN);
  return (
    <Panel title="Events" note={`newest first, ${zone(new Date().getTimezoneOffset())}`}>
      {newest.length === 0 ? (
        <p class="empty">Nothing has happened yet.</p>
      ) : (
        <ol
          class={wide ? "events in-lines" : "events"}
          tabIndex={0}
          aria-label="Events, newest first"
        >
          {newest.map((e) => (
            <li key={e.seq}>
              <time dateTime={e.at} title={e.at}>
                {fullTime(new Date(e.at))}
              </time>
              <State name={e.severity} />
              <bdi class="event-text">{e.text}</bdi>
            </li>
          ))}
        </ol>
      )}
    </Panel>
  );
}
