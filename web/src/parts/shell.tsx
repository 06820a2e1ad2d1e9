// What stays around every page: name, connection badge, pause, sign out. The badge's word is a live
// region; the age beside it is not, or a screen reader would count seconds aloud.
import { signOut } from "../api";
import { duration } from "../format";
import { store } from "../live";
import { Link } from "../router";
import type { Link as Connection } from "../store";

export function Logo() {
  return (
    <span class="logo">
      <svg viewBox="0 0 32 32" width="24" height="24" aria-hidden="true">
        <rect width="32" height="32" rx="7" />
        <path d="M6 22 13 11l5 7 4-5 4 9" />
      </svg>
      RAVEN
    </span>
  );
}

const WORDS: Record<Connection, [string, string]> = {
  connecting: ["○", "connecting"],
  live: ["●", "live"],
  stale: ["▲", "stale"],
  offline: ["✖", "offline"],
  "signed-out": ["○", "signed out"],
};

function Badge() {
  const link = store.link.value;
  const [glyph, word] = WORDS[link];
  const old = link === "stale" || link === "offline";
  const paused = store.paused.value && link === "live";
  return (
    <span class={`badge badge-${paused ? "paused" : link}`}>
      <span aria-hidden="true" class="glyph">
        {paused ? "▮▮" : glyph}
      </span>
      <span role="status">{paused ? "paused" : word}</span>
      {old && <span class="age">, data {duration(store.ageSeconds.value)} old</span>}
    </span>
  );
}

export function TopBar() {
  const leave = async () => {
    await signOut();
    store.leave();
  };
  const paused = store.paused.value;
  return (
    <header class="top">
      <a class="skip" href="#main">
        Skip to the figures
      </a>
      <Link to="/" class="home">
        <Logo />
      </Link>
      <Badge />
      <button
        type="button"
        class="button quiet"
        aria-pressed={paused}
        onClick={() => (store.paused.value = !paused)}
      >
        {paused ? "Resume" : "Pause"}
      </button>
      <button type="button" class="button quiet" onClick={leave}>
        Sign out
      </button>
    </header>
  );
}
