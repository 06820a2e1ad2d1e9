/* The parent's side: starts children, reads their lines, ends them when they take too long. The
 * watch's thread, or the caller's of gpu_check_all. Surprising: what a child says is taken for
 * hostile: a broken driver can make it say anything. */
#include "agent/gpu/gpu_watch.h"

#include "common/base/buffer.h"
#include "common/base/bytes.h"
#include "common/base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define ANSWER_BYTES_MAX 65536
#define POLL_MS 20
#define KILLED_MS 2000 /* a process inside a driver may not even end when killed */

extern char **environ;

const char *gpu_state_text(enum gpu_state state)
{
    static const char *const texts[] = {"trusted", "wrong answer", "not usable",
                                        "no answer in time", "driver crashed"};
    return texts[state];
}

/* --- one child ------------------------------------------------------------------------------- */

enum ending { ENDED, ENDED_BY_SIGNAL, ENDED_BY_US, NOT_STARTED };

struct child {
    pid_t pid;
    int out; /* its stdout */
    struct buffer answer;
    enum ending ending;
    int signal;
};

static bool start(struct child *child, const char *program, char *const argv[])
{
    int pipe_fds[2];
    if (pipe2(pipe_fds, O_CLOEXEC))
        return false;
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    (void)posix_spawn_file_actions_init(&actions);
    (void)posix_spawnattr_init(&attributes);
    (void)posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    (void)posix_spawn_file_actions_adddup2(&actions, pipe_fds[1], 1);
    (void)posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    (void)posix_spawn_file_actions_addclosefrom_np(&actions, 3); /* sockets and files are ours */
    sigset_t none;
    sigemptyset(&none);
    (void)posix_spawnattr_setsigmask(&attributes, &none);
    (void)posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    int failed = posix_spawn(&child->pid, program, &actions, &attributes, argv, environ);
    (void)posix_spawn_file_actions_destroy(&actions);
    (void)posix_spawnattr_destroy(&attributes);
    (void)close(pipe_fds[1]);
    if (failed) {
        (void)close(pipe_fds[0]);
        return false;
    }
    child->out = pipe_fds[0];
    return true;
}

/* False at the end of what it says. */
static bool read_some(struct child *child, int stop_fd, bool *ret_stop)
{
    struct pollfd fds[] = {{.fd = child->out, .events = POLLIN}, {.fd = stop_fd, .events = POLLIN}};
    if (poll(fds, 2, POLL_MS) < 0 && errno != EINTR)
        return false;
    *ret_stop = stop_fd >= 0 && fds[1].revents != 0;
    if (fds[0].revents == 0)
        return true;
    char bytes[4096];
    ssize_t got = read(child->out, bytes, sizeof bytes);
    return got > 0 && buffer_append(&child->answer, bytes, (size_t)got) == STATUS_OK;
}

/* Waits for it; stop_fd -1: never. */
static bool is_stopped(int stop_fd, int wait_ms)
{
    struct pollfd fd = {.fd = stop_fd, .events = POLLIN};
    return poll(&fd, 1, wait_ms) > 0;
}

static void await_end(struct child *child, int64_t deadline_ms, int stop_fd)
{
    bool says = true, stop = false;
    int how = 0;
    pid_t got = 0;
    while (got == 0 && !stop && clock_monotonic_us() / 1000 < deadline_ms) {
        if (says)
            says = read_some(child, stop_fd, &stop);
        else
            stop = is_stopped(stop_fd, POLL_MS);
        if (!says)
            got = waitpid(child->pid, &how, WNOHANG);
    }
    child->ending = ENDED_BY_US;
    if (got == 0) {
        (void)kill(child->pid, SIGKILL);
        for (int waited_ms = 0; waited_ms < KILLED_MS; waited_ms += POLL_MS) {
            if (waitpid(child->pid, &how, WNOHANG) != 0)
                break;
            (void)poll(NULL, 0, POLL_MS);
        }
    } else if (WIFSIGNALED(how)) {
        child->ending = ENDED_BY_SIGNAL;
        child->signal = WTERMSIG(how);
    } else {
        child->ending = ENDED;
    }
}

/* Runs the program with these words to its end or ours; the answer is the caller's to free. */
static struct child run_child(const struct gpu_check *check, const char *command, const char *word,
                              int stop_fd)
{
    struct child child = {.ending = NOT_STARTED};
    char *argv[] = {(char *)(uintptr_t) "raven-agent", (char *)(uintptr_t)command,
                    (char *)(uintptr_t)word, NULL};
    buffer_init(&child.answer, ANSWER_BYTES_MAX);
    int64_t deadline_ms = clock_monotonic_us() / 1000 + check->time_limit_ms;
    if (start(&child, check->program, argv)) {
        await_end(&child, deadline_ms, stop_fd);
        (void)close(child.out);
    }
    return child;
}

/* --- what they say --------------------------------------------------------------------------- */

/* The next line as an object; NULL at the end. *at moves on. */
static json_t *next_line(const struct buffer *answer, size_t *at)
{
    const char *text = (const char *)answer->data + *at;
    const char *end = *at < answer->bytes ? memchr(text, '\n', answer->bytes - *at) : NULL;
    if (!end)
        return NULL;
    *at = (size_t)(end + 1 - (const char *)answer->data);
    json_t *line = json_loadb(text, (size_t)(end - text), JSON_REJECT_DUPLICATES, NULL);
    return line ? line : json_object();
}

static void copy_text(char *ret, size_t ret_bytes, const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    struct error clean; /* control characters become '?' */
    error_set(&clean, STATUS_OK, "%s", text ? text : "");
    text_copy(ret, ret_bytes, clean.text);
}

/* Appends to ret[count]; returns the new count. */
static size_t read_list(const struct buffer *answer, struct gpu_report ret[GPU_DEVICES_MAX],
                        size_t count, char why[200])
{
    size_t at = 0;
    json_t *line;
    while ((line = next_line(answer, &at))) {
        if (json_object_get(line, "why")) {
            copy_text(why, 200, line, "why");
        } else if (count < GPU_DEVICES_MAX && json_object_get(line, "id")) {
            struct gpu_info *info = &ret[count++].info;
            memset(info, 0, sizeof *info);
            copy_text(info->id, sizeof info->id, line, "id");
            copy_text(info->name, sizeof info->name, line, "name");
            copy_text(info->driver, sizeof info->driver, line, "driver");
            json_int_t bytes = json_integer_value(json_object_get(line, "memory_bytes"));
            info->memory_bytes = bytes > 0 ? (uint64_t)bytes : 0;
            info->processor = json_is_true(json_object_get(line, "processor"));
        }
        json_decref(line);
    }
    return count;
}

static void explain_ending(const struct child *child, int time_limit_ms, const char *what,
                           char ret[200])
{
    if (child->ending == ENDED_BY_US)
        (void)snprintf(ret, 200,
                       "%s did not answer within %d s; it is left alone until the next "
                       "test",
                       what, (time_limit_ms + 999) / 1000);
    else if (child->ending == ENDED_BY_SIGNAL)
        (void)snprintf(ret, 200, "%s crashed (%s)", what, strsignal(child->signal));
    else
        (void)snprintf(ret, 200, "%s ended without an answer", what);
}

static void judge(const struct child *child, int time_limit_ms, struct gpu_report *report)
{
    size_t at = 0;
    json_t *line = child->ending == ENDED ? next_line(&child->answer, &at) : NULL;
    report->reason[0] = '\0';
    report->state = child->ending == ENDED_BY_US       ? GPU_TIMED_OUT
                    : child->ending == ENDED_BY_SIGNAL ? GPU_CRASHED
                                                       : GPU_UNUSABLE;
    if (!line) {
        explain_ending(child, time_limit_ms, "its driver", report->reason);
        return;
    }
    if (json_is_true(json_object_get(line, "trusted")))
        report->state = GPU_TRUSTED;
    else if (json_is_true(json_object_get(line, "wrong")))
        report->state = GPU_WRONG;
    if (report->state != GPU_TRUSTED)
        copy_text(report->reason, sizeof report->reason, line, "why");
    json_decref(line);
}

static void add_reason(char why[200], const char *reason)
{
    size_t length = strlen(why);
    if (reason[0])
        (void)snprintf(why + length, 200 - length, "%s%s", length > 0 ? "; " : "", reason);
}

/* Each interface in a child of its own: that one hangs must not hide the other's devices. */
static size_t list_all(const struct gpu_check *check, int stop_fd,
                       struct gpu_report ret[GPU_DEVICES_MAX], char why[200])
{
    size_t count = 0;
    why[0] = '\0';
    for (size_t i = 0; i < GPU_INTERFACES && !is_stopped(stop_fd, 0); i++) {
        char reason[200] = "";
        struct child list = run_child(check, "gpu-list", gpu_interface_names[i], stop_fd);
        if (list.ending == ENDED && list.answer.bytes > 0)
            count = read_list(&list.answer, ret, count, reason);
        else
            explain_ending(&list, check->time_limit_ms, gpu_interface_names[i], reason);
        buffer_done(&list.answer);
        add_reason(why, reason);
    }
    return count;
}

/* The same card by the other interface, which is trusted already. */
static bool is_known(const struct gpu_report *report, const struct gpu_report *known, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (known[i].state == GPU_TRUSTED && strncmp(known[i].info.id, "cuda:", 5) == 0 &&
            strncmp(report->info.id, "cuda:", 5) != 0 &&
            strcmp(known[i].info.name, report->info.name) == 0)
            return true;
    return false;
}

size_t gpu_check_all(const struct gpu_check *check, int stop_fd,
                     struct gpu_report ret[GPU_DEVICES_MAX], char why[200])
{
    size_t count = list_all(check, stop_fd, ret, why), kept = 0;
    for (size_t i = 0; i < count && !is_stopped(stop_fd, 0); i++) {
        struct gpu_report report = ret[i];
        if ((report.info.processor && !check->processors) || is_known(&report, ret, kept))
            continue;
        struct child child = run_child(check, "gpu-check", report.info.id, stop_fd);
        judge(&child, check->time_limit_ms, &report);
        buffer_done(&child.answer);
        ret[kept++] = report;
    }
    if (kept == 0 && count > 0)
        add_reason(why, "OpenCL offers only this computer's processor");
    return kept;
}

/* --- every hour ------------------------------------------------------------------------------ */

struct gpu_watch {
    struct gpu_check check;
    gpu_watch_fn *tell;
    void *user;
    int stop_fd;
    pthread_t thread;
};

static void *watch_main(void *argument)
{
    struct gpu_watch *watch = argument;
    struct gpu_report reports[GPU_DEVICES_MAX];
    char why[200];
    do {
        size_t count = gpu_check_all(&watch->check, watch->stop_fd, reports, why);
        if (!is_stopped(watch->stop_fd, 0))
            watch->tell(watch->user, reports, count, why);
    } while (!is_stopped(watch->stop_fd, GPU_CHECK_EVERY_S * 1000));
    return NULL;
}

enum status gpu_watch_start(const struct gpu_check *check, gpu_watch_fn *tell, void *user,
                            struct gpu_watch **ret, struct error *err)
{
    struct gpu_watch *watch = calloc(1, sizeof *watch);
    if (!watch)
        return error_set(err, STATUS_NO_MEMORY, "no memory to watch the graphics cards");
    *watch = (struct gpu_watch){.check = *check, .tell = tell, .user = user};
    watch->stop_fd = eventfd(0, EFD_CLOEXEC);
    int failed = watch->stop_fd < 0 ? errno : 0;
    if (!failed)
        failed = pthread_create(&watch->thread, NULL, watch_main, watch);
    if (failed) {
        if (watch->stop_fd >= 0)
            (void)close(watch->stop_fd);
        free(watch);
        return error_set_errno(err, failed, "watching the graphics cards");
    }
    *ret = watch;
    return STATUS_OK;
}

void gpu_watch_stop(struct gpu_watch *watch)
{
    if (!watch)
        return;
    uint64_t one = 1;
    while (write(watch->stop_fd, &one, sizeof one) < 0 && errno == EINTR)
        ;
    (void)pthread_join(watch->thread, NULL);
    (void)close(watch->stop_fd);
    free(watch);
}
