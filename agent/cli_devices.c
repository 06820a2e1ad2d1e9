/* `raven-agent devices`: finds and tests the graphics cards now; and the two hidden commands that
 * do it in a process of their own. */
#include "agent/cli.h"
#include "agent/gpu/gpu_watch.h"

#include <jansson.h>
#include <stdio.h>

int cli_gpu_list(const struct cli *cli)
{
    return gpu_child_list(cli->argument);
}

int cli_gpu_check(const struct cli *cli)
{
    return gpu_child_check(cli->argument);
}

static void print_json(const struct gpu_report *reports, size_t count, const char *why)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        (void)json_array_append_new(
            list, json_pack("{ss ss ss sI ss ss}", "id", reports[i].info.id, "name",
                            reports[i].info.name, "driver", reports[i].info.driver, "memory_bytes",
                            (json_int_t)reports[i].info.memory_bytes, "state",
                            gpu_state_text(reports[i].state), "reason", reports[i].reason));
    json_t *all = json_pack("{so ss}", "devices", list, "why", why);
    (void)json_dumpf(all, stdout, JSON_COMPACT);
    (void)putchar('\n');
    json_decref(all);
}

static void print_table(const struct gpu_report *reports, size_t count, const char *why)
{
    if (count == 0) {
        printf("No graphics card that RAVEN could use: %s.\n", why);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        const struct gpu_info *info = &reports[i].info;
        printf("%s\n  %s, %.1f GB memory, driver %s\n  %s%s%s\n", info->id, info->name,
               (double)info->memory_bytes / 1e9, info->driver, gpu_state_text(reports[i].state),
               reports[i].reason[0] ? ": " : "", reports[i].reason);
    }
    if (why[0])
        printf("\nNot found: %s.\n", why);
    printf("\nA trusted device packs updates bit for bit as this computer's processor does.\n"
           "Training itself runs on the processor in this version.\n");
}

int cli_devices(const struct cli *cli)
{
    struct gpu_check check = {"/proc/self/exe", GPU_TIME_LIMIT_MS, true};
    struct gpu_report reports[GPU_DEVICES_MAX];
    char why[200];
    size_t count = gpu_check_all(&check, -1, reports, why);
    if (cli->json)
        print_json(reports, count, why);
    else
        print_table(reports, count, why);
    return CLI_OK;
}
