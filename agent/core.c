/* The core's life: handles, start, the tick, the end. Runs on the session thread. Surprising
 * decision: joining is the same session with nothing behind it; it stops at the welcome. */
#include "agent/core.h"

#include "agent/core_internal.h"
#include "common/base/bytes.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/rng.h"

#include <stdlib.h>
#include <string.h>

#define INBOX_MAX 8192
#define TICK_MS 1000
#define NONCE_BITS 48 /* leaves 32 times as many to count on below 2^53 */

void core_set_state(struct core *core, const char *state, const char *why)
{
    struct status_fields *fields = status_board_lock(core->board);
    text_copy(fields->state, sizeof fields->state, state);
    text_copy(fields->why, sizeof fields->why, why);
    status_board_unlock(core->board);
}

void core_note_trouble(struct core *core, const char *text)
{
    struct status_fields *fields = status_board_lock(core->board);
    text_copy(fields->last_error, sizeof fields->last_error, text);
    status_board_unlock(core->board);
}

void core_finish(struct core *core)
{
    uv_stop(&core->loop);
}

/* --- events of the loop ----------------------------------------------------------------------- */

static void on_inbox(uv_poll_t *poll, int status, int events)
{
    (void)status, (void)events;
    struct core *core = poll->data;
    struct mail *mail;
    for (int i = 0; i < 64 && (mail = mailbox_take(core->inbox, 0)); i++)
        core_take_report(core, (struct core_mail *)mail);
}

static void on_stop(uv_async_t *async)
{
    struct core *core = async->data;
    session_stop(core->session);
}

static void on_join_timeout(uv_timer_t *timer)
{
    struct core *core = timer->data;
    if (!core->outcome.enrolled)
        session_stop(core->session);
}

static void on_tick(uv_timer_t *timer)
{
    struct core *core = timer->data;
    struct status_fields *fields = status_board_lock(core->board);
    fields->uplink_bytes = session_bytes_up(core->session);
    fields->downlink_bytes = session_bytes_down(core->session);
    fields->rtt_ms = session_rtt_ms(core->session);
    status_board_unlock(core->board);

    core_uploads_tick(core);
}

/* --- making ----------------------------------------------------------------------------------- */

static void init_handles(struct core *core)
{
    uv_timer_init(&core->loop, &core->ask_timer);
    uv_timer_init(&core->loop, &core->tick_timer);
    uv_timer_init(&core->loop, &core->join_timer);
    uv_async_init(&core->loop, &core->stop_async, on_stop);
    uv_poll_init(&core->loop, &core->inbox_poll, mailbox_fd(core->inbox));
    core->ask_timer.data = core->tick_timer.data = core->join_timer.data = core;
    core->stop_async.data = core->inbox_poll.data = core;
}

static enum status make_cache_dir(const struct config *config, struct error *err)
{
    char path[PATH_BYTES];
    if (path_format(path, "%s/cache", config->state_dir))
        return error_set(err, STATUS_TOO_LARGE, "the state directory's path is too long");
    return file_make_dirs(path, 0700, err);
}

static struct route route_of(const struct config *config)
{
    struct route route = {0};
    text_copy(route.proxy, sizeof route.proxy, config->proxy);
    text_copy(route.ca_file, sizeof route.ca_file, config->ca_file);
    return route;
}

static enum status make_session(struct core *core, struct error *err)
{
    struct session_settings settings = {.identity = core->settings.identity};
    random_bytes(&settings.seed, sizeof settings.seed);
    enum status status = url_parse(core->settings.config->coordinator, &settings.url, err);
    if (status)
        return status;
    text_copy(core->base_url, sizeof core->base_url, settings.url.base);
    if (core->settings.invite)
        text_copy(settings.invite, sizeof settings.invite, core->settings.invite);
    const struct config *config = core->settings.config;
    settings.link.route = route_of(config);
    settings.link.upload_bytes_per_s_max = config->upload_limit * 1000;
    status =
        session_create(&core->loop, &settings, &core_session_events, core, &core->session, err);
    explicit_bzero(settings.invite, sizeof settings.invite);
    return status;
}

/* On the watch's thread. */
static void note_graphics_cards(void *user, const struct gpu_report *reports, size_t count,
                                const char *why)
{
    struct core *core = user;
    struct buffer text;
    buffer_init(&text, 4096);
    enum status status = STATUS_OK;
    if (count == 0)
        status = buffer_printf(&text, "none: %s", why);
    for (size_t i = 0; i < count && !status; i++) {
        status = buffer_printf(&text, "%s%s: %s%s%s", i > 0 ? "; " : "", reports[i].info.name,
                               gpu_state_text(reports[i].state), reports[i].reason[0] ? ", " : "",
                               reports[i].reason);
        if (reports[i].state == GPU_TRUSTED)
            log_info("gpu", "%s (%s) passed its test", reports[i].info.id, reports[i].info.name);
        else
            log_warn("gpu", "%s (%s) is not used: %s, %s", reports[i].info.id, reports[i].info.name,
                     gpu_state_text(reports[i].state), reports[i].reason);
    }
    const char *line = status ? NULL : buffer_text(&text);
    if (line) {
        struct status_fields *fields = status_board_lock(core->board);
        text_copy(fields->graphics_cards, sizeof fields->graphics_cards, line);
        status_board_unlock(core->board);
    }
    buffer_done(&text);
}

static enum status start_threads(struct core *core, struct error *err)
{
    const struct config *config = core->settings.config;
    struct worker_settings worker = {
        .threads = core->threads,
        .cpu_percent = (unsigned)config->cpu_percent,
        .core = core->inbox,
    };
    enum status status = make_cache_dir(config, err);
    if (!status)
        status = core_open_outbox(core, err);
    if (!status)
        status = status_server_start(config->state_dir, core->board, &core->server, err);
    if (!status)
        status = fetcher_start(core->inbox, &core->fetcher, err);
    struct route route = route_of(config);
    if (!status)
        fetcher_configure(core->fetcher, &route, config->download_limit * 1000);
    if (!status)
        status = worker_start(&worker, &core->worker, err);
    struct gpu_check check = {"/proc/self/exe", GPU_TIME_LIMIT_MS, false};
    if (!status)
        status = gpu_watch_start(&check, note_graphics_cards, core, &core->gpu_watch, err);
    return status;
}

static void fill_board(struct core *core)
{
    struct status_fields *fields = status_board_lock(core->board);
    text_copy(fields->state, sizeof fields->state, "connecting");
    text_copy(fields->coordinator, sizeof fields->coordinator, core->base_url);
    text_copy(fields->agent_version, sizeof fields->agent_version, RAVEN_VERSION);
    fields->cpu_percent = core->settings.config->cpu_percent;
    status_board_unlock(core->board);
}

enum status core_create(const struct core_settings *settings, struct core **ret, struct error *err)
{
    struct core *core = calloc(1, sizeof *core);
    if (!core)
        return error_set(err, STATUS_NO_MEMORY, "no memory");
    core->settings = *settings;
    machine_describe(&core->machine);
    core->threads = settings->config->threads > 0 ? (uint32_t)settings->config->threads
                                                  : (uint32_t)core->machine.threads;
    random_bytes(&core->nonce, sizeof core->nonce);
    core->nonce &= (1ull << NONCE_BITS) - 1;
    uploads_init(&core->uploads);
    deltas_init(&core->deltas);
    enum status status = STATUS_OK;
    if (uv_loop_init(&core->loop) == 0)
        core->loop_ready = true;
    if (!core->loop_ready || status_board_create(&core->board) ||
        mailbox_create(INBOX_MAX, &core->inbox))
        status = error_set(err, STATUS_NO_MEMORY, "cannot start the event loop");
    if (!status)
        status = make_session(core, err);
    if (!status) {
        init_handles(core);
        core->handles = 5;
        fill_board(core);
        if (!settings->invite)
            status = start_threads(core, err);
    }
    if (status) {
        core_free(core);
        return status;
    }
    *ret = core;
    return STATUS_OK;
}

/* --- running and ending ----------------------------------------------------------------------- */

void core_run(struct core *core, struct core_outcome *ret)
{
    uv_poll_start(&core->inbox_poll, UV_READABLE, on_inbox);
    uv_timer_start(&core->tick_timer, on_tick, TICK_MS, TICK_MS);
    if (core->settings.invite)
        uv_timer_start(&core->join_timer, on_join_timeout, (uint64_t)core->settings.join_timeout_ms,
                       0);
    session_start(core->session);
    uv_run(&core->loop, UV_RUN_DEFAULT);
    *ret = core->outcome;
}

void core_stop(struct core *core)
{
    uv_async_send(&core->stop_async);
}

static void close_loop(struct core *core)
{
    if (core->handles > 0) {
        uv_close((uv_handle_t *)&core->ask_timer, NULL);
        uv_close((uv_handle_t *)&core->tick_timer, NULL);
        uv_close((uv_handle_t *)&core->join_timer, NULL);
        uv_close((uv_handle_t *)&core->stop_async, NULL);
        uv_close((uv_handle_t *)&core->inbox_poll, NULL);
    }
    session_free(core->session);
    uv_run(&core->loop, UV_RUN_DEFAULT);
    uv_loop_close(&core->loop);
}

void core_free(struct core *core)
{
    if (!core)
        return;
    gpu_watch_stop(core->gpu_watch);
    worker_stop(core->worker);
    fetcher_stop(core->fetcher);
    status_server_stop(core->server);
    if (core->loop_ready)
        close_loop(core);
    struct mail *mail;
    while (core->inbox && (mail = mailbox_take(core->inbox, 0)))
        core_mail_free((struct core_mail *)mail);
    mailbox_free(core->inbox);
    status_board_free(core->board);
    uploads_done(&core->uploads);
    deltas_done(&core->deltas);
    explicit_bzero(core->token, sizeof core->token);
    free(core);
}
