// Runs test/*.test.ts: bundles each with esbuild, then node's own test runner (Node 18 and newer).
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import * as esbuild from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const names = readdirSync(join(here, "test")).filter((name) => name.endsWith(".test.ts"));
const folder = mkdtempSync(join(tmpdir(), "raven-web-test-"));
let status = 1;
try {
  await esbuild.build({
    absWorkingDir: here,
    entryPoints: names.map((name) => join("test", name)),
    outdir: folder,
    outExtension: { ".js": ".mjs" },
    bundle: true,
    platform: "node",
    format: "esm",
    target: "node18",
    logLevel: "warning",
  });
  const files = names.map((name) => join(folder, name.replace(/\.ts$/, ".mjs")));
  status = spawnSync(process.execPath, ["--test", ...files], { stdio: "inherit" }).status ?? 1;
} finally {
  rmSync(folder, { recursive: true, force: true });
}
process.exit(status);
