/* Which devices are there and which are to be trusted. Drivers hang, crash and lie, so they are
 * only ever loaded in a child process with a time limit: the agent's own program again, with the
 * hidden commands gpu-list and gpu-check. */
#ifndef RAVEN_AGENT_GPU_GPU_WATCH_H
#define RAVEN_AGENT_GPU_GPU_WATCH_H

#include "agent/gpu/gpu.h"

#define GPU_TIME_LIMIT_MS 20000
#define GPU_CHECK_EVERY_S 3600

enum gpu_state { GPU_TRUSTED, GPU_WRONG, GPU_UNUSABLE, GPU_TIMED_OUT, GPU_CRASHED };

struct gpu_report {
    struct gpu_info info;
    enum gpu_state state;
    char reason[200]; /* for people; empty when trusted */
};

struct gpu_check {
    const char *program; /* "/proc/self/exe" */
    int time_limit_ms;   /* for the list, and for each device */
    bool processors;     /* test those as well */
};

/* "trusted", "wrong answer", … */
const char *gpu_state_text(enum gpu_state state);

/* Lists and tests everything once; blocks. A card that CUDA can use is not tested with OpenCL too.
 * why: what an interface that has no device says about it, for people.
 * stop_fd: readable means give up (-1: none). Returns the number of reports. */
size_t gpu_check_all(const struct gpu_check *check, int stop_fd,
                     struct gpu_report ret[GPU_DEVICES_MAX], char why[200]);

struct gpu_watch;

/* Called on the watch's own thread after each round. */
typedef void gpu_watch_fn(void *user, const struct gpu_report *reports, size_t count,
                          const char *why);

/* Tests at once and again every GPU_CHECK_EVERY_S, until stopped. */
enum status gpu_watch_start(const struct gpu_check *check, gpu_watch_fn *tell, void *user,
                            struct gpu_watch **ret, struct error *err) MUST_CHECK;
void gpu_watch_stop(struct gpu_watch *watch); /* NULL is fine; does not wait for a driver */

/* What the child does; its exit status. Writes lines of JSON to stdout. */
int gpu_child_list(const char *interface);
int gpu_child_check(const char *id);

#endif
