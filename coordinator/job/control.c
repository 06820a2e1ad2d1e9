/* Bodies of LEDGER_CONTROL records. Little-endian:
 *
 *   u8 kind
 *   kind 1, a lease was granted: 32 bytes each of lease id, volunteer id, id of the lease it
 *      replaces (zeros for new blocks); u64 nonce, base, block_first, block_count, steps, samples,
 *      samples_position, k, patience in microseconds
 *   kind 2, an evaluation: u64 version, i64 wall ms, f64 loss, f64 accuracy
 *
 * Unknown kinds are skipped: they cannot change parameters. */
#include "coordinator/job/job_internal.h"

#include "common/base/bytes.h"

enum { CONTROL_GRANT = 1, CONTROL_EVALUATION = 2 };
enum { GRANT_BYTES = 1 + 3 * ID_BYTES + 9 * 8, EVALUATION_BYTES = 1 + 4 * 8 };

enum status control_grant_write(const struct job_lease *lease, const char *replaces,
                                struct buffer *ret)
{
    uint8_t body[GRANT_BYTES] = {CONTROL_GRANT};
    text_copy((char *)body + 1, ID_BYTES, lease->id);
    text_copy((char *)body + 1 + ID_BYTES, ID_BYTES, lease->volunteer);
    text_copy((char *)body + 1 + 2 * ID_BYTES, ID_BYTES, replaces);
    const uint64_t numbers[9] = {lease->nonce,
                                 lease->base,
                                 lease->block_first,
                                 lease->block_count,
                                 lease->steps,
                                 lease->samples,
                                 lease->samples_position,
                                 lease->k,
                                 (uint64_t)lease->patience_us};
    for (size_t i = 0; i < COUNT_OF(numbers); i++)
        store_u64(body + 1 + 3 * ID_BYTES + 8 * i, numbers[i]);
    return buffer_append(ret, body, sizeof body);
}

enum status control_evaluation_write(uint64_t version, double loss, double accuracy,
                                     int64_t wall_ms, struct buffer *ret)
{
    uint8_t body[EVALUATION_BYTES] = {CONTROL_EVALUATION};
    store_u64(body + 1, version);
    store_u64(body + 9, (uint64_t)wall_ms);
    store_f64(body + 17, loss);
    store_f64(body + 25, accuracy);
    return buffer_append(ret, body, sizeof body);
}

static enum status replay_grant(struct job *job, const uint8_t *body)
{
    struct job_lease lease = {0};
    char replaces[ID_BYTES];
    text_copy(lease.id, ID_BYTES, (const char *)body + 1);
    text_copy(lease.volunteer, ID_BYTES, (const char *)body + 1 + ID_BYTES);
    text_copy(replaces, ID_BYTES, (const char *)body + 1 + 2 * ID_BYTES);
    uint64_t numbers[9];
    for (size_t i = 0; i < COUNT_OF(numbers); i++)
        numbers[i] = load_u64(body + 1 + 3 * ID_BYTES + 8 * i);
    lease.nonce = numbers[0];
    lease.base = numbers[1];
    lease.block_first = numbers[2];
    lease.block_count = numbers[3];
    lease.steps = numbers[4];
    lease.samples = numbers[5];
    lease.samples_position = numbers[6];
    lease.k = numbers[7];
    lease.patience_us = (int64_t)numbers[8];
    lease.seed = lease_seed(job, lease.block_first);
    return lease_take(job, &lease, replaces);
}

enum status control_replay(struct job *job, const uint8_t *body, size_t bytes, struct error *err)
{
    if (bytes == GRANT_BYTES && body[0] == CONTROL_GRANT) {
        for (size_t i = 1; i <= 3; i++)
            if (body[i * ID_BYTES] != 0)
                return error_set(err, STATUS_CORRUPT, "a grant record has an unterminated id");
        enum status status = replay_grant(job, body);
        return status ? error_set(err, status, "no memory for the leases") : STATUS_OK;
    }
    if (bytes == EVALUATION_BYTES && body[0] == CONTROL_EVALUATION)
        job_note_evaluation(job, load_u64(body + 1), load_f64(body + 17), load_f64(body + 25),
                            (int64_t)load_u64(body + 9));
    return STATUS_OK;
}
