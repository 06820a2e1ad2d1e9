/* A text file as windows of bytes, mapped read-only. Training thread. Surprising: when the
 * vocabulary has fewer than 256 entries the whole file is read once, so that no byte outside it can
 * reach the embedding table later. */
#include "agent/engine/data.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static enum status map_text(struct data *data, const char *path, struct error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return error_set_errno(err, errno, "opening the training text %s", path);
    enum status status = STATUS_OK;
    struct stat info;
    if (fstat(fd, &info) != 0)
        status = error_set_errno(err, errno, "reading the size of %s", path);
    else if (!S_ISREG(info.st_mode) || info.st_size <= 0)
        status =
            error_set(err, STATUS_INVALID, "the training text %s is empty or not a file", path);
    if (!status) {
        void *map = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (map == MAP_FAILED) {
            status = error_set_errno(err, errno, "mapping the training text %s", path);
        } else {
            data->text = map;
            data->text_bytes = (uint64_t)info.st_size;
        }
    }
    close(fd);
    return status;
}

enum status data_text_open(struct data *data, const struct job_spec *spec,
                           const struct trainer_data_paths *paths, struct error *err)
{
    enum status status = map_text(data, paths->paths[0], err);
    if (status)
        return status;
    data->context = spec->model.context;
    uint32_t vocabulary = spec->model.vocabulary;
    for (uint64_t i = 0; vocabulary < 256 && i < data->text_bytes; i++) {
        if (data->text[i] >= vocabulary)
            return error_set(err, STATUS_INVALID,
                             "the training text has byte %u at offset %llu, but the vocabulary is "
                             "%u; use vocabulary 256 or another text",
                             data->text[i], (unsigned long long)i, vocabulary);
    }
    return STATUS_OK;
}

void data_text_close(struct data *data)
{
    if (data->text)
        munmap((void *)(uintptr_t)data->text, (size_t)data->text_bytes);
    data->text = NULL;
}

void data_text_sample(const struct data *data, uint64_t offset, int32_t *tokens, int32_t *target)
{
    for (uint64_t i = 0; i < data->context; i++) {
        tokens[i] = data->text[offset + i];
        target[i] = data->text[offset + i + 1];
    }
}
