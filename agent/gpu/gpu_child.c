/* The child's side: loads drivers, tests a device, says what it found in lines of JSON. Its own
 * process; dies with its parent. */
#include "agent/gpu/gpu_watch.h"
#include "agent/gpu/selftest.h"

#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

static int say(json_t *line)
{
    int failed = !line || json_dumpf(line, stdout, JSON_COMPACT) || putchar('\n') == EOF;
    json_decref(line);
    return failed;
}

/* Leaves without the drivers' own clean-up, which may hang as well. */
static int leave(int failed)
{
    failed |= fflush(stdout) != 0;
    _exit(failed);
}

static void begin(void)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() == 1)
        _exit(1);
}

int gpu_child_list(void)
{
    struct gpu_info infos[GPU_DEVICES_MAX];
    struct error why = {0};
    begin();
    size_t count = gpu_list(infos, &why);
    int failed = 0;
    for (size_t i = 0; i < count; i++)
        failed |= say(json_pack(
            "{ss ss ss sI sb}", "id", infos[i].id, "name", infos[i].name, "driver", infos[i].driver,
            "memory_bytes", (json_int_t)infos[i].memory_bytes, "processor", infos[i].processor));
    failed |= say(json_pack("{ss}", "why", why.text));
    return leave(failed);
}

int gpu_child_check(const char *id)
{
    struct gpu *gpu;
    struct error err = {0};
    begin();
    enum status status = gpu_open(id, &gpu, &err);
    if (!status)
        status = gpu_selftest(gpu, &err);
    return leave(say(json_pack("{sb sb ss}", "trusted", status == STATUS_OK, "wrong",
                               status == STATUS_CORRUPT, "why", err.text)));
}
