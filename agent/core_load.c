/* Loading a job and its replica on the training thread. Surprising decision: the backend is made
 * with the first job, not at start, so that an idle agent stays small. */
#include "agent/core_worker_internal.h"

#include "common/base/bytes.h"
#include "common/tensorfile/replica_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

void worker_unload_job(struct worker *worker)
{
    packer_flush(worker->packer, worker->replica);
    worker->replica_held = false;
    trainer_free(worker->trainer);
    replica_free(worker->replica);
    graph_free(worker->graph);
    worker->trainer = NULL;
    worker->replica = NULL;
    worker->graph = NULL;
    worker->job[0] = '\0';
}

static enum status make_backend(struct worker *worker, struct error *err)
{
    if (worker->backend)
        return STATUS_OK;
    struct backend *backend;
    enum status status = backend_create_cpu(worker->settings.threads, &backend, err);
    if (status)
        return status;
    status = backend_selftest(backend, err);
    if (status)
        backend_free(backend);
    else
        worker->backend = backend;
    return status;
}

static void begin_write(void *user)
{
    replica_x_begin_write(user);
}

static void end_write(void *user)
{
    replica_x_end_write(user);
}

static enum status load(struct worker *worker, const struct job_order *order, struct error *err)
{
    enum status status = make_backend(worker, err);
    if (!status)
        status = graph_build(&order->spec.model, &worker->graph, err);
    if (status)
        return status;
    if (worker->graph->parameter_count != order->parameters ||
        graph_layout_hash(worker->graph) != order->layout)
        return error_set(err, STATUS_UNSUPPORTED,
                         "the coordinator lays this model's %llu parameters out differently; "
                         "please update the agent",
                         (unsigned long long)order->parameters);

    struct trainer_data_paths data = {0};
    for (size_t i = 0; i < order->artifact_count; i++)
        data.paths[i] = order->artifacts[i].path;
    status =
        trainer_create(&order->spec, worker->graph, &data, worker->backend, &worker->trainer, err);
    if (status)
        return status;
    struct replica_settings settings = {
        .n = order->parameters,
        .keep_unsent = order->spec.update.keep_unsent,
        .residual_decay = order->spec.update.residual_decay,
        .values = (enum codec_values)order->spec.update.values,
        .pool = worker->backend->pool,
    };
    status = replica_create(&settings, &worker->replica, err);
    struct trainer_gate gate = {begin_write, end_write, worker->replica};
    if (!status)
        trainer_set_gate(worker->trainer, &gate);
    return status;
}

void worker_load_job(struct worker *worker, const struct job_order *order)
{
    while (worker->lease_count > 0)
        worker_drop_lease(worker, worker->lease_count - 1);
    worker_unload_job(worker);
    worker->samples_per_s = worker->step_ms = worker->overhead_ms = 0.0;
    worker->rate_from_us = 0;
    worker->ahead = 1;
    struct error err = {0};
    enum status status = load(worker, order, &err);
    struct core_mail *mail = core_mail_create(status ? CORE_LOAD_ERROR : CORE_LOADED);
    if (mail) {
        text_copy(mail->job, sizeof mail->job, order->job);
        text_copy(mail->text, sizeof mail->text, err.text);
    }
    if (status) {
        worker_unload_job(worker);
    } else {
        text_copy(worker->job, sizeof worker->job, order->job);
        worker->spec = order->spec;
        worker->layout = order->layout;
    }
    worker_report(worker, mail);
}

static enum status read_replica(struct worker *worker, const char *path, struct replica_header *ret,
                                struct error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat info;
    if (fd < 0 || fstat(fd, &info) < 0) {
        if (fd >= 0)
            close(fd);
        return error_set_errno(err, errno, "cannot open %s", path);
    }
    size_t bytes = (size_t)info.st_size;
    void *map = bytes > 0 ? mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
    close(fd);
    if (map == MAP_FAILED)
        return error_set(err, STATUS_IO, "cannot map %s", path);

    struct replica_header header;
    enum status status = replica_read(map, bytes, worker->graph->parameter_count, &header,
                                      replica_load_target(worker->replica), err);
    munmap(map, bytes);
    if (!status && header.layout != worker->layout)
        status = error_set(err, STATUS_CORRUPT, "the replica is of another model");
    if (!status)
        *ret = header;
    return status;
}

void worker_load_replica(struct worker *worker, const char *job, const char *path)
{
    if (!worker->replica || strcmp(job, worker->job) != 0) {
        unlink(path);
        return;
    }
    while (worker->lease_count > 0)
        worker_drop_lease(worker, worker->lease_count - 1);
    struct error err = {0};
    struct replica_header header = {0};
    packer_flush(worker->packer, worker->replica);
    enum status status = read_replica(worker, path, &header, &err);
    unlink(path);
    if (status) {
        worker_lose_replica(worker, err.text);
        return;
    }
    replica_loaded(worker->replica, header.version, header.hash);
    worker->replica_held = true;
    worker->ramp_steps = 0;
    worker->broken_steps = 0;
    struct core_mail *mail = core_mail_create(CORE_HAVE);
    if (mail) {
        text_copy(mail->job, sizeof mail->job, worker->job);
        mail->version = header.version;
        mail->hash = header.hash;
    }
    worker_report(worker, mail);
}
