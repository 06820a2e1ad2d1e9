/* `raven-coordinator verify`: replays every job below a data directory. */
#ifndef RAVEN_COORDINATOR_VERIFY_COMMAND_H
#define RAVEN_COORDINATOR_VERIFY_COMMAND_H

#include <stdbool.h>

/* Prints one line per job (or one JSON object). Exit status: 0 all good, 65 damage, 1 cannot read.
 */
int verify_command(const char *data_dir, bool json);

#endif
