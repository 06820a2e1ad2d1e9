/* The child's side: loads drivers, tests a device, says what it found in lines of JSON. Its own
 * process; dies with its parent. */
#include "agent/gpu/gpu_watch.h"
#include "agent/gpu/selftest.h"

#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

static int say(FILE *out, json_t *line)
{
    int failed = !line || json_dumpf(line, out, JSON_COMPACT) || fputc('\n', out) == EOF;
    json_decref(line);
    return failed;
}

/* Leaves without the drivers' own clean-up, which may hang as well. */
static int leave(FILE *out, int failed)
{
    failed |= fflush(out) != 0;
    _exit(failed);
}

/* Returns where to say things: our stdout. Drivers, who like to talk, are left one that leads
 * nowhere. A parent that died before prctl has left a pipe that nobody reads (not: a parent of
 * number 1, which is what the agent itself is in a container). */
static FILE *begin(void)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct rlimit no_core = {0, 0};
    (void)setrlimit(RLIMIT_CORE, &no_core);
    int fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    FILE *out = fd >= 0 ? fdopen(fd, "w") : NULL;
    struct pollfd reader = {.fd = fd, .events = POLLOUT};
    if (!out || nowhere < 0 || dup2(nowhere, STDOUT_FILENO) < 0 || poll(&reader, 1, 0) < 0 ||
        reader.revents & POLLERR)
        _exit(1);
    return out;
}

int gpu_child_list(const char *interface)
{
    struct gpu_info infos[GPU_DEVICES_MAX];
    struct error why = {0};
    FILE *out = begin();
    size_t count = gpu_list(interface, infos, &why);
    int failed = 0;
    for (size_t i = 0; i < count; i++)
        failed |=
            say(out, json_pack("{ss ss ss sI sb}", "id", infos[i].id, "name", infos[i].name,
                               "driver", infos[i].driver, "memory_bytes",
                               (json_int_t)infos[i].memory_bytes, "processor", infos[i].processor));
    failed |= say(out, json_pack("{ss}", "why", why.text));
    return leave(out, failed);
}

int gpu_child_check(const char *id)
{
    struct gpu *gpu;
    struct error err = {0};
    FILE *out = begin();
    enum status status = gpu_open(id, &gpu, &err);
    if (!status)
        status = gpu_selftest(gpu, &err);
    return leave(out, say(out, json_pack("{sb sb ss}", "trusted", status == STATUS_OK, "wrong",
                                         status == STATUS_CORRUPT, "why", err.text)));
}
