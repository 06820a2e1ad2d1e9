// The few REST calls of the dashboard. Answers are values, not exceptions: a page shows the
// problem's own words. Nothing is kept here; the session is an HttpOnly cookie that scripts cannot
// read.
import type { Invite, Me, Problem, RestJob } from "./protocol";
import type { WhoAmI } from "./store";

export type Answer<T> = { ok: true; data: T } | { ok: false; status: number; text: string };

function sentence(status: number, problem: Problem): string {
  const details = (problem.errors ?? []).map((e) => `${e.pointer}: ${e.detail}`);
  const main = problem.detail ?? problem.title ?? `The coordinator answered ${status}.`;
  return details.length ? `${main} ${details.join("; ")}` : main;
}

async function call<T>(
  method: string,
  path: string,
  body?: unknown,
  headers: Record<string, string> = {},
): Promise<Answer<T>> {
  try {
    const response = await fetch(path, {
      method,
      headers: body === undefined ? headers : { "Content-Type": "application/json", ...headers },
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: AbortSignal.timeout ? AbortSignal.timeout(20_000) : undefined,
    });
    const text = await response.text();
    const json: unknown = text ? JSON.parse(text) : null;
    if (response.ok) return { ok: true, data: json as T };
    const problem = (json ?? {}) as Problem;
    return { ok: false, status: response.status, text: sentence(response.status, problem) };
  } catch {
    return { ok: false, status: 0, text: "The coordinator cannot be reached. Check that it runs." };
  }
}

/** crypto.randomUUID exists on secure origins only; the dashboard also runs over plain HTTP. */
function idempotencyKey(): string {
  const raw = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(raw, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export async function whoAmI(): Promise<WhoAmI> {
  const answer = await call<Me>("GET", "/v1/me");
  if (answer.ok) return { kind: "ok", me: answer.data };
  return { kind: answer.status === 401 ? "signed-out" : "failed" };
}

export function signIn(key: string): Promise<Answer<unknown>> {
  return call("POST", "/v1/session", { key });
}

export function spendSetupToken(token: string): Promise<Answer<{ key: string }>> {
  return call("POST", "/v1/session", { setup_token: token });
}

export function signOut(): Promise<Answer<unknown>> {
  return call("DELETE", "/v1/session");
}

export function readJob(id: string): Promise<Answer<RestJob>> {
  return call("GET", `/v1/jobs/${encodeURIComponent(id)}`);
}

export function cancelJob(id: string, reason: string): Promise<Answer<RestJob>> {
  const body = reason ? { reason } : {};
  return call("POST", `/v1/jobs/${encodeURIComponent(id)}/cancel`, body);
}

export function makeInvite(): Promise<Answer<Invite>> {
  return call("POST", "/v1/invites", {}, { "Idempotency-Key": idempotencyKey() });
}
