"""Turns what the runs of links.sh left behind into one comparison: report.py FOLDER [--json].

FOLDER/settings.json names the profiles and systems; FOLDER/PROFILE/SYSTEM/ holds begin.json, end.json
(moment and the links' counters), events.json, and either state/result.N (one per rank) or timeline.jsonl,
job.begin.json, job.end.json and verify.json (RAVEN). A file named failure, or a missing file, is a
result too. All times are seconds of CLOCK_BOOTTIME.
"""
import json
import os
import statistics
import sys

import lab_format

NAMES = {"raven": "RAVEN", "ddp": "PyTorch DDP, gloo"}
WENT_ON_S = 1.5  # RAVEN is sampled twice a second; shorter pauses than this cannot be told from none
AFTER_S = 30     # a stall that begins within this time after an outage is put down to it


def load(*path):
    try:
        with open(os.path.join(*path), encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return None


def load_text(*path):
    try:
        with open(os.path.join(*path), encoding="utf-8", errors="replace") as file:
            return " ".join(file.read().split())[:600] or None
    except OSError:
        return None


def load_lines(*path):
    lines = []
    try:
        with open(os.path.join(*path), encoding="utf-8") as file:
            for line in file:
                try:
                    lines.append(json.loads(line))
                except ValueError:
                    pass  # an agent was just writing, or just gone
    except OSError:
        pass
    return lines


def traffic(folder):
    """Bytes per client between the two snapshots: (up, down) averages, or None."""
    begin, end = load(folder, "begin.json"), load(folder, "end.json")
    if not begin or not end:
        return {}
    first, last = lab_format.counters(begin["links"]), lab_format.counters(end["links"])
    moved = [(last[name][0] - first[name][0], last[name][1] - first[name][1])
             for name in last if name in first]
    if not moved:
        return {}
    return {"bytes_up_per_worker": statistics.mean(up for up, _ in moved),
            "bytes_down_per_worker": statistics.mean(down for _, down in moved),
            "window": [begin["t"], end["t"]]}


def outages_of(folder, begin, end):
    first, last = load(folder, "begin.json"), load(folder, "end.json")
    events = load(folder, "events.json")
    return lab_format.outages(events, first, last, begin, end) if first and last and events else []


# ---- peers --------------------------------------------------------------------------------------

def rank_verdict(result, outage, following, typical):
    """What one rank did about an outage, and the seconds it lost; following: the next outage or None."""
    ended = outage["at"] + outage["seconds"]
    failed = result["began"] + result["failed_after_seconds"] if result["failure"] else None
    if failed is not None and failed < outage["at"]:
        return "was dead already", 0.0
    for start, end in result["round_times"]:
        if start < ended and end > outage["at"]:
            if typical is None:
                return f"its round took {end - start:.1f} s, no undisturbed round to compare with", 0.0
            late = end - start - typical
            return ("went on", 0.0) if late < 0.5 else (f"stalled {late:.1f} s", late)
    if failed is None:
        return "came between rounds, went on", 0.0
    lost = failed - outage["at"]
    if following and following["at"] < failed:
        return "its round never ended", lost
    return f"{result['state']}, {lost:.1f} s later: {result['failure'][:160]}", lost


def undisturbed(results, outages):
    lengths = [end - start for result in results for start, end in result["round_times"]
               if not any(start < o["at"] + o["seconds"] and end > o["at"] for o in outages)]
    return statistics.median(lengths) if lengths else None


def peer_run(folder, settings):
    workers = settings["workers"]
    results = [load(folder, "state", f"result.{rank}") for rank in range(workers)]
    known = [result for result in results if result]
    report = {"state": "completed", "steps": 0, "rounds": 0, "utilisation": 0.0, "samples_per_second": 0.0,
              "failure": load_text(folder, "failure"), **traffic(folder)}
    if len(known) < workers and not report["failure"]:
        report["failure"] = f"{workers - len(known)} of {workers} ranks left no result"
    if report["failure"]:
        report["state"] = "failed"
    if not known:
        return report
    failed = sorted((result for result in known if result["failure"]), key=lambda r: r["failed_after_seconds"] or 0)
    if failed:
        report["state"], report["failure"] = failed[0]["state"], failed[0]["failure"]
        report["failed_after_seconds"] = failed[0]["failed_after_seconds"]
    wall = max(result["wall_seconds"] for result in known)
    report["steps"] = sum(result["steps"] for result in known)
    report["rounds"] = min(result["rounds"] for result in known)
    report["wall_seconds"] = wall
    report["timeouts"] = sum(result["timeouts"] for result in known)
    report["utilisation"] = report["steps"] * settings["step_ms"] / 1000 / (wall * workers)
    report["samples_per_second"] = report["steps"] * settings["batch"] / wall
    began = min(result["began"] for result in known)
    outages = outages_of(folder, began, began + wall)
    typical = undisturbed(known, outages)
    report["round_seconds_undisturbed"] = typical
    report["outages"] = []
    for outage, following in zip(outages, outages[1:] + [None]):
        verdicts = [rank_verdict(result, outage, following, typical) for result in known]
        text, lost = max(verdicts, key=lambda verdict: verdict[1])
        report["outages"].append({**outage, "after_seconds": outage["at"] - began,
                                  "verdict": text, "stalled_seconds": lost})
    return report


# ---- RAVEN --------------------------------------------------------------------------------------

def longest_pause(points, since, until):
    """Longest time without a new step in points [(t, steps)] that touches since … until."""
    longest, last_change, steps = 0.0, None, None
    for moment, value in points:
        if steps is None or value != steps:
            if last_change is not None and moment > since and last_change < until:
                longest = max(longest, moment - max(last_change, since))
            last_change, steps = moment, value
    if last_change is not None and last_change < until and points[-1][0] > since:
        longest = max(longest, points[-1][0] - max(last_change, since))
    return longest


def agent_points(timeline, client):
    points = []
    for line in timeline:
        status = line["agents"].get(client)
        if status and "steps_done" in status:
            points.append((line["t"], status["steps_done"]))
    return points


def agents_last(timeline):
    last = {}
    for line in timeline:
        last.update({client: status for client, status in line["agents"].items()
                     if status and "steps_done" in status})
    return last


def ledger(folder, timeline):
    """Nothing lost, nothing twice: what agents were told (by their last sample; they go on sending until
    they stop) against what the replayed ledger holds."""
    verify, last = load(folder, "verify.json"), agents_last(timeline)
    if not verify or not verify.get("jobs"):
        return {"verified": None}
    told = {name: sum(status.get("updates_" + name) or 0 for status in last.values())
            for name in ("applied", "stale", "refused", "waiting")}
    applied = sum(job["updates"] for job in verify["jobs"])
    return {"verified": verify.get("ledger_verified"), "acknowledged": told["applied"], "stale": told["stale"],
            "refused": told["refused"], "waiting": told["waiting"], "applied": applied,
            "acknowledged_but_lost": max(0, told["applied"] - applied),
            "applied_twice": sum(job["duplicates"] for job in verify["jobs"])}


def raven_run(folder, settings):
    timeline = load_lines(folder, "timeline.jsonl")
    report = {"state": "completed", "steps": 0, "utilisation": 0.0, "samples_per_second": 0.0,
              "failure": load_text(folder, "failure"), **traffic(folder)}
    if report["failure"] or len(timeline) < 2:
        report["state"] = "failed"
        report["failure"] = report["failure"] or "the run left no time line"
        return report
    clients = sorted(agents_last(timeline))
    series = {client: agent_points(timeline, client) for client in clients}
    wall = timeline[-1]["t"] - timeline[0]["t"]
    done = {client: points[-1][1] - points[0][1] for client, points in series.items()}
    report["steps"], report["wall_seconds"] = sum(done.values()), wall
    report["utilisation_per_worker"] = {c: done[c] * settings["step_ms"] / 1000 / wall for c in clients}
    report["utilisation"] = report["steps"] * settings["step_ms"] / 1000 / (wall * settings["workers"])
    report["samples_per_second"] = report["steps"] * settings["batch"] / wall
    first, last = (load(folder, f"job.{name}.json") or {} for name in ("begin", "end"))
    first, last = first.get("progress") or {}, last.get("progress") or {}
    if first and last:
        report["updates_applied"] = last["updates_applied"] - first["updates_applied"]
        report["samples_applied_per_second"] = (last["samples"] - first["samples"]) / wall
    report["ledger"] = ledger(folder, timeline)
    report["lease_steps"] = {c: s.get("lease_steps") for c, s in sorted(agents_last(timeline).items())}
    report["last_errors"] = sorted({s["last_error"] for s in agents_last(timeline).values() if s.get("last_error")})
    report["outages"] = []
    begin, end = timeline[0]["t"], timeline[-1]["t"]
    for outage in outages_of(folder, begin, end):
        until = outage["at"] + outage["seconds"] + AFTER_S
        hit = [client for client in outage["clients"] if client in series] or clients
        pause = max((longest_pause(series[client], outage["at"], until) for client in hit), default=0.0)
        verdict = "went on" if pause < WENT_ON_S else f"stalled {pause:.1f} s"
        report["outages"].append({**outage, "after_seconds": outage["at"] - begin,
                                  "verdict": verdict,
                                  "stalled_seconds": pause if pause >= WENT_ON_S else 0.0})
    return report


# ---- output -------------------------------------------------------------------------------------

def system_name(system):
    if system.startswith("diloco-"):
        return f"DiLoCo, dense, H = {system[7:]}"
    return NAMES.get(system, system)


def megabytes(value):
    return "–" if value is None else f"{value / 1e6:,.1f}"


def detail(run):
    if run["state"] not in ("completed",):
        after = run.get("failed_after_seconds")
        return f"{run['state']}{f' after {after:.0f} s' if after is not None else ''}: {run['failure'][:140]}"
    if "updates_applied" in run:
        return f"{run['updates_applied']} updates applied"
    typical = run.get("round_seconds_undisturbed")
    return f"{run['rounds']} all-reduces" + (f" of {typical:.1f} s" if typical else "")


def print_outages(run):
    outages = run.get("outages") or []
    for outage in outages[:12]:
        print(f"      at {outage['after_seconds']:6.1f} s  {' '.join(outage['clients'])} {outage['kind']} "
              f"for {outage['seconds']:.1f} s: {outage['verdict']}")
    if len(outages) > 12:
        print(f"      … and {len(outages) - 12} more; in all stalled "
              f"{sum(outage['stalled_seconds'] for outage in outages):.1f} s (rounds may be counted twice)")


def print_ledger(run):
    book = run.get("ledger")
    if not book:
        return
    if book["verified"] is None:
        print("    ledger: could not be replayed")
        return
    print(f"    ledger: {book['acknowledged']} updates acknowledged to the agents by the last sample, {book['waiting']} "
          f"under way, {book['stale']} too old, {book['refused']} refused; {book['applied']} applied after the agents "
          f"had left;")
    print(f"            acknowledged but lost {book['acknowledged_but_lost']}, applied twice {book['applied_twice']}; "
          f"replay {'agrees' if book['verified'] else 'DISAGREES'}")


def print_table(settings, profiles):
    print(f"{settings['workers']} workers, {settings['parameters']:,} fp32 parameters, {settings['step_ms']} ms of "
          f"compute per step, batch {settings['batch']}.")
    for note in settings["notes"]:
        print(f"  - {note}")
    for profile, runs in profiles.items():
        print(f"\n{profile}")
        print(f"  {'system':<24}{'compute used':>13}{'samples/s':>11}{'MB up':>10}{'MB down':>10}{'in s':>7}  ")
        for system, run in runs.items():
            wall = run.get("wall_seconds")
            print(f"  {system_name(system):<24}{100 * run['utilisation']:>11.2f} %{run['samples_per_second']:>11.1f}"
                  f"{megabytes(run.get('bytes_up_per_worker')):>10}{megabytes(run.get('bytes_down_per_worker')):>10}"
                  f"{'–' if wall is None else f'{wall:.0f}':>7}  {detail(run)}")
        for system, run in runs.items():
            if run.get("outages"):
                print(f"    {system_name(system)}, at each outage:")
                print_outages(run)
            print_ledger(run)
    print("\nMB: bytes that crossed each worker's link in the measurement, mean over the workers.")


def main():
    folder = sys.argv[1]
    settings = load(folder, "settings.json")
    profiles = {}
    for profile in settings["profiles"]:
        profiles[profile] = {
            system: (raven_run if system == "raven" else peer_run)(os.path.join(folder, profile, system), settings)
            for system in settings["systems"]}
    if "--json" in sys.argv:
        print(json.dumps({**settings, "results": profiles}))
    else:
        print_table(settings, profiles)


main()
