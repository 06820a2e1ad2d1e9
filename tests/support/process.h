/* What this process takes, for tests that look for leaks. Include after cmocka.h. */
#ifndef RAVEN_TESTS_SUPPORT_PROCESS_H
#define RAVEN_TESTS_SUPPORT_PROCESS_H

#include <fcntl.h>
#include <stdio.h>

/* Exact, unlike statm, which the kernel updates in batches. */
static inline long process_rss_kib(void)
{
    long kib = -1;
    char line[256];
    FILE *file = fopen("/proc/self/smaps_rollup", "re");
    assert_non_null(file);
    while (kib < 0 && fgets(line, sizeof line, file))
        sscanf(line, "Rss: %ld", &kib);
    fclose(file);
    assert_true(kib > 0);
    return kib;
}

static inline int process_open_files(void)
{
    int count = 0;
    for (int fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

#endif
