// The table of volunteers, for Overview and for a job: pages choose the columns, and each row opens
// to "Why this lease". Cells hold bare text where they can: a page stays within 1500 elements.
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { CHUNK } from "../choice";
import * as f from "../format";
import type { LossUnit, Volunteer } from "../protocol";
import { Name, Num, Progress, State, Table } from "./basic";
import { Why } from "./why";

const ROWS_STEP = 40;

interface Head {
  text: string;
  unit?: string;
}
interface NumberColumn extends Head {
  unit: string;
  amount: (v: Volunteer) => f.Amount;
}
interface OtherColumn extends Head {
  class?: string;
  show: (v: Volunteer) => ComponentChildren;
}
export type Column = NumberColumn | OtherColumn;

export const column = {
  state: { text: "State", show: (v: Volunteer) => <State name={v.state} /> },
  /** What its controller measured and decided. */
  controller: [
    {
      text: "Computing",
      unit: "% of the time",
      amount: (v: Volunteer) => f.percent(f.measured(v.utilisation)),
    },
    {
      text: "Lease",
      unit: "steps",
      amount: (v: Volunteer) => f.count(f.measured(v.choice?.steps), "steps"),
    },
    {
      text: "Kept, k",
      unit: CHUNK,
      amount: (v: Volunteer) => f.count(f.measured(v.choice?.k), CHUNK),
    },
    {
      text: "Uplink",
      unit: "Mbit/s",
      amount: (v: Volunteer) => f.linkSpeed(f.measured(v.choice?.up_bytes_per_s)),
    },
    {
      text: "Downlink",
      unit: "Mbit/s",
      amount: (v: Volunteer) => f.linkSpeed(f.measured(v.choice?.down_bytes_per_s)),
    },
  ],
  roundTrip: {
    text: "Round trip",
    unit: "ms",
    amount: (v: Volunteer) => f.milliseconds(f.measured(v.rtt_ms)),
  },
  speed: {
    text: "Speed",
    unit: "samples/s",
    amount: (v: Volunteer) => f.rate(v.samples_per_s, "samples/s"),
  },
  lossIn: (unit: LossUnit) => ({
    text: "Loss",
    unit: f.lossUnit(unit),
    amount: (v: Volunteer) => f.loss(v.loss, unit),
  }),
  applied: {
    text: "Applied",
    unit: "updates",
    amount: (v: Volunteer) => f.count(v.updates_applied, "updates"),
  },
  trained: {
    text: "Trained",
    unit: "samples",
    amount: (v: Volunteer) => f.count(v.samples, "samples"),
  },
  staleness: {
    text: "Staleness",
    unit: "versions",
    amount: (v: Volunteer) => f.count(v.staleness, "versions"),
  },
  shareOf: (samples: number) => ({
    text: "Share",
    unit: "% of samples",
    class: "with-bar",
    show: (v: Volunteer) => (
      <>
        <Progress label={`Share of ${v.label}`} part={v.samples} whole={samples} />
        <Num amount={f.share(v.samples, samples)} />
      </>
    ),
  }),
};

function Cell({ v, column: c }: { v: Volunteer; column: Column }) {
  if ("show" in c) return <td class={c.class}>{c.show(v)}</td>;
  const amount = c.amount(v);
  return <td class="right">{amount.unit ? amount.text : <Num amount={amount} />}</td>;
}

function Row({ v, columns, table }: { v: Volunteer; columns: Column[]; table: string }) {
  const open = useSignal(false);
  const id = `why-${table}-${v.id}`;
  const clock = f.clockWarning(v.clock_offset_ms);
  return (
    <>
      <tr>
        <th scope="row">
          <button
            type="button"
            class="opener"
            aria-expanded={open.value}
            aria-controls={open.value ? id : undefined}
            title="Why this lease"
            onClick={() => (open.value = !open.value)}
          >
            <span class="chevron" aria-hidden="true" />
            <Name text={v.label} fallback={v.id} />
          </button>
          {clock && <p class="warning clock-warning">{clock}</p>}
        </th>
        {columns.map((c) => (
          <Cell key={c.text} v={v} column={c} />
        ))}
      </tr>
      {open.value && (
        <tr class="why-row" id={id}>
          <td colSpan={columns.length + 1}>
            <Why v={v} />
          </td>
        </tr>
      )}
    </>
  );
}

interface VolunteerTableProps {
  label: string;
  volunteers: Volunteer[];
  columns: Column[];
}

export function VolunteerTable({ label, volunteers, columns }: VolunteerTableProps) {
  const shown = useSignal(ROWS_STEP);
  const more = volunteers.length - shown.value;
  const head = [
    { text: "Volunteer", unit: "open: why this lease" },
    ...columns.map((c) => ({ text: c.text, unit: c.unit, number: "amount" in c })),
  ];
  return (
    <>
      <Table label={label} head={head}>
        {volunteers.slice(0, shown.value).map((v) => (
          <Row key={v.id} v={v} columns={columns} table={label} />
        ))}
      </Table>
      {more > 0 && (
        <button type="button" class="button more" onClick={() => (shown.value += ROWS_STEP)}>
          Show {f.counted(Math.min(more, ROWS_STEP), "more", "more")} of{" "}
          {f.counted(volunteers.length, "volunteer")}
        </button>
      )}
    </>
  );
}
