/* Snapshots of a job: write, find the newest whole or the oldest, delete old ones. One thread per
 * directory at a time. Surprising: the job's bookkeeping (which updates were already answered) is
 * in the same file as the parameters, so that the two can never disagree after a crash.
 *
 * The byte format, version 1. All integers and floats little-endian; checksums XXH3-64. The file
 * snapshot-<sequence, 20 digits>.rvs is a header, a table of sections, and the sections in the
 * table's order without gaps; nothing follows.
 *
 * Header, 80 bytes:
 *    0   8  magic "RAVENSNP"
 *    8   2  format = 1
 *   10   2  min_reader = 1: readers older than this must refuse
 *   12   4  number of sections, at most 16
 *   16   8  ledger sequence that is contained
 *   24   8  chain of that record
 *   32   8  model version
 *   40   8  layout hash
 *   48   8  n, parameters
 *   56   8  zero
 *   64   8  checksum of the table
 *   72   8  checksum of bytes 0 … 71; checked before anything else is believed
 * Table, 24 bytes for each section:
 *    0   4  kind: 1 = theta (n fp32), 2 = w (n fp32), 3 = state (bytes of the job)
 *    4   4  zero
 *    8   8  length in bytes
 *   16   8  checksum of the section
 * Format 1 has exactly these three, in this order. */
#include "coordinator/ledger/snapshot.h"

#include "common/base/bytes.h"
#include "common/base/checksum.h"
#include "common/base/file.h"
#include "coordinator/ledger/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

#define FORMAT 1
#define SECTIONS 3
#define NAMES_MAX 100000u

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "fp32 arrays are written as they are");

enum header_offset {
    HEADER_MAGIC = 0,
    HEADER_FORMAT = 8,
    HEADER_MIN_READER = 10,
    HEADER_SECTIONS = 12,
    HEADER_SEQUENCE = 16,
    HEADER_CHAIN = 24,
    HEADER_VERSION = 32,
    HEADER_LAYOUT = 40,
    HEADER_N = 48,
    HEADER_TABLE_CHECKSUM = 64,
    HEADER_CHECKSUM = 72,
    HEADER_BYTES = 80,
};

enum section_offset {
    SECTION_KIND = 0,
    SECTION_LENGTH = 8,
    SECTION_CHECKSUM = 16,
    SECTION_BYTES = 24,
};

#define HEAD_BYTES (HEADER_BYTES + SECTIONS * SECTION_BYTES)

static const uint8_t magic[8] = {'R', 'A', 'V', 'E', 'N', 'S', 'N', 'P'};

struct section {
    void *data;
    uint64_t bytes;
    uint64_t checksum;
};

static enum status name_path(const char *dir, uint64_t sequence, char ret[PATH_BYTES],
                             struct error *err)
{
    enum status status =
        path_format(ret, "%s/snapshot-%020llu.rvs", dir, (unsigned long long)sequence);
    if (status != STATUS_OK)
        return error_set(err, status, "the snapshots' directory name is too long: %s", dir);
    return STATUS_OK;
}

static void write_head(const struct snapshot *snapshot, const struct section sections[SECTIONS],
                       uint8_t head[HEAD_BYTES])
{
    memset(head, 0, HEAD_BYTES);
    memcpy(head + HEADER_MAGIC, magic, sizeof magic);
    store_u16(head + HEADER_FORMAT, FORMAT);
    store_u16(head + HEADER_MIN_READER, FORMAT);
    store_u32(head + HEADER_SECTIONS, SECTIONS);
    store_u64(head + HEADER_SEQUENCE, snapshot->position.sequence);
    store_u64(head + HEADER_CHAIN, snapshot->position.chain);
    store_u64(head + HEADER_VERSION, snapshot->version);
    store_u64(head + HEADER_LAYOUT, snapshot->layout);
    store_u64(head + HEADER_N, snapshot->n);
    for (uint32_t i = 0; i < SECTIONS; i++) {
        uint8_t *entry = head + HEADER_BYTES + i * SECTION_BYTES;
        store_u32(entry + SECTION_KIND, i + 1);
        store_u64(entry + SECTION_LENGTH, sections[i].bytes);
        store_u64(entry + SECTION_CHECKSUM,
                  checksum_xxh3(sections[i].data, (size_t)sections[i].bytes));
    }
    store_u64(head + HEADER_TABLE_CHECKSUM,
              checksum_xxh3(head + HEADER_BYTES, HEAD_BYTES - HEADER_BYTES));
    store_u64(head + HEADER_CHECKSUM, checksum_xxh3(head, HEADER_CHECKSUM));
}

static enum status write_file(const char *path, const struct snapshot *snapshot, struct error *err)
{
    const uint64_t array_bytes = snapshot->n * sizeof(float);
    const struct section sections[SECTIONS] = {{snapshot->theta, array_bytes, 0},
                                               {snapshot->w, array_bytes, 0},
                                               {snapshot->state, snapshot->state_bytes, 0}};
    uint8_t head[HEAD_BYTES];
    write_head(snapshot, sections, head);
    int fd = disk_open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0)
        return error_set_errno(err, errno, "cannot create the snapshot %s", path);
    enum status status = disk_write_whole(fd, head, sizeof head, 0, err);
    uint64_t offset = sizeof head;
    for (int i = 0; status == STATUS_OK && i < SECTIONS; i++) {
        status = disk_write_whole(fd, sections[i].data, (size_t)sections[i].bytes, offset, err);
        offset += sections[i].bytes;
    }
    if (status == STATUS_OK && disk_fsync(fd) != 0)
        status = error_set_errno(err, errno, "cannot sync the snapshot %s", path);
    if (disk_close(fd) != 0 && status == STATUS_OK)
        status = error_set_errno(err, errno, "cannot close the snapshot %s", path);
    return status;
}

enum status snapshot_write(const char *dir, const struct snapshot *snapshot, struct error *err)
{
    char path[PATH_BYTES], temp[PATH_BYTES];
    enum status status = name_path(dir, snapshot->position.sequence, path, err);
    if (status != STATUS_OK)
        return status;
    status = path_format(temp, "%s.tmp", path);
    if (status != STATUS_OK)
        return error_set(err, status, "the snapshots' directory name is too long: %s", dir);
    status = write_file(temp, snapshot, err);
    if (status == STATUS_OK && disk_rename(temp, path) != 0)
        status = error_set_errno(err, errno, "cannot rename the snapshot %s", temp);
    if (status != STATUS_OK) {
        (void)disk_unlink(temp);
        return status;
    }
    if (disk_sync_dir(dir) != 0)
        return error_set_errno(err, errno, "cannot sync the directory %s", dir);
    return STATUS_OK;
}

static enum status damaged(const char *path, const char *what, struct error *err)
{
    return error_set(err, STATUS_CORRUPT, "the snapshot %s is damaged (%s)", path, what);
}

/* Fills in the lengths and checksums of sections and everything of ret but the arrays. */
static enum status read_head(int fd, const char *path, uint64_t sequence, struct snapshot *ret,
                             struct section sections[SECTIONS], struct error *err)
{
    uint8_t head[HEAD_BYTES];
    uint64_t file_bytes;
    if (disk_size(fd, &file_bytes) != 0)
        return error_set_errno(err, errno, "cannot examine the snapshot %s", path);
    if (file_bytes < sizeof head)
        return damaged(path, "the file ends too early", err);
    enum status status = disk_read_whole(fd, head, sizeof head, 0, err);
    if (status != STATUS_OK)
        return status;
    if (memcmp(head, magic, sizeof magic) != 0 ||
        load_u64(head + HEADER_CHECKSUM) != checksum_xxh3(head, HEADER_CHECKSUM))
        return damaged(path, "its header is not whole", err);
    if (load_u16(head + HEADER_MIN_READER) > FORMAT)
        return error_set(err, STATUS_UNSUPPORTED,
                         "%s was written by a newer version of this program; use it", path);
    if (load_u32(head + HEADER_SECTIONS) != SECTIONS ||
        load_u64(head + HEADER_TABLE_CHECKSUM) !=
            checksum_xxh3(head + HEADER_BYTES, HEAD_BYTES - HEADER_BYTES))
        return damaged(path, "its table is not whole", err);
    *ret = (struct snapshot){
        .position = {load_u64(head + HEADER_SEQUENCE), load_u64(head + HEADER_CHAIN)},
        .version = load_u64(head + HEADER_VERSION),
        .layout = load_u64(head + HEADER_LAYOUT),
        .n = load_u64(head + HEADER_N),
    };
    uint64_t left_bytes = file_bytes - sizeof head;
    for (uint32_t i = 0; i < SECTIONS; i++) {
        const uint8_t *entry = head + HEADER_BYTES + i * SECTION_BYTES;
        sections[i].bytes = load_u64(entry + SECTION_LENGTH);
        sections[i].checksum = load_u64(entry + SECTION_CHECKSUM);
        if (load_u32(entry + SECTION_KIND) != i + 1 || sections[i].bytes > left_bytes)
            return damaged(path, "its sections do not fit", err);
        left_bytes -= sections[i].bytes;
    }
    if (left_bytes != 0 || ret->position.sequence != sequence ||
        ret->n > UINT64_MAX / sizeof(float) || sections[0].bytes != ret->n * sizeof(float) ||
        sections[1].bytes != sections[0].bytes)
        return damaged(path, "its lengths do not fit", err);
    ret->state_bytes = sections[2].bytes;
    return STATUS_OK;
}

static enum status read_sections(int fd, const char *path, struct section sections[SECTIONS],
                                 struct error *err)
{
    uint64_t offset = HEAD_BYTES;
    for (int i = 0; i < SECTIONS; i++) {
        size_t bytes = (size_t)sections[i].bytes;
        sections[i].data = malloc(bytes > 0 ? bytes : 1);
        if (!sections[i].data)
            return error_set(err, STATUS_NO_MEMORY, "no memory for %zu bytes of the snapshot %s",
                             bytes, path);
        enum status status = disk_read_whole(fd, sections[i].data, bytes, offset, err);
        if (status != STATUS_OK)
            return status;
        if (checksum_xxh3(sections[i].data, bytes) != sections[i].checksum)
            return damaged(path, "a section's checksum differs", err);
        offset += bytes;
    }
    return STATUS_OK;
}

static enum status read_file(const char *dir, uint64_t sequence, struct snapshot *ret,
                             struct error *err)
{
    char path[PATH_BYTES];
    struct snapshot snapshot;
    struct section sections[SECTIONS] = {0};
    enum status status = name_path(dir, sequence, path, err);
    if (status != STATUS_OK)
        return status;
    int fd = disk_open(path, O_RDONLY, 0);
    if (fd < 0)
        return error_set_errno(err, errno, "cannot open the snapshot %s", path);
    status = read_head(fd, path, sequence, &snapshot, sections, err);
    if (status == STATUS_OK)
        status = read_sections(fd, path, sections, err);
    (void)disk_close(fd);
    if (status != STATUS_OK) {
        for (int i = 0; i < SECTIONS; i++)
            free(sections[i].data);
        return status;
    }
    snapshot.theta = sections[0].data;
    snapshot.w = sections[1].data;
    snapshot.state = sections[2].data;
    *ret = snapshot;
    return STATUS_OK;
}

static bool parse_name(const char *name, uint64_t *ret_sequence)
{
    unsigned long long sequence;
    char again[48];
    if (sscanf(name, "snapshot-%20llu.rvs", &sequence) != 1)
        return false;
    int length = snprintf(again, sizeof again, "snapshot-%020llu.rvs", sequence);
    if (length <= 0 || strcmp(name, again) != 0)
        return false;
    *ret_sequence = sequence;
    return true;
}

static int compare_sequences(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return a < b ? -1 : a > b;
}

struct listing {
    uint64_t *names;
    size_t count, room;
    bool too_many;
};

static void collect_name(void *context, const char *name)
{
    struct listing *listing = context;
    uint64_t sequence;
    if (!parse_name(name, &sequence) || listing->too_many)
        return;
    if (listing->count == listing->room) {
        size_t room = listing->room > 0 ? 2 * listing->room : 16;
        uint64_t *grown = room <= NAMES_MAX ? realloc(listing->names, room * sizeof *grown) : NULL;
        listing->too_many = !grown;
        if (!grown)
            return;
        listing->names = grown;
        listing->room = room;
    }
    listing->names[listing->count++] = sequence;
}

/* Ascending sequences; the caller frees *ret_names. */
static enum status list_names(const char *dir, uint64_t **ret_names, size_t *ret_count,
                              struct error *err)
{
    struct listing listing = {0};
    enum status status = STATUS_OK;
    if (disk_list(dir, collect_name, &listing) != 0)
        status = error_set_errno(err, errno, "cannot list the snapshots in %s", dir);
    else if (listing.too_many)
        status = error_set(err, STATUS_NO_MEMORY, "too many snapshots in %s", dir);
    if (status != STATUS_OK) {
        free(listing.names);
        return status;
    }
    if (listing.count > 0)
        qsort(listing.names, listing.count, sizeof *listing.names, compare_sequences);
    *ret_names = listing.names;
    *ret_count = listing.count;
    return STATUS_OK;
}

enum status snapshot_read_newest(const char *dir, uint64_t sequence_max, struct snapshot *ret,
                                 uint32_t *ret_damaged, struct error *err)
{
    uint64_t *names = NULL;
    size_t count = 0;
    uint32_t skipped = 0;
    struct error reason = {0};
    enum status status = list_names(dir, &names, &count, err);
    if (status != STATUS_OK)
        return status;
    status = STATUS_NOT_FOUND;
    while (count > 0 && status == STATUS_NOT_FOUND) {
        uint64_t sequence = names[--count];
        if (sequence > sequence_max)
            continue;
        status = read_file(dir, sequence, ret, &reason);
        if (status == STATUS_CORRUPT || status == STATUS_IO || status == STATUS_TRUNCATED) {
            skipped++;
            status = STATUS_NOT_FOUND;
        }
    }
    free(names);
    if (status == STATUS_OK && ret_damaged)
        *ret_damaged = skipped;
    if (status == STATUS_NOT_FOUND)
        return error_set(err, status, "there is no whole snapshot in %s%s%s", dir,
                         skipped > 0 ? ": " : "", reason.text);
    if (status != STATUS_OK)
        return error_set(err, status, "%s", reason.text);
    return STATUS_OK;
}

enum status snapshot_read_oldest(const char *dir, struct snapshot *ret, struct error *err)
{
    uint64_t *names = NULL;
    size_t count = 0;
    enum status status = list_names(dir, &names, &count, err);
    if (status != STATUS_OK)
        return status;
    if (count == 0)
        status = error_set(err, STATUS_NOT_FOUND, "there is no snapshot in %s", dir);
    else
        status = read_file(dir, names[0], ret, err);
    free(names);
    return status;
}

enum status snapshot_prune(const char *dir, uint32_t keep, struct error *err)
{
    uint64_t *names = NULL;
    size_t count = 0;
    enum status status = list_names(dir, &names, &count, err);
    for (size_t i = 1; status == STATUS_OK && i + keep < count; i++) {
        char path[PATH_BYTES];
        status = name_path(dir, names[i], path, err);
        if (status == STATUS_OK && disk_unlink(path) != 0 && errno != ENOENT)
            status = error_set_errno(err, errno, "cannot delete the snapshot %s", path);
    }
    free(names);
    return status;
}

void snapshot_done(struct snapshot *snapshot)
{
    free(snapshot->theta);
    free(snapshot->w);
    free(snapshot->state);
    snapshot->theta = NULL;
    snapshot->w = NULL;
    snapshot->state = NULL;
}
