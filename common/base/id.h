/* Identifiers: prefix + '_' + ULID (48 bits of wall ms, 80 random bits, Crockford base 32). */
#ifndef RAVEN_COMMON_BASE_ID_H
#define RAVEN_COMMON_BASE_ID_H

#include <stdbool.h>

#define ID_BYTES 32 /* "job_01JD0000000000000000000000" and the NUL, with one to spare */

/* prefix: three lower-case letters, for example "job". Thread-safe. */
void id_make(char ret[ID_BYTES], const char *prefix);
/* True for exactly prefix + '_' + 26 base-32 characters. Text may be hostile. */
bool id_is_valid(const char *text, const char *prefix);

#endif
