/* `raven-netlab run`: starts a lab as a child in its own process namespace and waits for it. */
#ifndef RAVEN_NETLAB_RUN_H
#define RAVEN_NETLAB_RUN_H

#include "tests/netlab/lab.h"

/* The exit status of raven-netlab: the lab's, or of a failure that has been printed. */
int run_lab(struct lab_options *options);

#endif
