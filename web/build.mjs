// Builds the dashboard: node build.mjs OUTDIR makes index.html, app-<hash>.{js,css} with .gz twins,
// and THIRD_PARTY_LICENSES.txt. File names carry a hash of the content, so that the coordinator can
// let browsers keep them for ever. Fails when the script or the style sheet outgrows its budget.
import { createHash } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import * as esbuild from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const SCRIPT_GZ_BYTES_MAX = 60 * 1024;
const STYLE_GZ_BYTES_MAX = 10 * 1024;

async function bundle() {
  const result = await esbuild.build({
    absWorkingDir: here,
    entryPoints: { app: "src/main.tsx" },
    outdir: "out",
    bundle: true,
    minify: true,
    write: false,
    metafile: true,
    format: "esm",
    target: ["es2020", "chrome100", "firefox100", "safari15"],
    charset: "utf8",
    logLevel: "warning",
  });
  const pick = (suffix) =>
    Buffer.from(result.outputFiles.find((f) => f.path.endsWith(suffix)).contents);
  return { script: pick(".js"), style: pick(".css"), inputs: Object.keys(result.metafile.inputs) };
}

// The packages that ended up in the bundle ask for their notice to travel with it.
function licenses(inputs) {
  const packages = new Set();
  for (const input of inputs) {
    const found = /(?:^|\/)node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(input);
    if (found) packages.add(found[1]);
  }
  const parts = [...packages].sort().map((name) => {
    const folder = join(here, "node_modules", name);
    const { version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
    const file = readdirSync(folder).find((f) => /^licen[cs]e/i.test(f));
    if (!file) throw new Error(`${name} has no licence file; its notice cannot be shipped`);
    const text = readFileSync(join(folder, file), "utf8").trim();
    return `${name} ${version} (${license})\n\n${text}\n`;
  });
  const rule = `\n${"-".repeat(72)}\n\n`;
  return `The RAVEN dashboard contains these packages.\n${rule}${parts.join(rule)}`;
}

function writeHashed(folder, suffix, content, bytesMax) {
  const hash = createHash("sha256").update(content).digest("hex").slice(0, 12);
  const name = `app-${hash}.${suffix}`;
  const packed = gzipSync(content, { level: 9 });
  if (packed.length > bytesMax) {
    throw new Error(`${name} is ${packed.length} bytes compressed; the budget is ${bytesMax}`);
  }
  writeFileSync(join(folder, name), content);
  writeFileSync(join(folder, `${name}.gz`), packed);
  console.log(`${name}  ${content.length} bytes, ${packed.length} compressed`);
  return name;
}

const folder = process.argv[2];
if (!folder) {
  console.error("usage: node build.mjs OUTDIR");
  process.exit(2);
}
const { script, style, inputs } = await bundle();
mkdirSync(folder, { recursive: true });
for (const file of readdirSync(folder)) {
  if (/^app-[0-9a-f]+\.(js|css)(\.gz)?$/.test(file)) rmSync(join(folder, file));
}
const scriptName = writeHashed(folder, "js", script, SCRIPT_GZ_BYTES_MAX);
const styleName = writeHashed(folder, "css", style, STYLE_GZ_BYTES_MAX);
const page = readFileSync(join(here, "src/index.html"), "utf8")
  .replace("app.js", scriptName)
  .replace("app.css", styleName);
writeFileSync(join(folder, "index.html"), page);
writeFileSync(join(folder, "THIRD_PARTY_LICENSES.txt"), licenses(inputs));
