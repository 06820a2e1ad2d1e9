/* What this machine tells a coordinator about itself: processor, threads, memory. Never a user or
 * host name. */
#ifndef RAVEN_AGENT_CONTROL_MACHINE_H
#define RAVEN_AGENT_CONTROL_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

#define MACHINE_CPU_BYTES 97

struct machine {
    char cpu[MACHINE_CPU_BYTES]; /* "unknown" when the system does not say */
    unsigned threads;            /* that this process may use, ≥ 1 */
    uint64_t memory_bytes;
};

void machine_describe(struct machine *ret);
/* The processor's name in the text of /proc/cpuinfo; false when it is not there. */
bool machine_cpu_name(const char *cpuinfo, char ret[MACHINE_CPU_BYTES]);

#endif
