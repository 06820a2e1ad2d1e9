/* The job's part of a snapshot, so that parameters and bookkeeping can never disagree: one byte
 * string inside the snapshot file. Little-endian:
 *   magic "RVJ2"; u64 next_block, samples, applied, stale, refused, uplink bytes, downlink bytes;
 *   8 × u64 staleness; f64 loss, smoothed_sum, smoothed_weight, first held-out loss, held-out loss,
 *   accuracy; u64 evaluated version + 1 (0: never);
 *   2 series: u32 count, u32 stride, u64 arrivals, u64 appended, count × (i64, u64, f64, f64);
 *   u32 leases × (id, volunteer: 32 bytes each; u64 nonce, base, block_first, block_count, steps,
 *   samples, samples_position, k, patience in microseconds);
 *   u32 verdicts × (id, volunteer: 32 bytes each; u8 verdict, u8 reason, u64 version);
 *   the rest: clip history of the aggregate. */
#include "coordinator/job/job_internal.h"

#include "common/base/bytes.h"

#include <string.h>

static const char magic[4] = "RVJ2";

struct writer {
    struct buffer *out;
    enum status status;
};

struct reader {
    const uint8_t *data;
    size_t bytes, position;
    bool failed;
};

static void put(struct writer *writer, const void *data, size_t bytes)
{
    if (writer->status == STATUS_OK)
        writer->status = buffer_append(writer->out, data, bytes);
}

static void put_u32(struct writer *writer, uint32_t value)
{
    uint8_t bytes[4];
    store_u32(bytes, value);
    put(writer, bytes, sizeof bytes);
}

static void put_u64(struct writer *writer, uint64_t value)
{
    uint8_t bytes[8];
    store_u64(bytes, value);
    put(writer, bytes, sizeof bytes);
}

static void put_f64(struct writer *writer, double value)
{
    uint8_t bytes[8];
    store_f64(bytes, value);
    put(writer, bytes, sizeof bytes);
}

static const uint8_t *get(struct reader *reader, size_t bytes)
{
    static const uint8_t zeros[ID_BYTES];
    if (reader->failed || bytes > reader->bytes - reader->position) {
        reader->failed = true;
        return zeros;
    }
    const uint8_t *data = reader->data + reader->position;
    reader->position += bytes;
    return data;
}

static uint32_t get_u32(struct reader *reader)
{
    return load_u32(get(reader, 4));
}

static uint64_t get_u64(struct reader *reader)
{
    return load_u64(get(reader, 8));
}

static double get_f64(struct reader *reader)
{
    return load_f64(get(reader, 8));
}

static void get_id(struct reader *reader, char ret[ID_BYTES])
{
    memcpy(ret, get(reader, ID_BYTES), ID_BYTES);
    if (ret[ID_BYTES - 1] != 0)
        reader->failed = true;
    ret[ID_BYTES - 1] = 0;
}

static void put_series(struct writer *writer, const struct series *series)
{
    put_u32(writer, series->count);
    put_u32(writer, series->stride);
    put_u64(writer, series->arrivals);
    put_u64(writer, series->appended);
    for (uint32_t i = 0; i < series->count; i++) {
        put_u64(writer, (uint64_t)series->entries[i].at_ms);
        put_u64(writer, series->entries[i].version);
        put_f64(writer, series->entries[i].first);
        put_f64(writer, series->entries[i].second);
    }
}

static void get_series(struct reader *reader, struct series *series)
{
    series->count = get_u32(reader);
    series->stride = get_u32(reader);
    series->arrivals = get_u64(reader);
    series->appended = get_u64(reader);
    if (series->count > SERIES_COUNT_MAX || series->stride == 0) {
        reader->failed = true;
        series_init(series);
        return;
    }
    for (uint32_t i = 0; i < series->count; i++) {
        series->entries[i].at_ms = (int64_t)get_u64(reader);
        series->entries[i].version = get_u64(reader);
        series->entries[i].first = get_f64(reader);
        series->entries[i].second = get_f64(reader);
    }
}

static void put_leases(struct writer *writer, const struct lease_table *table)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < table->count; i++)
        count += !table->items[i].evaluates;
    put_u32(writer, count);
    for (uint32_t i = 0; i < table->count; i++) {
        const struct job_lease *lease = &table->items[i];
        if (lease->evaluates)
            continue;
        put(writer, lease->id, ID_BYTES);
        put(writer, lease->volunteer, ID_BYTES);
        put_u64(writer, lease->nonce);
        put_u64(writer, lease->base);
        put_u64(writer, lease->block_first);
        put_u64(writer, lease->block_count);
        put_u64(writer, lease->steps);
        put_u64(writer, lease->samples);
        put_u64(writer, lease->samples_position);
        put_u64(writer, lease->k);
        put_u64(writer, (uint64_t)lease->patience_us);
    }
}

static enum status get_leases(struct reader *reader, struct job *job)
{
    uint32_t count = get_u32(reader);
    for (uint32_t i = 0; i < count && !reader->failed; i++) {
        struct job_lease lease = {0};
        get_id(reader, lease.id);
        get_id(reader, lease.volunteer);
        lease.nonce = get_u64(reader);
        lease.base = get_u64(reader);
        lease.block_first = get_u64(reader);
        lease.block_count = get_u64(reader);
        lease.steps = get_u64(reader);
        lease.samples = get_u64(reader);
        lease.samples_position = get_u64(reader);
        lease.k = get_u64(reader);
        lease.patience_us = (int64_t)get_u64(reader);
        lease.seed = lease_seed(job, lease.block_first);
        enum status status = reader->failed ? STATUS_OK : lease_add(&job->leases, &lease);
        if (status)
            return status;
    }
    return STATUS_OK;
}

static void put_verdicts(struct writer *writer, const struct verdict_table *table)
{
    put_u32(writer, table->count);
    for (uint32_t i = 0; i < table->count; i++) {
        const struct verdict_entry *entry = &table->entries[i];
        const uint8_t codes[2] = {(uint8_t)entry->verdict, (uint8_t)entry->reason};
        put(writer, entry->lease, ID_BYTES);
        put(writer, entry->volunteer, ID_BYTES);
        put(writer, codes, sizeof codes);
        put_u64(writer, entry->version);
    }
}

static enum status get_verdicts(struct reader *reader, struct job *job)
{
    uint32_t count = get_u32(reader);
    for (uint32_t i = 0; i < count && !reader->failed; i++) {
        struct verdict_entry entry = {0};
        get_id(reader, entry.lease);
        get_id(reader, entry.volunteer);
        const uint8_t *codes = get(reader, 2);
        entry.verdict = (enum verdict)codes[0];
        entry.reason = (enum verdict_reason)codes[1];
        entry.version = get_u64(reader);
        enum status status = reader->failed ? STATUS_OK : verdict_table_add(&job->verdicts, &entry);
        if (status)
            return status;
    }
    return STATUS_OK;
}

enum status job_state_write(const struct job *job, struct buffer *ret)
{
    struct writer writer = {.out = ret};
    const struct job_figures *figures = &job->figures;
    put(&writer, magic, sizeof magic);
    put_u64(&writer, job->next_block);
    put_u64(&writer, figures->samples);
    put_u64(&writer, figures->updates_applied);
    put_u64(&writer, figures->updates_stale);
    put_u64(&writer, figures->updates_refused);
    put_u64(&writer, figures->uplink_bytes);
    put_u64(&writer, figures->downlink_bytes);
    for (size_t i = 0; i < COUNT_OF(figures->staleness); i++)
        put_u64(&writer, figures->staleness[i]);
    put_f64(&writer, figures->loss);
    put_f64(&writer, job->smoothed_sum);
    put_f64(&writer, job->smoothed_weight);
    put_f64(&writer, figures->held_out_loss_first);
    put_f64(&writer, figures->held_out_loss);
    put_f64(&writer, figures->held_out_accuracy);
    put_u64(&writer, job->evaluated_once ? job->evaluated_version + 1 : 0);
    put_series(&writer, &job->points);
    put_series(&writer, &job->evaluations);
    put_leases(&writer, &job->leases);
    put_verdicts(&writer, &job->verdicts);
    if (writer.status == STATUS_OK)
        writer.status = aggregate_history_write(job->aggregate, ret);
    return writer.status;
}

static void get_figures(struct reader *reader, struct job *job)
{
    struct job_figures *figures = &job->figures;
    job->next_block = get_u64(reader);
    figures->samples = get_u64(reader);
    figures->updates_applied = get_u64(reader);
    figures->updates_stale = get_u64(reader);
    figures->updates_refused = get_u64(reader);
    figures->uplink_bytes = get_u64(reader);
    figures->downlink_bytes = get_u64(reader);
    for (size_t i = 0; i < COUNT_OF(figures->staleness); i++)
        figures->staleness[i] = get_u64(reader);
    figures->loss = get_f64(reader);
    job->smoothed_sum = get_f64(reader);
    job->smoothed_weight = get_f64(reader);
    if (job->smoothed_weight > 0)
        figures->loss_smoothed = job->smoothed_sum / job->smoothed_weight;
    figures->held_out_loss_first = get_f64(reader);
    figures->held_out_loss = get_f64(reader);
    figures->held_out_accuracy = get_f64(reader);
    uint64_t evaluated = get_u64(reader);
    job->evaluated_once = evaluated > 0;
    job->evaluated_version = evaluated > 0 ? evaluated - 1 : 0;
}

enum status job_state_read(struct job *job, const uint8_t *data, size_t bytes, struct error *err)
{
    struct reader reader = {.data = data, .bytes = bytes};
    if (memcmp(get(&reader, sizeof magic), magic, sizeof magic) != 0)
        return error_set(err, STATUS_CORRUPT, "the snapshot's job state has a wrong magic");
    get_figures(&reader, job);
    get_series(&reader, &job->points);
    get_series(&reader, &job->evaluations);
    enum status status = get_leases(&reader, job);
    if (status == STATUS_OK)
        status = get_verdicts(&reader, job);
    if (status)
        return error_set(err, status, "no memory for the snapshot's job state");
    if (reader.failed)
        return error_set(err, STATUS_CORRUPT, "the snapshot's job state ends too early");
    status =
        aggregate_history_read(job->aggregate, data + reader.position, bytes - reader.position);
    return status ? error_set(err, status, "the snapshot's clip history is damaged") : STATUS_OK;
}
