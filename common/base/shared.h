/* Immutable bytes shared by several owners (a delta that goes to every agent, a dashboard frame):
 * one allocation, an atomic reference count, freed by the last unref. Any thread. */
#ifndef RAVEN_COMMON_BASE_SHARED_H
#define RAVEN_COMMON_BASE_SHARED_H

#include <stddef.h>
#include <stdint.h>

struct shared;

struct shared *shared_create(const void *data, size_t bytes);   /* copies; NULL: out of memory */
struct shared *shared_create_take(uint8_t *data, size_t bytes); /* takes malloc'ed data */
struct shared *shared_ref(struct shared *shared);
void shared_unref(struct shared *shared); /* NULL is fine */
const uint8_t *shared_data(const struct shared *shared);
size_t shared_bytes(const struct shared *shared);

#endif
