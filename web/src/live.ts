// The store of this tab, wired to the real browser. Pages import it from here.
import { whoAmI } from "./api";
import { Store, type Socket } from "./store";

function openSocket(): Socket {
  const scheme = location.protocol === "https:" ? "wss:" : "ws:";
  return new WebSocket(`${scheme}//${location.host}/ws/live`, "raven.v1") as Socket;
}

export const store = new Store({
  now: () => Date.now(),
  random: () => Math.random(),
  later: (run, ms) => window.setTimeout(run, ms),
  cancel: (timer) => window.clearTimeout(timer as number | undefined),
  frame: (run) => window.requestAnimationFrame(run),
  openSocket,
  whoAmI,
});

document.addEventListener("visibilitychange", () => {
  if (!document.hidden) store.retryNow();
});
window.addEventListener("online", () => store.retryNow());

/** May this key do that? While unknown: yes, and the coordinator decides. */
export function mayI(scope: string): boolean {
  const me = store.me.value;
  return me === null || me.scopes.includes(scope);
}
