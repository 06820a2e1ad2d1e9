/* raven-coordinator: starts the parts in order (database, auth, core, HTTP, front), waits for a
 * signal, stops them in reverse. Its surprise: a failed start prints one sentence that names the
 * failing step and exits 1; nothing is left running. */
#include "common/base/bytes.h"
#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/wire/wire.h"
#include "coordinator/auth/auth.h"
#include "coordinator/config.h"
#include "coordinator/core.h"
#include "coordinator/front/front.h"
#include "coordinator/http/http.h"
#include "coordinator/store/private_postgres.h"
#include "coordinator/store/store.h"
#include "coordinator/verify_command.h"

#include <errno.h>
#include <libgen.h>
#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define SETUP_MS (15 * 60 * 1000)
#define HOSTS_MAX 16

struct program {
    const struct config *config;
    int lock_fd; /* of --data, -1: none */
    struct private_postgres *postgres;
    struct store *store;
    struct auth *auth;
    struct core *core;
    struct http *http;
    struct front *front;
    char setup_token[AUTH_SECRET_BYTES];
    char hosts_text[512];
    const char *hosts[HOSTS_MAX + 1];
    char mirrors_text[WIRE_MIRRORS_MAX * (WIRE_MIRROR_CHARACTERS_MAX + 2)];
    const char *mirrors[WIRE_MIRRORS_MAX + 1];
};

static void print_progress(const char *sentence)
{
    log_info("database", "%s", sentence);
}

/* beside: a folder next to the one that holds the program, used when path is empty. */
static enum status choose_dir(const char *path, const char *beside, char ret[PATH_BYTES])
{
    char program[PATH_BYTES] = "";
    if (path[0])
        return path_format(ret, "%s", path);
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    if (length <= 0)
        return STATUS_SYSTEM;
    return path_format(ret, "%s/../%s", dirname(program), beside);
}

static bool is_loopback(const char *address)
{
    return strncmp(address, "127.", 4) == 0 || strcmp(address, "::1") == 0;
}

/* Before anything is made on disk. */
static enum status check_bind(struct program *program, struct error *err)
{
    const struct config *config = program->config;
    if (is_loopback(config->bind) || config->allow_plain_http)
        return STATUS_OK;
    return error_set(err, STATUS_DENIED,
                     "--bind %s would send keys unencrypted: put a TLS proxy in front and add "
                     "--allow-plain-http, or bind 127.0.0.1",
                     config->bind);
}

static enum status take_data_dir(struct program *program, struct error *err)
{
    const char *dir = program->config->data;
    char path[PATH_BYTES];
    enum status status = file_make_dirs(dir, 0711, err);
    if (status)
        return status;
    if (path_format(path, "%s/lock", dir))
        return error_set(err, STATUS_TOO_LARGE, "--data: the path is too long");
    status = file_take_lock(path, &program->lock_fd, err);
    if (status == STATUS_BUSY)
        return error_set(err, status,
                         "--data %s is in use by another coordinator: stop that one, or give this "
                         "one a directory of its own",
                         dir);
    return status;
}

static enum status start_database(struct program *program, struct error *err)
{
    const struct config *config = program->config;
    char dir[PATH_BYTES], sql[PATH_BYTES];
    const char *conninfo = config->database_url;
    enum status status = choose_dir(config->sql, "sql", sql);
    if (status)
        return error_set(err, status, "--sql: the path is too long");
    if (conninfo[0] == 0) {
        status = path_format(dir, "%s/postgres", config->data);
        if (status == STATUS_OK)
            status = private_postgres_start(dir, print_progress, &program->postgres, err);
        if (status)
            return status;
        conninfo = private_postgres_conninfo(program->postgres);
    }
    return store_open(conninfo, sql, &program->store, err);
}

static void load_key(void *context, const struct store_key *key)
{
    struct program *program = context;
    if (auth_key_add(program->auth, key->id, key->hash, key->scopes, key->expires_ms))
        log_error("auth", "no memory for key %s", key->id);
}

static enum status start_auth(struct program *program, struct error *err)
{
    enum status status = auth_create(&program->auth);
    if (status)
        return error_set(err, status, "no memory for credentials");
    status = store_keys_load(program->store, load_key, program, err);
    if (status || auth_key_count(program->auth) > 0)
        return status;
    uint8_t hash[SHA256_BYTES];
    auth_secret_make("set", program->setup_token);
    auth_secret_hash(program->setup_token, hash);
    auth_setup_arm(program->auth, hash, SETUP_MS);
    return STATUS_OK;
}

/* A dashboard's WebSocket: a bearer key, or the session cookie together with our own Origin. */
static bool viewer_allowed(void *context, const struct hub_viewer_handshake *handshake)
{
    static const char name[] = "raven_session=";
    struct program *program = context;
    struct auth_principal principal;
    char session[64] = "";
    if (handshake->bearer[0])
        return auth_check_bearer(program->auth, handshake->bearer, &principal) == STATUS_OK &&
               (principal.scopes & SCOPE_METRICS_READ);
    const char *at = strstr(handshake->cookie, name);
    if (!at || (at != handshake->cookie && at[-1] != ' ' && at[-1] != ';'))
        return false;
    at += sizeof name - 1;
    size_t length = strcspn(at, "; ");
    if (length == 0 || length >= sizeof session)
        return false;
    memcpy(session, at, length);
    return program->http &&
           http_origin_is_ours(program->http, handshake->origin, handshake->host) &&
           auth_check_session(program->auth, session, &principal) == STATUS_OK &&
           (principal.scopes & SCOPE_METRICS_READ);
}

/* text: words between commas, cut up in place; false when there are more than count_max. */
static bool split_list(char *text, size_t count_max, const char **ret)
{
    size_t count = 0;
    char *rest = NULL;
    for (char *word = strtok_r(text, ", ", &rest); word; word = strtok_r(NULL, ", ", &rest)) {
        if (count == count_max)
            return false;
        ret[count++] = word;
    }
    return true;
}

static bool is_mirror(const char *url)
{
    bool http = strncmp(url, "http://", 7) == 0 || strncmp(url, "https://", 8) == 0;
    return http && strlen(url) <= WIRE_MIRROR_CHARACTERS_MAX && !strpbrk(url, "?#@\"\\");
}

static enum status split_mirrors(struct program *program, struct error *err)
{
    const char *text = program->config->mirrors;
    if (!text_copy(program->mirrors_text, sizeof program->mirrors_text, text) ||
        !split_list(program->mirrors_text, WIRE_MIRRORS_MAX, program->mirrors))
        return error_set(err, STATUS_INVALID,
                         "--mirrors %.80s: at most %d addresses of %d "
                         "characters, please",
                         text, WIRE_MIRRORS_MAX, WIRE_MIRROR_CHARACTERS_MAX);
    for (const char **mirror = program->mirrors; *mirror; mirror++)
        if (!is_mirror(*mirror))
            return error_set(err, STATUS_INVALID,
                             "--mirrors %.200s: use http:// or https://, at most %d characters, "
                             "no user name and no ? or #",
                             *mirror, WIRE_MIRROR_CHARACTERS_MAX);
    return STATUS_OK;
}

static enum status start_core(struct program *program, struct error *err)
{
    char jobs[PATH_BYTES], uploads[PATH_BYTES];
    enum status status = path_format(jobs, "%s/jobs", program->config->data);
    if (!status)
        status = path_format(uploads, "%s/uploads", program->config->data);
    if (status)
        return error_set(err, status, "--data: the path is too long");
    struct core_options options = {
        .mirrors = program->mirrors,
        .jobs_dir = jobs,
        .uploads_dir = uploads,
        .ledger_segment_bytes = program->config->ledger_segment_mib << 20,
        .store = program->store,
        .auth = program->auth,
        .hub = {.hello_deadline_ms = 5000,
                .data_frame_bytes = FRAME_PAYLOAD_BYTES_MAX,
                .agent_queue_bytes_max = 64u << 20,
                .viewers_max = (uint32_t)program->config->viewers_max},
        .viewer_allowed = viewer_allowed,
        .viewer_context = program,
    };
    timers_derive(program->config->ping_ms, &options.hub.timers);
    return core_start(&options, &program->core, err);
}

static enum status start_http(struct program *program, struct error *err)
{
    char artifacts[PATH_BYTES], web[PATH_BYTES], index[PATH_BYTES];
    text_copy(program->hosts_text, sizeof program->hosts_text, program->config->allow_hosts);
    if (!split_list(program->hosts_text, HOSTS_MAX, program->hosts))
        return error_set(err, STATUS_INVALID, "--allow-hosts: at most %d names", HOSTS_MAX);
    enum status status = path_format(artifacts, "%s/artifacts", program->config->data);
    if (status == STATUS_OK)
        status = choose_dir(program->config->web, "web", web);
    if (status == STATUS_OK)
        status = path_format(index, "%s/index.html", web);
    if (status)
        return error_set(err, status, "--data or --web: the path is too long");
    status = file_make_dirs(artifacts, 0700, err);
    if (status)
        return status;
    struct http_options options = {
        .core = program->core,
        .store = program->store,
        .auth = program->auth,
        .web_dir = access(index, R_OK) == 0 ? web : NULL,
        .artifacts_dir = artifacts,
        .artifact_bytes_max = program->config->artifact_mib_max << 20,
        .allowed_hosts = program->hosts,
    };
    return http_start(&options, &program->http, err);
}

static void take_websocket(void *context, int fd, const char *address)
{
    struct program *program = context;
    hub_adopt(core_hub(program->core), fd, address);
}

static void take_http(void *context, int fd, const struct sockaddr *address, socklen_t bytes)
{
    struct program *program = context;
    http_add_connection(program->http, fd, address, bytes);
}

static enum status start_front(struct program *program, struct error *err)
{
    const struct config *config = program->config;
    struct front_options options = {.bind_address = config->bind,
                                    .port = (uint16_t)config->port,
                                    .decide_deadline_ms = 5000,
                                    .undecided_max = 1024,
                                    .context = program,
                                    .take_websocket = take_websocket,
                                    .take_http = take_http};
    enum status status = front_start(&options, &program->front, err);
    if (status == STATUS_OK)
        http_set_port(program->http, front_port(program->front));
    return status;
}

static void print_ready(const struct program *program)
{
    bool v6 = strchr(program->config->bind, ':') != NULL;
    char url[128];
    snprintf(url, sizeof url, "http://%s%s%s:%u", v6 ? "[" : "", program->config->bind,
             v6 ? "]" : "", front_port(program->front));
    printf("raven-coordinator is ready: %s\n", url);
    if (program->setup_token[0])
        printf("First start. Open this link once, within 15 minutes, to get the admin key:\n"
               "  %s/setup#%s\n",
               url, program->setup_token);
    fflush(stdout);
}

static void stop(struct program *program)
{
    front_stop(program->front);
    http_stop(program->http);
    core_stop(program->core);
    auth_free(program->auth);
    store_close(program->store);
    private_postgres_stop(program->postgres);
    if (program->lock_fd >= 0)
        close(program->lock_fd);
}

static enum status start(struct program *program, struct error *err)
{
    static enum status (*const steps[])(struct program *, struct error *) = {
        check_bind, split_mirrors, take_data_dir, start_database,
        start_auth, start_core,    start_http,    start_front};
    enum status status = STATUS_OK;
    for (size_t i = 0; i < COUNT_OF(steps) && status == STATUS_OK; i++)
        status = steps[i](program, err);
    return status;
}

static void raise_file_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit))
        return;
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit))
        log_warn("main", "the limit of open files stays at its default: %s", strerror(errno));
}

static int serve(const struct config *config)
{
    struct program program = {.config = config, .lock_fd = -1};
    struct error err = {0};
    sigset_t signals;
    int caught = 0;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    signal(SIGPIPE, SIG_IGN);
    raise_file_limit();
    enum status status = start(&program, &err);
    if (status == STATUS_OK) {
        print_ready(&program);
        sigwait(&signals, &caught);
        log_info("main", "stopping on %s", strsignal(caught));
    } else {
        fprintf(stderr, "raven-coordinator: %s\n", err.text[0] ? err.text : status_text(status));
    }
    stop(&program);
    sodium_memzero(program.setup_token, sizeof program.setup_token);
    return status ? 1 : 0;
}

static enum status set_log_level(const char *text, struct error *err)
{
    static const char *const names[] = {"debug", "info", "warn", "error"};
    for (size_t i = 0; i < COUNT_OF(names); i++)
        if (strcmp(text, names[i]) == 0) {
            log_set_level((enum log_level)i);
            return STATUS_OK;
        }
    return error_set(err, STATUS_INVALID, "--log-level %s: use debug, info, warn or error", text);
}

int main(int argc, char **argv)
{
    struct config config;
    struct error err = {0};
    if (sodium_init() < 0)
        return 1;
    if (config_parse(argc, argv, &config, &err) || set_log_level(config.log_level, &err)) {
        fprintf(stderr, "raven-coordinator: %s\n", err.text);
        return 2;
    }
    switch (config.command) {
    case COMMAND_HELP:
        config_print_help();
        return 0;
    case COMMAND_VERSION:
        puts("raven-coordinator " RAVEN_VERSION);
        return 0;
    case COMMAND_VERIFY:
        return verify_command(config.data, config.json);
    case COMMAND_SERVE:
        break;
    }
    return serve(&config);
}
