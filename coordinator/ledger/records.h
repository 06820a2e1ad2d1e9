/* The bodies of ledger records. Fixed little-endian layouts (records.c), pinned by golden files. */
#ifndef RAVEN_COORDINATOR_LEDGER_RECORDS_H
#define RAVEN_COORDINATOR_LEDGER_RECORDS_H

#include "common/base/buffer.h"
#include "common/base/id.h"
#include "common/base/status.h"

#include <stdint.h>

#define LEDGER_TENSORS_MAX 4096

/* An accepted update. factors: one clip factor in (0, 1] per parameter tensor, in layout order: the
 * record states exactly what is applied, so replay needs no robust statistics. */
struct ledger_update {
    char volunteer[ID_BYTES];
    char lease[ID_BYTES];
    uint64_t base_version;
    uint64_t samples;          /* trained by the lease */
    uint64_t samples_position; /* job's global sample count after this update */
    float weight;              /* alpha * staleness weight */
    float loss;                /* mean training loss of the lease, nats */
    uint32_t staleness;        /* versions */
    uint32_t downlink_k;       /* k of the delta that the commit makes */
    uint32_t downlink_values;  /* its value coder, enum codec_values */
    uint32_t factor_count;
    const float *factors;
    const uint8_t *payload; /* common/codec */
    uint64_t payload_bytes;
};

struct ledger_commit {
    uint64_t version;
    uint64_t update_sequence; /* the (last) update record it contains */
    uint64_t hash;            /* of w(version) */
};

struct ledger_verdict {
    char volunteer[ID_BYTES];
    char lease[ID_BYTES];
    char verdict[16]; /* "stale", "refused" */
    char reason[161];
};

enum status ledger_update_write(const struct ledger_update *update, struct buffer *ret) MUST_CHECK;
/* factors points into factors_space[LEDGER_TENSORS_MAX], payload into body. */
enum status ledger_update_read(const uint8_t *body, size_t bytes, float *factors_space,
                               struct ledger_update *ret) MUST_CHECK;
enum status ledger_commit_write(const struct ledger_commit *commit, struct buffer *ret) MUST_CHECK;
enum status ledger_commit_read(const uint8_t *body, size_t bytes,
                               struct ledger_commit *ret) MUST_CHECK;
enum status ledger_verdict_write(const struct ledger_verdict *verdict,
                                 struct buffer *ret) MUST_CHECK;
enum status ledger_verdict_read(const uint8_t *body, size_t bytes,
                                struct ledger_verdict *ret) MUST_CHECK;

#endif
