// Which page: a signal of location.pathname. Links are real links, so that opening them in a new
// tab works; a plain click stays in this page and keeps the live connection.
import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";

export const path = signal(location.pathname);

/** Where to go after signing in. */
let wanted = "/";

export function navigate(to: string, replace = false): void {
  if (to === path.peek()) return;
  history[replace ? "replaceState" : "pushState"](null, "", to);
  path.value = to;
  window.scrollTo(0, 0);
}

export function askToSignIn(): void {
  const here = path.peek();
  if (here === "/login" || here === "/setup") return;
  wanted = here;
  navigate("/login", true);
}

export function goWhereWanted(): void {
  navigate(wanted, true);
  wanted = "/";
}

window.addEventListener("popstate", () => {
  path.value = location.pathname;
});

export function Link(props: { to: string; class?: string; children: ComponentChildren }) {
  const follow = (event: MouseEvent) => {
    if (event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey)
      return;
    event.preventDefault();
    navigate(props.to);
  };
  return (
    <a href={props.to} class={props.class} onClick={follow}>
      {props.children}
    </a>
  );
}
