// /login: paste an API key. /setup: the link that the coordinator prints at its first start makes
// the admin key. Its token is in the fragment, which browsers never send; it is taken out of the
// address bar at once, so that it stays out of the history too.
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import { signIn, spendSetupToken } from "../api";
import { CodeBlock } from "../parts/basic";
import { Logo } from "../parts/shell";
import { goWhereWanted, navigate } from "../router";

function Card({ title, children }: { title: string; children: ComponentChildren }) {
  return (
    <main id="main" tabIndex={-1} class="card-page">
      <div class="panel card">
        <Logo />
        <h1>{title}</h1>
        {children}
      </div>
    </main>
  );
}

export function LoginPage({ onSignedIn }: { onSignedIn: () => void }) {
  const key = useSignal("");
  const problem = useSignal("");
  const busy = useSignal(false);
  const submit = async (event: Event) => {
    event.preventDefault();
    busy.value = true;
    const answer = await signIn(key.value.trim());
    busy.value = false;
    if (!answer.ok) {
      problem.value = answer.text;
      return;
    }
    key.value = "";
    onSignedIn();
    goWhereWanted();
  };
  return (
    <Card title="Sign in">
      <form onSubmit={submit}>
        <label class="field">
          API key
          <input
            type="password"
            name="key"
            autocomplete="current-password"
            placeholder="rvn_sk_…"
            required
            autoFocus
            value={key.value}
            aria-invalid={problem.value ? "true" : undefined}
            onInput={(e) => (key.value = e.currentTarget.value)}
          />
        </label>
        {problem.value && (
          <p class="problem" role="alert">
            {problem.value}
          </p>
        )}
        <button type="submit" class="button primary full" disabled={busy.value}>
          Sign in
        </button>
      </form>
      <p class="note">
        No key yet? The coordinator prints a link to make the first one when it starts.
      </p>
    </Card>
  );
}

type Setup =
  { kind: "working" } | { kind: "done"; key: string } | { kind: "failed"; text: string };

function takeToken(): string {
  const token = location.hash.slice(1);
  if (token) history.replaceState(null, "", location.pathname);
  return token;
}

export function SetupPage({ onSignedIn }: { onSignedIn: () => void }) {
  const state = useSignal<Setup>({ kind: "working" });
  useEffect(() => {
    const spend = async () => {
      const token = takeToken();
      if (!token.startsWith("rvn_set_")) {
        state.value = { kind: "failed", text: "This address has no setup token." };
        return;
      }
      state.value = { kind: "working" };
      const answer = await spendSetupToken(token);
      state.value = answer.ok
        ? { kind: "done", key: answer.data.key }
        : { kind: "failed", text: answer.text };
    };
    void spend();
    // The link pasted into a tab that is here already changes the fragment only.
    const again = () => void (location.hash && spend());
    window.addEventListener("hashchange", again);
    return () => window.removeEventListener("hashchange", again);
  }, []);
  const enter = () => {
    onSignedIn();
    navigate("/", true);
  };
  return (
    <Card title="Set up RAVEN">
      <SetupState state={state.value} onEnter={enter} />
    </Card>
  );
}

function SetupState({ state, onEnter }: { state: Setup; onEnter: () => void }) {
  if (state.kind === "working") return <p class="empty">Making the admin key…</p>;
  if (state.kind === "failed") {
    return (
      <>
        <p class="problem" role="alert">
          {state.text}
        </p>
        <p>
          Open the whole link that the coordinator printed when it started. It works once, for 15
          minutes. If it was used already, sign in with the key that it gave.
        </p>
        <button type="button" class="button full" onClick={() => navigate("/login", true)}>
          Sign in with a key
        </button>
      </>
    );
  }
  return (
    <>
      <p>This is your admin key. It may do everything, and scripts use it too.</p>
      <CodeBlock text={state.key} label="Admin key" />
      <p class="warning">
        <span aria-hidden="true">▲ </span>
        It is shown only once. Keep it in a password manager before you go on.
      </p>
      <button type="button" class="button primary full" onClick={onEnter}>
        I have kept it: open the dashboard
      </button>
    </>
  );
}
