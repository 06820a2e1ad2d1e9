// Small pieces that every page uses: a number with its unit, a state with its glyph, a panel, a
// scrolling table, a copy button. Names come from strangers: <bdi> keeps their text direction in.
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import type { Amount } from "../format";
import { grouped } from "../format";
import type { JobStateName, Severity, VolunteerStateName } from "../protocol";

export function Num({ amount, class: extra = "" }: { amount: Amount; class?: string }) {
  if (amount.unit === "") {
    return (
      <span class={`none ${extra}`}>
        <span aria-hidden="true">—</span>
        <span class="sr">not measured yet</span>
      </span>
    );
  }
  const space = amount.unit === "%" || amount.unit === "×" ? "" : " ";
  return (
    <span class={`num ${extra}`}>
      {amount.text}
      {space}
      <span class="unit">{amount.unit}</span>
    </span>
  );
}

type AnyState = JobStateName | VolunteerStateName | Severity;

const GLYPHS: Record<AnyState, string> = {
  training: "●",
  uploading: "▲",
  idle: "◆",
  offline: "○",
  queued: "○",
  running: "●",
  completed: "◆",
  cancelled: "▼",
  failed: "✖",
  info: "●",
  warn: "▲",
  error: "✖",
};

export function State({ name }: { name: AnyState }) {
  return (
    <span class={`state state-${name}`}>
      <span class="glyph" aria-hidden="true">
        {GLYPHS[name] ?? "?"}
      </span>
      {name}
    </span>
  );
}

export function Name({ text, fallback }: { text: string; fallback: string }) {
  const shown = text.trim() || fallback;
  return (
    <bdi class="name" title={shown}>
      {shown}
    </bdi>
  );
}

interface PanelProps {
  title: string;
  note?: ComponentChildren;
  action?: ComponentChildren;
  class?: string;
  children: ComponentChildren;
}

export function Panel({ title, note, action, class: extra = "", children }: PanelProps) {
  return (
    <section class={`panel ${extra}`} aria-label={title}>
      <header class="panel-head">
        <h2>{title}</h2>
        {note !== undefined && <span class="note">{note}</span>}
        {action}
      </header>
      {children}
    </section>
  );
}

interface TableProps {
  label: string;
  head: { text: string; unit?: string; number?: boolean }[];
  children: ComponentChildren;
}

/** Scrolls sideways inside itself when the page is narrow; the first column stays in sight. */
export function Table({ label, head, children }: TableProps) {
  return (
    <div class="scroll" role="region" aria-label={`${label}, table`} tabIndex={0}>
      <table>
        <caption class="sr">{label}</caption>
        <thead>
          <tr>
            {head.map((h) => (
              <th scope="col" class={h.number ? "right" : ""} key={h.text}>
                {h.text}
                {h.unit && <span class="unit">{h.unit}</span>}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
    </div>
  );
}

interface ProgressProps {
  label: string;
  part: number;
  whole: number;
}

export function Progress({ label, part, whole }: ProgressProps) {
  const ratio = whole > 0 ? Math.min(1, part / whole) : 0;
  const text = `${(ratio * 100).toFixed(1)} %, ${grouped(part)} of ${grouped(whole)} samples`;
  return (
    <progress class="progress" max={1} value={ratio} aria-label={label} aria-valuetext={text} />
  );
}

/** navigator.clipboard exists on secure origins only; else the text is selected for Ctrl+C. */
async function copyFrom(element: HTMLElement): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(element.textContent ?? "");
    return true;
  } catch {
    const range = document.createRange();
    range.selectNodeContents(element);
    const selection = getSelection();
    selection?.removeAllRanges();
    selection?.addRange(range);
    return document.execCommand("copy");
  }
}

export function CodeBlock({ text, label }: { text: string; label: string }) {
  const code = useRef<HTMLElement>(null);
  const said = useSignal("");
  const copy = async () => {
    const done = code.current !== null && (await copyFrom(code.current));
    said.value = done ? "Copied" : "Press Ctrl+C";
  };
  useEffect(() => {
    if (!said.value) return undefined;
    const timer = setTimeout(() => (said.value = ""), 4000);
    return () => clearTimeout(timer);
  }, [said.value]);
  return (
    <div class="code">
      <pre tabIndex={0} role="region" aria-label={label}>
        <code ref={code}>{text}</code>
      </pre>
      <button type="button" class="button small" onClick={copy}>
        Copy
      </button>
      <span class="said" role="status">
        {said.value}
      </span>
    </div>
  );
}
