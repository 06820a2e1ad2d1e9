"""What ddp.py and diloco.py share: arguments, rendezvous, the watchdog, the result.

Every rank is one process. All ranks see the same folder --state, through which they agree on what
must not cost network traffic: when to begin (the file "go"), which round is the last ("last"), who
has failed (the results). Each prints one progress line per second on standard error and exactly one
JSON line on standard output, whatever happens to it: a thread of its own watches the clock, for a
rank that waits inside gloo cannot even handle a signal.
"""
import argparse
import datetime
import json
import os
import statistics
import sys
import threading
import time

import torch
import torch.distributed as dist


def now():
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def arguments(description):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--state", required=True, help="folder that all ranks share, empty at the start")
    parser.add_argument("--seconds", type=float, default=90, help="length of the measurement")
    parser.add_argument("--seconds-max", type=float, default=0,
                        help="give up then if not one round is complete (default: 5 times --seconds)")
    parser.add_argument("--timeout", type=float, default=120,
                        help="of gloo, seconds; PyTorch's own default is 30 minutes, longer than any "
                             "bench would wait (default 120)")
    parser.add_argument("--parameters", type=int, default=30_800_000)
    parser.add_argument("--step-ms", type=float, default=25)
    parser.add_argument("--batch", type=int, default=8, help="samples of one step")
    parser.add_argument("--wait-for-go", action="store_true",
                        help="begin when the file go appears in --state; else at once")
    return parser


class Peer:
    """One rank's run: join, then begin, then for each round step_done and round_done."""

    def __init__(self, system, options, settings=None):
        self.system, self.options = system, options
        self.settings = settings or {}
        self.rank, self.world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.began = 0.0        # CLOCK_BOOTTIME, the clock of the whole bench
        self.round_began = 0.0
        self.steps = self.steps_counted = 0  # computed; of these in complete rounds
        self.rounds = []        # [began, ended], on that clock
        self.phase = "joining"
        self.lock = threading.Lock()
        self.finished = False
        torch.set_num_threads(1)
        os.makedirs(options.state, exist_ok=True)
        threading.Thread(target=self._watch, daemon=True).start()

    def join(self):
        dist.init_process_group("gloo", init_method="env://",
                                timeout=datetime.timedelta(seconds=self.options.timeout))

    def begin(self):
        """Every rank has the same parameters: the measurement begins, for all of them at one time."""
        dist.barrier()
        self._touch(f"ready.{self.rank}")
        if self.options.wait_for_go:
            self.phase = "waiting for go"
            while not os.path.exists(self._path("go")):
                time.sleep(0.02)
        else:
            while not all(os.path.exists(self._path(f"ready.{i}")) for i in range(self.world)):
                time.sleep(0.02)
        self.began = self.round_began = now()
        self.phase = "training"

    def round_done(self):
        """False: that was the last one. Rank 0 decides, through the folder, so that all agree; whoever
        is earlier waits for it here instead of inside the next all-reduce, which costs nobody time."""
        moment = now()
        self.rounds.append([self.round_began, moment])
        self.steps_counted = self.steps
        self.round_began = moment
        here = len(self.rounds)
        if self.rank == 0:
            typical = statistics.median(end - start for start, end in self.rounds)
            going = moment - self.began + typical / 2 < self.options.seconds
            self._touch("decision", f"{here} {int(going)}")
            return going
        waited = 0
        while True:
            about, going = self._decision()
            if about >= here:
                return bool(going)
            time.sleep(0.002)
            waited += 1
            if waited % 500 == 0 and self._others_failed():
                return True  # gloo will notice, in the next round

    def _decision(self):
        try:
            with open(self._path("decision"), encoding="ascii") as file:
                about, going = file.read().split()
                return int(about), int(going)
        except FileNotFoundError:
            return 0, 1

    def run(self, body):
        """Runs body(); ends the process with the result in any case."""
        try:
            body()
            self._end("completed", None)
        except KeyboardInterrupt:
            self._end("interrupted", "interrupted")
        except Exception as error:  # the failure is the result
            text = " ".join(str(error).split())
            self._end("died", f"{type(error).__name__}: {text}"[:400])

    def _path(self, name):
        return os.path.join(self.options.state, name)

    def _touch(self, name, text=""):
        with open(self._path(name + ".part"), "w", encoding="ascii") as file:
            file.write(text)
        os.rename(self._path(name + ".part"), self._path(name))

    def _others_failed(self):
        for rank in range(self.world):
            try:
                with open(self._path(f"result.{rank}"), encoding="utf-8") as file:
                    if json.load(file)["state"] != "completed":
                        return True
            except (OSError, ValueError, KeyError):
                pass
        return False

    def _watch(self):
        joined = now()
        options = self.options
        limit = options.seconds_max or 5 * options.seconds
        while True:
            time.sleep(1)
            moment = now()
            if not self.began:
                if self.phase == "joining" and moment - joined > options.timeout + 300:
                    self._end("hung", "did not start: rendezvous or first broadcast never ended")
                continue
            elapsed = moment - self.began
            waiting = moment - self.round_began
            print(f"{self.system} rank {self.rank}: {elapsed:.0f} s, {self.steps} steps, "
                  f"{len(self.rounds)} rounds, {self.phase}, {waiting:.0f} s in this round",
                  file=sys.stderr, flush=True)
            if elapsed >= options.seconds and self._others_failed():
                self._end("hung", "still waiting for a peer that has failed")
            if elapsed >= limit:
                self._end("hung" if waiting > options.timeout else "out of time",
                          f"{self.phase} since {waiting:.0f} s when the time was up")

    def _end(self, state, failure):
        with self.lock:
            if self.finished:
                time.sleep(60)  # the other thread is about to end the process
            self.finished = True
        moment = now()
        options = self.options
        # Complete rounds only, or part of a long round would count as nothing or as too much. What
        # has failed does not train any more: its time runs on to the end of the measurement.
        if state == "completed":
            wall, steps = self.rounds[-1][1] - self.began, self.steps_counted
        else:
            wall = max(moment - self.began, options.seconds) if self.began else options.seconds
            steps = self.steps
        result = {
            "system": self.system, "rank": self.rank, "workers": self.world, "state": state,
            "failure": failure, "failed_after_seconds": moment - self.began if failure and self.began else None,
            "steps": steps, "rounds": len(self.rounds), "wall_seconds": wall,
            "utilisation": steps * options.step_ms / 1000 / wall,
            "samples_per_second": steps * options.batch / wall,
            "timeouts": int(bool(failure) and "imed out" in failure),
            "began": self.began, "round_times": self.rounds,
            "parameters": options.parameters, "step_ms": options.step_ms, **self.settings,
        }
        line = json.dumps(result)
        try:
            self._touch(f"result.{self.rank}", line)
        except OSError as error:
            print(f"{self.system} rank {self.rank}: {error}", file=sys.stderr)
        print(line, flush=True)
        if state == "completed":
            self._linger()
        os._exit(0)  # gloo's threads may be stuck; leaving politely would wait for them

    def _linger(self):
        """Closing the connections early could cut off a rank that is still in the last all-reduce."""
        until = now() + 60
        while now() < until and not self._others_failed():
            if all(os.path.exists(self._path(f"result.{i}")) for i in range(self.world)):
                return
            time.sleep(0.1)
