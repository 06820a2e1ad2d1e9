/* Kinds of line (profiles.def), their scripts of timed phases, and the --links argument. Pure. */
#ifndef RAVEN_NETLAB_PROFILE_H
#define RAVEN_NETLAB_PROFILE_H

#include "tests/netlab/shape.h"

#include <stdbool.h>
#include <stddef.h>

#define PHASES_MAX 16
#define PHASE_SETTINGS_BYTES 128
#define PROFILE_NAME_BYTES 24
#define LINKS_MAX 64 /* two devices and two queues each */
#define LINK_NUMBER_MAX 250

struct phase {
    int64_t duration_ms;
    bool down;
    bool reset;
    char settings[PHASE_SETTINGS_BYTES]; /* key=value, one blank between them */
};

struct script {
    struct phase phases[PHASES_MAX];
    size_t phase_count; /* 0: always the same */
    int64_t cycle_ms;
};

/* What a link starts with. */
struct plan {
    unsigned number; /* c<number>, 10.77.<number>.x */
    char profile[PROFILE_NAME_BYTES];
    struct shape base[WAY_COUNT];
    struct script script;
};

/* Fills all of ret but its number. */
enum status profile_find(const char *name, struct plan *ret, struct error *err) MUST_CHECK;
void profile_print_all(FILE *out);

/* "40s; 20s rate=10% burst=3%/8": base is what its settings are checked against. "" or "none": no
 * phases. */
enum status script_parse(const char *text, const struct shape base[WAY_COUNT], struct script *ret,
                         struct error *err) MUST_CHECK;
/* The phase at a time since the lab's start, and when it ends; phase_count > 0. */
size_t script_phase_at(const struct script *script, int64_t since_start_ms, int64_t *ret_end_ms);
/* shapes = base with the phase's settings. */
enum status phase_apply(const struct phase *phase, const struct shape base[WAY_COUNT],
                        struct shape shapes[WAY_COUNT], struct error *err) MUST_CHECK;

/* "c1:cable,c2:home50,rate-up=5": at most LINKS_MAX plans into ret. */
enum status plans_parse(const char *links, struct plan ret[LINKS_MAX], size_t *ret_count,
                        struct error *err) MUST_CHECK;

#endif
