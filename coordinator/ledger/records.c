/* The bodies of ledger records to and from bytes. Any thread, no I/O. Surprising: reading is as
 * strict as it can be (exact length, zero padding, factors in range), since a body that passed the
 * ledger's checksums and still does not fit was written by a faulty program and must not be
 * applied.
 *
 * All integers and floats little-endian, texts NUL-terminated and padded with NULs to their size.
 * Every body begins with its own version (u32); a changed layout gets the next one.
 *
 * Update (LEDGER_UPDATE), 128 bytes, then factors, then payload, nothing after it:
 *    0   4  version = 2 (1 had no value coder and payloads of the update code's version 1)
 *    4   4  number of factors, at most 4096
 *    8  32  volunteer
 *   40  32  lease
 *   72   8  base version
 *   80   8  samples trained by the lease
 *   88   8  the job's sample count after this update
 *   96   4  weight, fp32: outer rate times staleness weight, finite, at least 0
 *  100   4  loss, fp32, nats
 *  104   4  staleness, versions
 *  108   4  k of the delta that the commit makes
 *  112   8  payload length
 *  120   4  value coder of that delta, 1 … 5
 *  124   4  zero
 *  128      factors, fp32, each in (0, 1]
 *           payload (common/codec)
 *
 * Commit (LEDGER_COMMIT), 32 bytes:
 *    0   4  version = 1        4   4  zero
 *    8   8  model version     16   8  sequence of the last update in it     24   8  hash(w)
 *
 * Verdict (LEDGER_VERDICT), 260 bytes:
 *    0   4  version = 1        4  32  volunteer        36  32  lease
 *   68  16  verdict           84 161  reason          245  15  zero */
#include "coordinator/ledger/records.h"

#include "common/base/bytes.h"
#include "coordinator/ledger/ledger.h"

#include <math.h>

#define BODY_VERSION 1
#define UPDATE_VERSION 2

enum update_offset {
    UPDATE_FACTOR_COUNT = 4,
    UPDATE_VOLUNTEER = 8,
    UPDATE_LEASE = UPDATE_VOLUNTEER + ID_BYTES,
    UPDATE_BASE_VERSION = UPDATE_LEASE + ID_BYTES,
    UPDATE_SAMPLES = 80,
    UPDATE_SAMPLES_POSITION = 88,
    UPDATE_WEIGHT = 96,
    UPDATE_LOSS = 100,
    UPDATE_STALENESS = 104,
    UPDATE_DOWNLINK_K = 108,
    UPDATE_PAYLOAD_BYTES = 112,
    UPDATE_DOWNLINK_VALUES = 120,
    UPDATE_RESERVED = 124,
    UPDATE_BYTES = 128,
};

enum commit_offset {
    COMMIT_RESERVED = 4,
    COMMIT_VERSION = 8,
    COMMIT_UPDATE_SEQUENCE = 16,
    COMMIT_HASH = 24,
    COMMIT_BYTES = 32,
};

enum verdict_offset {
    VERDICT_VOLUNTEER = 4,
    VERDICT_LEASE = VERDICT_VOLUNTEER + ID_BYTES,
    VERDICT_VERDICT = VERDICT_LEASE + ID_BYTES,
    VERDICT_REASON = 84,
    VERDICT_RESERVED = 245,
    VERDICT_BYTES = 260,
};

_Static_assert(UPDATE_BASE_VERSION == 72, "the ids are 32 bytes in the ledger");
_Static_assert(VERDICT_VERDICT + sizeof(((struct ledger_verdict *)0)->verdict) == VERDICT_REASON,
               "verdict body");
_Static_assert(VERDICT_REASON + sizeof(((struct ledger_verdict *)0)->reason) == VERDICT_RESERVED,
               "verdict body");

static bool all_zero(const uint8_t *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (data[i] != 0)
            return false;
    }
    return true;
}

/* False unless text ends within field_bytes. */
static bool put_text(uint8_t *field, size_t field_bytes, const char *text)
{
    size_t bytes = strnlen(text, field_bytes);
    if (bytes == field_bytes)
        return false;
    memset(field, 0, field_bytes);
    memcpy(field, text, bytes);
    return true;
}

static bool text_is_padded(const uint8_t *field, size_t field_bytes)
{
    size_t bytes = strnlen((const char *)field, field_bytes);
    return bytes < field_bytes && all_zero(field + bytes, field_bytes - bytes);
}

static bool weight_is_valid(float weight)
{
    return isfinite(weight) && weight >= 0.0f;
}

static bool factor_is_valid(float factor)
{
    return factor > 0.0f && factor <= 1.0f;
}

static bool factors_are_valid(const float *factors, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (!factor_is_valid(factors[i]))
            return false;
    }
    return true;
}

static enum status append_factors(const struct ledger_update *update, struct buffer *ret)
{
    size_t bytes = (size_t)update->factor_count * sizeof(float);
    for (uint32_t i = 0; i < update->factor_count; i++)
        store_f32(ret->data + ret->bytes + i * sizeof(float), update->factors[i]);
    ret->bytes += bytes;
    return buffer_append(ret, update->payload, (size_t)update->payload_bytes);
}

enum status ledger_update_write(const struct ledger_update *update, struct buffer *ret)
{
    uint8_t head[UPDATE_BYTES] = {0};
    if (update->factor_count > LEDGER_TENSORS_MAX || update->payload_bytes > LEDGER_BODY_BYTES_MAX)
        return STATUS_TOO_LARGE;
    size_t bytes =
        UPDATE_BYTES + (size_t)update->factor_count * sizeof(float) + (size_t)update->payload_bytes;
    if (bytes > LEDGER_BODY_BYTES_MAX)
        return STATUS_TOO_LARGE;
    if (!weight_is_valid(update->weight) ||
        !factors_are_valid(update->factors, update->factor_count) ||
        !put_text(head + UPDATE_VOLUNTEER, ID_BYTES, update->volunteer) ||
        !put_text(head + UPDATE_LEASE, ID_BYTES, update->lease))
        return STATUS_INVALID;
    store_u32(head, UPDATE_VERSION);
    store_u32(head + UPDATE_FACTOR_COUNT, update->factor_count);
    store_u64(head + UPDATE_BASE_VERSION, update->base_version);
    store_u64(head + UPDATE_SAMPLES, update->samples);
    store_u64(head + UPDATE_SAMPLES_POSITION, update->samples_position);
    store_f32(head + UPDATE_WEIGHT, update->weight);
    store_f32(head + UPDATE_LOSS, update->loss);
    store_u32(head + UPDATE_STALENESS, update->staleness);
    store_u32(head + UPDATE_DOWNLINK_K, update->downlink_k);
    store_u32(head + UPDATE_DOWNLINK_VALUES, update->downlink_values);
    store_u64(head + UPDATE_PAYLOAD_BYTES, update->payload_bytes);
    enum status status = buffer_reserve(ret, bytes);
    if (status == STATUS_OK)
        status = buffer_append(ret, head, sizeof head);
    return status == STATUS_OK ? append_factors(update, ret) : status;
}

static bool update_lengths_fit(const uint8_t *body, size_t bytes)
{
    if (bytes < UPDATE_BYTES || bytes > LEDGER_BODY_BYTES_MAX)
        return false;
    uint32_t factor_count = load_u32(body + UPDATE_FACTOR_COUNT);
    uint64_t payload_bytes = load_u64(body + UPDATE_PAYLOAD_BYTES);
    return factor_count <= LEDGER_TENSORS_MAX && payload_bytes <= LEDGER_BODY_BYTES_MAX &&
           UPDATE_BYTES + (uint64_t)factor_count * sizeof(float) + payload_bytes == bytes;
}

static bool factors_fit(const uint8_t *in, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (!factor_is_valid(load_f32(in + i * sizeof(float))))
            return false;
    }
    return true;
}

enum status ledger_update_read(const uint8_t *body, size_t bytes, float *factors_space,
                               struct ledger_update *ret)
{
    if (bytes < sizeof(uint32_t))
        return STATUS_CORRUPT;
    if (load_u32(body) != UPDATE_VERSION)
        return STATUS_UNSUPPORTED;
    if (!update_lengths_fit(body, bytes))
        return STATUS_CORRUPT;
    uint32_t factor_count = load_u32(body + UPDATE_FACTOR_COUNT);
    const uint8_t *factors = body + UPDATE_BYTES;
    if (!text_is_padded(body + UPDATE_VOLUNTEER, ID_BYTES) ||
        !text_is_padded(body + UPDATE_LEASE, ID_BYTES) ||
        !all_zero(body + UPDATE_RESERVED, UPDATE_BYTES - UPDATE_RESERVED) ||
        !weight_is_valid(load_f32(body + UPDATE_WEIGHT)) || !factors_fit(factors, factor_count))
        return STATUS_CORRUPT;
    for (uint32_t i = 0; i < factor_count; i++)
        factors_space[i] = load_f32(factors + i * sizeof(float));
    *ret = (struct ledger_update){
        .base_version = load_u64(body + UPDATE_BASE_VERSION),
        .samples = load_u64(body + UPDATE_SAMPLES),
        .samples_position = load_u64(body + UPDATE_SAMPLES_POSITION),
        .weight = load_f32(body + UPDATE_WEIGHT),
        .loss = load_f32(body + UPDATE_LOSS),
        .staleness = load_u32(body + UPDATE_STALENESS),
        .downlink_k = load_u32(body + UPDATE_DOWNLINK_K),
        .downlink_values = load_u32(body + UPDATE_DOWNLINK_VALUES),
        .factor_count = factor_count,
        .factors = factors_space,
        .payload = factors + (size_t)factor_count * sizeof(float),
        .payload_bytes = load_u64(body + UPDATE_PAYLOAD_BYTES),
    };
    memcpy(ret->volunteer, body + UPDATE_VOLUNTEER, ID_BYTES);
    memcpy(ret->lease, body + UPDATE_LEASE, ID_BYTES);
    return STATUS_OK;
}

enum status ledger_commit_write(const struct ledger_commit *commit, struct buffer *ret)
{
    uint8_t body[COMMIT_BYTES] = {0};
    store_u32(body, BODY_VERSION);
    store_u64(body + COMMIT_VERSION, commit->version);
    store_u64(body + COMMIT_UPDATE_SEQUENCE, commit->update_sequence);
    store_u64(body + COMMIT_HASH, commit->hash);
    return buffer_append(ret, body, sizeof body);
}

enum status ledger_commit_read(const uint8_t *body, size_t bytes, struct ledger_commit *ret)
{
    if (bytes < sizeof(uint32_t))
        return STATUS_CORRUPT;
    if (load_u32(body) > BODY_VERSION)
        return STATUS_UNSUPPORTED;
    if (load_u32(body) != BODY_VERSION || bytes != COMMIT_BYTES ||
        !all_zero(body + COMMIT_RESERVED, COMMIT_VERSION - COMMIT_RESERVED))
        return STATUS_CORRUPT;
    *ret = (struct ledger_commit){
        .version = load_u64(body + COMMIT_VERSION),
        .update_sequence = load_u64(body + COMMIT_UPDATE_SEQUENCE),
        .hash = load_u64(body + COMMIT_HASH),
    };
    return STATUS_OK;
}

enum status ledger_verdict_write(const struct ledger_verdict *verdict, struct buffer *ret)
{
    uint8_t body[VERDICT_BYTES] = {0};
    store_u32(body, BODY_VERSION);
    if (!put_text(body + VERDICT_VOLUNTEER, ID_BYTES, verdict->volunteer) ||
        !put_text(body + VERDICT_LEASE, ID_BYTES, verdict->lease) ||
        !put_text(body + VERDICT_VERDICT, sizeof verdict->verdict, verdict->verdict) ||
        !put_text(body + VERDICT_REASON, sizeof verdict->reason, verdict->reason))
        return STATUS_INVALID;
    return buffer_append(ret, body, sizeof body);
}

enum status ledger_verdict_read(const uint8_t *body, size_t bytes, struct ledger_verdict *ret)
{
    if (bytes < sizeof(uint32_t))
        return STATUS_CORRUPT;
    if (load_u32(body) > BODY_VERSION)
        return STATUS_UNSUPPORTED;
    if (load_u32(body) != BODY_VERSION || bytes != VERDICT_BYTES ||
        !text_is_padded(body + VERDICT_VOLUNTEER, ID_BYTES) ||
        !text_is_padded(body + VERDICT_LEASE, ID_BYTES) ||
        !text_is_padded(body + VERDICT_VERDICT, sizeof ret->verdict) ||
        !text_is_padded(body + VERDICT_REASON, sizeof ret->reason) ||
        !all_zero(body + VERDICT_RESERVED, VERDICT_BYTES - VERDICT_RESERVED))
        return STATUS_CORRUPT;
    memcpy(ret->volunteer, body + VERDICT_VOLUNTEER, ID_BYTES);
    memcpy(ret->lease, body + VERDICT_LEASE, ID_BYTES);
    memcpy(ret->verdict, body + VERDICT_VERDICT, sizeof ret->verdict);
    memcpy(ret->reason, body + VERDICT_REASON, sizeof ret->reason);
    return STATUS_OK;
}
