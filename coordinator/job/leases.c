/* Which volunteer works on which blocks. A lease whose deadline passed is first marked expired; its
 * blocks go to the next volunteer who asks, and only then the late answer is refused. Grants are
 * written to the ledger without waiting, so that a restarted coordinator still knows them. The
 * core's thread. */
#include "coordinator/job/job_internal.h"

#include "common/base/bytes.h"
#include "common/base/checksum.h"
#include "common/graph/data_plan.h"

#include <stdlib.h>
#include <string.h>

struct job_lease *lease_find(struct lease_table *table, const char *id)
{
    for (uint32_t i = 0; i < table->count; i++)
        if (strcmp(table->items[i].id, id) == 0)
            return &table->items[i];
    return NULL;
}

enum status lease_add(struct lease_table *table, const struct job_lease *lease)
{
    if (table->count == table->capacity) {
        uint32_t capacity = table->capacity ? table->capacity * 2 : 16;
        struct job_lease *items = realloc(table->items, capacity * sizeof *items);
        if (!items)
            return STATUS_NO_MEMORY;
        table->items = items;
        table->capacity = capacity;
    }
    table->items[table->count++] = *lease;
    return STATUS_OK;
}

void lease_remove(struct lease_table *table, const char *id)
{
    struct job_lease *lease = lease_find(table, id);
    if (lease)
        *lease = table->items[--table->count];
}

/* 53 bits, so that it is exact in JSON. The same blocks get the same seed when they are reissued.
 */
uint64_t lease_seed(const struct job *job, uint64_t block_first)
{
    uint8_t bytes[8];
    store_u64(bytes, block_first);
    return checksum_xxh3_seeded(bytes, sizeof bytes, job->spec.training.seed) >> 11;
}

/* 0 or out of bounds: the job's own value, or the nearest bound. */
static uint64_t within(uint64_t wish, uint64_t usual, uint64_t low, uint64_t high)
{
    if (wish == 0)
        return usual;
    return wish < low ? low : wish > high ? high : wish;
}

uint32_t job_leases_of(const struct job *job, const char *volunteer)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < job->leases.count; i++)
        if (!job->leases.items[i].expired && strcmp(job->leases.items[i].volunteer, volunteer) == 0)
            count++;
    return count;
}

static int compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

uint32_t job_active_volunteers(const struct job *job)
{
    const struct lease_table *table = &job->leases;
    uint64_t *hashes = malloc((table->count + 1) * sizeof *hashes);
    if (!hashes)
        return 1;
    uint32_t count = 0, distinct = 0;
    for (uint32_t i = 0; i < table->count; i++)
        if (!table->items[i].expired && !table->items[i].evaluates)
            hashes[count++] =
                checksum_xxh3(table->items[i].volunteer, strlen(table->items[i].volunteer));
    qsort(hashes, count, sizeof *hashes, compare_u64);
    for (uint32_t i = 0; i < count; i++)
        if (i == 0 || hashes[i] != hashes[i - 1])
            distinct++;
    free(hashes);
    return distinct;
}

static uint64_t samples_under_lease(const struct job *job)
{
    uint64_t samples = 0;
    for (uint32_t i = 0; i < job->leases.count; i++)
        if (!job->leases.items[i].evaluates && !job->leases.items[i].expired)
            samples += job->leases.items[i].samples;
    return samples;
}

static bool evaluation_is_due(const struct job *job)
{
    for (uint32_t i = 0; i < job->leases.count; i++)
        if (job->leases.items[i].evaluates && !job->leases.items[i].expired)
            return false;
    if (!job->evaluated_once)
        return true;
    uint64_t version = job_version(job);
    if (job->figures.samples >= job->spec.training.total_samples)
        return job->evaluated_version < version;
    return version >= job->evaluated_version + job->spec.evaluate_every_versions;
}

static void fill_evaluation(const struct job *job, struct job_lease *lease)
{
    uint32_t batch = job->spec.training.batch_size;
    lease->evaluates = true;
    lease->samples = job->spec.evaluate_samples;
    lease->steps = (lease->samples + batch - 1) / batch;
}

/* Blocks of an expired lease first, then new ones. *ret_replaces: the lease whose blocks these were
 * ("" for new blocks). False when every sample of the job is done or under lease. */
static bool fill_training(struct job *job, const struct job_wish *wish, struct job_lease *lease,
                          char ret_replaces[ID_BYTES])
{
    uint64_t total = job->spec.training.total_samples;
    uint64_t taken = job->figures.samples + samples_under_lease(job);
    if (taken >= total)
        return false;
    ret_replaces[0] = 0;
    for (uint32_t i = 0; i < job->leases.count; i++) {
        struct job_lease *late = &job->leases.items[i];
        if (!late->expired || late->pending || late->evaluates)
            continue;
        text_copy(ret_replaces, ID_BYTES, late->id);
        lease->block_first = late->block_first;
        lease->block_count = late->block_count;
        lease->steps = late->steps;
        lease->samples = late->samples;
        return true;
    }
    uint64_t batch = job->spec.training.batch_size;
    uint64_t steps_left = (total - taken + batch - 1) / batch;
    lease->steps = within(wish->steps, job->spec.training.steps_per_lease,
                          job->spec.training.steps_min, job->spec.training.steps_max);
    if (lease->steps > steps_left)
        lease->steps = steps_left;
    lease->samples = lease->steps * batch;
    lease->block_first = job->next_block;
    lease->block_count = data_plan_lease_blocks(lease->steps, batch);
    return true;
}

/* The old lease's owner was too late: from now on its answer is the same refusal for ever. */
static enum status replace_lease(struct job *job, const char *replaced)
{
    struct job_lease *late = lease_find(&job->leases, replaced);
    if (!late)
        return STATUS_OK;
    struct verdict_entry entry = {.verdict = VERDICT_REFUSED, .reason = REASON_REISSUED};
    text_copy(entry.lease, sizeof entry.lease, late->id);
    text_copy(entry.volunteer, sizeof entry.volunteer, late->volunteer);
    enum status status = verdict_table_add(&job->verdicts, &entry);
    if (status == STATUS_OK)
        lease_remove(&job->leases, replaced);
    return status;
}

enum status lease_take(struct job *job, const struct job_lease *lease, const char *replaces)
{
    enum status status = replace_lease(job, replaces);
    if (status == STATUS_OK)
        status = lease_add(&job->leases, lease);
    if (status == STATUS_OK && lease->block_first + lease->block_count > job->next_block)
        job->next_block = lease->block_first + lease->block_count;
    return status;
}

static enum status record_grant(struct job *job, const struct job_lease *lease,
                                const char *replaces)
{
    struct buffer body;
    buffer_init(&body, 4096);
    uint64_t sequence;
    enum status status = control_grant_write(lease, replaces, &body);
    if (status == STATUS_OK)
        status = job_append(job, LEDGER_CONTROL, &body, &sequence);
    buffer_done(&body);
    return status;
}

static const struct job_lease *lease_by_nonce(const struct job *job, const char *volunteer,
                                              uint64_t nonce)
{
    for (uint32_t i = 0; i < job->leases.count; i++) {
        const struct job_lease *lease = &job->leases.items[i];
        if (lease->nonce == nonce && !lease->expired && !lease->pending &&
            strcmp(lease->volunteer, volunteer) == 0)
            return lease;
    }
    return NULL;
}

enum status job_grant(struct job *job, const char *volunteer, const struct job_wish *wish,
                      int64_t now_us, struct job_lease *ret, const char **ret_reason)
{
    const struct job_lease *same = lease_by_nonce(job, volunteer, wish->nonce);
    if (same) {
        *ret = *same;
        return STATUS_OK;
    }
    *ret_reason = "the coordinator cannot write its ledger";
    if (job->failed)
        return STATUS_UNAVAILABLE;
    *ret_reason = "the coordinator's disk is full; work goes on when there is space";
    if (job_is_full(job))
        return STATUS_UNAVAILABLE;

    struct job_lease lease = {.nonce = wish->nonce, .base = job_version(job)};
    char replaces[ID_BYTES] = "";
    id_make(lease.id, "lea");
    text_copy(lease.volunteer, sizeof lease.volunteer, volunteer);
    if (evaluation_is_due(job)) {
        fill_evaluation(job, &lease);
    } else if (!fill_training(job, wish, &lease, replaces)) {
        *ret_reason = "every sample of the job is done or being trained";
        return STATUS_UNAVAILABLE;
    }
    lease.seed = lease_seed(job, lease.block_first);
    lease.samples_position = job->figures.samples;
    lease.k = within(wish->k, job->spec.update.k_per_chunk, job->spec.update.k_min,
                     job->spec.update.k_max);
    lease.patience_us = (int64_t)job->spec.lease_deadline_seconds * 1000000;
    if (lease.patience_us < wish->patience_us)
        lease.patience_us = wish->patience_us;
    lease.deadline_us = now_us + lease.patience_us;

    if (!lease.evaluates && record_grant(job, &lease, replaces))
        return STATUS_UNAVAILABLE;
    enum status status = lease_take(job, &lease, replaces);
    if (status)
        return status;
    *ret = lease;
    return STATUS_OK;
}

void job_progress(struct job *job, const char *id, const char *volunteer, uint64_t step,
                  int64_t now_us)
{
    struct job_lease *lease = lease_find(&job->leases, id);
    if (!lease || strcmp(lease->volunteer, volunteer) != 0 || step <= lease->step)
        return;
    lease->step = step;
    for (uint32_t i = 0; i < job->leases.count; i++) {
        struct job_lease *held = &job->leases.items[i];
        if (strcmp(held->volunteer, volunteer) != 0)
            continue;
        held->deadline_us = now_us + held->patience_us;
        held->expired = false;
    }
}

bool job_expire_next(struct job *job, int64_t now_us, struct job_lease *ret)
{
    for (uint32_t i = 0; i < job->leases.count; i++) {
        struct job_lease *lease = &job->leases.items[i];
        if (lease->expired || lease->pending || lease->deadline_us > now_us)
            continue;
        lease->expired = true;
        *ret = *lease;
        if (lease->evaluates)
            lease_remove(&job->leases, ret->id);
        return true;
    }
    return false;
}
