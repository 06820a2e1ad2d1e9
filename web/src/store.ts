// The one owner of the live stream: it opens the tab's only WebSocket, applies messages as they
// arrive and publishes to signals once per animation frame, so a hidden tab costs next to nothing.
// All from outside (socket, clock, timers, who am I) comes in through Environment. Surprising: each
// attempt asks GET /v1/me first, because a browser hides the status of a refused handshake.
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

const SILENCE_MS_MAX = 3 * 1000 + 500; // three heartbeats, and some slack for the network
const OPENING_MS_MAX = 10_000;
const WATCH_EVERY_MS = 500;
const GONE_RETRY_MS = 10_000;
const BYE_RETRY_MS_MAX = 60_000;

interface Subscription {
  channel: Channel;
  view: Signal<View<unknown>>;
  readers: number;
  resyncing: boolean;
  gone: boolean;
}

export class Store {
  readonly link = signal<Link>("connecting");
  /** Age of the newest message, whole seconds; grows only while the link is not live. */
  readonly ageSeconds = signal(0);
  /** True: messages are applied but not shown. */
  readonly paused = signal(false);
  readonly me = signal<Me | null>(null);

  private readonly subscriptions = new Map<string, Subscription>();
  private readonly dirty = new Set<string>();
  private frameAsked = false;
  private running = false;
  private socket: Socket | null = null;
  private opened = false; // hello went out on this socket
  private welcomed = false;
  private epoch = "";
  private attempt = 0; // grows with each attempt: answers to an older one are dropped
  private failures = 0;
  private retryFloorMs = 0;
  private attemptAt: number;
  private heardAt: number;
  private retryTimer: unknown = null;
  private watchTimer: unknown = null;

  constructor(private readonly env: Environment) {
    this.attemptAt = this.heardAt = env.now();
    this.paused.subscribe((paused) => {
      if (!paused && this.dirty.size > 0) this.publish();
    });
  }

  start(): void {
    if (this.running) return;
    this.running = true;
    this.failures = 0;
    this.heardAt = this.env.now();
    this.link.value = "connecting";
    this.watchTimer = this.env.later(() => this.checkSilence(), WATCH_EVERY_MS);
    void this.connect();
  }

  /** Ends the connection and forgets what was received: the user signed out. */
  leave(): void {
    this.attempt++;
    this.dropSocket();
    this.signOut();
  }

  /** Tries at once when a retry is pending: the page came to the front, the network came back. */
  retryNow(): void {
    if (!this.running || this.retryTimer === null) return;
    this.env.cancel(this.retryTimer);
    void this.connect();
  }

  watch<N extends keyof ChannelMap>(name: N): Signal<View<ChannelMap[N]>> {
    let s = this.subscriptions.get(name);
    if (!s) {
      const view = signal<View<unknown>>({ kind: "waiting" });
      s = { channel: emptyChannel(), view, readers: 0, resyncing: false, gone: false };
      this.subscriptions.set(name, s);
      this.send({ t: "sub", add: [name], del: [] });
    }
    s.readers++;
    return s.view as Signal<View<ChannelMap[N]>>;
  }

  unwatch(name: keyof ChannelMap): void {
    const s = this.subscriptions.get(name);
    if (!s || --s.readers > 0) return;
    this.subscriptions.delete(name);
    this.send({ t: "sub", add: [], del: [name] });
  }

  // --- connection ---

  private async connect(): Promise<void> {
    const mine = ++this.attempt;
    this.attemptAt = this.env.now();
    this.retryTimer = null;
    const answer = await this.env.whoAmI();
    if (!this.running || mine !== this.attempt) return;
    if (answer.kind === "ok") {
      this.me.value = answer.me;
      this.open();
    } else if (answer.kind === "signed-out") {
      this.signOut();
    } else {
      this.lose("offline");
    }
  }

  private open(): void {
    const socket = this.env.openSocket();
    this.socket = socket;
    this.opened = this.welcomed = false;
    socket.onopen = () => {
      this.opened = true;
      this.heardAt = this.env.now();
      this.hello();
    };
    socket.onmessage = (event) => {
      this.heardAt = this.env.now();
      const message = parse(event.data);
      if (message) this.receive(message);
    };
    socket.onclose = () => this.lose("offline");
  }

  private hello(): void {
    const seq: Record<string, number> = {};
    for (const [name, s] of this.subscriptions) {
      s.resyncing = false;
      if (s.channel.seq !== null) seq[name] = s.channel.seq;
    }
    this.send({ t: "hello", epoch: this.epoch, seq, sub: [...this.subscriptions.keys()] });
  }

  private send(message: ClientMessage): void {
    if (this.socket && this.opened) this.socket.send(JSON.stringify(message));
  }

  /** The connection is of no more use: say how it looks, and come back after a random wait. */
  private lose(as: "stale" | "offline"): void {
    this.dropSocket();
    this.link.value = as;
    const delay = this.retryFloorMs + retryDelayMs(this.failures++, this.env.random());
    this.retryFloorMs = 0;
    this.env.cancel(this.retryTimer);
    this.retryTimer = this.env.later(() => void this.connect(), delay);
  }

  private dropSocket(): void {
    if (!this.socket) return;
    this.socket.onopen = this.socket.onmessage = this.socket.onclose = null;
    this.socket.close();
    this.socket = null;
    this.opened = this.welcomed = false;
  }

  private checkSilence(): void {
    const now = this.env.now();
    const silentMs = now - this.heardAt;
    if (this.socket && this.opened && silentMs > SILENCE_MS_MAX) {
      this.lose("stale");
    } else if (this.socket && !this.welcomed && now - this.attemptAt > OPENING_MS_MAX) {
      this.lose("offline");
    }
    if (this.link.peek() !== "live") {
      this.ageSeconds.value = Math.max(0, Math.round(silentMs / 1000));
    }
    this.watchTimer = this.env.later(() => this.checkSilence(), WATCH_EVERY_MS);
  }

  private signOut(): void {
    this.running = false;
    this.env.cancel(this.retryTimer);
    this.env.cancel(this.watchTimer);
    this.retryTimer = this.watchTimer = null;
    this.me.value = null;
    for (const s of this.subscriptions.values()) {
      s.channel = emptyChannel();
      s.view.value = { kind: "waiting" };
    }
    this.link.value = "signed-out";
  }

  // --- messages ---

  private receive(message: ServerMessage): void {
    if (message.t === "welcome") this.welcome(message.epoch);
    if (message.t === "bye") {
      this.retryFloorMs = Math.min(message.retry_ms ?? 0, BYE_RETRY_MS_MAX);
    }
    if (message.t !== "snap" && message.t !== "d" && message.t !== "gone") return;
    const s = this.subscriptions.get(message.ch);
    if (!s) return;
    if (message.t === "d") {
      const outcome = applyDelta(s.channel, message.seq, message.d);
      if (outcome === "gap") this.resync(message.ch, s);
      if (outcome !== "applied") return;
    } else if (message.t === "snap") {
      s.resyncing = s.gone = false;
      applySnapshot(s.channel, message.seq, message.d);
    } else {
      this.lostChannel(message.ch, s);
    }
    this.touch(message.ch);
  }

  private welcome(epoch: string): void {
    if (epoch !== this.epoch) {
      this.epoch = epoch;
      for (const s of this.subscriptions.values()) s.channel.seq = null;
    }
    this.welcomed = true;
    this.failures = 0;
    this.link.value = "live";
    this.ageSeconds.value = 0;
  }

  private resync(name: string, s: Subscription): void {
    if (s.resyncing) return;
    s.resyncing = true;
    this.send({ t: "resync", ch: name });
  }

  /** A job that was queued gets its channel when it starts, so we ask again now and then. */
  private lostChannel(name: string, s: Subscription): void {
    s.gone = true;
    s.resyncing = false;
    s.channel.seq = null;
    this.env.later(() => {
      if (this.subscriptions.get(name)?.gone) this.send({ t: "sub", add: [name], del: [] });
    }, GONE_RETRY_MS);
  }

  // --- publishing ---

  private touch(name: string): void {
    this.dirty.add(name);
    if (this.frameAsked) return;
    this.frameAsked = true;
    this.env.frame(() => {
      this.frameAsked = false;
      this.publish();
    });
  }

  private publish(): void {
    if (this.paused.peek()) return;
    for (const name of this.dirty) {
      const s = this.subscriptions.get(name);
      if (!s) continue;
      if (s.gone) s.view.value = { kind: "gone" };
      else if (s.channel.data) s.view.value = { kind: "here", data: s.channel.data };
    }
    this.dirty.clear();
  }
}

function parse(data: unknown): ServerMessage | null {
  try {
    return JSON.parse(String(data)) as ServerMessage | null;
  } catch {
    return null;
  }
}
