/* From an offered update to a new version. Everything that decides the result (weight, clip
 * factors, k of the delta) is fixed before the record is written; once it is durable, θ and w move
 * in ledger order. The commit record that follows only states the hash, so nobody waits for it. The
 * core's thread. */
#include "coordinator/job/job_internal.h"

#include "common/base/bytes.h"
#include "common/codec/codec.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Too much waits for the disk, or it is full: the agent offers again. */
static bool is_temporary(enum status status)
{
    return status == STATUS_BUSY || status == STATUS_NO_SPACE;
}

enum status job_append(struct job *job, enum ledger_type type, const struct buffer *body,
                       uint64_t *ret_sequence)
{
    enum status status = ledger_append(job->ledger, type, body->data, body->bytes, job->durable,
                                       job->durable_context, ret_sequence);
    if (status == STATUS_OK)
        job->in_flight++;
    else if (!is_temporary(status))
        job->failed = true;
    return status;
}

static struct codec_format uplink_format(const struct job *job, const struct job_lease *lease)
{
    struct codec_format format = {(enum codec_values)job->spec.update.values, (uint32_t)lease->k};
    if (format.values == CODEC_FP32)
        format.k = CODEC_CHUNK;
    return format;
}

struct job_answer job_examine_offer(struct job *job, const char *volunteer, const char *lease_id,
                                    uint64_t bytes)
{
    struct job_answer answer = {.verdict = VERDICT_REFUSED, .reason = REASON_UNKNOWN_LEASE};
    const struct verdict_entry *known = verdict_table_find(&job->verdicts, lease_id);
    if (known && strcmp(known->volunteer, volunteer) == 0) {
        answer.verdict = known->verdict;
        answer.reason = known->reason;
        answer.version = known->version;
        return answer;
    }
    struct job_lease *lease = lease_find(&job->leases, lease_id);
    if (!lease && !known)
        return answer;
    answer.reason = REASON_OTHER_VOLUNTEER;
    if (!lease || strcmp(lease->volunteer, volunteer) != 0)
        return answer;
    answer.reason = REASON_NOT_TRAINING;
    if (lease->evaluates)
        return answer;
    answer.reason = REASON_TOO_LARGE;
    if (bytes == 0 || bytes > codec_bytes_max(job_parameters(job), uplink_format(job, lease)))
        return answer;
    return (struct job_answer){.verdict = VERDICT_NONE, .pending = lease->pending || job->failed};
}

void pending_free(struct pending *pending)
{
    if (!pending)
        return;
    shared_unref(pending->payload);
    free(pending->factors);
    free(pending);
}

static enum verdict_reason examine(struct job *job, const struct job_lease *lease,
                                   struct pending *pending)
{
    struct ledger_update *update = &pending->update;
    uint64_t newest = job_version(job) + job->pending_count;
    if (update->base_version > newest)
        return REASON_BASE_UNKNOWN;
    uint32_t active = job_active_volunteers(job);
    if (active == 0)
        active = 1;
    uint64_t behind = newest - update->base_version;
    update->staleness = behind > UINT32_MAX ? UINT32_MAX : (uint32_t)behind;
    if (aggregate_is_stale(update->staleness, active))
        return REASON_TOO_OLD;

    struct codec_format format = uplink_format(job, lease);
    if (codec_open(shared_data(pending->payload), shared_bytes(pending->payload),
                   job_parameters(job), NULL, &pending->opened, NULL) ||
        pending->opened.format.values != format.values || pending->opened.format.k != format.k)
        return REASON_DAMAGED;
    if (aggregate_examine(job->aggregate, &pending->opened, pending->factors, NULL))
        return REASON_NOT_FINITE;

    float rate = aggregate_outer_rate(active, format.k, job->spec.outer_rate);
    update->weight = rate * aggregate_staleness_weight(update->staleness, active);
    job->figures.outer_rate = (double)rate;
    return REASON_NONE;
}

static enum status write_record(struct job *job, struct pending *pending)
{
    struct buffer body;
    buffer_init(&body, LEDGER_BODY_BYTES_MAX);
    enum ledger_type type = LEDGER_UPDATE;
    enum status status;
    if (pending->reason == REASON_NONE) {
        status = ledger_update_write(&pending->update, &body);
    } else {
        struct ledger_verdict verdict = {0};
        type = LEDGER_VERDICT;
        text_copy(verdict.volunteer, sizeof verdict.volunteer, pending->volunteer);
        text_copy(verdict.lease, sizeof verdict.lease, pending->lease);
        text_copy(verdict.verdict, sizeof verdict.verdict,
                  verdict_word(verdict_of_reason(pending->reason)));
        text_copy(verdict.reason, sizeof verdict.reason, verdict_reason_text(pending->reason));
        status = ledger_verdict_write(&verdict, &body);
    }
    if (status == STATUS_OK)
        status = job_append(job, type, &body, &pending->sequence);
    buffer_done(&body);
    return status;
}

static struct pending *pending_create(const struct job *job, const struct job_lease *lease,
                                      uint64_t base, uint64_t samples, double loss,
                                      struct shared *payload)
{
    struct pending *pending = calloc(1, sizeof *pending);
    uint32_t tensors = graph_parameter_tensors(job->graph);
    if (pending)
        pending->factors = calloc(tensors, sizeof *pending->factors);
    if (!pending || !pending->factors) {
        free(pending);
        return NULL;
    }
    pending->payload = shared_ref(payload);
    text_copy(pending->volunteer, ID_BYTES, lease->volunteer);
    text_copy(pending->lease, ID_BYTES, lease->id);
    pending->update = (struct ledger_update){
        .base_version = base,
        .samples = samples,
        .samples_position = job->figures.samples + samples,
        .loss = isfinite(loss) ? (float)loss : 0.0f,
        .downlink_k = job->spec.update.downlink_k_per_chunk,
        .downlink_values = job->spec.update.downlink_values,
        .factor_count = tensors,
        .factors = pending->factors,
        .payload = shared_data(payload),
        .payload_bytes = shared_bytes(payload),
    };
    text_copy(pending->update.volunteer, ID_BYTES, lease->volunteer);
    text_copy(pending->update.lease, ID_BYTES, lease->id);
    return pending;
}

enum status job_submit(struct job *job, const char *volunteer, const char *lease_id, uint64_t base,
                       uint64_t samples, double loss, struct shared *payload, struct error *err)
{
    struct job_lease *lease = lease_find(&job->leases, lease_id);
    if (!lease || strcmp(lease->volunteer, volunteer) != 0)
        return error_set(err, STATUS_NOT_FOUND, "lease %s is not live for %s", lease_id, volunteer);
    if (lease->pending)
        return STATUS_OK;
    if (samples > lease->samples)
        samples = lease->samples;
    struct pending *pending = pending_create(job, lease, base, samples, loss, payload);
    if (!pending)
        return error_set(err, STATUS_NO_MEMORY, "no memory for the update of lease %s", lease_id);
    pending->reason = examine(job, lease, pending);
    enum status status = write_record(job, pending);
    if (status) {
        pending_free(pending);
        return error_set(err, status, "the ledger of %s takes no more records: %s", job->id,
                         status_text(status));
    }
    lease->pending = true;
    *job->pending_last = pending;
    job->pending_last = &pending->next;
    if (pending->reason == REASON_NONE)
        job->pending_count++;
    return STATUS_OK;
}

static void count_staleness(struct job *job, uint32_t staleness)
{
    static const uint32_t upper[] = {0, 1, 2, 4, 8, 16, 32};
    uint32_t bucket = 0;
    while (bucket < COUNT_OF(upper) && staleness > upper[bucket])
        bucket++;
    job->figures.staleness[bucket]++;
}

static void note_loss(struct job *job, double loss, uint64_t version, int64_t wall_ms)
{
    job->smoothed_sum = (1 - SMOOTHING) * job->smoothed_sum + SMOOTHING * loss;
    job->smoothed_weight = (1 - SMOOTHING) * job->smoothed_weight + SMOOTHING;
    job->figures.loss = loss;
    job->figures.loss_smoothed = job->smoothed_sum / job->smoothed_weight;
    struct series_entry entry = {wall_ms, version, loss, job->figures.loss_smoothed};
    series_add(&job->points, &entry);
}

static enum status remember(struct job *job, const char *volunteer, const char *lease,
                            enum verdict_reason reason, uint64_t version)
{
    struct verdict_entry entry = {
        .verdict = verdict_of_reason(reason), .reason = reason, .version = version};
    text_copy(entry.lease, sizeof entry.lease, lease);
    text_copy(entry.volunteer, sizeof entry.volunteer, volunteer);
    lease_remove(&job->leases, lease);
    return verdict_table_add(&job->verdicts, &entry);
}

enum status job_absorb_update(struct job *job, const struct ledger_update *update,
                              const struct codec_payload *payload, int64_t wall_ms,
                              struct job_outcome *ret, struct error *err)
{
    if (update->factor_count != graph_parameter_tensors(job->graph))
        return error_set(err, STATUS_CORRUPT, "update of lease %s has factors for %u tensors",
                         update->lease, update->factor_count);
    enum status status =
        aggregate_apply(job->aggregate, payload, update->weight, update->factors, err);
    if (status)
        return status;
    struct codec_format format = {(enum codec_values)update->downlink_values, update->downlink_k};
    struct buffer delta;
    buffer_init(&delta, codec_bytes_max(job_parameters(job), format));
    uint64_t hash, before = job_hash(job);
    status = aggregate_commit(job->aggregate, format, &delta, &hash);
    if (status == STATUS_OK) {
        uint8_t *bytes;
        size_t size;
        buffer_take(&delta, &bytes, &size);
        if (job->deltas.count == 0)
            job->deltas.base_hash = before;
        job->figures.downlink_bytes += size;
        status = delta_ring_add(&job->deltas, shared_create_take(bytes, size), hash,
                                4 * job_parameters(job));
    }
    buffer_done(&delta);
    if (status == STATUS_OK)
        status = remember(job, update->volunteer, update->lease, REASON_NONE, job_version(job));
    if (status)
        return error_set(err, status, "version %llu could not be made: %s",
                         (unsigned long long)job_version(job) + 1, status_text(status));
    job->figures.samples += update->samples;
    job->figures.updates_applied++;
    job->figures.uplink_bytes += update->payload_bytes;
    count_staleness(job, update->staleness);
    note_loss(job, (double)update->loss, job_version(job), wall_ms);
    *ret = (struct job_outcome){.verdict = VERDICT_APPLIED,
                                .version = job_version(job),
                                .samples = update->samples,
                                .payload_bytes = update->payload_bytes,
                                .base = update->base_version,
                                .staleness = update->staleness,
                                .loss = (double)update->loss,
                                .weight = update->weight};
    text_copy(ret->volunteer, ID_BYTES, update->volunteer);
    text_copy(ret->lease, ID_BYTES, update->lease);
    return STATUS_OK;
}

enum status job_absorb_verdict(struct job *job, const char *volunteer, const char *lease,
                               enum verdict_reason reason, struct job_outcome *ret)
{
    *ret = (struct job_outcome){.verdict = verdict_of_reason(reason), .reason = reason};
    text_copy(ret->volunteer, ID_BYTES, volunteer);
    text_copy(ret->lease, ID_BYTES, lease);
    if (ret->verdict == VERDICT_STALE)
        job->figures.updates_stale++;
    else
        job->figures.updates_refused++;
    return remember(job, ret->volunteer, ret->lease, reason, 0);
}

static void record_commit(struct job *job, uint64_t update_sequence)
{
    struct ledger_commit commit = {
        .version = job_version(job), .update_sequence = update_sequence, .hash = job_hash(job)};
    struct buffer body;
    buffer_init(&body, 4096);
    uint64_t sequence;
    enum status status = ledger_commit_write(&commit, &body);
    if (status == STATUS_OK)
        status = job_append(job, LEDGER_COMMIT, &body, &sequence);
    if (status) /* the next commit states the hash again: only the check of this version is lost */
        job->failed = job->failed || !is_temporary(status);
    buffer_done(&body);
}

static struct pending *take_pending(struct job *job, uint64_t sequence)
{
    struct pending *pending = job->pending_first;
    if (!pending || pending->sequence != sequence)
        return NULL;
    job->pending_first = pending->next;
    if (!job->pending_first)
        job->pending_last = &job->pending_first;
    if (pending->reason == REASON_NONE)
        job->pending_count--;
    return pending;
}

static bool refused_by_full_disk(struct job *job, struct pending *pending, struct job_outcome *ret)
{
    if (!pending) {
        job->snapshot_due = true;
        return false;
    }
    *ret = (struct job_outcome){.verdict = VERDICT_NONE};
    text_copy(ret->volunteer, ID_BYTES, pending->volunteer);
    text_copy(ret->lease, ID_BYTES, pending->lease);
    struct job_lease *lease = lease_find(&job->leases, pending->lease);
    if (lease)
        lease->pending = false;
    pending_free(pending);
    return true;
}

bool job_durable(struct job *job, uint64_t sequence, enum status status, int64_t wall_ms,
                 struct job_outcome *ret)
{
    struct pending *pending = take_pending(job, sequence);
    job->in_flight--;
    if (status == STATUS_NO_SPACE)
        return refused_by_full_disk(job, pending, ret);
    if (status == STATUS_OK)
        job->durable_sequence = sequence;
    else
        job->failed = true;
    if (!pending)
        return false;

    enum status done = STATUS_IO;
    if (job->failed) {
        /* Not acknowledged: the agent keeps it and offers it again. */
    } else if (pending->reason == REASON_NONE) {
        done = job_absorb_update(job, &pending->update, &pending->opened, wall_ms, ret, NULL);
        if (done == STATUS_OK)
            record_commit(job, sequence);
    } else {
        done = job_absorb_verdict(job, pending->volunteer, pending->lease, pending->reason, ret);
    }
    pending_free(pending);
    if (done)
        job->failed = true;
    return done == STATUS_OK;
}

void job_note_evaluation(struct job *job, uint64_t version, double loss, double accuracy,
                         int64_t wall_ms)
{
    if (!job->evaluated_once)
        job->figures.held_out_loss_first = loss;
    job->evaluated_once = true;
    job->evaluated_version = version;
    job->figures.held_out_loss = loss;
    job->figures.held_out_accuracy = accuracy;
    struct series_entry entry = {wall_ms, version, loss, accuracy};
    series_add(&job->evaluations, &entry);
}

bool job_evaluated(struct job *job, const char *volunteer, const char *lease_id, uint64_t version,
                   double loss, double accuracy, int64_t wall_ms)
{
    struct job_lease *lease = lease_find(&job->leases, lease_id);
    if (!lease || !lease->evaluates || strcmp(lease->volunteer, volunteer) != 0 ||
        version > job_version(job) || !isfinite(loss) || !isfinite(accuracy))
        return false;
    lease_remove(&job->leases, lease_id);
    job_note_evaluation(job, version, loss, accuracy, wall_ms);
    struct buffer body;
    buffer_init(&body, 4096);
    uint64_t sequence;
    enum status status = control_evaluation_write(version, loss, accuracy, wall_ms, &body);
    if (status == STATUS_OK)
        status = job_append(job, LEDGER_CONTROL, &body, &sequence);
    buffer_done(&body);
    return status == STATUS_OK;
}
