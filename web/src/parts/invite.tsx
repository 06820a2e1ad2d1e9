// "Add a PC": makes an invite, shows the one command that joins a PC, and waits until it arrives.
import { useSignal, useSignalEffect, type Signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { makeInvite } from "../api";
import { counted, fullTime } from "../format";
import { mayI } from "../live";
import type { Invite, Overview, Volunteer } from "../protocol";
import type { View } from "../store";
import { CodeBlock, Name, State } from "./basic";
import { Dialog } from "./dialog";
import { useChannel } from "./use_channel";

const SCOPE = "volunteers:write";

export function AddPc({ class: extra = "" }: { class?: string }) {
  const open = useSignal(false);
  const allowed = mayI(SCOPE);
  return (
    <>
      <button
        type="button"
        class={`button ${extra}`}
        disabled={!allowed}
        title={allowed ? undefined : `Your key lacks the scope ${SCOPE}`}
        onClick={() => (open.value = true)}
      >
        Add a PC
      </button>
      {open.value && <InviteDialog onClose={() => (open.value = false)} />}
    </>
  );
}

function volunteersOf(view: View<Overview>): Volunteer[] | null {
  return view.kind === "here" ? view.data.volunteers : null;
}

/** Those that were not connected when the dialog opened and are now. */
function useArrivals(overview: Signal<View<Overview>>): Signal<Volunteer[]> {
  const before = useRef<Set<string> | null>(null);
  const arrivals = useSignal<Volunteer[]>([]);
  useSignalEffect(() => {
    const all = volunteersOf(overview.value);
    if (!all) return;
    const present = all.filter((v) => v.state !== "offline");
    before.current ??= new Set(present.map((v) => v.id));
    const known = before.current;
    arrivals.value = present.filter((v) => !known.has(v.id));
  });
  return arrivals;
}

function InviteDialog({ onClose }: { onClose: () => void }) {
  const invite = useSignal<Invite | null>(null);
  const problem = useSignal("");
  const overview = useChannel("overview");
  useEffect(() => {
    void makeInvite().then((answer) => {
      if (answer.ok) invite.value = answer.data;
      else problem.value = answer.text;
    });
  }, []);
  const arrivals = useArrivals(overview);
  return (
    <Dialog title="Add a PC" onClose={onClose}>
      {problem.value && (
        <p class="problem" role="alert">
          {problem.value}
        </p>
      )}
      {!problem.value && !invite.value && <p class="empty">Making an invite…</p>}
      {invite.value && <Command invite={invite.value} />}
      {invite.value && <Arrivals list={arrivals.value} />}
    </Dialog>
  );
}

function Command({ invite }: { invite: Invite }) {
  return (
    <>
      <p>Run this on the PC that should help to train:</p>
      <CodeBlock text={invite.command} label="Command that joins a PC" />
      <p class="note">
        Good for {counted(invite.max_uses, "PC")} until{" "}
        <time dateTime={invite.expires_at}>{fullTime(new Date(invite.expires_at))}</time>. Whoever
        has the command can join: send it only to people you trust.
      </p>
    </>
  );
}

function Arrivals({ list }: { list: Volunteer[] }) {
  return (
    <div class="arrivals" role="status">
      {list.length === 0 ? (
        <p class="waiting">Waiting for the PC to arrive…</p>
      ) : (
        list.map((v) => (
          <p key={v.id}>
            <Name text={v.label} fallback={v.id} /> arrived: <State name={v.state} />
          </p>
        ))
      )}
    </div>
  );
}
