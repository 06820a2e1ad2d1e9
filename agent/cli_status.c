/* `raven-agent status`: asks the running agent through its socket. */
#include "agent/cli.h"
#include "agent/status/socket.h"

#include <stdio.h>

#define ANSWER_BYTES_MAX 65536

static int print_not_running(const struct cli *cli, const struct error *err)
{
    if (cli->json)
        printf("{\"state\":\"not_running\"}\n");
    else
        printf("%s\n", err->text);
    return CLI_NOT_RUNNING;
}

int cli_status(const struct cli *cli)
{
    struct buffer json, text;
    struct error err = {0};
    buffer_init(&json, ANSWER_BYTES_MAX);
    buffer_init(&text, ANSWER_BYTES_MAX);
    int code = CLI_OK;
    enum status status = status_ask(cli->config.state_dir, &json, &err);
    if (!status && !cli->json)
        status = status_text_of_json((const char *)json.data, json.bytes, &text, &err);
    if (status == STATUS_NOT_FOUND) {
        code = print_not_running(cli, &err);
    } else if (status) {
        fprintf(stderr, "raven-agent: %s\n", err.text);
        code = CLI_INTERNAL;
    } else {
        const struct buffer *out = cli->json ? &json : &text;
        fwrite(out->data, 1, out->bytes, stdout);
    }
    buffer_done(&json);
    buffer_done(&text);
    return code;
}
