/* The agent's settings: flags over environment (RAVEN_…) over file over default, all from
 * options.def. Parsed in main before any thread starts. */
#ifndef RAVEN_AGENT_CONFIG_H
#define RAVEN_AGENT_CONFIG_H

#include "common/base/buffer.h"
#include "common/base/status.h"

#include <stdint.h>

enum config_origin { CONFIG_DEFAULT, CONFIG_FILE, CONFIG_ENVIRONMENT, CONFIG_FLAG };

struct config {
#define OPTION_TEXT(name, value, fallback, bytes, in_file, help)                                   \
    char name[bytes];                                                                              \
    enum config_origin name##_origin;
#define OPTION_U64(name, value, fallback, smallest, largest, help)                                 \
    uint64_t name;                                                                                 \
    enum config_origin name##_origin;
#include "agent/options.def"
#undef OPTION_TEXT
#undef OPTION_U64
};

void config_init(struct config *config); /* every default */

/* A value from origin is kept unless a stronger origin has set the option already.
 * STATUS_NOT_FOUND: no such option; STATUS_INVALID: a value out of its range. */
enum status config_set(struct config *config, const char *name, const char *value,
                       enum config_origin origin, struct error *err) MUST_CHECK;
/* config_set with a flag's name without its dashes, for example "cpu-percent". */
enum status config_set_flag(struct config *config, const char *flag, const char *value,
                            struct error *err) MUST_CHECK;
enum status config_read_environment(struct config *config, struct error *err) MUST_CHECK;
/* Lines "key = value", '#' comments, empty lines. err names file, line and key. */
enum status config_read_text(struct config *config, const char *path, const char *text,
                             size_t bytes, struct error *err) MUST_CHECK;
/* <state_dir>/agent.conf; a missing file is fine. */
enum status config_read_file(struct config *config, struct error *err) MUST_CHECK;
/* Fills state_dir in when nobody set it. */
enum status config_find_state_dir(struct config *config, struct error *err) MUST_CHECK;

/* Writes <state_dir>/agent.conf: every key with its help; those at their default, or set for this
 * run by the environment, as comments. */
enum status config_save(const struct config *config, struct error *err) MUST_CHECK;
/* The options as lines for --help. */
enum status config_help(struct buffer *ret) MUST_CHECK;

#endif
