/* Inside coordinator/auth: random text for browser sessions. Any thread. */
#ifndef RAVEN_COORDINATOR_AUTH_SECRET_H
#define RAVEN_COORDINATOR_AUTH_SECRET_H

#include "coordinator/auth/auth.h"

#define SECRET_BASE62_CHARACTERS 43 /* 62^43 > 2^256 */

void secret_random_base62(char ret[SECRET_BASE62_CHARACTERS + 1]);

#endif
