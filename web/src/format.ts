// Numbers for people: every figure comes with its unit, and a figure that does not exist yet is a
// dash. Sizes are binary (KiB, MiB), losses arrive in nats and are shown as the job asks.
import type { LossUnit } from "./protocol";

export interface Amount {
  text: string;
  unit: string;
}

export const NONE: Amount = { text: "—", unit: "" };

const BYTE_UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

function isNumber(value: number | null | undefined): value is number {
  return typeof value === "number" && Number.isFinite(value);
}

/** Groups of three digits: 137,216. */
export function grouped(value: number): string {
  return Math.round(value).toLocaleString("en-US");
}

/** About three significant digits, without an exponent: 0, 0.042, 1.25, 48.3, 1,204. */
export function rounded(value: number): string {
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 99.95) return grouped(value);
  if (size >= 9.995) return value.toFixed(1);
  if (size >= 0.9995) return value.toFixed(2);
  if (size >= 0.001) return String(Number(value.toPrecision(2)));
  return "< 0.001";
}

export function count(value: number | null | undefined, unit: string): Amount {
  return isNumber(value) ? { text: grouped(value), unit } : NONE;
}

/** "1 update", "2 updates". */
export function counted(value: number, one: string, many = `${one}s`): string {
  return `${grouped(value)} ${value === 1 ? one : many}`;
}

export function rate(value: number | null | undefined, unit: string): Amount {
  return isNumber(value) ? { text: rounded(value), unit } : NONE;
}

export function bytes(value: number | null | undefined): Amount {
  if (!isNumber(value)) return NONE;
  let scaled = Math.abs(value);
  let step = 0;
  while (scaled >= 1023.5 && step < BYTE_UNITS.length - 1) {
    scaled /= 1024;
    step++;
  }
  const text = step === 0 ? grouped(scaled) : rounded(scaled);
  return { text: value < 0 ? `−${text}` : text, unit: BYTE_UNITS[step] ?? "B" };
}

/** In the unit that the job shows: bits per byte for text, nats else. */
export function lossValue(nats: number | null | undefined, unit: LossUnit): number | null {
  if (!isNumber(nats)) return null;
  return unit === "bits/byte" ? nats / Math.LN2 : nats;
}

/** In a few letters: what the coordinator says in words would not fit into tiles and tables. */
export function lossUnit(unit: LossUnit): string {
  return unit === "of the start's variance" ? "× variance" : unit;
}

export function loss(nats: number | null | undefined, unit: LossUnit): Amount {
  const value = lossValue(nats, unit);
  return value === null ? NONE : { text: value.toFixed(value < 10 ? 3 : 1), unit: lossUnit(unit) };
}

export function percent(ratio: number | null | undefined): Amount {
  return isNumber(ratio) ? { text: (ratio * 100).toFixed(1), unit: "%" } : NONE;
}

/** Part of a whole, at most all of it; 0 of 0 is a dash. */
export function share(part: number, whole: number): Amount {
  return whole > 0 ? percent(Math.min(1, part / whole)) : NONE;
}

/** How many times smaller than fp32; null until something was sent. */
export function saving(sentBytes: number, fp32Bytes: number): number | null {
  return sentBytes > 0 && fp32Bytes > 0 ? fp32Bytes / sentBytes : null;
}

export function times(ratio: number | null): string {
  return ratio === null ? "—" : `${rounded(ratio)}×`;
}

export function learningRate(value: number | null | undefined): Amount {
  if (!isNumber(value)) return NONE;
  if (value !== 0 && Math.abs(value) < 1e-3) return { text: value.toExponential(2), unit: "/step" };
  return { text: String(Number(value.toPrecision(3))), unit: "/step" };
}

export function milliseconds(value: number | null | undefined): Amount {
  return isNumber(value)
    ? { text: value < 10 ? value.toFixed(1) : grouped(value), unit: "ms" }
    : NONE;
}

/** What the stream sends where it has not measured yet is 0; that is no figure. */
export function measured(value: number | null | undefined): number | null {
  return isNumber(value) && value > 0 ? value : null;
}

/** A link's speed, from bytes per second. */
export function linkSpeed(bytesPerS: number | null | undefined): Amount {
  return isNumber(bytesPerS) ? { text: rounded((bytesPerS * 8) / 1e6), unit: "Mbit/s" } : NONE;
}

/** A short time: "25.3 ms", "5.52 s". */
export function span(ms: number | null | undefined): Amount {
  if (!isNumber(ms)) return NONE;
  return ms < 999.5
    ? { text: rounded(ms), unit: "ms" }
    : { text: rounded(ms / 1000), unit: "s" };
}

/** "48 s", "12 min 5 s", "3 h 12 min", "2 d 4 h". */
export function duration(seconds: number): string {
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return s % 60 ? `${Math.floor(s / 60)} min ${s % 60} s` : `${s / 60} min`;
  const minutes = Math.round(s / 60);
  if (minutes < 1440) return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  return `${Math.floor(minutes / 1440)} d ${Math.floor((minutes % 1440) / 60)} h`;
}

const CLOCK_WRONG_MS = 60_000;

/** What is wrong with a volunteer's clock and the cure; null while it is right to a minute. */
export function clockWarning(aheadMs: number | null | undefined): string | null {
  if (!isNumber(aheadMs) || Math.abs(aheadMs) < CLOCK_WRONG_MS) return null;
  const way = aheadMs > 0 ? "fast" : "slow";
  const off = duration(Math.abs(aheadMs) / 1000);
  return `Its clock is ${off} ${way}: set the time of that PC, or switch on automatic time (NTP).`;
}

function two(value: number): string {
  return String(value).padStart(2, "0");
}

export function clock(date: Date): string {
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

/** The reader's own zone, full: 2026-11-30 22:14:39. */
export function fullTime(date: Date): string {
  if (Number.isNaN(date.getTime())) return "—";
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return `${day} ${clock(date)}`;
}

/** UTC+02:00, from the offset that Date gives (minutes west of Greenwich). */
export function zone(offsetMinutes: number): string {
  const east = -offsetMinutes;
  const size = Math.abs(east);
  return `UTC${east < 0 ? "−" : "+"}${two(Math.floor(size / 60))}:${two(size % 60)}`;
}
