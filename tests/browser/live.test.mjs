// The dashboard in a real browser against a running coordinator with a running job:
//   RAVEN_URL=http://127.0.0.1:8080 RAVEN_KEY=rvn_sk_… [RAVEN_SHOTS=dir] \
//     node --test tests/browser/live.test.mjs
// Pages run under the coordinator's own Content-Security-Policy: any console error fails the test.
// Everything waits for a condition, with a limit of RAVEN_WAIT_SECONDS (default 60) each.
import assert from "node:assert/strict";
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import test, { after, before } from "node:test";

const require = createRequire(new URL("../../web/package.json", import.meta.url));
const { chromium } = require("playwright-core");
const axeSource = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

const url = process.env.RAVEN_URL?.replace(/\/$/, "");
const key = process.env.RAVEN_KEY;
const shots = process.env.RAVEN_SHOTS;
const waitMs = 1000 * Number(process.env.RAVEN_WAIT_SECONDS ?? 60);
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

test("Overview: units, accessibility, light and dark, 390 px", async () => {
  await inspect("overview");
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
