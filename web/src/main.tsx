// The dashboard's entry: picks the page by path, starts the live connection, sends people without a
// session to /login.
import { effect } from "@preact/signals";
import { render } from "preact";
import { useEffect, useRef } from "preact/hooks";
import "uplot/dist/uPlot.min.css";
import "./style.css";
import { store } from "./live";
import { JobPage } from "./pages/job";
import { OverviewPage } from "./pages/overview";
import { LoginPage, SetupPage } from "./pages/sign_in";
import { TopBar } from "./parts/shell";
import { useChannel } from "./parts/use_channel";
import { askToSignIn, Link, path } from "./router";

const JOB_PATH = /^\/jobs\/(job_[0-9A-Za-z]{1,64})$/;

function titleOf(page: string): string {
  if (page === "/") return "Overview";
  if (page === "/login") return "Sign in";
  if (page === "/setup") return "Set up";
  return JOB_PATH.test(page) ? "Job" : "Not found";
}

function NotFound() {
  return (
    <main id="main" tabIndex={-1}>
      <h1>No such page</h1>
      <p class="empty">
        There is nothing at this address. <Link to="/">Go to Overview</Link>
      </p>
    </main>
  );
}

function Inside({ page }: { page: string }) {
  useChannel("overview"); // always wanted: coming back to Overview shows figures at once
  const link = store.link.value;
  const job = JOB_PATH.exec(page)?.[1];
  return (
    <div class={link === "stale" || link === "offline" ? "old-data" : ""}>
      <TopBar />
      {page === "/" ? <OverviewPage /> : job ? <JobPage key={job} id={job} /> : <NotFound />}
    </div>
  );
}

function App() {
  const page = path.value;
  const first = useRef(true);
  useEffect(() => {
    document.title = `${titleOf(page)} · RAVEN`;
    // A new page starts at its top for keyboards and screen readers too.
    if (!first.current) document.getElementById("main")?.focus({ preventScroll: true });
    first.current = false;
  }, [page]);
  if (page === "/login") return <LoginPage onSignedIn={() => store.start()} />;
  if (page === "/setup") return <SetupPage onSignedIn={() => store.start()} />;
  return <Inside page={page} />;
}

effect(() => {
  if (store.link.value === "signed-out") askToSignIn();
});
if (path.value !== "/login" && path.value !== "/setup") store.start();
render(<App />, document.getElementById("app") as HTMLElement);
