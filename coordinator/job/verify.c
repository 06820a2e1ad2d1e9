/* Proof that the ledger holds the model: replay from version 0 and compare the hash of every
 * commit. Reads only, takes no lock, so it runs beside a live coordinator; a tail that is being
 * written is simply not counted. */
#include "coordinator/job/job_internal.h"

#include "common/base/bytes.h"

#include <stdlib.h>
#include <string.h>

#define HASHES_BYTES_MAX (1u << 30)

struct verification {
    struct aggregate *aggregate;
    uint32_t tensors;
    struct verdict_table applied;
    struct buffer delta;
    struct buffer hashes; /* u64 per version, from version 1 */
    float *factors;
    struct job_verify_report *report;
};

static enum status verify_update(struct verification *verification,
                                 const struct ledger_record *record, struct error *err)
{
    struct ledger_update update;
    enum status status =
        ledger_update_read(record->body, record->body_bytes, verification->factors, &update);
    if (status || update.factor_count != verification->tensors)
        return error_set(err, STATUS_CORRUPT, "record %llu is not an update of this model",
                         (unsigned long long)record->sequence);
    if (verdict_table_find(&verification->applied, update.lease))
        verification->report->duplicates++;
    struct verdict_entry entry = {.verdict = VERDICT_APPLIED};
    text_copy(entry.lease, ID_BYTES, update.lease);
    status = verdict_table_add(&verification->applied, &entry);
    struct codec_payload payload;
    if (status == STATUS_OK)
        status = codec_open(update.payload, (size_t)update.payload_bytes,
                            aggregate_parameters(verification->aggregate), NULL, &payload, err);
    if (status == STATUS_OK)
        status =
            aggregate_apply(verification->aggregate, &payload, update.weight, update.factors, err);
    if (status)
        return status;
    buffer_clear(&verification->delta);
    struct codec_format format = {(enum codec_values)update.downlink_values, update.downlink_k};
    status = aggregate_commit(verification->aggregate, format, &verification->delta,
                              &verification->report->hash);
    if (status == STATUS_OK)
        status = buffer_append(&verification->hashes, &verification->report->hash,
                               sizeof verification->report->hash);
    verification->report->updates++;
    verification->report->version = aggregate_version(verification->aggregate);
    return status ? error_set(err, status, "version %llu cannot be made again",
                              (unsigned long long)verification->report->version + 1)
                  : STATUS_OK;
}

static enum status verify_commit(struct verification *verification,
                                 const struct ledger_record *record, struct error *err)
{
    struct ledger_commit commit;
    if (ledger_commit_read(record->body, record->body_bytes, &commit))
        return error_set(err, STATUS_CORRUPT, "record %llu is not a commit",
                         (unsigned long long)record->sequence);
    verification->report->commits++;
    /* Updates that became durable together precede their commits: look the version's hash up. */
    uint64_t replayed = 0;
    if (commit.version >= 1 && commit.version <= verification->report->version)
        memcpy(&replayed, verification->hashes.data + (commit.version - 1) * sizeof replayed,
               sizeof replayed);
    if (replayed == commit.hash)
        return STATUS_OK;
    return error_set(err, STATUS_CORRUPT,
                     "version %llu: replay gives hash %016llx, the ledger says %016llx",
                     (unsigned long long)commit.version, (unsigned long long)replayed,
                     (unsigned long long)commit.hash);
}

static enum status verify_record(void *context, const struct ledger_record *record,
                                 struct error *err)
{
    struct verification *verification = context;
    verification->report->records++;
    if (record->type == LEDGER_UPDATE)
        return verify_update(verification, record, err);
    if (record->type == LEDGER_COMMIT)
        return verify_commit(verification, record, err);
    return STATUS_OK;
}

static enum status verify_from(const struct snapshot *snapshot, const struct graph *graph,
                               const char *dir, struct job_verify_report *report, struct error *err)
{
    struct verification verification = {.report = report,
                                        .tensors = graph_parameter_tensors(graph)};
    struct ledger_open_report opened = {0};
    verdict_table_init(&verification.applied);
    buffer_init(&verification.delta, LEDGER_BODY_BYTES_MAX);
    buffer_init(&verification.hashes, HASHES_BYTES_MAX);
    verification.factors = malloc(LEDGER_TENSORS_MAX * sizeof(float));
    enum status status = job_make_aggregate(graph, snapshot->theta, &verification.aggregate);
    if (status || !verification.factors) {
        status = error_set(err, STATUS_NO_MEMORY, "no memory to verify %s", dir);
        goto out;
    }
    report->hash = aggregate_hash(verification.aggregate);
    status = ledger_scan(dir, verify_record, &verification, &opened, err);
    report->torn_bytes = opened.torn_bytes;
out:
    aggregate_free(verification.aggregate);
    free(verification.factors);
    buffer_done(&verification.delta);
    buffer_done(&verification.hashes);
    verdict_table_done(&verification.applied);
    return status;
}

enum status job_verify(const char *dir, struct job_verify_report *ret, struct error *err)
{
    struct snapshot snapshot;
    struct job *job = calloc(1, sizeof *job);
    if (!job)
        return error_set(err, STATUS_NO_MEMORY, "no memory to verify %s", dir);
    memset(ret, 0, sizeof *ret);
    enum status status = job_read_description(dir, job, err);
    if (status == STATUS_OK)
        status = graph_build(&job->spec.model, &job->graph, err);
    if (status == STATUS_OK)
        status = snapshot_read_oldest(dir, &snapshot, err);
    if (status)
        goto out;
    if (snapshot.version != 0 || snapshot.layout != graph_layout_hash(job->graph))
        status = error_set(err, STATUS_CORRUPT, "%s has no whole snapshot of version 0", dir);
    else
        status = verify_from(&snapshot, job->graph, dir, ret, err);
    snapshot_done(&snapshot);
out:
    graph_free(job->graph);
    free(job);
    return status;
}
