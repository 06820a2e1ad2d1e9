/* The process outside of the lab: checks what the machine can do, starts process 1 of the lab,
 * passes on the wish to end. Its surprise: it holds nothing. If it is killed, the kernel kills
 * process 1 (its parent-death signal) and thereby all of the lab. */
#include "tests/netlab/run.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int skip(const char *why)
{
    (void)fprintf(stderr,
                  "raven-netlab: this machine cannot run a lab: %s; it takes root with "
                  "CAP_NET_ADMIN and CAP_SYS_ADMIN, and /dev/net/tun\n",
                  why);
    return EXIT_SKIP;
}

static bool has_capabilities(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {0};
    uint32_t needed = 1u << CAP_NET_ADMIN | 1u << CAP_SYS_ADMIN;
    return syscall(SYS_capget, &header, data) == 0 && (data[0].effective & needed) == needed;
}

/* 0, or the exit status after a sentence. */
static int check_machine(void)
{
    char text[128];
    if (!has_capabilities())
        return skip("the capabilities are missing");
    int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        (void)snprintf(text, sizeof text, "/dev/net/tun: %s", strerror(errno));
        return skip(text);
    }
    (void)close(fd);
    if (unshare(CLONE_NEWPID) != 0) { /* for the children */
        (void)snprintf(text, sizeof text, "no process namespace: %s", strerror(errno));
        return skip(text);
    }
    return 0;
}

/* Process 1: makes sure that it dies with its parent, then becomes the lab. */
static int enter_lab(const struct lab_options *options, const int go[2])
{
    char byte;
    (void)close(go[1]);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
        return 1;
    /* A parent that died before the call above sends no signal, but then nobody writes. */
    if (read(go[0], &byte, 1) != 1)
        return 1;
    (void)close(go[0]);
    return lab_main(options);
}

/* Waits for the lab and passes on requests to end. */
static int attend(pid_t pid, const sigset_t *signals)
{
    for (;;) {
        siginfo_t info;
        int number = sigwaitinfo(signals, &info);
        if (number > 0 && number != SIGCHLD) {
            (void)kill(pid, SIGTERM);
            continue;
        }
        int status;
        if (waitpid(pid, &status, WNOHANG) != pid)
            continue;
        if (WIFEXITED(status))
            return WEXITSTATUS(status);
        (void)fprintf(stderr, "raven-netlab: the lab was killed by signal %d\n", WTERMSIG(status));
        return 128 + WTERMSIG(status);
    }
}

int run_lab(struct lab_options *options)
{
    static const int numbers[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGCHLD};
    int code = check_machine();
    if (code)
        return code;
    sigset_t signals;
    (void)sigemptyset(&signals);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        (void)sigaddset(&signals, numbers[i]);
    (void)sigprocmask(SIG_BLOCK, &signals, &options->command_mask);
    int go[2];
    if (pipe2(go, O_CLOEXEC) != 0) {
        perror("raven-netlab: no pipe");
        return 1;
    }
    (void)fflush(NULL);
    pid_t pid = fork();
    if (pid == 0)
        _exit(enter_lab(options, go));
    if (pid < 0 || write(go[1], "g", 1) != 1) {
        perror("raven-netlab: the lab cannot be started");
        return 1;
    }
    (void)close(go[0]);
    return attend(pid, &signals);
}
