/* Lookups over end_reasons.def. Plain functions, any thread. Surprising: an unknown number, sent by
 * a newer peer, allows a reconnect, because refusing for ever is worse than one more try. */
#include "common/wire/wire.h"

const char *end_reason_text(enum end_reason reason)
{
    switch (reason) {
#define END_REASON(name, number, id, text, reconnect)                                              \
    case END_##name:                                                                               \
        return text;
#include "common/wire/end_reasons.def"
#undef END_REASON
    }
    return "unknown reason";
}

const char *end_reason_name(enum end_reason reason)
{
    switch (reason) {
#define END_REASON(name, number, id, text, reconnect)                                              \
    case END_##name:                                                                               \
        return id;
#include "common/wire/end_reasons.def"
#undef END_REASON
    }
    return "unknown";
}

bool end_reason_may_reconnect(enum end_reason reason)
{
    switch (reason) {
#define END_REASON(name, number, id, text, reconnect)                                              \
    case END_##name:                                                                               \
        return reconnect;
#include "common/wire/end_reasons.def"
#undef END_REASON
    }
    return true;
}
