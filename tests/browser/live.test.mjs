// The dashboard in a real browser against a running coordinator with a running job:
//   RAVEN_URL=http://127.0.0.1:8080 RAVEN_KEY=rvn_sk_… [RAVEN_SHOTS=dir] \
//     [RAVEN_AGENT=raven-agent RAVEN_AGENTS=dir] node --test tests/browser/live.test.mjs
// RAVEN_AGENTS holds the state directories of agents that run here, named like their labels.
// Pages run under the coordinator's own Content-Security-Policy: any console error fails the test.
// Everything waits for a condition, with a limit of RAVEN_WAIT_SECONDS (default 60) each.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import test, { after, before } from "node:test";
import { promisify } from "node:util";

const require = createRequire(new URL("../../web/package.json", import.meta.url));
const { chromium } = require("playwright-core");
const axeSource = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

const url = process.env.RAVEN_URL?.replace(/\/$/, "");
const key = process.env.RAVEN_KEY;
const shots = process.env.RAVEN_SHOTS;
const waitMs = 1000 * Number(process.env.RAVEN_WAIT_SECONDS ?? 60);
const agent = process.env.RAVEN_AGENT;
const agents = process.env.RAVEN_AGENTS;
const CHROMIUM_ARGS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];
const WIDE = { width: 1360, height: 900 };
const PHONE = { width: 390, height: 844 };
const THEMES = ["light", "dark"];

let browser;
let context;
let page;
let jobPath;
const complaints = [];
/** The newest `volunteers` that the coordinator sent to `page`, by channel. */
const sent = new Map();

function listen(target) {
  target.on("console", (message) => {
    if (message.type() !== "error" && message.type() !== "warning") return;
    // Before signing in, GET /v1/me answers 401, and the browser reports that by itself.
    if (/status of 401/.test(message.text())) return;
    complaints.push(`${message.type()}: ${message.text()}`);
  });
  target.on("pageerror", (error) => complaints.push(`exception: ${error.message}`));
  target.on("request", (request) => {
    const ours = request.url().startsWith(`${url}/`) || request.url().startsWith("data:");
    if (!ours) complaints.push(`request to another origin: ${request.url()}`);
  });
}

function keepVolunteers(socket) {
  socket.on("framereceived", ({ payload }) => {
    const message = JSON.parse(payload);
    if (message.d?.volunteers) sent.set(message.ch, message.d.volunteers);
  });
}

/** Polls from here, because a page under our policy may not evaluate strings. */
async function until(what, probe) {
  const deadline = Date.now() + waitMs;
  for (;;) {
    const value = await probe();
    if (value) return value;
    if (Date.now() > deadline) assert.fail(`${what} did not happen within ${waitMs / 1000} s`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

async function untilChanged(what, read, before) {
  return until(`a change of ${what} (now ${before})`, async () => {
    const value = await read();
    return value !== before && value !== null ? value : null;
  });
}

const lossText = () => page.locator('[data-tile="loss"] .tile-figure').innerText();
const lastPoint = () => page.locator("figure.chart").first().getAttribute("data-last");

async function untilLive() {
  await page.locator(".badge-live").waitFor({ timeout: waitMs });
  await page.locator('[data-tile="loss"] .tile-figure .num').waitFor({ timeout: waitMs });
  await page.locator("figure.chart canvas").first().waitFor({ timeout: waitMs });
}

async function shoot(name, fullPage = true) {
  if (!shots) return;
  mkdirSync(shots, { recursive: true });
  if (fullPage) await page.evaluate(() => scrollTo(0, 0)); // the top bar sticks to what is seen
  await page.screenshot({ path: join(shots, `${name}.png`), fullPage });
}

async function assertAccessible(where) {
  const found = await page.evaluate(async () => {
    const result = await globalThis.axe.run(document);
    return result.violations.map((v) => ({
      rule: v.id,
      help: v.help,
      nodes: v.nodes.slice(0, 3).map((n) => n.html.slice(0, 160)),
    }));
  });
  assert.deepEqual(found, [], `accessibility of ${where}`);
}

async function assertNoSidewaysScroll(where) {
  const { content, window: width } = await page.evaluate(() => ({
    content: document.documentElement.scrollWidth,
    window: document.documentElement.clientWidth,
  }));
  assert.ok(content <= width, `${where} is ${content} px wide in a window of ${width} px`);
}

/** A number stands beside its unit, or in a column whose head names it. */
async function assertUnits(where) {
  const bare = await page.evaluate(() => {
    const text = (element) => element?.textContent?.trim() ?? "";
    const numbers = [...document.querySelectorAll(".num")].filter(
      (n) => !text(n.querySelector(".unit")),
    );
    const cells = [...document.querySelectorAll("td.right")].filter((cell) => {
      const head = cell.closest("table")?.querySelectorAll("thead th")[cell.cellIndex];
      return !text(head?.querySelector(".unit")) && !text(cell.querySelector(".unit"));
    });
    return [...numbers, ...cells].map((n) => n.outerHTML.slice(0, 120));
  });
  assert.deepEqual(bare, [], `numbers without a unit on ${where}`);
}

async function assertSmall(where) {
  const nodes = await page.evaluate(() => document.querySelectorAll("*").length);
  assert.ok(nodes <= 1500, `${where} has ${nodes} elements; the budget is 1500`);
}

const rowOf = (label, where = page) =>
  where.locator("tr", { has: where.getByRole("button", { name: label, exact: true }) });
const openerOf = (label, where = page) => where.getByRole("button", { name: label, exact: true });

/** The texts of a volunteer's row by the heads of their columns. */
async function cellsOf(label) {
  return rowOf(label).evaluate((row) => {
    const heads = [...row.closest("table").querySelectorAll("thead th")];
    const name = (head) => head?.firstChild?.textContent;
    return Object.fromEntries([...row.cells].map((c, k) => [name(heads[k]), c.textContent]));
  });
}

const whole = (text) => Number(text.replaceAll(",", ""));

/** Near enough for a figure of about three digits. */
function near(text, value) {
  return Math.abs(whole(text) - value) <= 0.006 * value + 0.0005;
}

/** Waits until the rows say what the coordinator has just sent on `channel`. */
async function assertRowsSayWhatWasSent(channel) {
  const chosen = await until("a choice of every connected volunteer", () => {
    const connected = (sent.get(channel) ?? []).filter((v) => v.state !== "offline");
    return connected.length > 0 && connected.every((v) => v.choice) && connected;
  });
  for (const { label } of chosen) {
    await until(`a row of ${label} that says what the coordinator sent on ${channel}`, async () => {
      const { choice, utilisation } = sent.get(channel).find((v) => v.label === label);
      const cells = await cellsOf(label);
      return (
        whole(cells.Lease) === choice.steps &&
        whole(cells["Kept, k"]) === choice.k &&
        (utilisation > 0
          ? near(cells.Computing, 100 * utilisation)
          : /not measured/.test(cells.Computing)) &&
        (choice.up_bytes_per_s > 0
          ? near(cells.Uplink, (8 * choice.up_bytes_per_s) / 1e6)
          : /not measured/.test(cells.Uplink)) &&
        (choice.down_bytes_per_s > 0
          ? near(cells.Downlink, (8 * choice.down_bytes_per_s) / 1e6)
          : /not measured/.test(cells.Downlink))
      );
    });
  }
  return chosen.map((v) => v.label);
}

/** What an opened row says: {reason, Steps: "20 steps in one lease", …}. */
async function whyOf(label, where = page) {
  const panel = rowOf(label, where).locator("xpath=following-sibling::tr[1]").locator(".why");
  return panel.evaluate((element) => ({
    title: element.querySelector("h3").textContent,
    reason: element.querySelector(".why-reason bdi")?.textContent,
    ...Object.fromEntries(
      [...element.querySelectorAll("dl > div")].map((d) => [
        d.querySelector("dt").textContent,
        d.querySelector("dd > span").textContent,
      ]),
    ),
  }));
}

async function statusOf(label) {
  const args = ["status", "--json", "--state-dir", join(agents, label)];
  return JSON.parse((await promisify(execFile)(agent, args)).stdout);
}

async function inspect(name) {
  for (const colorScheme of THEMES) {
    await page.emulateMedia({ colorScheme });
    for (const [size, viewport] of [
      ["wide", WIDE],
      ["390px", PHONE],
    ]) {
      await page.setViewportSize(viewport);
      const where = `${name}, ${colorScheme}, ${size}`;
      await until(`a chart that fits on ${where}`, () =>
        page.evaluate(() => {
          const plot = document.querySelector("figure.chart .plot");
          const canvas = plot?.querySelector(".uplot");
          return !!canvas && Math.abs(canvas.clientWidth - plot.clientWidth) < 2;
        }),
      );
      await assertNoSidewaysScroll(where);
      await assertUnits(where);
      await assertAccessible(where);
      await assertSmall(where);
      await shoot(`${name}-${colorScheme}-${size}`);
    }
  }
  await page.emulateMedia({ colorScheme: "light" });
  await page.setViewportSize(WIDE);
}

before(async () => {
  assert.ok(url && key, "RAVEN_URL and RAVEN_KEY name the coordinator and an API key");
  browser = await chromium.launch({
    executablePath: process.env.RAVEN_CHROMIUM ?? "/usr/bin/chromium",
    headless: true,
    args: CHROMIUM_ARGS,
  });
  context = await browser.newContext({ viewport: WIDE, colorScheme: "light" });
  await context.addInitScript({ content: axeSource });
  page = await context.newPage();
  page.setDefaultTimeout(waitMs);
  listen(page);
  page.on("websocket", keepVolunteers);
});

after(async () => {
  await browser?.close();
});

test("a page without a session leads to sign-in, and a wrong key is refused in words", async () => {
  await page.goto(`${url}/`);
  await page.waitForURL("**/login");
  await assertAccessible("sign-in");
  await page.getByLabel("API key").fill("rvn_sk_wrong");
  await page.getByRole("button", { name: "Sign in" }).click();
  const said = await page.getByRole("alert").innerText();
  assert.ok(said.length > 10, "the refusal says why");
});

test("the key signs in, and Overview goes live", async () => {
  await page.getByLabel("API key").fill(key);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.waitForURL(`${url}/`);
  await untilLive();
  assert.equal(await page.getByRole("heading", { level: 1 }).innerText(), "Overview");
});

test("loss and chart change twice while we watch", async () => {
  let loss = await lossText();
  let last = await lastPoint();
  for (let round = 0; round < 2; round++) {
    last = await untilChanged("the chart's newest point", lastPoint, last);
    loss = await untilChanged("the loss figure", lossText, loss);
  }
  assert.match(loss, /\d/);
});

test("a volunteer's row says what its controller chose, as the coordinator sends it", async () => {
  await assertRowsSayWhatWasSent("overview");
});

test("a row opens to why: by key and mouse, with the reason that was sent", async () => {
  const labels = await assertRowsSayWhatWasSent("overview");
  for (const label of labels) {
    const opener = openerOf(label);
    assert.equal(await opener.getAttribute("aria-expanded"), "false");
    await opener.focus();
    await page.keyboard.press("Enter");
    assert.equal(await opener.getAttribute("aria-expanded"), "true");
    const controlled = await opener.getAttribute("aria-controls");
    assert.equal(await page.locator(`[id="${controlled}"] .why`).count(), 1);
    await until(`a reason of ${label} as the coordinator sent it`, async () => {
      const { choice } = sent.get("overview").find((v) => v.label === label);
      const why = await whyOf(label);
      return (
        why.title.endsWith(`: ${label}`) &&
        why.reason === choice.reason &&
        whole(why.Steps.split(" ")[0]) === choice.steps &&
        why["Kept, k"] === `${choice.k} of 4,096` &&
        why["Leases held"] === `${choice.ahead} ${choice.ahead === 1 ? "lease" : "leases"}` &&
        (choice.step_ms > 0 ? / m?s$/ : /^not measured$/).test(why["One step"]) &&
        (choice.transfer_ms > 0 ? / m?s$/ : /^not measured$/).test(why.Transfer)
      );
    });
  }
  await openerOf(labels[0]).click();
  assert.equal(await page.locator(".why").count(), labels.length - 1);
  await openerOf(labels[0]).click();
  assert.equal(await page.locator(".why").count(), labels.length);
});

test("what a row says is what that agent's own status says", { skip: !agents }, async () => {
  const shape = (text) => text.replace(/\d+(\.\d+)?/g, "#"); // measured anew at each lease
  for (const { label } of sent.get("overview").filter((v) => v.state !== "offline"))
    await until(`a row of ${label} that agrees with its agent`, async () => {
      const status = await statusOf(label);
      const why = await whyOf(label);
      return (
        whole(why.Steps.split(" ")[0]) === status.lease_steps &&
        why["Kept, k"] === `${status.lease_k} of 4,096` &&
        shape(why.reason) === shape(status.choice_reason)
      );
    });
});

test("pain_F3: the row of a PC whose clock is an hour fast says so, and the cure", async () => {
  for (const { label, clock_offset_ms: ahead } of sent.get("overview")) {
    const said = await rowOf(label).locator(".clock-warning").allInnerTexts();
    if (Math.abs(ahead) < 60_000) assert.deepEqual(said, []);
    else assert.match(said.join(), /^Its clock is \d+ .*(fast|slow): set the time of that PC/);
  }
  if (!agents) return; // run.sh has set this one's clock
  const warning = await rowOf("pc-30").locator(".clock-warning").innerText();
  assert.match(warning, /^Its clock is (1 h 0 min|59 min \d+ s) fast: set the time of that PC.*NTP/);
});

test("Overview: units, accessibility, light and dark, 390 px", async () => {
  await inspect("overview");
});

test("forced colours: the same words, and bars that are seen", async () => {
  await page.emulateMedia({ forcedColors: "active" });
  await assertAccessible("Overview in forced colours");
  const colours = await page.locator(".why-bar").first().evaluate((bar) => {
    const of = (element) => getComputedStyle(element).backgroundColor;
    return [of(bar), of(bar.parentElement)];
  });
  assert.notEqual(colours[0], colours[1]);
  await shoot("overview-forced-colours");
  await page.emulateMedia({ forcedColors: "none" });
});

test("the chart's values are also there as a table", async () => {
  const chart = page.locator("figure.chart").first();
  await chart.getByText("Values as a table").click();
  await chart.locator("tbody tr").first().waitFor();
  await assertUnits("the table of values");
  await chart.getByText("Values as a table").click();
});

test("Pause holds the figures still; Resume brings them up to date", async () => {
  await page.getByRole("button", { name: "Pause" }).click();
  await page.locator(".badge-paused").waitFor();
  const held = await lastPoint();
  await new Promise((resolve) => setTimeout(resolve, 2500));
  assert.equal(await lastPoint(), held);
  await page.getByRole("button", { name: "Resume" }).click();
  await untilChanged("the chart's newest point", lastPoint, held);
});

test("Add a PC shows one command that joins this coordinator", async () => {
  await page.getByRole("button", { name: "Add a PC" }).first().click();
  const dialog = page.getByRole("dialog", { name: "Add a PC" });
  const command = await dialog.locator("code").innerText();
  assert.match(command, /RAVEN_INVITE=rvn_inv_\S+ .*raven-agent join https?:\/\//);
  await assertAccessible("Add a PC");
  await shoot("add-a-pc", false);
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });
});

test("the running job has a page, live too", async () => {
  const row = page.locator("tbody tr", { has: page.locator(".state-running") }).first();
  await row.getByRole("link").click();
  await page.waitForURL("**/jobs/job_*");
  jobPath = new URL(page.url()).pathname;
  await untilLive();
  const last = await lastPoint();
  await untilChanged("the job's newest point", lastPoint, last);
  await page.getByRole("heading", { name: "Settings" }).waitFor();
});

test("the job's rows say what was chosen, and why, too", async () => {
  const channel = `job:${jobPath.split("/").pop()}`;
  const labels = await assertRowsSayWhatWasSent(channel);
  await openerOf(labels[0]).click();
  await until("the reason as the job's channel has it", async () => {
    const { choice } = sent.get(channel).find((v) => v.label === labels[0]);
    return (await whyOf(labels[0])).reason === choice.reason;
  });
});

test("Job: units, accessibility, light and dark, 390 px", async () => {
  await inspect("job");
});

test("Cancel asks first, and changes nothing when the answer is no", async () => {
  await page.getByRole("button", { name: "Cancel job" }).click();
  const dialog = page.getByRole("dialog", { name: "Cancel this job?" });
  await dialog.waitFor();
  await assertAccessible("the question before cancelling");
  await dialog.getByRole("button", { name: "Keep it running" }).click();
  await dialog.waitFor({ state: "detached" });
  const headers = { Authorization: `Bearer ${key}` };
  const answer = await fetch(`${url}/v1${jobPath}`, { headers });
  assert.equal(answer.status, 200);
  assert.notEqual((await answer.json()).state, "cancelled");
});

test("a synthetic job says what it is, with units; cancelling it cancels it", async () => {
  const headers = {
    Authorization: `Bearer ${key}`,
    "Content-Type": "application/json",
    "Idempotency-Key": crypto.randomUUID(),
  };
  const body = JSON.stringify({
    name: "synthetic",
    model: { preset: "synthetic", parameters: 50_000, step_ms: 25 },
    data: { kind: "synthetic" },
    training: { batch_size: 8, total_samples: 1_000_000 },
  });
  const made = await fetch(`${url}/v1/jobs`, { method: "POST", headers, body });
  assert.equal(made.status, 201);
  const { id } = await made.json();
  await page.goto(`${url}/jobs/${id}`);
  const settings = page.getByRole("region", { name: "Settings" });
  const text = (await settings.innerText()).replace(/\s+/g, " ");
  for (const said of ["preset synthetic", "parameters 50,000 parameters", "step 25 ms", "optimum"])
    assert.ok(text.includes(said), `the settings say "${said}": ${text}`);
  await assertAccessible("a synthetic job");
  await assertUnits("a synthetic job");
  await page.getByRole("button", { name: "Cancel job" }).click();
  await page.getByRole("button", { name: "Cancel the job" }).click();
  await until("the job's end", async () => {
    const answer = await fetch(`${url}/v1/jobs/${id}`, { headers });
    return (await answer.json()).state === "cancelled";
  });
  await page.locator(".job-head .state-cancelled").waitFor();
});

/** Another page whose volunteers are `volunteers`, whatever the coordinator sends. */
async function pageWith(volunteers, options) {
  const other = await browser.newContext({
    ...options,
    storageState: await context.storageState(),
  });
  await other.addInitScript({ content: axeSource });
  const made = await other.newPage();
  made.setDefaultTimeout(waitMs);
  listen(made);
  await made.routeWebSocket("**/ws/live", (socket) => {
    const server = socket.connectToServer();
    server.onMessage((text) => {
      const message = JSON.parse(text);
      if (message.d?.volunteers) message.d.volunteers = volunteers;
      socket.send(JSON.stringify(message));
    });
  });
  await made.goto(`${url}/`);
  return made;
}

const HOSTILE = `<img src=x onerror="alert(1)"> \u202e${"W".repeat(120)}`;
const AT_HOME = {
  id: "vol_1",
  label: "home",
  state: "training",
  samples_per_s: 312,
  rtt_ms: 21.4,
  loss: 1.2,
  updates_applied: 40,
  samples: 6400,
  staleness: 2,
  utilisation: 0.963,
  choice: {
    steps: 218,
    k: 64,
    ahead: 3,
    step_ms: 25.02,
    up_bytes_per_s: 612_500,
    down_bytes_per_s: 6_000_000,
    transfer_ms: 1363,
    compute_ms: 5454,
    reason:
      "more steps, so that computing (5.5 s) lasts 4 times the predicted transfer (1.4 s)",
  },
};

test("on a phone a tap opens why, as wide as the window, with every unit", async () => {
  const phone = await pageWith([AT_HOME], { viewport: PHONE, hasTouch: true, isMobile: true });
  await openerOf("home", phone).tap();
  const why = await whyOf("home", phone);
  assert.deepEqual(why, {
    title: "Why this lease: home",
    reason: AT_HOME.choice.reason,
    Steps: "218 steps",
    "Kept, k": "64 of 4,096",
    "Leases held": "3 leases",
    "One step": "25.0 ms",
    Uplink: "4.90 Mbit/s",
    Downlink: "48.0 Mbit/s",
    "Round trip": "21.4 ms",
    Computing: "5.45 s",
    Transfer: "1.36 s",
  });
  const region = phone.getByRole("region", { name: "Volunteers, table" });
  for (const left of [0, 300]) {
    await region.evaluate((element, to) => element.scrollTo(to, 0), left);
    const box = await phone.locator(".why").boundingBox();
    assert.ok(box.x >= 0 && box.x + box.width <= PHONE.width, `why is at ${JSON.stringify(box)}`);
  }
  if (shots) await region.screenshot({ path: join(shots, "why-390px.png") });
  await phone.context().close();
});

test("what is not measured says so, and strangers' texts stay texts", async () => {
  const nothing = { up_bytes_per_s: 0, down_bytes_per_s: 0, transfer_ms: 0 };
  const fresh = { ...AT_HOME.choice, ...nothing, step_ms: 0, compute_ms: 0, reason: HOSTILE };
  const labelled = { ...AT_HOME, id: "vol_2", label: HOSTILE };
  const other = await pageWith(
    [
      { ...labelled, rtt_ms: 0, utilisation: 0, choice: fresh },
      { ...AT_HOME, id: "vol_3", label: "away", state: "offline", utilisation: null, choice: null },
    ],
    { viewport: PHONE },
  );
  await other.locator(".opener").last().waitFor();
  for (const opener of await other.locator(".opener").all()) await opener.click();
  const first = await other.locator(".why").first().innerText();
  for (const name of ["One step", "Uplink", "Downlink", "Round trip", "Computing", "Transfer"])
    assert.match(first, new RegExp(`${name}\\s+not measured`));
  assert.ok(first.includes(HOSTILE), "the reason is shown letter by letter");
  assert.equal(await other.locator("main img").count(), 0);
  assert.match(await other.locator(".why").last().innerText(), /Offline/);
  const bare = await other.locator(".why-row").evaluateAll((rows) =>
    rows.map((row) => [...row.previousSibling.cells].slice(2, 7).map((cell) => cell.textContent)),
  );
  const none = "—not measured yet";
  assert.deepEqual(bare, [
    [none, "218", "64", none, none],
    [none, none, none, none, none],
  ]);
  const { content, width } = await other.evaluate(() => ({
    content: document.documentElement.scrollWidth,
    width: document.documentElement.clientWidth,
  }));
  assert.ok(content <= width, `the page is ${content} px wide in a window of ${width} px`);
  await other.evaluate(() => scrollTo(0, 0));
  if (shots)
    await other.screenshot({ path: join(shots, "why-not-measured-390px.png"), fullPage: true });
  await other.context().close();
});

test("a page of very many volunteers stays small", async () => {
  const many = Array.from({ length: 200 }, (_, k) => ({
    ...AT_HOME,
    id: `vol_${k}`,
    label: `home-${k}`,
  }));
  const other = await pageWith(many, { viewport: WIDE });
  await openerOf("home-0", other).click();
  const nodes = await other.evaluate(() => document.querySelectorAll("*").length);
  assert.ok(nodes <= 1500, `Overview of 200 volunteers has ${nodes} elements; the budget is 1500`);
  await other.getByRole("button", { name: "Show 40 more of 200 volunteers" }).waitFor();
  await other.context().close();
});

test("a lost message is repaired; silence shows as stale with the data's age", async () => {
  const line = { loseNext: false, silent: false, resyncs: 0 };
  const bad = await context.newPage();
  listen(bad);
  await bad.routeWebSocket("**/ws/live", (socket) => {
    const server = socket.connectToServer();
    socket.onMessage((message) => {
      if (JSON.parse(message).t === "resync") line.resyncs++;
      server.send(message);
    });
    server.onMessage((message) => {
      if (line.silent) return;
      if (line.loseNext && JSON.parse(message).t === "d") line.loseNext = false;
      else socket.send(message);
    });
  });
  await bad.goto(`${url}/`);
  await bad.locator(".badge-live").waitFor({ timeout: waitMs });
  const newest = () => bad.locator("figure.chart").first().getAttribute("data-last");
  await bad.locator("figure.chart canvas").first().waitFor({ timeout: waitMs });
  line.loseNext = true;
  await until("a request for a snapshot", () => line.resyncs > 0);
  const repaired = await newest();
  await until(
    "a newer point after the repair",
    async () => Number(await newest()) > Number(repaired),
  );
  line.silent = true;
  await bad.locator(".badge-stale, .badge-offline").waitFor({ timeout: waitMs });
  assert.match(await bad.locator(".badge").textContent(), /(stale|offline), data \d+ s old/);
  line.silent = false;
  await bad.locator(".badge-live").waitFor({ timeout: waitMs });
  await bad.close();
});

test("signing out ends the session in the coordinator too", async () => {
  const status = () => page.evaluate(async () => (await fetch("/v1/me")).status);
  assert.equal(await status(), 200);
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.waitForURL("**/login");
  assert.equal(await status(), 401);
});

test("no console error, no refused script or style, no request to another origin", () => {
  assert.deepEqual(complaints, []);
});
