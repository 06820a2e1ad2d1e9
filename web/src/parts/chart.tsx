// A time chart on uPlot with a legend of its own: uPlot draws the canvas only, the words beside it
// are ours, so that screen readers and narrow screens get them too. A canvas says nothing to a
// screen reader; the summary and the table of values say it.
import { useSignal, useSignalEffect } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { clock, fullTime } from "../format";
import { dark } from "../theme";

export interface ChartSeries {
  label: string;
  /** name of a custom property of style.css, for example "--series-smoothed" */
  colour: string;
  width: number;
  dots?: boolean;
}

type Column = (number | null | undefined)[];

export interface ChartProps {
  label: string;
  unit: string;
  digits: number;
  series: ChartSeries[];
  /** seconds since 1970, ascending */
  x: number[];
  ys: Column[];
  height?: number;
  range?: [number, number];
}

function colourOf(property: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(property).trim();
}

const TIME_STEPS_S = [
  1, 2, 5, 10, 15, 30, 60, 120, 180, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200,
  86_400, 172_800, 604_800, 2_592_000,
];

function timeTicks(_: uPlot, splits: number[], __: number, ___: number, step: number): string[] {
  return splits.map((s) => {
    const date = new Date(s * 1000);
    if (step >= 86_400) return fullTime(date).slice(5, 10);
    return step >= 60 ? clock(date).slice(0, 5) : clock(date);
  });
}

function axis(values: uPlot.Axis.Values, size: number): uPlot.Axis {
  return {
    stroke: colourOf("--muted"),
    font: "12px system-ui, sans-serif",
    grid: { stroke: colourOf("--line"), width: 1 },
    ticks: { show: false },
    size,
    gap: 6,
    values,
  };
}

function options(
  props: ChartProps,
  width: number,
  onHover: (i: number | null) => void,
): uPlot.Options {
  const { range } = props;
  const yTicks = (_: uPlot, splits: number[]) =>
    splits.map((v) =>
      v.toFixed(splits.every((s) => Number.isInteger(s)) ? 0 : props.digits > 1 ? 2 : 1),
    );
  return {
    width,
    height: props.height ?? 260,
    legend: { show: false },
    padding: [10, 26, 0, 0], // half of the last time label
    cursor: { points: { size: 7 }, drag: { x: false, y: false } },
    scales: { x: { time: true }, y: range ? { range: () => range } : {} },
    axes: [
      { ...axis(timeTicks, 28), space: 76, incrs: TIME_STEPS_S },
      { ...axis(yTicks, 48), space: 40 },
    ],
    series: [
      {},
      ...props.series.map((s) => ({
        label: s.label,
        stroke: colourOf(s.colour),
        width: s.width,
        points: s.dots
          ? { show: true, size: 7, fill: colourOf(s.colour), stroke: colourOf("--panel") }
          : { show: false },
      })),
    ],
    hooks: { setCursor: [(u) => onHover(u.cursor.idx ?? null)] },
  };
}

function lastIndex(column: Column): number {
  for (let i = column.length - 1; i >= 0; i--) if (typeof column[i] === "number") return i;
  return -1;
}

function valueText(value: number | null | undefined, props: ChartProps): string {
  return typeof value === "number" ? value.toFixed(props.digits) : "—";
}

function Legend({ props, hover }: { props: ChartProps; hover: number | null }) {
  const at = hover !== null ? props.x[hover] : undefined;
  return (
    <p class="legend">
      {props.series.map((s, k) => {
        const column = props.ys[k] ?? [];
        const value = column[hover ?? lastIndex(column)];
        return (
          <span class="key" key={s.label}>
            <span class={`swatch ${s.dots ? "dot" : ""} ${s.colour.slice(2)}`} aria-hidden="true" />
            {s.label}{" "}
            <span class="num">
              {valueText(value, props)} <span class="unit">{props.unit}</span>
            </span>
          </span>
        );
      })}
      <span class="at">{at === undefined ? "newest" : fullTime(new Date(at * 1000))}</span>
    </p>
  );
}

const TABLE_ROWS_MAX = 12;

function Values({ props }: { props: ChartProps }) {
  const n = props.x.length;
  const rows = Math.min(TABLE_ROWS_MAX, n);
  const picks = Array.from({ length: rows }, (_, k) =>
    rows === 1 ? 0 : Math.round((k * (n - 1)) / (rows - 1)),
  );
  return (
    <div class="scroll" role="region" aria-label={`${props.label}, values`} tabIndex={0}>
      <table>
        <thead>
          <tr>
            <th scope="col">time</th>
            {props.series.map((s) => (
              <th scope="col" class="right" key={s.label}>
                {s.label}
                <span class="unit">{props.unit}</span>
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {picks.map((i) => (
            <tr key={i}>
              <td>{fullTime(new Date((props.x[i] ?? 0) * 1000))}</td>
              {props.ys.map((column, k) => (
                <td class="right" key={k}>
                  {valueText(column[i], props)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function summary(props: ChartProps): string {
  const parts = props.series.map((s, k) => {
    const column = props.ys[k] ?? [];
    const first = column.find((v) => typeof v === "number");
    const last = column[lastIndex(column)];
    return `${s.label} from ${valueText(first, props)} to ${valueText(last, props)} ${props.unit}`;
  });
  return `${props.label}, ${props.x.length} points: ${parts.join("; ")}`;
}

export function Chart(props: ChartProps) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const latest = useRef(props);
  const hover = useSignal<number | null>(null);
  const open = useSignal(false);
  latest.current = props;

  useSignalEffect(() => {
    dark.value; // colours are read once per plot, so a change of theme makes a new one
    const target = box.current;
    if (!target) return undefined;
    const p = latest.current;
    const data = [p.x, ...p.ys] as uPlot.AlignedData;
    const onHover = (i: number | null) => (hover.value = i);
    const made = new uPlot(options(p, target.clientWidth || 300, onHover), data, target);
    plot.current = made;
    const watcher = new ResizeObserver(() => {
      if (target.clientWidth > 0) made.setSize({ width: target.clientWidth, height: made.height });
    });
    watcher.observe(target);
    return () => {
      watcher.disconnect();
      made.destroy();
      plot.current = null;
    };
  });

  useEffect(() => {
    plot.current?.setData([props.x, ...props.ys] as uPlot.AlignedData);
  }, [props.x, props.ys]);

  const last = props.x[props.x.length - 1] ?? 0;
  return (
    <figure class="chart" data-points={props.x.length} data-last={last}>
      <Legend props={props} hover={hover.value} />
      <div ref={box} class="plot" role="img" aria-label={summary(props)} />
      <details onToggle={(e) => (open.value = e.currentTarget.open)}>
        <summary>Values as a table</summary>
        {open.value && <Values props={props} />}
      </details>
    </figure>
  );
}
