"""The lab's answers as the report needs them: the only Python that knows raven-netlab's JSON."""

STATES = {"outage": "gone", "reset": "connections reset"}


def counters(stats):
    """{client: (bytes up, bytes down)} since the lab began. Up counts what the client sent, also what was
    lost later; down what it received."""
    return {link["link"]: (link["up"]["bytes_in"], link["down"]["bytes_out"]) for link in stats["links"]}


def lab_start(snapshot):
    """The lab's start on the clock of the snapshot's own t."""
    return snapshot["t"] - snapshot["links"]["since_start_s"]


def spans(events, last_t):
    """[(client, kind, from, until)] on the lab's clock; what has not ended yet ends at last_t."""
    found, open_states, phases = [], {}, {}
    for event in sorted(events, key=lambda event: event["t"]):
        client, kind, moment = event["link"], event["event"], event["t"]
        state, _, edge = kind.partition("_")
        if state in STATES and edge == "begin":
            open_states[client, state] = moment
        elif state in STATES and edge == "end" and (client, state) in open_states:
            found.append((client, STATES[state], open_states.pop((client, state)), moment))
        elif kind == "phase":
            if client in phases:
                found.append((client, *phases.pop(client), moment))
            if "=" in event["text"]:
                phases[client] = (event["text"].split(": ")[-1].strip(), moment)
    found += [(client, STATES[state], moment, last_t) for (client, state), moment in open_states.items()]
    found += [(client, *phase, last_t) for client, phase in phases.items()]
    return found


def outages(answer, first, last, begin, end):
    """[{clients, kind, at, seconds}] that begin within begin … end, in order; what happens to several
    links at one time is one. first, last: snapshots, on the clock of begin and end."""
    started, merged = lab_start(first), {}
    for client, kind, since, until in spans(answer["events"], last["links"]["since_start_s"]):
        key = (kind, round(since, 1), round(until, 1))
        merged.setdefault(key, {"clients": [], "kind": kind, "at": since + started, "seconds": until - since})
        merged[key]["clients"].append(client)
    return sorted((outage for outage in merged.values() if begin <= outage["at"] < end),
                  key=lambda outage: outage["at"])
