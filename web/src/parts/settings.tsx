// The job's settings as a list of terms, grouped as in the JSON that was submitted.
import { grouped } from "../format";
import type { JobSpec, SpecValue } from "../protocol";
import { Panel } from "./basic";

/** Units that a field's name does not carry itself. */
const UNITS: Record<string, string> = {
  batch_size: "samples",
  steps_per_lease: "steps",
  steps_min: "steps",
  steps_max: "steps",
  learning_rate: "/step",
  warmup_samples: "samples",
  total_samples: "samples",
  layers: "layers",
  width: "units",
  heads: "heads",
  context: "bytes",
  parameters: "parameters",
  step_ms: "ms",
  vocabulary: "symbols",
  inputs: "values",
  hidden: "units",
  classes: "classes",
  channels: "channels",
  k_per_chunk: "of 4,096 values",
  k_min: "of 4,096 values",
  k_max: "of 4,096 values",
  downlink_k_per_chunk: "of 4,096 values",
  every_versions: "versions",
  samples: "samples",
  deadline_seconds: "s",
};

function shown(value: SpecValue): string {
  if (typeof value === "number") return Number.isInteger(value) ? grouped(value) : String(value);
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (value === null) return "none";
  if (Array.isArray(value)) return value.map(shown).join(", ");
  return typeof value === "string" ? value : JSON.stringify(value);
}

function unitOf(key: string, value: SpecValue, image: boolean): string {
  if (typeof value !== "number" && !Array.isArray(value)) return "";
  if (key === "height" || (key === "width" && image)) return "pixels";
  if (key === "outer_rate" && value === 0) return "(from the number of volunteers)";
  return UNITS[key] ?? "";
}

function words(key: string): string {
  return key.replace(/_(seconds|ms)$/, "").replace(/_/g, " ");
}

function Row({ name, value, image }: { name: string; value: SpecValue; image?: boolean }) {
  const unit = unitOf(name, value, image ?? false);
  return (
    <div>
      <dt>{words(name)}</dt>
      <dd>
        <bdi>{shown(value)}</bdi>
        {unit && <span class="unit"> {unit}</span>}
      </dd>
    </div>
  );
}

/** What a group is about, where its fields alone would puzzle. */
function about(value: { [key: string]: SpecValue }): string {
  return value.preset === "synthetic"
    ? "To try links: no learning, but a problem of this size whose step takes this long. Its " +
        "loss is the squared distance to a hidden optimum, in units of the start's variance."
    : "";
}

function Group({ name, value }: { name: string; value: SpecValue }) {
  const isGroup = typeof value === "object" && value !== null && !Array.isArray(value);
  if (!isGroup) return null;
  return (
    <div class="group">
      <h3>{words(name)}</h3>
      {about(value) && <p class="note">{about(value)}</p>}
      <dl class="rows">
        {Object.entries(value).map(([key, v]) => (
          <Row key={key} name={key} value={v} image={"height" in value} />
        ))}
      </dl>
    </div>
  );
}

interface SettingsProps {
  spec: JobSpec;
  id: string;
  hash: string;
  parameters: number;
}

export function Settings({ spec, id, hash, parameters }: SettingsProps) {
  return (
    <Panel title="Settings">
      <div class="groups">
        <div class="group">
          <h3>job</h3>
          <dl class="rows">
            <Row name="id" value={id} />
            {parameters > 0 && (
              <div>
                <dt>size</dt>
                <dd>
                  {grouped(parameters)} <span class="unit">parameters</span>
                </dd>
              </div>
            )}
            {hash && <Row name="replica hash" value={hash} />}
          </dl>
        </div>
        {Object.entries(spec).map(([name, value]) => (
          <Group key={name} name={name} value={value} />
        ))}
      </div>
    </Panel>
  );
}
