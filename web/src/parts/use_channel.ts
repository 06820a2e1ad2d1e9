// A component's claim on a live channel, for as long as it is on the page.
import type { Signal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { store } from "../live";
import type { ChannelMap } from "../protocol";
import type { View } from "../store";

export function useChannel<N extends keyof ChannelMap>(name: N): Signal<View<ChannelMap[N]>> {
  const view = useMemo(() => store.watch(name), [name]);
  useEffect(() => () => store.unwatch(name), [name]);
  return view;
}
