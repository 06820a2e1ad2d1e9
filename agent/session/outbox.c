/* The outbox's files; see the header. Surprising decision: there is no index. The directory is the
 * list, so no crash can make list and files disagree. */
#include "agent/session/outbox.h"

#include "common/base/bytes.h"
#include "common/base/checksum.h"
#include "common/base/file.h"
#include "common/base/id.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct found {
    char lease[ID_BYTES];
    struct timespec changed;
};

enum status outbox_open(const char *dir, struct error *err)
{
    return file_make_dirs(dir, 0700, err);
}

enum status outbox_save(const char *dir, const struct wire_offer *offer,
                        const struct shared *payload, struct error *err)
{
    char path[PATH_BYTES];
    struct wire_message message = {.type = WIRE_offer, .offer = *offer};
    struct buffer file;
    buffer_init(&file, WIRE_TEXT_BYTES_MAX + 1 + shared_bytes(payload));
    enum status status = path_format(path, "%s/%s", dir, offer->lease);
    if (!status)
        status = wire_encode(&message, &file);
    if (!status)
        status = buffer_append(&file, "\n", 1);
    if (!status)
        status = buffer_append(&file, shared_data(payload), shared_bytes(payload));
    if (status)
        error_set(err, status, "the update of lease %s cannot be kept on disk: %s", offer->lease,
                  status_text(status));
    else
        status = file_write_atomic(path, file.data, file.bytes, 0600, err);
    buffer_done(&file);
    return status;
}

void outbox_remove(const char *dir, const char *lease)
{
    char path[PATH_BYTES];
    if (path_format(path, "%s/%s", dir, lease) == STATUS_OK)
        unlink(path);
}

/* STATUS_CORRUPT: not a whole update. */
static enum status read_update(const char *path, const char *lease, struct wire_offer *ret,
                               struct shared **ret_payload)
{
    struct buffer file;
    buffer_init(&file, OUTBOX_BYTES_MAX);
    enum status status = file_read(path, &file, NULL);
    const uint8_t *line_end =
        status || file.bytes == 0 ? NULL : memchr(file.data, '\n', file.bytes);
    struct wire_message message;
    if (!status &&
        (!line_end || wire_decode((const char *)file.data, (size_t)(line_end - file.data),
                                  WIRE_FROM_AGENT, &message, NULL)))
        status = STATUS_CORRUPT;
    if (!status) {
        const uint8_t *payload = line_end + 1;
        size_t bytes = file.bytes - (size_t)(payload - file.data);
        uint8_t sha256[SHA256_BYTES];
        sha256_of(payload, bytes, sha256);
        bool whole = message.type == WIRE_offer && strcmp(message.offer.lease, lease) == 0 &&
                     message.offer.bytes == bytes &&
                     memcmp(message.offer.sha256, sha256, sizeof sha256) == 0;
        *ret = message.offer;
        *ret_payload = whole ? shared_create(payload, bytes) : NULL;
        if (!*ret_payload)
            status = whole ? STATUS_NO_MEMORY : STATUS_CORRUPT;
    }
    buffer_done(&file);
    return status;
}

static int older_first(const void *a, const void *b)
{
    const struct found *one = a, *other = b;
    if (one->changed.tv_sec != other->changed.tv_sec)
        return one->changed.tv_sec < other->changed.tv_sec ? -1 : 1;
    if (one->changed.tv_nsec != other->changed.tv_nsec)
        return one->changed.tv_nsec < other->changed.tv_nsec ? -1 : 1;
    return strcmp(one->lease, other->lease);
}

/* Everything that is not named as a lease is a leftover of a write that was cut short. */
static enum status list(const char *dir, struct found *ret, size_t max, size_t *ret_count,
                        struct error *err)
{
    DIR *stream = opendir(dir);
    if (!stream)
        return error_set_errno(err, errno, "cannot read %s", dir);
    size_t count = 0;
    struct dirent *entry;
    while ((entry = readdir(stream)) && count < max) {
        char path[PATH_BYTES];
        struct stat info;
        if (entry->d_name[0] == '.' || path_format(path, "%s/%s", dir, entry->d_name) ||
            stat(path, &info) < 0 || !S_ISREG(info.st_mode))
            continue;
        if (!id_is_valid(entry->d_name, "lea")) {
            unlink(path);
            continue;
        }
        text_copy(ret[count].lease, ID_BYTES, entry->d_name);
        ret[count++].changed = info.st_mtim;
    }
    closedir(stream);
    qsort(ret, count, sizeof *ret, older_first);
    *ret_count = count;
    return STATUS_OK;
}

enum status outbox_load(const char *dir,
                        void (*take)(void *user, const struct wire_offer *offer,
                                     struct shared *payload),
                        void *user, size_t *ret_damaged, struct error *err)
{
    struct found found[OUTBOX_UPDATES_MAX];
    size_t count = 0;
    *ret_damaged = 0;
    enum status status = list(dir, found, COUNT_OF(found), &count, err);
    for (size_t i = 0; i < count && !status; i++) {
        char path[PATH_BYTES];
        struct wire_offer offer;
        struct shared *payload;
        status = path_format(path, "%s/%s", dir, found[i].lease);
        enum status read = status ? status : read_update(path, found[i].lease, &offer, &payload);
        if (read == STATUS_OK) {
            take(user, &offer, payload);
        } else if (read == STATUS_CORRUPT) {
            ++*ret_damaged;
            unlink(path);
        } else {
            status = error_set(err, read, "cannot read %s: %s", path, status_text(read));
        }
    }
    return status;
}
