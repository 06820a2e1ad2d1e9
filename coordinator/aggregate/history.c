/* Norms of the last accepted updates per parameter tensor, their median, and their bytes in a
 * snapshot. No I/O; used by the aggregate's thread. Surprising: only updates that touched a tensor
 * count, because a top-k update often leaves a small tensor alone, and a median of zero would shut
 * that tensor for ever.
 *
 * Bytes, little-endian: u32 version = 1, u32 tensors; per tensor u32 norms (at most 32), u32 next
 * place, and the norms as fp64 in the order of their places. */
#include "coordinator/aggregate/aggregate_internal.h"

#include "common/base/bytes.h"

#include <float.h>
#include <math.h>

#define HISTORY_VERSION 1
#define HISTORY_HEAD_BYTES 8
#define TENSOR_HEAD_BYTES 8

void norms_add(struct norms *norms, double norm)
{
    if (!(norm > 0.0))
        return;
    norms->values[norms->next] = norm;
    norms->next = (norms->next + 1) % HISTORY_NORMS;
    if (norms->count < HISTORY_NORMS)
        norms->count++;
}

/* Of an even number, the mean of the two in the middle. count > 0. */
static double median(const struct norms *norms)
{
    double sorted[HISTORY_NORMS];
    for (uint32_t i = 0; i < norms->count; i++) {
        uint32_t place = i;
        while (place > 0 && sorted[place - 1] > norms->values[i]) {
            sorted[place] = sorted[place - 1];
            place--;
        }
        sorted[place] = norms->values[i];
    }
    uint32_t middle = norms->count / 2;
    return norms->count % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

float norms_clip_factor(const struct norms *norms, double norm)
{
    if (norms->count < HISTORY_NORMS_MIN || !(norm > 0.0))
        return 1.0f;
    double factor = median(norms) / norm;
    if (factor >= 1.0)
        return 1.0f;
    return factor > (double)FLT_MIN ? (float)factor : FLT_MIN;
}

enum status history_write(const struct norms *norms, uint32_t tensor_count, struct buffer *ret)
{
    const size_t tensor_bytes_max = TENSOR_HEAD_BYTES + HISTORY_NORMS * sizeof(uint64_t);
    enum status status =
        buffer_reserve(ret, HISTORY_HEAD_BYTES + (size_t)tensor_count * tensor_bytes_max);
    if (status != STATUS_OK)
        return status;
    uint8_t *out = ret->data + ret->bytes;
    store_u32(out, HISTORY_VERSION);
    store_u32(out + 4, tensor_count);
    out += HISTORY_HEAD_BYTES;
    for (uint32_t t = 0; t < tensor_count; t++) {
        store_u32(out, norms[t].count);
        store_u32(out + 4, norms[t].next);
        out += TENSOR_HEAD_BYTES;
        for (uint32_t i = 0; i < norms[t].count; i++, out += sizeof(uint64_t))
            store_f64(out, norms[t].values[i]);
    }
    ret->bytes = (size_t)(out - ret->data);
    return STATUS_OK;
}

/* Bytes of one tensor at data, 0 when they are not well-formed. */
static size_t check_tensor(const uint8_t *data, size_t bytes)
{
    if (bytes < TENSOR_HEAD_BYTES)
        return 0;
    uint32_t count = load_u32(data), next = load_u32(data + 4);
    size_t tensor_bytes = TENSOR_HEAD_BYTES + (size_t)count * sizeof(uint64_t);
    if (count > HISTORY_NORMS || bytes < tensor_bytes)
        return 0;
    if (count < HISTORY_NORMS ? next != count : next >= HISTORY_NORMS)
        return 0;
    for (size_t at = TENSOR_HEAD_BYTES; at < tensor_bytes; at += sizeof(uint64_t)) {
        double norm = load_f64(data + at);
        if (!isfinite(norm) || norm <= 0.0)
            return 0;
    }
    return tensor_bytes;
}

enum status history_read(const uint8_t *data, size_t bytes, uint32_t tensor_count,
                         struct norms *norms)
{
    if (bytes < HISTORY_HEAD_BYTES || load_u32(data) != HISTORY_VERSION ||
        load_u32(data + 4) != tensor_count)
        return STATUS_CORRUPT;
    size_t at = HISTORY_HEAD_BYTES;
    for (uint32_t t = 0; t < tensor_count; t++) {
        size_t tensor_bytes = check_tensor(data + at, bytes - at);
        if (tensor_bytes == 0)
            return STATUS_CORRUPT;
        at += tensor_bytes;
    }
    if (at != bytes)
        return STATUS_CORRUPT;
    at = HISTORY_HEAD_BYTES;
    for (uint32_t t = 0; t < tensor_count; t++) {
        norms[t] = (struct norms){.count = load_u32(data + at), .next = load_u32(data + at + 4)};
        at += TENSOR_HEAD_BYTES;
        for (uint32_t i = 0; i < norms[t].count; i++, at += sizeof(uint64_t))
            norms[t].values[i] = load_f64(data + at);
    }
    return STATUS_OK;
}
