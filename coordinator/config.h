/* The coordinator's settings: one table (options.def) that parses flags and RAVEN_… environment
 * variables and prints the help. Order: flag, environment, default. Used by main only. */
#ifndef RAVEN_COORDINATOR_CONFIG_H
#define RAVEN_COORDINATOR_CONFIG_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum config_command { COMMAND_SERVE, COMMAND_VERIFY, COMMAND_HELP, COMMAND_VERSION };

struct config {
    enum config_command command;
#define OPTION_TEXT(name, flag, value, fallback, help) const char *name;
#define OPTION_U64(name, flag, value, fallback, min, max, help) uint64_t name;
#define OPTION_FLAG(name, flag, help) bool name;
#include "coordinator/options.def"
#undef OPTION_TEXT
#undef OPTION_U64
#undef OPTION_FLAG
};

/* Texts in ret point into argv, the environment or static memory. err: the sentence to print. */
enum status config_parse(int argc, char **argv, struct config *ret, struct error *err) MUST_CHECK;
void config_print_help(void);

#endif
