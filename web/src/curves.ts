// The stream's lists of points as the columns that charts draw, in the unit that the job shows.
import uPlot from "uplot";
import { lossValue } from "./format";
import type { Evaluation, LossUnit, Point } from "./protocol";

type Column = (number | null | undefined)[];

export interface Curves {
  x: number[];
  ys: Column[];
}

/** Raw and smoothed loss over time. */
export function lossCurves(points: Point[], unit: LossUnit): Curves {
  return {
    x: points.map((p) => p[0] / 1000),
    ys: [points.map((p) => lossValue(p[2], unit)), points.map((p) => lossValue(p[3], unit))],
  };
}

/**
 * The same with the held-out loss as a third column; their times differ, so the columns are joined.
 * Points reach back a few hundred updates only: evaluations from before would squeeze them aside.
 */
export function lossAndHeldOut(points: Point[], all: Evaluation[], unit: LossUnit): Curves {
  const losses = lossCurves(points, unit);
  const since = points[0]?.[0] ?? 0;
  const evaluations = all.filter((e) => e[0] >= since);
  if (evaluations.length === 0)
    return { x: losses.x, ys: [...losses.ys, losses.x.map(() => null)] };
  const heldOut: uPlot.AlignedData = [
    evaluations.map((e) => e[0] / 1000),
    evaluations.map((e) => lossValue(e[2], unit)),
  ];
  const joined = uPlot.join([[losses.x, ...losses.ys] as uPlot.AlignedData, heldOut]);
  const [x, ...ys] = joined;
  return { x: Array.from(x as number[]), ys: ys as Column[] };
}

/** Held-out loss over the whole run. */
export function heldOutCurve(evaluations: Evaluation[], unit: LossUnit): Curves {
  const known = evaluations.filter((e) => e[2] !== null);
  return { x: known.map((e) => e[0] / 1000), ys: [known.map((e) => lossValue(e[2], unit))] };
}

export function accuracyCurve(evaluations: Evaluation[]): Curves {
  const known = evaluations.filter((e) => e[3] !== null);
  return { x: known.map((e) => e[0] / 1000), ys: [known.map((e) => (e[3] ?? 0) * 100)] };
}
