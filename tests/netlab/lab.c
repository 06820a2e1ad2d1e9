/* Process 1 of the lab. One thread, one epoll: devices, a timer, signals, control connections. Its
 * surprise: it runs with real-time priority, because a training that takes every core would
 * otherwise stretch the delays; it sleeps whenever no packet is due, and what it starts has normal
 * priority. */
#include "tests/netlab/lab.h"

#include "common/base/bytes.h"
#include "common/base/clock.h"
#include "tests/netlab/control.h"
#include "tests/netlab/tun.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define HUB_THIRD 0
#define GRACE_NS INT64_C(5000000000) /* from SIGTERM to SIGKILL */
/* Wake-ups closer than this are put together, which halves the cost of a packet; short lines get a
 * tenth of their delay, so that no delay is wrong by more. */
#define TIMER_STEP_NS_MIN 5e4
#define TIMER_STEP_NS_MAX 2e5
#define REALTIME_PRIORITY 10
#define EPOLL_EVENTS 64

/* epoll data: link * 2 + way, or one of these. */
enum { DATA_TIMER = 1000, DATA_SIGNAL, DATA_LISTEN, DATA_CONNECTION };

struct lab {
    struct link links[LINKS_MAX];
    struct links view; /* what requests see */
    struct events events;
    struct control control;
    int epoll_fd, timer_fd, signal_fd;
    int64_t start_us;
    int64_t armed_ns;
    pid_t command_pid;
    bool command_ended;
    int command_status;
    int64_t kill_at_ns;
};

static int64_t now_of(const struct lab *lab)
{
    return (clock_monotonic_us() - lab->start_us) * 1000;
}

/* A view of files and processes of the lab's own. */
static enum status isolate(struct error *err)
{
    if (unshare(CLONE_NEWNS) != 0 || mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
        return error_set_errno(err, errno, "no mount namespace");
    if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) != 0)
        return error_set_errno(err, errno, "/proc cannot be mounted for the lab");
    return STATUS_OK;
}

static enum status watch(struct lab *lab, int fd, uint64_t data, struct error *err)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = data};
    if (epoll_ctl(lab->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0)
        return error_set_errno(err, errno, "epoll refuses a file descriptor");
    return STATUS_OK;
}

static enum status open_clocks(struct lab *lab, struct error *err)
{
    sigset_t signals;
    (void)sigemptyset(&signals);
    (void)sigaddset(&signals, SIGCHLD);
    (void)sigaddset(&signals, SIGTERM);
    lab->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    lab->timer_fd = timerfd_create(CLOCK_BOOTTIME, TFD_NONBLOCK | TFD_CLOEXEC);
    lab->signal_fd = signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC);
    if (lab->epoll_fd < 0 || lab->timer_fd < 0 || lab->signal_fd < 0)
        return error_set_errno(err, errno, "no epoll, timer or signal descriptor");
    enum status status = watch(lab, lab->timer_fd, DATA_TIMER, err);
    return status == STATUS_OK ? watch(lab, lab->signal_fd, DATA_SIGNAL, err) : status;
}

/* The link's namespace with its end of the line; leaves the thread in the hub. */
static enum status make_client(struct lab *lab, struct link *link, struct error *err)
{
    struct address hub = {link->plan.number, 1}, client = {link->plan.number, 2};
    enum status status = net_namespace_create(&link->namespace_fd, err);
    if (status == STATUS_OK)
        status = tun_open("net0", client, hub, &link->fds[WAY_UP], err);
    if (status == STATUS_OK)
        status = net_default_route("net0", err);
    enum status back = net_namespace_enter(lab->view.hub_fd, status == STATUS_OK ? err : NULL);
    return status == STATUS_OK ? back : status;
}

static enum status make_link(struct lab *lab, const struct plan *plan, uint64_t seed,
                             struct error *err)
{
    size_t index = lab->view.count;
    struct link *link = &lab->links[index];
    char name[16], label[16];
    (void)snprintf(name, sizeof name, "c%u", plan->number);
    (void)snprintf(label, sizeof label, "c%u:own", plan->number);
    enum status status = link_init(link, plan, seed, &lab->events);
    if (status != STATUS_OK)
        return error_set(err, status, "no memory for link %s", name);
    lab->view.count++;
    /* The hub's common address comes first: datagrams and connections from the hub then have it as
     * their source, and clients need to know only one address. */
    struct address hub = {plan->number, 1}, client = {plan->number, 2};
    status = tun_open(name, (struct address){HUB_THIRD, 1}, client, &link->fds[WAY_DOWN], err);
    if (status == STATUS_OK)
        status = net_address_add(label, hub, err);
    if (status == STATUS_OK)
        status = make_client(lab, link, err);
    for (int way = 0; status == STATUS_OK && way < WAY_COUNT; way++)
        status = watch(lab, link->fds[way], index * WAY_COUNT + (unsigned)way, err);
    return status;
}

static enum status make_hub(struct lab *lab, struct error *err)
{
    enum status status = net_namespace_create(&lab->view.hub_fd, err);
    if (status == STATUS_OK)
        status = net_forwarding_on(err);
    if (status == STATUS_OK)
        status = net_address_add("lo:hub", (struct address){HUB_THIRD, 1}, err);
    return status;
}

static enum status lab_init(struct lab *lab, const struct lab_options *options, struct error *err)
{
    enum status status = isolate(err);
    if (status == STATUS_OK)
        status = open_clocks(lab, err);
    if (status == STATUS_OK)
        status = make_hub(lab, err);
    for (size_t i = 0; status == STATUS_OK && i < options->plan_count; i++)
        status = make_link(lab, &options->plans[i], options->seed, err);
    if (status == STATUS_OK)
        status = control_open(&lab->control, options->control_path, err);
    if (status == STATUS_OK)
        status = watch(lab, lab->control.listen_fd, DATA_LISTEN, err);
    return status;
}

/* In the forked child. */
static void become_command(const struct lab *lab, const struct lab_options *options)
{
    char program[4096];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    program[length > 0 ? length : 0] = 0;
    (void)sigprocmask(SIG_SETMASK, &options->command_mask, NULL);
    if (setenv("RAVEN_NETLAB", lab->control.path, 1) == 0 &&
        setenv("RAVEN_NETLAB_PROGRAM", program, 1) == 0)
        (void)execvp(options->command[0], options->command);
    int errnum = errno;
    struct error err;
    (void)error_set_errno(&err, errnum, "%s cannot be started", options->command[0]);
    (void)fprintf(stderr, "raven-netlab: %s\n", err.text);
    _exit(errnum == ENOENT ? 127 : 126);
}

static enum status start_command(struct lab *lab, const struct lab_options *options,
                                 struct error *err)
{
    /* Best effort: without it the lab works, with less exact times on a busy machine. */
    struct sched_param priority = {.sched_priority = REALTIME_PRIORITY};
    (void)sched_setscheduler(0, SCHED_RR | SCHED_RESET_ON_FORK, &priority);
    (void)prctl(PR_SET_TIMERSLACK, 1UL);
    lab->start_us = clock_monotonic_us();
    (void)events_add(&lab->events, 0, 0, "start", "");
    for (size_t i = 0; i < lab->view.count; i++)
        link_refresh(&lab->links[i], 0, true);
    lab->command_pid = fork();
    if (lab->command_pid == 0)
        become_command(lab, options);
    if (lab->command_pid < 0)
        return error_set_errno(err, errno, "%s cannot be started", options->command[0]);
    return STATUS_OK;
}

static void reap(struct lab *lab)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        if (pid == lab->command_pid) {
            lab->command_ended = true;
            lab->command_status = status;
        }
}

static void take_signals(struct lab *lab, int64_t now_ns)
{
    struct signalfd_siginfo info;
    while (read(lab->signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGCHLD) {
            reap(lab);
        } else if (lab->kill_at_ns == NEVER_NS) {
            lab->kill_at_ns = now_ns + GRACE_NS;
            (void)kill(-1, SIGTERM); /* everybody in this process namespace but init */
        }
    }
}

static int64_t timer_step_ns(const struct link *link)
{
    double down_ms = link->directions[WAY_DOWN].shape.delay_ms;
    double up_ms = link->directions[WAY_UP].shape.delay_ms;
    double step_ns = (down_ms < up_ms ? down_ms : up_ms) * 1e5;
    return (int64_t)(step_ns < TIMER_STEP_NS_MIN   ? TIMER_STEP_NS_MIN
                     : step_ns > TIMER_STEP_NS_MAX ? TIMER_STEP_NS_MAX
                                                   : step_ns);
}

/* The links' due work; when there is more. */
static int64_t work(struct lab *lab, int64_t now_ns)
{
    int64_t next_ns = lab->kill_at_ns;
    for (size_t i = 0; i < lab->view.count; i++) {
        struct link *link = &lab->links[i];
        if (now_ns >= link->change_ns)
            link_refresh(link, now_ns, false);
        if (now_ns >= link_next_ns(link))
            link_write(link, now_ns);
        int64_t link_ns = link_next_ns(link);
        if (link_ns > now_ns && link_ns < now_ns + timer_step_ns(link))
            link_ns = now_ns + timer_step_ns(link);
        next_ns = link_ns < next_ns ? link_ns : next_ns;
    }
    return next_ns;
}

/* Sets the timer unless it rings early enough; the milliseconds for epoll to wait: 0 or for ever.
 */
static int arm(struct lab *lab, int64_t now_ns, int64_t next_ns)
{
    if (next_ns == NEVER_NS)
        return -1;
    if (next_ns <= now_ns)
        return 0;
    if (lab->armed_ns > now_ns && lab->armed_ns <= next_ns)
        return -1;
    int64_t at_ns = lab->start_us * 1000 + next_ns;
    struct itimerspec timer = {
        .it_value = {.tv_sec = at_ns / 1000000000, .tv_nsec = at_ns % 1000000000}};
    (void)timerfd_settime(lab->timer_fd, TFD_TIMER_ABSTIME, &timer, NULL); /* valid arguments */
    lab->armed_ns = next_ns;
    return -1;
}

static void take_event(struct lab *lab, uint64_t data, int64_t now_ns)
{
    uint64_t ticks;
    if (data < lab->view.count * WAY_COUNT)
        link_read(&lab->links[data / WAY_COUNT], (enum way)(data % WAY_COUNT), now_ns);
    else if (data == DATA_TIMER)
        lab->armed_ns = read(lab->timer_fd, &ticks, sizeof ticks) > 0 ? 0 : lab->armed_ns;
    else if (data == DATA_SIGNAL)
        take_signals(lab, now_ns);
    else if (data == DATA_LISTEN)
        control_accept(&lab->control, lab->epoll_fd, DATA_CONNECTION);
    else
        control_serve(&lab->control, data - DATA_CONNECTION, lab->epoll_fd, DATA_CONNECTION,
                      &lab->view, now_ns);
}

static int run_loop(struct lab *lab)
{
    struct epoll_event events[EPOLL_EVENTS];
    while (!lab->command_ended) {
        int64_t now_ns = now_of(lab);
        int64_t next_ns = work(lab, now_ns);
        if (now_ns >= lab->kill_at_ns)
            return 128 + SIGKILL;
        int count = epoll_wait(lab->epoll_fd, events, EPOLL_EVENTS, arm(lab, now_ns, next_ns));
        now_ns = now_of(lab);
        for (int i = 0; i < count; i++)
            take_event(lab, events[i].data.u64, now_ns);
    }
    return WIFSIGNALED(lab->command_status) ? 128 + WTERMSIG(lab->command_status)
                                            : WEXITSTATUS(lab->command_status);
}

int lab_main(const struct lab_options *options)
{
    struct error err = {0};
    struct lab *lab = calloc(1, sizeof *lab);
    if (!lab) {
        (void)fprintf(stderr, "raven-netlab: no memory for the lab\n");
        return 1;
    }
    lab->kill_at_ns = NEVER_NS;
    lab->control.listen_fd = lab->control.path_fd = -1;
    lab->view = (struct links){.links = lab->links, .events = &lab->events, .hub_fd = -1};
    enum status status = lab_init(lab, options, &err);
    if (status == STATUS_OK)
        status = start_command(lab, options, &err);
    int code = status == STATUS_OK ? run_loop(lab) : 1;
    if (status != STATUS_OK)
        (void)fprintf(stderr, "raven-netlab: the lab cannot be made: %s\n", err.text);
    control_close(&lab->control);
    for (size_t i = 0; i < lab->view.count; i++)
        link_done(&lab->links[i]);
    free(lab); /* its other descriptors end with the process */
    return code;
}
