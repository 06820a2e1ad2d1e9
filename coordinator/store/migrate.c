/* Forward-only migrations, on the thread that opens the store. Each round is one transaction under
 * an advisory lock: compare what is applied with the files, apply the first missing one, note it.
 * Surprising: the comparison is repeated in every round, since another opener may have applied
 * files while this one waited for the lock. */
#include "coordinator/store/migrate.h"

#include "common/base/buffer.h"
#include "common/base/bytes.h"
#include "common/base/checksum.h"
#include "common/base/clock.h"
#include "common/base/file.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LOCK_KEY INT64_C(0x726176656e) /* "raven" */
#define FILES_MAX 1000
#define FILE_BYTES_MAX ((size_t)1 << 20)
#define NAME_BYTES 128
#define MIGRATE_US (INT64_C(60) * 1000000)

struct migration {
    char name[NAME_BYTES];
    uint8_t sha256[SHA256_BYTES];
    char *text;
};

struct migrations {
    struct migration *files; /* files[i] has version i + 1 */
    size_t count;
};

/* --- the files --- */

static void migrations_done(struct migrations *migrations)
{
    for (size_t i = 0; i < migrations->count; i++)
        free(migrations->files[i].text);
    free(migrations->files);
}

static int is_migration(const struct dirent *entry)
{
    const char *name = entry->d_name;
    size_t length = strlen(name);
    for (int i = 0; i < 4; i++)
        if (!isdigit((unsigned char)name[i]))
            return 0;
    return name[4] == '_' && length < NAME_BYTES && strcmp(name + length - 4, ".sql") == 0;
}

static enum status read_migration(const char *sql_dir, const char *name, struct migration *ret,
                                  struct error *err)
{
    char path[PATH_BYTES];
    struct buffer text;
    buffer_init(&text, FILE_BYTES_MAX);
    enum status status = path_format(path, "%s/%s", sql_dir, name);
    if (status == STATUS_OK)
        status = file_read(path, &text, err);
    else
        status = error_set(err, status, "the path of the migration %s is too long", name);
    if (status == STATUS_OK && !buffer_text(&text))
        status = error_set(err, STATUS_NO_MEMORY, "no memory for the migration %s", name);
    if (status == STATUS_OK) {
        size_t bytes;
        sha256_of(text.data, text.bytes, ret->sha256);
        (void)text_copy(ret->name, sizeof ret->name, name);
        buffer_take(&text, (uint8_t **)&ret->text, &bytes);
    }
    buffer_done(&text);
    return status;
}

static enum status read_all(const char *sql_dir, struct dirent **entries, int count,
                            struct migrations *ret, struct error *err)
{
    struct migrations migrations = {.files = calloc((size_t)count, sizeof *migrations.files)};
    enum status status = STATUS_OK;
    if (!migrations.files)
        return error_set(err, STATUS_NO_MEMORY, "no memory for the migrations");
    for (int i = 0; i < count && status == STATUS_OK; i++) {
        const char *name = entries[i]->d_name;
        if (strtol(name, NULL, 10) != i + 1)
            status = error_set(err, STATUS_INVALID,
                               "%s/%s: number %04d is missing or used twice; install all files of "
                               "one release",
                               sql_dir, name, i + 1);
        else
            status = read_migration(sql_dir, name, &migrations.files[i], err);
        if (status == STATUS_OK)
            migrations.count++;
    }
    if (status == STATUS_OK)
        *ret = migrations;
    else
        migrations_done(&migrations);
    return status;
}

static enum status load_files(const char *sql_dir, struct migrations *ret, struct error *err)
{
    struct dirent **entries = NULL;
    int count = scandir(sql_dir, &entries, is_migration, alphasort);
    if (count < 0)
        return error_set_errno(err, errno, "cannot read the migrations in %s", sql_dir);
    enum status status;
    if (count == 0 || count > FILES_MAX)
        status = error_set(err, STATUS_NOT_FOUND,
                           "%s has %d migrations (NNNN_name.sql); give the "
                           "sql folder of this release",
                           sql_dir, count);
    else
        status = read_all(sql_dir, entries, count, ret, err);
    for (int i = 0; i < count; i++)
        free(entries[i]);
    free(entries);
    return status;
}

/* --- the schema --- */

static enum status compare_row(const struct migrations *migrations, const PGresult *applied,
                               int row, struct error *err)
{
    int64_t version = pq_i64(applied, row, 0);
    const char *name = pq_text(applied, row, 1);
    uint8_t sha256[SHA256_BYTES];
    if (version > (int64_t)migrations->count)
        return error_set(err, STATUS_UNSUPPORTED,
                         "the database's schema has version %d (%s), newer than this program's %d; "
                         "start the newer release, or restore a backup made before it",
                         (int)version, name, (int)migrations->count);
    if (version != row + 1)
        return error_set(err, STATUS_CORRUPT, "the database lacks the note of migration %d",
                         row + 1);
    const struct migration *file = &migrations->files[version - 1];
    if (!pq_bytes(applied, row, 2, sha256, sizeof sha256) ||
        memcmp(sha256, file->sha256, sizeof sha256) != 0)
        return error_set(err, STATUS_CORRUPT,
                         "%s was edited after it was applied as %s; restore the released file and "
                         "put changes into a new one",
                         file->name, name);
    return STATUS_OK;
}

static enum status read_applied(struct pq *pq, const struct migrations *migrations,
                                int64_t deadline_us, size_t *ret_count, struct error *err)
{
    PGresult *applied = NULL;
    enum status status = pq_run(pq,
                                "CREATE TABLE IF NOT EXISTS migrations ("
                                " version integer PRIMARY KEY, name text NOT NULL,"
                                " sha256 bytea NOT NULL, applied_ms bigint NOT NULL)",
                                NULL, deadline_us, NULL, err);
    if (status == STATUS_OK)
        status = pq_run(pq, "SELECT version, name, sha256 FROM migrations ORDER BY version", NULL,
                        deadline_us, &applied, err);
    int count = PQntuples(applied);
    for (int row = 0; row < count && status == STATUS_OK; row++)
        status = compare_row(migrations, applied, row, err);
    PQclear(applied);
    if (status == STATUS_OK)
        *ret_count = (size_t)count;
    return status;
}

static enum status apply(struct pq *pq, const struct migration *file, size_t version,
                         int64_t deadline_us, struct error *err)
{
    enum status status = pq_run_script(pq, file->text, deadline_us, err);
    if (status != STATUS_OK)
        return error_set(err, status, "%s: %s", file->name, err ? err->text : "");
    struct pq_args args = {0};
    pq_add_u64(&args, version);
    pq_add_text(&args, file->name);
    pq_add_bytes(&args, file->sha256, sizeof file->sha256);
    pq_add_i64(&args, clock_wall_ms());
    return pq_run(pq,
                  "INSERT INTO migrations (version, name, sha256, applied_ms)"
                  " VALUES ($1, $2, $3, $4)",
                  &args, deadline_us, NULL, err);
}

static enum status lock(struct pq *pq, int64_t deadline_us, struct error *err)
{
    struct pq_args args = {0};
    pq_add_i64(&args, LOCK_KEY);
    enum status status = pq_run(pq, "BEGIN", NULL, deadline_us, NULL, err);
    if (status == STATUS_OK)
        status = pq_run(pq,
                        "SELECT set_config('statement_timeout', '60000', true),"
                        " set_config('lock_timeout', '60000', true)",
                        NULL, deadline_us, NULL, err);
    if (status == STATUS_OK)
        status = pq_run(pq, "SELECT pg_advisory_xact_lock($1)", &args, deadline_us, NULL, err);
    if (status == STATUS_OK) /* a table in use is no reason to stop everybody else for a minute */
        status = pq_run(pq, "SELECT set_config('lock_timeout', '3000', true)", NULL, deadline_us,
                        NULL, err);
    return status;
}

/* One transaction; *ret_again when there may be more to apply. */
static enum status apply_next(struct pq *pq, const struct migrations *migrations,
                              int64_t deadline_us, bool *ret_again, struct error *err)
{
    size_t applied = 0;
    enum status status = lock(pq, deadline_us, err);
    if (status == STATUS_OK)
        status = read_applied(pq, migrations, deadline_us, &applied, err);
    bool missing = status == STATUS_OK && applied < migrations->count;
    if (missing)
        status = apply(pq, &migrations->files[applied], applied + 1, deadline_us, err);
    if (status == STATUS_OK)
        status = pq_commit(pq, deadline_us, err);
    if (status != STATUS_OK)
        pq_rollback(pq, clock_monotonic_us() + PQ_CALL_US);
    *ret_again = status == STATUS_OK && missing;
    return status;
}

enum status migrate(struct pq *pq, const char *sql_dir, struct error *err)
{
    struct migrations migrations = {0};
    enum status status = load_files(sql_dir, &migrations, err);
    bool again = status == STATUS_OK;
    while (again)
        status = apply_next(pq, &migrations, clock_monotonic_us() + MIGRATE_US, &again, err);
    migrations_done(&migrations);
    return status;
}
