/* The ledger: durable acknowledgements per second against a raw probe in the same run (pwrite of as
 * many bytes at once and fdatasync on a preallocated file in the same directory), rounds of both in
 * turn because disks change their mood. Files lie in $TMPDIR, else /var/tmp: a memory file system
 * would measure nothing. */
#include "common/base/clock.h"
#include "common/base/file.h"
#include "coordinator/ledger/ledger.h"
#include "tests/bench/report.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROUNDS 4
#define PROBE_FILE_BYTES (64 * 1024 * 1024)
#define RECORD_OVERHEAD_BYTES 64

struct load {
    size_t body_bytes;
    int in_flight; /* appended and not yet durable */
    int records;   /* per round */
};

struct bench {
    char dir[PATH_BYTES];
    const struct load *load;
    uint8_t *body;
    struct ledger *ledger;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int outstanding;
    bool failed;
};

static void on_done(void *context, uint64_t sequence, enum status status)
{
    struct bench *bench = context;
    (void)sequence;
    (void)pthread_mutex_lock(&bench->mutex);
    bench->outstanding--;
    bench->failed |= status != STATUS_OK;
    (void)pthread_cond_signal(&bench->changed);
    (void)pthread_mutex_unlock(&bench->mutex);
}

static void wait_until_at_most(struct bench *bench, int outstanding)
{
    (void)pthread_mutex_lock(&bench->mutex);
    while (bench->outstanding > outstanding)
        (void)pthread_cond_wait(&bench->changed, &bench->mutex);
    (void)pthread_mutex_unlock(&bench->mutex);
}

static int64_t run_ledger(struct bench *bench)
{
    const struct load *load = bench->load;
    int64_t start_us = clock_monotonic_us();
    for (int i = 0; i < load->records && !bench->failed; i++) {
        wait_until_at_most(bench, load->in_flight - 1);
        (void)pthread_mutex_lock(&bench->mutex);
        bench->outstanding++;
        (void)pthread_mutex_unlock(&bench->mutex);
        if (ledger_append(bench->ledger, LEDGER_UPDATE, bench->body, load->body_bytes, on_done,
                          bench, NULL) != STATUS_OK) {
            on_done(bench, 0, STATUS_IO);
            break;
        }
    }
    wait_until_at_most(bench, 0);
    return clock_monotonic_us() - start_us;
}

static int64_t run_probe(struct bench *bench)
{
    const struct load *load = bench->load;
    size_t bytes = (load->body_bytes + RECORD_OVERHEAD_BYTES) * (size_t)load->in_flight;
    char path[PATH_BYTES];
    uint8_t *data = calloc(1, bytes);
    int fd = -1;
    int64_t spent_us = 1;
    if (!data || path_format(path, "%s/probe", bench->dir) != STATUS_OK)
        goto out;
    fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || posix_fallocate(fd, 0, PROBE_FILE_BYTES) != 0 || fsync(fd) != 0)
        goto out;
    int64_t start_us = clock_monotonic_us();
    uint64_t offset = 0;
    for (int i = 0; i < load->records; i += load->in_flight) {
        if (offset + bytes > PROBE_FILE_BYTES)
            offset = 0;
        bench->failed |= file_pwrite_all(fd, data, bytes, offset, NULL) != STATUS_OK;
        bench->failed |= fdatasync(fd) != 0;
        offset += bytes;
    }
    spent_us = clock_monotonic_us() - start_us;
out:
    bench->failed |= fd < 0 || spent_us <= 1;
    if (fd >= 0)
        (void)close(fd);
    free(data);
    return spent_us;
}

static enum status measure(struct bench *bench, const struct report *report)
{
    const struct load *load = bench->load;
    char name[64], dir[PATH_BYTES], reference[96];
    struct error err = {0};
    int64_t ledger_us = 0, probe_us = 0;
    enum status status =
        path_format(dir, "%s/ledger-%zu-%d", bench->dir, load->body_bytes, load->in_flight);
    if (status == STATUS_OK)
        status = ledger_open(dir, 0, NULL, NULL, &bench->ledger, NULL, &err);
    if (status != STATUS_OK) {
        (void)fprintf(stderr, "%s\n", err.text);
        return status;
    }
    for (int round = 0; round < ROUNDS && !bench->failed; round++) {
        probe_us += run_probe(bench);
        ledger_us += run_ledger(bench);
    }
    ledger_close(bench->ledger);
    if (bench->failed)
        return STATUS_IO;
    double records = (double)load->records * ROUNDS;
    (void)snprintf(name, sizeof name, "durable acks, %zu B, %d in flight", load->body_bytes,
                   load->in_flight);
    (void)snprintf(reference, sizeof reference, "pwrite of %d records and fdatasync",
                   load->in_flight);
    report_add(report, name, records * 1e6 / (double)ledger_us, "acks/s", reference,
               records * 1e6 / (double)probe_us);
    return file_remove_tree(dir, &err);
}

int main(int argc, char **argv)
{
    static const struct load loads[] = {
        {512, 1, 300}, {512, 64, 9600}, {4096, 64, 4800}, {65536, 16, 480}};
    struct report report;
    struct bench bench = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    const char *base = getenv("TMPDIR");
    if (!report_init(&report, "ledger", argc, argv))
        return 2;
    bench.body = calloc(1, 65536);
    if (!bench.body ||
        path_format(bench.dir, "%s/raven-bench-XXXXXX", base ? base : "/var/tmp") != STATUS_OK ||
        !mkdtemp(bench.dir)) {
        (void)fprintf(stderr, "ledger: no memory or no directory for the files\n");
        free(bench.body);
        return 1;
    }
    enum status status = STATUS_OK;
    for (size_t i = 0; status == STATUS_OK && i < sizeof loads / sizeof loads[0]; i++) {
        bench.load = &loads[i];
        status = measure(&bench, &report);
    }
    enum status removed = file_remove_tree(bench.dir, NULL);
    free(bench.body);
    if (status != STATUS_OK)
        (void)fprintf(stderr, "ledger: %s\n", status_text(status));
    return status == STATUS_OK && removed == STATUS_OK ? 0 : 1;
}
