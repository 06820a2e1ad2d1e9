/* raven-netlab: home internet lines on one machine. Makes network namespaces with emulated links
 * between them and runs a command in their midst; see README.md. Its surprise: the same program,
 * called inside of a lab, is the remote control. */
#include "common/base/bytes.h"
#include "tests/netlab/client.h"
#include "tests/netlab/requests.h"
#include "tests/netlab/run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXIT_USAGE 2

static void print_help(FILE *out)
{
    (void)fprintf(
        out,
        "raven-netlab: emulated home internet lines between network namespaces\n\n"
        "  raven-netlab run --links LINKS [--control PATH] [--seed N] -- COMMAND…\n"
        "      LINKS: c1:PROFILE[,KEY=VALUE…],c2:PROFILE…  COMMAND runs in the hub (10.77.0.1);\n"
        "      link cN has 10.77.N.1 in the hub and 10.77.N.2 in its own namespace. All ends\n"
        "      with COMMAND, whose exit status is returned; 77: this machine cannot do it.\n\n"
        "In the lab (elsewhere: raven-netlab --control PATH …):\n"
        "  raven-netlab exec hub|LINK -- COMMAND…\n      runs COMMAND there\n");
    requests_print_help(out);
    (void)fprintf(out, "\nSettings (KEY=VALUE; KEY-up or KEY-down for one direction):\n");
    shape_print_keys(out);
    (void)fprintf(out,
                  "  %-10s phases that repeat, such as script=40s;20s rate=10%% loss=3%%;5s "
                  "down (--links only)\n\n",
                  "script");
    profile_print_all(out);
}

static int usage_error(const char *text)
{
    (void)fprintf(stderr, "raven-netlab: %s; see raven-netlab help\n", text);
    return EXIT_USAGE;
}

static int failure(const struct error *err, int code)
{
    (void)fprintf(stderr, "raven-netlab: %s\n", err->text);
    return code;
}

/* Options up to "--"; *ret_command is what follows. */
static int read_run_options(char **words, struct lab_options *options, const char **ret_links)
{
    for (; *words && strcmp(*words, "--") != 0; words += 2) {
        if (strcmp(*words, "--links") != 0 && strcmp(*words, "--control") != 0 &&
            strcmp(*words, "--seed") != 0)
            return usage_error("run takes --links, --control, --seed and, behind --, a command");
        if (!words[1] || strcmp(words[1], "--") == 0)
            return usage_error("an option of run lacks its value");
        char *end = words[1];
        if (strcmp(*words, "--links") == 0)
            *ret_links = words[1];
        else if (strcmp(*words, "--control") == 0)
            options->control_path = words[1];
        else
            options->seed = strtoull(words[1], &end, 10);
        if (strcmp(*words, "--seed") == 0 && (*end || end == words[1]))
            return usage_error("--seed must be a whole number such as 7");
    }
    if (!*words || !words[1])
        return usage_error("run lacks its command; write -- COMMAND at the end");
    options->command = words + 1;
    return 0;
}

static int command_run(char **words)
{
    static struct lab_options options = {.seed = 1};
    const char *links = NULL;
    struct error err;
    int code = read_run_options(words, &options, &links);
    if (code)
        return code;
    if (!links)
        return usage_error("run lacks --links, for example --links c1:cable,c2:dsl");
    if (plans_parse(links, options.plans, &options.plan_count, &err) != STATUS_OK)
        return failure(&err, EXIT_USAGE);
    return run_lab(&options);
}

static int command_exec(const char *path, char **words)
{
    struct error err;
    if (!words[0] || !words[1] || strcmp(words[1], "--") != 0 || !words[2])
        return usage_error("write exec hub|LINK -- COMMAND…");
    if (client_enter(path, words[0], &err) != STATUS_OK)
        return failure(&err, 1);
    (void)execvp(words[2], words + 2);
    int errnum = errno;
    (void)error_set_errno(&err, errnum, "%s cannot be started", words[2]);
    return failure(&err, errnum == ENOENT ? 127 : 126);
}

int main(int argc, char **argv)
{
    const char *path = getenv("RAVEN_NETLAB");
    char **words = argv + 1;
    if (argc > 2 && strcmp(words[0], "--control") == 0) {
        path = words[1];
        words += 2;
    }
    if (argc < 2 || !words[0]) {
        print_help(stderr);
        return EXIT_USAGE;
    }
    if (strcmp(words[0], "help") == 0 || strcmp(words[0], "--help") == 0) {
        print_help(stdout);
        return 0;
    }
    if (strcmp(words[0], "run") == 0)
        return command_run(words + 1);
    if (strcmp(words[0], "exec") == 0)
        return command_exec(path, words + 1);
    struct error err;
    if (!requests_knows(words[0]))
        return usage_error("there is no such command");
    if (client_ask(path, words, &err) != STATUS_OK)
        return failure(&err, 1);
    return 0;
}
