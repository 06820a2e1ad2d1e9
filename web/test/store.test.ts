import assert from "node:assert/strict";
import test from "node:test";
import { Store, type Environment, type Socket, type WhoAmI } from "../src/store";

interface FakeSocket extends Socket {
  sent: Record<string, unknown>[];
  closed: boolean;
  open(): void;
  say(message: unknown): void;
  drop(): void;
}

interface World {
  store: Store;
  sockets: FakeSocket[];
  frames: (() => void)[];
  who: WhoAmI;
  random: number;
  /** Lets time pass in steps, running what is due. */
  pass(ms: number): Promise<void>;
  draw(): void;
  newest(): FakeSocket;
}

function fakeSocket(): FakeSocket {
  const socket: FakeSocket = {
    onopen: null,
    onmessage: null,
    onclose: null,
    sent: [],
    closed: false,
    send: (text) => void socket.sent.push(JSON.parse(text) as Record<string, unknown>),
    close: () => void (socket.closed = true),
    open: () => socket.onopen?.(),
    say: (message) => socket.onmessage?.({ data: JSON.stringify(message) }),
    drop: () => socket.onclose?.({ code: 1006 }),
  };
  return socket;
}

function world(): World {
  let now = 0;
  let timers: { at: number; run: () => void }[] = [];
  const w = { sockets: [], frames: [], random: 0.5 } as unknown as World;
  w.who = { kind: "ok", me: { id: "key_1", scopes: ["jobs:read"] } };
  const env: Environment = {
    now: () => now,
    random: () => w.random,
    later(run, ms) {
      const timer = { at: now + ms, run };
      timers.push(timer);
      return timer;
    },
    cancel(timer) {
      timers = timers.filter((t) => t !== timer);
    },
    frame: (run) => void w.frames.push(run),
    openSocket() {
      w.sockets.push(fakeSocket());
      return w.newest();
    },
    whoAmI: () => Promise.resolve(w.who),
  };
  w.newest = () => w.sockets[w.sockets.length - 1] as FakeSocket;
  w.draw = () => w.frames.splice(0).forEach((run) => run());
  w.pass = async (ms) => {
    const end = now + ms;
    while (now < end) {
      now = Math.min(end, now + 100);
      const due = timers.filter((t) => t.at <= now);
      timers = timers.filter((t) => t.at > now);
      due.forEach((t) => t.run());
      for (let k = 0; k < 4; k++) await Promise.resolve();
    }
  };
  w.store = new Store(env);
  return w;
}

const WELCOME = { t: "welcome", epoch: "e1", server_time: "", hz: 1 };
const snap = (seq: number, d: unknown, epoch = "e1", ch = "overview") => ({
  t: "snap",
  ch,
  epoch,
  seq,
  d,
});
const delta = (seq: number, d: unknown, ch = "overview") => ({ t: "d", ch, seq, d });

async function live(w: World): Promise<FakeSocket> {
  w.store.start();
  await w.pass(100);
  w.newest().open();
  w.newest().say(WELCOME);
  return w.newest();
}

function data(
  w: World,
  name: "overview" | "job:job_1" = "overview",
): Record<string, unknown> | null {
  const view = w.store.watch(name).peek();
  w.store.unwatch(name);
  return view.kind === "here" ? (view.data as unknown as Record<string, unknown>) : null;
}

test("hello names the channels; a snapshot and deltas are seen once per frame", async () => {
  const w = world();
  w.store.watch("overview");
  const socket = await live(w);
  assert.deepEqual(socket.sent[0], { t: "hello", epoch: "", seq: {}, sub: ["overview"] });
  assert.equal(w.store.link.peek(), "live");
  socket.say(snap(10, { version: 1 }));
  socket.say(delta(11, { version: 2 }));
  assert.equal(data(w), null, "nothing is published before the frame");
  assert.equal(w.frames.length, 1, "two messages ask for one frame");
  w.draw();
  assert.deepEqual(data(w), { version: 2 });
});

test("a gap asks for a snapshot once, and shows nothing of what does not follow", async () => {
  const w = world();
  w.store.watch("overview");
  const socket = await live(w);
  socket.say(snap(10, { version: 1 }));
  socket.say(delta(12, { version: 3 }));
  socket.say(delta(13, { version: 4 }));
  w.draw();
  assert.deepEqual(data(w), { version: 1 });
  const asked = socket.sent.filter((m) => m.t === "resync");
  assert.deepEqual(asked, [{ t: "resync", ch: "overview" }]);
  socket.say(snap(13, { version: 4 }));
  socket.say(delta(14, { version: 5 }));
  w.draw();
  assert.deepEqual(data(w), { version: 5 });
  socket.say(delta(16, {}));
  assert.equal(socket.sent.filter((m) => m.t === "resync").length, 2, "a new gap asks again");
});

test("three missed heartbeats: stale with its age, then resume from the sequence", async () => {
  const w = world();
  w.store.watch("overview");
  const first = await live(w);
  first.say(snap(10, { version: 1 }));
  await w.pass(3000);
  assert.equal(w.store.link.peek(), "live");
  w.random = 0.999;
  await w.pass(1100);
  assert.equal(w.store.link.peek(), "stale");
  assert.ok(first.closed, "the silent socket is given up");
  assert.ok(w.store.ageSeconds.peek() >= 4);
  await w.pass(600);
  const second = w.newest();
  assert.notEqual(second, first);
  second.open();
  assert.deepEqual(second.sent[0], {
    t: "hello",
    epoch: "e1",
    seq: { overview: 10 },
    sub: ["overview"],
  });
  second.say(WELCOME);
  second.say(delta(11, { version: 2 }));
  w.draw();
  assert.equal(w.store.link.peek(), "live");
  assert.equal(w.store.ageSeconds.peek(), 0);
  assert.deepEqual(data(w), { version: 2 });
});

test("heartbeats keep an idle connection live", async () => {
  const w = world();
  const socket = await live(w);
  for (let k = 0; k < 20; k++) {
    await w.pass(1000);
    socket.say({ t: "hb", ts: k });
  }
  assert.equal(w.store.link.peek(), "live");
  assert.equal(w.sockets.length, 1);
});

test("a new epoch does not continue old figures", async () => {
  const w = world();
  w.store.watch("overview");
  const first = await live(w);
  first.say(snap(10, { version: 1 }));
  first.drop();
  assert.equal(w.store.link.peek(), "offline");
  await w.pass(1000);
  const second = w.newest();
  second.open();
  second.say({ ...WELCOME, epoch: "e2" });
  second.say(delta(11, { version: 99 }));
  w.draw();
  assert.deepEqual(data(w), { version: 1 });
  assert.deepEqual(second.sent[1], { t: "resync", ch: "overview" });
  second.say(snap(3, { version: 7 }, "e2"));
  w.draw();
  assert.deepEqual(data(w), { version: 7 });
});

test("waits between attempts grow, and start small again after a welcome", async () => {
  const w = world();
  w.random = 0.99;
  const socket = await live(w);
  w.who = { kind: "failed" };
  socket.drop();
  await w.pass(60_000);
  assert.equal(w.sockets.length, 1);
  assert.equal(w.store.link.peek(), "offline");
  w.who = { kind: "ok", me: { id: "key_1", scopes: [] } };
  for (let waited = 0; waited < 31_000 && w.sockets.length === 1; waited += 100)
    await w.pass(100);
  assert.equal(w.sockets.length, 2);
  w.newest().open();
  w.newest().say(WELCOME);
  w.newest().drop();
  await w.pass(600);
  assert.equal(w.sockets.length, 3);
});

test("bye says how long to stay away", async () => {
  const w = world();
  w.random = 0;
  const socket = await live(w);
  socket.say({ t: "bye", code: "draining", retry_ms: 4000 });
  socket.drop();
  await w.pass(3900);
  assert.equal(w.sockets.length, 1);
  await w.pass(300);
  assert.equal(w.sockets.length, 2);
});

test("a session that has ended signs out, forgets the figures and does not retry", async () => {
  const w = world();
  w.store.watch("overview");
  const socket = await live(w);
  socket.say(snap(10, { version: 1 }));
  w.draw();
  w.who = { kind: "signed-out" };
  socket.drop();
  await w.pass(60_000);
  assert.equal(w.store.link.peek(), "signed-out");
  assert.equal(data(w), null);
  assert.equal(w.store.me.peek(), null);
  assert.equal(w.sockets.length, 1);
});

test("pages claim and give back channels on the one connection", async () => {
  const w = world();
  w.store.watch("overview");
  const socket = await live(w);
  w.store.watch("job:job_1");
  w.store.watch("job:job_1");
  w.store.unwatch("job:job_1");
  assert.deepEqual(socket.sent.slice(1), [{ t: "sub", add: ["job:job_1"], del: [] }]);
  w.store.unwatch("job:job_1");
  assert.deepEqual(socket.sent[2], { t: "sub", add: [], del: ["job:job_1"] });
  socket.say(snap(1, { version: 1 }, "e1", "job:job_1"));
  w.draw();
  assert.equal(w.sockets.length, 1);
});

test("a channel that is gone says so, and comes back when the job starts", async () => {
  const w = world();
  const view = w.store.watch("job:job_1");
  const socket = await live(w);
  socket.say({ t: "gone", ch: "job:job_1" });
  w.draw();
  assert.equal(view.peek().kind, "gone");
  for (let k = 0; k < 11; k++) {
    await w.pass(1000);
    socket.say({ t: "hb", ts: k });
  }
  assert.deepEqual(socket.sent[1], { t: "sub", add: ["job:job_1"], del: [] });
  socket.say(snap(1, { version: 0 }, "e1", "job:job_1"));
  w.draw();
  assert.equal(view.peek().kind, "here");
});

test("pausing holds the figures still while the stream goes on", async () => {
  const w = world();
  w.store.watch("overview");
  const socket = await live(w);
  socket.say(snap(1, { version: 1 }));
  w.draw();
  w.store.paused.value = true;
  socket.say(delta(2, { version: 2 }));
  w.draw();
  assert.deepEqual(data(w), { version: 1 });
  w.store.paused.value = false;
  assert.deepEqual(data(w), { version: 2 });
});

test("broken or unknown messages do no harm", async () => {
  const w = world();
  w.store.watch("overview");
  const socket = await live(w);
  socket.onmessage?.({ data: "{not json" });
  socket.onmessage?.({ data: "null" });
  socket.say({ t: "something new" });
  socket.say(snap(1, { version: 1 }, "e1", "job:never_asked"));
  socket.say(snap(1, { version: 1 }));
  w.draw();
  assert.deepEqual(data(w), { version: 1 });
});

test("the page coming to the front retries at once", async () => {
  const w = world();
  w.random = 0.99;
  const socket = await live(w);
  socket.drop();
  w.store.retryNow();
  await w.pass(100);
  assert.equal(w.sockets.length, 2);
  await w.pass(2000);
  assert.equal(w.sockets.length, 2, "the pending retry was cancelled");
});
