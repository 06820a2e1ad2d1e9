// The one owner of the live stream: it opens the tab's only WebSocket, applies messages as they
// arrive and publishes to signals once per animation frame, so a hidden tab costs next to nothing.
// Everything from outside (socket, clock, timers, who am I) comes in through Environment. Surprising:
// each attempt asks GET /v1/me first, because a browser hides the status of a refused handshake.
import { signal, type Signal } from "@preact/signals";
import { retryDelayMs } from "./backoff";
import { applyDelta, applySnapshot, emptyChannel, type Channel } from "./channel";
import type { ChannelMap, ClientMessage, Me, ServerMessage } from "./protocol";

export type Link = "connecting" | "live" | "stale" | "offline" | "signed-out";

export interface Socket {
  onopen: (() => void) | null;
  onmessage: ((event: { data: unknown }) => void) | null;
  onclose: ((event: { code: number }) => void) | null;
  send(text: string): void;
  close(): void;
}

export type WhoAmI = { kind: "ok"; me: Me } | { kind: "signed-out" } | { kind: "failed" };

export interface Environment {
  now(): number;
  random(): number;
  later(run: () => void, ms: number): unknown;
  cancel(timer: unknown): void;
  frame(run: () => void): void;
  openSocket(): Socket;
  whoAmI(): Promise<WhoAmI>;
}

/** A live channel as a page sees it. "gone": the coordinator has no such channel now. */
export type View<T> = { kind: "waiting" } | { kind: "here"; data: T } | { kind: "gone" };

const HEARTBEATS_MISSED_MAX = 3;
const HEARTBEAT_MS = 1000;
const HEARTBEAT_SLACK_MS = 500;
const OPENING_MS_MAX = 10_000;
const GONE_RETRY_MS = 10_000;

interface Subscription {
  channel: Channel;
  view: Signal<View<unknown>>;
  readers: number;
  resyncing: boolean;
  gone: boolean;
}

export interface Store {
  link: Signal<Link>;
  /** Age of the newest message, whole seconds; grows only while the link is not live. */
  ageSeconds: Signal<number>;
  paused: Signal<boolean>;
  me: Signal<Me | null>;
  start(): void;
  /** Ends the connection and forgets what was received: the user signed out. */
  leave(): void;
  /** Tries at once when a retry is pending: the page came to the front, the network came back. */
  retryNow(): void;
  watch<N extends keyof ChannelMap>(name: N): Signal<View<ChannelMap[N]>>;
  unwatch(name: keyof ChannelMap): void;
}

export function createStore(env: Environment): Store {
  const link = signal<Link>("connecting");
  const ageSeconds = signal(0);
  const paused = signal(false);
  const me = signal<Me | null>(null);
  const subscriptions = new Map<string, Subscription>();
  let socket: Socket | null = null;
  let attempt = 0; // grows with each attempt: answers to an older one are dropped
  let failures = 0;
  let running = false;
  let epoch = "";
  let welcomed = false;
  let opened = false;
  let heardAt = env.now();
  let attemptAt = env.now();
  let retryTimer: unknown = null;
  let watchTimer: unknown = null;
  let retryFloorMs = 0;
  let frameAsked = false;
  const dirty = new Set<string>();

  function send(message: ClientMessage): void {
    if (socket && opened) socket.send(JSON.stringify(message));
  }

  function publish(): void {
    frameAsked = false;
    if (paused.peek()) return;
    for (const name of dirty) {
      const s = subscriptions.get(name);
      if (!s) continue;
      if (s.gone) s.view.value = { kind: "gone" };
      else if (s.channel.data) s.view.value = { kind: "here", data: s.channel.data };
    }
    dirty.clear();
  }

  function touch(name: string): void {
    dirty.add(name);
    if (frameAsked) return;
    frameAsked = true;
    env.frame(publish);
  }

  function resync(name: string, s: Subscription): void {
    if (s.resyncing) return;
    s.resyncing = true;
    send({ t: "resync", ch: name });
  }

  function welcome(newEpoch: string): void {
    if (newEpoch !== epoch) {
      epoch = newEpoch;
      for (const s of subscriptions.values()) s.channel.seq = null;
    }
    welcomed = true;
    failures = 0;
    link.value = "live";
    ageSeconds.value = 0;
  }

  function receive(message: ServerMessage): void {
    switch (message.t) {
      case "welcome":
        welcome(message.epoch);
        return;
      case "snap": {
        const s = subscriptions.get(message.ch);
        if (!s) return;
        s.resyncing = false;
        s.gone = false;
        applySnapshot(s.channel, message.seq, message.d);
        touch(message.ch);
        return;
      }
      case "d": {
        const s = subscriptions.get(message.ch);
        if (!s) return;
        const outcome = applyDelta(s.channel, message.seq, message.d);
        if (outcome === "gap") resync(message.ch, s);
        else if (outcome === "applied") touch(message.ch);
        return;
      }
      case "gone": {
        const s = subscriptions.get(message.ch);
        if (!s) return;
        s.gone = true;
        s.resyncing = false;
        s.channel.seq = null;
        touch(message.ch);
        env.later(() => askAgain(message.ch), GONE_RETRY_MS);
        return;
      }
      case "bye":
        retryFloorMs = Math.min(message.retry_ms ?? 0, 60_000);
        return;
      case "hb":
        return;
    }
  }

  // A job that was queued gets its channel when it starts.
  function askAgain(name: string): void {
    if (subscriptions.get(name)?.gone) send({ t: "sub", add: [name], del: [] });
  }

  function parse(data: unknown): ServerMessage | null {
    try {
      return JSON.parse(String(data)) as ServerMessage;
    } catch {
      return null;
    }
  }

  function hello(): void {
    const seq: Record<string, number> = {};
    for (const [name, s] of subscriptions) {
      s.resyncing = false;
      if (s.channel.seq !== null) seq[name] = s.channel.seq;
    }
    send({ t: "hello", epoch, seq, sub: [...subscriptions.keys()] });
  }

  function open(): void {
    const mine = env.openSocket();
    socket = mine;
    opened = false;
    welcomed = false;
    mine.onopen = () => {
      opened = true;
      heardAt = env.now();
      hello();
    };
    mine.onmessage = (event) => {
      heardAt = env.now();
      const message = parse(event.data);
      if (message) receive(message);
    };
    mine.onclose = () => lose("offline");
  }

  async function connect(): Promise<void> {
    const mine = ++attempt;
    attemptAt = env.now();
    retryTimer = null;
    const answer = await env.whoAmI();
    if (!running || mine !== attempt) return;
    if (answer.kind === "ok") {
      me.value = answer.me;
      open();
    } else if (answer.kind === "signed-out") {
      signOut();
    } else {
      lose("offline");
    }
  }

  function signOut(): void {
    running = false;
    stopTimers();
    me.value = null;
    for (const s of subscriptions.values()) {
      s.channel = emptyChannel();
      s.view.value = { kind: "waiting" };
    }
    link.value = "signed-out";
  }

  function dropSocket(): void {
    if (!socket) return;
    socket.onopen = socket.onmessage = socket.onclose = null;
    socket.close();
    socket = null;
    opened = welcomed = false;
  }

  /** The connection is of no more use: say how it looks, and come back after a random wait. */
  function lose(as: "stale" | "offline"): void {
    dropSocket();
    link.value = as;
    const delay = retryFloorMs + retryDelayMs(failures++, env.random());
    retryFloorMs = 0;
    env.cancel(retryTimer);
    retryTimer = env.later(() => void connect(), delay);
  }

  function watchdog(): void {
    const now = env.now();
    const silentMs = now - heardAt;
    if (socket && opened && silentMs > HEARTBEATS_MISSED_MAX * HEARTBEAT_MS + HEARTBEAT_SLACK_MS) {
      lose("stale");
    } else if (socket && !welcomed && now - attemptAt > OPENING_MS_MAX) {
      lose("offline");
    }
    if (link.peek() !== "live") ageSeconds.value = Math.max(0, Math.round(silentMs / 1000));
    watchTimer = env.later(watchdog, HEARTBEAT_MS / 2);
  }

  function stopTimers(): void {
    env.cancel(retryTimer);
    env.cancel(watchTimer);
    retryTimer = watchTimer = null;
  }

  function start(): void {
    if (running) return;
    running = true;
    failures = 0;
    heardAt = env.now();
    link.value = "connecting";
    watchTimer = env.later(watchdog, HEARTBEAT_MS / 2);
    void connect();
  }

  function leave(): void {
    attempt++;
    dropSocket();
    signOut();
  }

  function retryNow(): void {
    if (!running || retryTimer === null) return;
    env.cancel(retryTimer);
    void connect();
  }

  function watch<N extends keyof ChannelMap>(name: N): Signal<View<ChannelMap[N]>> {
    let s = subscriptions.get(name);
    if (!s) {
      const view = signal<View<unknown>>({ kind: "waiting" });
      s = { channel: emptyChannel(), view, readers: 0, resyncing: false, gone: false };
      subscriptions.set(name, s);
      if (opened) send({ t: "sub", add: [name], del: [] });
    }
    s.readers++;
    return s.view as Signal<View<ChannelMap[N]>>;
  }

  function unwatch(name: keyof ChannelMap): void {
    const s = subscriptions.get(name);
    if (!s || --s.readers > 0) return;
    subscriptions.delete(name);
    if (opened) send({ t: "sub", add: [], del: [name] });
  }

  paused.subscribe((value) => {
    if (!value && dirty.size > 0) publish();
  });

  return { link, ageSeconds, paused, me, start, leave, retryNow, watch, unwatch };
}
