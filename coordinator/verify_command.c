/* See verify_command.h. Reads only, so it may run beside a live coordinator. */
#include "coordinator/verify_command.h"

#include "common/base/file.h"
#include "common/base/id.h"
#include "coordinator/job/job.h"

#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXIT_DAMAGE 65

static json_t *verify_job(const char *jobs_dir, const char *id, int *exit_status)
{
    char dir[PATH_BYTES], hash[17] = "";
    struct job_verify_report report = {0};
    struct error err = {0};
    enum status status = path_format(dir, "%s/%s", jobs_dir, id);
    if (status == STATUS_OK)
        status = job_verify(dir, &report, &err);
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)report.hash);
    bool verified = status == STATUS_OK && report.duplicates == 0;
    if (!verified)
        *exit_status = EXIT_DAMAGE;
    return json_pack("{s:s, s:b, s:s, s:I, s:I, s:I, s:I, s:I, s:s}", "job", id, "verified",
                     verified, "error", status ? err.text : "", "records",
                     (json_int_t)report.records, "updates", (json_int_t)report.updates, "commits",
                     (json_int_t)report.commits, "duplicates", (json_int_t)report.duplicates,
                     "version", (json_int_t)report.version, "hash", hash);
}

static void print_sentence(const json_t *job)
{
    const char *id, *error, *hash;
    int verified;
    json_int_t records, updates, duplicates, version;
    if (json_unpack((json_t *)job, "{s:s, s:b, s:s, s:I, s:I, s:I, s:I, s:s}", "job", &id,
                    "verified", &verified, "error", &error, "records", &records, "updates",
                    &updates, "duplicates", &duplicates, "version", &version, "hash", &hash))
        return;
    if (verified)
        printf("%s: verified. %lld records, %lld updates, each applied once; version %lld has hash "
               "%s\n",
               id, (long long)records, (long long)updates, (long long)version, hash);
    else
        printf("%s: NOT verified after version %lld: %s (%lld leases applied more than once)\n", id,
               (long long)version, error, (long long)duplicates);
}

int verify_command(const char *data_dir, bool json)
{
    char jobs_dir[PATH_BYTES];
    int exit_status = 0;
    DIR *dir = path_format(jobs_dir, "%s/jobs", data_dir) ? NULL : opendir(jobs_dir);
    if (!dir) {
        fprintf(stderr, "raven-coordinator: %s has no jobs directory: is --data right?\n",
                data_dir);
        return 1;
    }
    json_t *jobs = json_array();
    struct dirent *entry;
    while ((entry = readdir(dir))) {
        if (!id_is_valid(entry->d_name, "job"))
            continue;
        json_t *job = verify_job(jobs_dir, entry->d_name, &exit_status);
        if (!json)
            print_sentence(job);
        json_array_append_new(jobs, job);
    }
    closedir(dir);
    if (json) {
        json_t *all = json_pack("{s:b, s:O}", "ledger_verified", exit_status == 0, "jobs", jobs);
        char *text = json_dumps(all, JSON_COMPACT);
        puts(text ? text : "{}");
        free(text);
        json_decref(all);
    } else if (json_array_size(jobs) == 0) {
        printf("there is no job in %s\n", jobs_dir);
    }
    json_decref(jobs);
    return exit_status;
}
