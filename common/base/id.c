/* Identifiers: prefix, '_', ULID. Any thread. Surprising: two ids of one millisecond are not
 * ordered (80 random bits each), so nothing may rely on ids for order within a millisecond. */
#include "common/base/id.h"

#include "common/base/clock.h"
#include "common/base/rng.h"

#include <stdint.h>
#include <string.h>

#define PREFIX_CHARACTERS 3
#define ULID_CHARACTERS 26

static const char alphabet[] = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";

_Static_assert(PREFIX_CHARACTERS + 1 + ULID_CHARACTERS < ID_BYTES, "an id fits ID_BYTES");

void id_make(char ret[ID_BYTES], const char *prefix)
{
    uint8_t random[10];
    random_bytes(random, sizeof random);
    uint64_t high = 0, low = 0; /* two halves of the 80 random bits, 40 bits = 8 characters each */
    for (int i = 0; i < 5; i++) {
        high = high << 8 | random[i];
        low = low << 8 | random[5 + i];
    }
    uint64_t time_ms = (uint64_t)clock_wall_ms() & UINT64_C(0xFFFFFFFFFFFF);

    char *out = ret;
    memcpy(out, prefix, PREFIX_CHARACTERS);
    out[PREFIX_CHARACTERS] = '_';
    out += PREFIX_CHARACTERS + 1;
    for (int i = 0; i < 10; i++)
        out[i] = alphabet[time_ms >> (5 * (9 - i)) & 31];
    for (int i = 0; i < 8; i++) {
        out[10 + i] = alphabet[high >> (5 * (7 - i)) & 31];
        out[18 + i] = alphabet[low >> (5 * (7 - i)) & 31];
    }
    out[ULID_CHARACTERS] = '\0';
}

bool id_is_valid(const char *text, const char *prefix)
{
    if (strnlen(text, ID_BYTES) != PREFIX_CHARACTERS + 1 + ULID_CHARACTERS)
        return false;
    if (memcmp(text, prefix, PREFIX_CHARACTERS) != 0 || text[PREFIX_CHARACTERS] != '_')
        return false;
    text += PREFIX_CHARACTERS + 1;
    return strspn(text, alphabet) == ULID_CHARACTERS && text[0] <= '7'; /* 128 bits in 26 × 5 */
}
