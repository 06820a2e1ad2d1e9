// Light or dark, as the system asks: the style sheet follows by itself, canvases need to know.
import { signal } from "@preact/signals";

const query = matchMedia("(prefers-color-scheme: dark)");
export const dark = signal(query.matches);
query.addEventListener("change", (event) => {
  dark.value = event.matches;
});
