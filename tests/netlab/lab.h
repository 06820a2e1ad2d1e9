/* The lab itself: its namespaces and devices, the command that runs in it, and the loop that moves
 * the packets. Runs as init (process 1) of the lab's process namespace: when it ends, by whatever
 * cause, the kernel ends every process of the lab, and with the last holder go namespaces and
 * devices. */
#ifndef RAVEN_NETLAB_LAB_H
#define RAVEN_NETLAB_LAB_H

#include "tests/netlab/profile.h"

#include <signal.h>

#define EXIT_SKIP 77 /* this machine cannot do it */

struct lab_options {
    struct plan plans[LINKS_MAX];
    size_t plan_count;
    const char *control_path; /* NULL: none of its own */
    uint64_t seed;
    char **command;
    sigset_t command_mask; /* the signals that the command finds blocked */
};

/* In the child, process 1. The exit status to end with: the command's, 128 + its signal, or of a
 * failure that has been printed. */
int lab_main(const struct lab_options *options);

#endif
