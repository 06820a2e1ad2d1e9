// "Why this lease": what a volunteer's controller decided, from what, and its reason in words. The
// reason is a stranger's text: shown as text, and marked as the agent's own words.
import { explain, noChoice, type Fact } from "../choice";
import type { Volunteer } from "../protocol";
import { Num } from "./basic";

function Figure({ fact }: { fact: Fact }) {
  return (
    <>
      {fact.amount.unit ? (
        <Num amount={fact.amount} class="strong" />
      ) : (
        <span class="none">not measured</span>
      )}
      {fact.note && <span class="why-note">{fact.note}</span>}
    </>
  );
}

function Facts({ title, facts }: { title: string; facts: Fact[] }) {
  return (
    <div class="why-part">
      <h4>{title}</h4>
      <dl class="why-rows">
        {facts.map((fact) => (
          <div key={fact.name}>
            <dt>{fact.name}</dt>
            <dd>
              <Figure fact={fact} />
            </dd>
          </div>
        ))}
      </dl>
    </div>
  );
}

function Predicted({ fact, bar, kind }: { fact: Fact; bar: number; kind: string }) {
  return (
    <div>
      <dt>{fact.name}</dt>
      <dd>
        <Figure fact={fact} />
        {fact.amount.unit && (
          <span class="why-track" aria-hidden="true">
            <span class={`why-bar ${kind}`} style={{ width: `${bar * 100}%` }} />
          </span>
        )}
      </dd>
    </div>
  );
}

export function Why({ v }: { v: Volunteer }) {
  const shown = v.label.trim() || v.id;
  const choice = v.choice;
  if (!choice) {
    return (
      <div class="why">
        <h3>
          Why this lease: <bdi>{shown}</bdi>
        </h3>
        <p>{noChoice(v.state)}</p>
      </div>
    );
  }
  const e = explain(choice, v.rtt_ms);
  return (
    <div class="why">
      <h3>
        Why this lease: <bdi>{shown}</bdi>
      </h3>
      <p class="why-reason">
        “<bdi>{choice.reason}</bdi>”
      </p>
      <div class="why-parts">
        <Facts title="Chosen" facts={e.decided} />
        <Facts title="Measured here" facts={e.measured} />
        <div class="why-part">
          <h4>Predicted for one lease</h4>
          <dl class="why-rows">
            <Predicted fact={e.computing} bar={e.computingBar} kind="why-computing" />
            <Predicted fact={e.transfer} bar={e.transferBar} kind="why-transfer" />
          </dl>
        </div>
      </div>
    </div>
  );
}
