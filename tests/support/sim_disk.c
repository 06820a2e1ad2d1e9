/* The model of sim_disk.h. Surprising: a file's live bytes are what any reader sees, its durable
 * bytes are touched only by a sync and by a power cut. */
#include "tests/support/sim_disk.h"

#include "common/base/bytes.h"
#include "common/base/file.h"
#include "common/base/rng.h"
#include "coordinator/ledger/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECTOR_BYTES 512u
#define FILE_BYTES_MAX ((size_t)16 * 1024)
#define SECTORS_MAX (FILE_BYTES_MAX / SECTOR_BYTES)
#define FILES_MAX 256
#define NAMES_MAX 256
#define FDS_MAX 64
#define CHANGES_MAX 256

struct file {
    uint8_t live[FILE_BYTES_MAX], durable[FILE_BYTES_MAX];
    uint64_t live_bytes, durable_bytes;
    bool dirty[SECTORS_MAX];
};

struct name {
    char path[PATH_BYTES]; /* empty: unused */
    int file;
};

/* path is bound to file; file < 0: to nothing. A rename is two of them with one number. */
struct change {
    uint64_t number;
    struct name name;
};

static struct {
    struct rng rng;
    struct file *files[FILES_MAX];
    struct name live[NAMES_MAX], durable[NAMES_MAX];
    struct change changes[CHANGES_MAX];
    int changes_count;
    uint64_t change_number;
    struct {
        int file; /* -1: closed */
    } fds[FDS_MAX];
    enum sim_fault fault;
    uint64_t countdown; /* 0: the fault is not ahead */
    bool dead, power_was_cut, short_writes, full;
} disk;

static void broken(const char *what)
{
    (void)fprintf(stderr, "sim_disk: %s\n", what);
    abort();
}

static bool chance(uint64_t percent)
{
    return rng_below(&disk.rng, 100) < percent;
}

static struct name *find(struct name names[NAMES_MAX], const char *path)
{
    for (int i = 0; i < NAMES_MAX; i++)
        if (strcmp(names[i].path, path) == 0)
            return &names[i];
    return NULL;
}

static void bind(struct name names[NAMES_MAX], const char *path, int file)
{
    struct name *name = find(names, path);
    if (!name && file >= 0)
        name = find(names, "");
    if (!name && file >= 0)
        broken("too many names");
    if (!name)
        return;
    (void)snprintf(name->path, sizeof name->path, "%s", file >= 0 ? path : "");
    name->file = file;
}

static void change_name(const char *path, int file)
{
    if (disk.changes_count == CHANGES_MAX)
        broken("too many changes of names");
    struct change *change = &disk.changes[disk.changes_count++];
    change->number = disk.change_number;
    change->name.file = file;
    (void)snprintf(change->name.path, sizeof change->name.path, "%s", path);
    bind(disk.live, path, file);
}

static int new_file(void)
{
    for (int i = 0; i < FILES_MAX; i++) {
        if (disk.files[i])
            continue;
        disk.files[i] = calloc(1, sizeof *disk.files[i]);
        if (!disk.files[i])
            broken("no memory");
        return i;
    }
    broken("too many files");
    return -1;
}

static void keep_sector(struct file *file, size_t sector)
{
    memcpy(file->durable + sector * SECTOR_BYTES, file->live + sector * SECTOR_BYTES, SECTOR_BYTES);
}

static void write_out(struct file *file, uint64_t percent)
{
    for (size_t i = 0; i < SECTORS_MAX; i++) {
        if (file->dirty[i] && chance(percent))
            keep_sector(file, i);
        file->dirty[i] = false;
    }
    if (chance(percent))
        file->durable_bytes = file->live_bytes;
}

/* What is on the disk becomes all that there is. */
static void cut_power(void)
{
    static const uint64_t percents[] = {0, 100, 50, 10, 90};
    uint64_t percent = percents[rng_below(&disk.rng, COUNT_OF(percents))];
    uint64_t kept = 0; /* changes of names with lower numbers */
    if (disk.changes_count > 0)
        kept = disk.changes[0].number +
               rng_below(&disk.rng, disk.change_number - disk.changes[0].number + 2);
    for (int i = 0; i < disk.changes_count && disk.changes[i].number < kept; i++)
        bind(disk.durable, disk.changes[i].name.path, disk.changes[i].name.file);
    disk.changes_count = 0;
    memcpy(disk.live, disk.durable, sizeof disk.live);
    for (int i = 0; i < FILES_MAX; i++) {
        struct file *file = disk.files[i];
        if (!file)
            continue;
        write_out(file, percent);
        if (file->durable_bytes < sizeof file->durable)
            memset(file->durable + file->durable_bytes, 0,
                   sizeof file->durable - (size_t)file->durable_bytes);
        memcpy(file->live, file->durable, sizeof file->live);
        file->live_bytes = file->durable_bytes;
    }
}

static void die(bool power)
{
    disk.dead = true;
    disk.power_was_cut = power;
}

/* Called first by everything that changes the disk. The fault that strikes now, if any. */
static enum sim_fault next_operation(void)
{
    if (disk.countdown == 0 || --disk.countdown > 0)
        return SIM_NOTHING;
    if (disk.fault == SIM_WRITE_SHORT)
        disk.short_writes = true;
    if (disk.fault == SIM_NO_SPACE)
        disk.full = true;
    return disk.fault;
}

static bool is_death(enum sim_fault fault)
{
    return fault == SIM_POWER_CUT || fault == SIM_KILL;
}

/* A death strikes before the operation or after it. True when the operation does not happen. */
static bool strike(enum sim_fault fault)
{
    if (!is_death(fault))
        return false;
    die(fault == SIM_POWER_CUT);
    return chance(50);
}

static int failed(int errnum)
{
    errno = errnum;
    return -1;
}

static struct file *file_of(int fd)
{
    if (fd < 0 || fd >= FDS_MAX || disk.fds[fd].file < 0)
        broken("a closed descriptor");
    return disk.files[disk.fds[fd].file];
}

void sim_disk_format(uint64_t seed)
{
    for (int i = 0; i < FILES_MAX; i++)
        free(disk.files[i]);
    memset(&disk, 0, sizeof disk);
    rng_seed(&disk.rng, seed);
    for (int i = 0; i < FDS_MAX; i++)
        disk.fds[i].file = -1;
}

void sim_disk_plan(enum sim_fault fault, uint64_t operation)
{
    disk.fault = fault;
    disk.countdown = operation;
}

bool sim_disk_has_struck(void)
{
    return disk.fault != SIM_NOTHING && disk.countdown == 0;
}

bool sim_disk_is_dead(void)
{
    return disk.dead;
}

void sim_disk_free(void)
{
    disk.full = false;
}

static bool is_named(int file)
{
    for (int i = 0; i < NAMES_MAX; i++)
        if ((disk.live[i].path[0] && disk.live[i].file == file) ||
            (disk.durable[i].path[0] && disk.durable[i].file == file))
            return true;
    for (int i = 0; i < disk.changes_count; i++)
        if (disk.changes[i].name.file == file)
            return true;
    return false;
}

void sim_disk_start(void)
{
    if (disk.power_was_cut)
        cut_power();
    for (int i = 0; i < FDS_MAX; i++)
        disk.fds[i].file = -1;
    for (int i = 0; i < FILES_MAX; i++) {
        if (disk.files[i] && !is_named(i)) {
            free(disk.files[i]);
            disk.files[i] = NULL;
        }
    }
    disk.dead = disk.power_was_cut = disk.short_writes = disk.full = false;
    sim_disk_plan(SIM_NOTHING, 0);
}

int disk_make_dirs(const char *dir)
{
    (void)dir;
    return disk.dead ? failed(EIO) : 0;
}

static int open_fd(int file)
{
    for (int fd = 0; fd < FDS_MAX; fd++) {
        if (disk.fds[fd].file < 0) {
            disk.fds[fd].file = file;
            return fd;
        }
    }
    broken("descriptors leak");
    return -1;
}

static void truncate_file(struct file *file)
{
    memset(file->live, 0, sizeof file->live);
    memset(file->dirty, true, sizeof file->dirty);
    file->live_bytes = 0;
}

int disk_open(const char *path, int flags, mode_t mode)
{
    (void)mode;
    if (disk.dead)
        return failed(EIO);
    struct name *name = find(disk.live, path);
    if (!name && !(flags & O_CREAT))
        return failed(ENOENT);
    if (name && (flags & O_EXCL))
        return failed(EEXIST);
    if (name && !(flags & O_TRUNC))
        return open_fd(name->file);
    if (strike(next_operation()))
        return failed(EIO);
    if (!name) {
        int file = new_file();
        disk.change_number++;
        change_name(path, file);
        return open_fd(file);
    }
    truncate_file(disk.files[name->file]);
    return open_fd(name->file);
}

int disk_close(int fd)
{
    (void)file_of(fd);
    disk.fds[fd].file = -1;
    return 0;
}

int disk_size(int fd, uint64_t *ret_bytes)
{
    if (disk.dead)
        return failed(EIO);
    *ret_bytes = file_of(fd)->live_bytes;
    return 0;
}

ssize_t disk_pread(int fd, void *ret, size_t bytes, uint64_t offset)
{
    const struct file *file = file_of(fd);
    if (disk.dead)
        return failed(EIO);
    if (offset >= file->live_bytes)
        return 0;
    uint64_t left_bytes = file->live_bytes - offset;
    size_t count = bytes < left_bytes ? bytes : (size_t)left_bytes;
    memcpy(ret, file->live + offset, count);
    return (ssize_t)count;
}

static void put(struct file *file, const uint8_t *data, size_t bytes, uint64_t offset)
{
    if (bytes == 0)
        return;
    if (offset + bytes > FILE_BYTES_MAX)
        broken("the file is too large for this disk");
    memcpy(file->live + offset, data, bytes);
    for (uint64_t i = offset / SECTOR_BYTES; i <= (offset + bytes - 1) / SECTOR_BYTES; i++)
        file->dirty[i] = true;
    if (file->live_bytes < offset + bytes)
        file->live_bytes = offset + bytes;
}

static size_t put_vectors(struct file *file, const struct iovec *vectors, int count,
                          uint64_t offset, size_t bytes_max)
{
    size_t written = 0;
    for (int i = 0; i < count && written < bytes_max; i++) {
        size_t left_bytes = bytes_max - written;
        size_t bytes = vectors[i].iov_len < left_bytes ? vectors[i].iov_len : left_bytes;
        put(file, vectors[i].iov_base, bytes, offset + written);
        written += bytes;
    }
    return written;
}

ssize_t disk_pwritev(int fd, const struct iovec *vectors, int count, uint64_t offset)
{
    struct file *file = file_of(fd);
    if (disk.dead)
        return failed(EIO);
    enum sim_fault fault = next_operation();
    if (strike(fault))
        return failed(EIO);
    if (disk.short_writes && chance(30))
        return failed(EINTR);
    size_t bytes_max = SIZE_MAX;
    if (disk.short_writes || fault == SIM_WRITE_FAILS || is_death(fault))
        bytes_max = 1 + (size_t)rng_below(&disk.rng, 2000);
    size_t written = put_vectors(file, vectors, count, offset, bytes_max);
    return is_death(fault) || fault == SIM_WRITE_FAILS ? failed(EIO) : (ssize_t)written;
}

int disk_allocate(int fd, uint64_t bytes)
{
    struct file *file = file_of(fd);
    if (disk.dead)
        return failed(EIO);
    if (strike(next_operation()))
        return failed(EIO);
    if (disk.full)
        return failed(ENOSPC);
    if (file->live_bytes < bytes)
        file->live_bytes = bytes;
    return disk.dead ? failed(EIO) : 0;
}

int disk_fdatasync(int fd)
{
    struct file *file = file_of(fd);
    if (disk.dead)
        return failed(EIO);
    enum sim_fault fault = next_operation();
    if (strike(fault))
        return failed(EIO);
    if (fault == SIM_SYNC_FAILS) {
        write_out(file, 50);
        return failed(EIO);
    }
    write_out(file, 100);
    return disk.dead ? failed(EIO) : 0;
}

int disk_fsync(int fd)
{
    return disk_fdatasync(fd);
}

int disk_rename(const char *from, const char *to)
{
    if (disk.dead)
        return failed(EIO);
    if (strike(next_operation()))
        return failed(EIO);
    struct name *name = find(disk.live, from);
    if (!name)
        return failed(ENOENT);
    int file = name->file;
    disk.change_number++;
    change_name(to, file);
    change_name(from, -1);
    return disk.dead ? failed(EIO) : 0;
}

int disk_unlink(const char *path)
{
    if (disk.dead)
        return failed(EIO);
    if (!find(disk.live, path))
        return failed(ENOENT);
    if (strike(next_operation()))
        return failed(EIO);
    disk.change_number++;
    change_name(path, -1);
    return disk.dead ? failed(EIO) : 0;
}

int disk_sync_dir(const char *dir)
{
    (void)dir;
    if (disk.dead)
        return failed(EIO);
    enum sim_fault fault = next_operation();
    if (strike(fault) || fault == SIM_SYNC_FAILS)
        return failed(EIO);
    memcpy(disk.durable, disk.live, sizeof disk.durable);
    disk.changes_count = 0;
    return disk.dead ? failed(EIO) : 0;
}

int disk_list(const char *dir, void (*each)(void *context, const char *name), void *context)
{
    size_t length = strlen(dir);
    if (disk.dead)
        return failed(EIO);
    for (int i = 0; i < NAMES_MAX; i++) {
        const char *path = disk.live[i].path;
        if (strncmp(path, dir, length) == 0 && path[length] == '/')
            each(context, path + length + 1);
    }
    return 0;
}

int disk_lock(int fd)
{
    (void)file_of(fd);
    return disk.dead ? failed(EIO) : 0;
}

int disk_is_same(int fd, const char *path)
{
    (void)file_of(fd);
    struct name *name = find(disk.live, path);
    if (disk.dead)
        return failed(EIO);
    return name && name->file == disk.fds[fd].file ? 0 : failed(ESTALE);
}
