/* Life of the hub: start, the service thread with its loop and timers, draining, stop. The service
 * thread creates nothing and frees nothing that other threads see; hub_stop joins it before it
 * takes the hub apart. libwebsockets runs on our loop, not the other way round, because its own
 * loop would take over the program's signals. */
#include "coordinator/hub/hub_internal.h"

#include "common/base/bytes.h"
#include "common/base/clock.h"
#include "common/base/rng.h"

#include <signal.h>
#include <stdlib.h>

#define SWEEP_MS_MAX 1000
#define SWEEP_MS_MIN 10
#define BEAT_MS 1000

const char *hub_epoch(const struct hub *hub)
{
    return hub->epoch;
}

void hub_read_counters(struct hub *hub, struct hub_counters *ret)
{
    *ret = (struct hub_counters){.agents = hub->agents,
                                 .viewers = hub->viewers,
                                 .agent_bytes_in = hub->agent_bytes_in,
                                 .agent_bytes_out = hub->agent_bytes_out};
}

/* --- timers --- */

static void on_sweep(uv_timer_t *timer)
{
    struct hub *hub = timer->data;
    peers_sweep(hub);
    /* libwebsockets looks at its own timers (handshake, close) only after an event of its own. */
    lws_cancel_service(hub->context);
}

static void on_beat(uv_timer_t *timer)
{
    viewers_beat(timer->data);
}

static void on_drain_over(uv_timer_t *timer)
{
    uv_stop(timer->loop);
}

void hub_check_drained(struct hub *hub)
{
    if (hub->is_stopping && !hub->peers)
        uv_stop(&hub->loop);
}

void hub_begin_drain(struct hub *hub, uint32_t drain_ms)
{
    hub->is_stopping = true;
    peers_close_all(hub);
    uv_timer_start(&hub->drain_timer, on_drain_over, drain_ms, 0);
    hub_check_drained(hub);
}

/* Sixteen looks per ping interval, four per deadline for the hello, at most one a second. */
static uint64_t sweep_interval_ms(const struct hub_options *options)
{
    uint64_t interval_ms = options->timers.ping_ms / 16;
    if (options->hello_deadline_ms / 4 < interval_ms)
        interval_ms = options->hello_deadline_ms / 4;
    if (interval_ms > SWEEP_MS_MAX)
        interval_ms = SWEEP_MS_MAX;
    return interval_ms < SWEEP_MS_MIN ? SWEEP_MS_MIN : interval_ms;
}

static void start_timers(struct hub *hub)
{
    uint64_t sweep_ms = sweep_interval_ms(&hub->options);
    uv_timer_init(&hub->loop, &hub->sweep_timer);
    uv_timer_init(&hub->loop, &hub->beat_timer);
    uv_timer_init(&hub->loop, &hub->drain_timer);
    hub->sweep_timer.data = hub;
    hub->beat_timer.data = hub;
    hub->drain_timer.data = hub;
    hub->swept_us = clock_monotonic_us();
    uv_timer_start(&hub->sweep_timer, on_sweep, sweep_ms, sweep_ms);
    uv_timer_start(&hub->beat_timer, on_beat, 0, BEAT_MS);
}

/* --- the service thread --- */

#define CLOSE_TURNS 10 /* of the loop, until every handle of libwebsockets has gone */

/* Closes context, timers and loop; every peer is gone afterwards. */
static void close_loop(struct hub *hub)
{
    uv_close((uv_handle_t *)&hub->sweep_timer, NULL);
    uv_close((uv_handle_t *)&hub->beat_timer, NULL);
    uv_close((uv_handle_t *)&hub->drain_timer, NULL);
    if (hub->context) { /* on a foreign loop: once to close its handles, once to free the rest */
        lws_context_destroy(hub->context);
        for (int i = 0; i < CLOSE_TURNS; i++)
            uv_run(&hub->loop, UV_RUN_NOWAIT);
        lws_context_destroy(hub->context);
    }
    while (uv_run(&hub->loop, UV_RUN_DEFAULT)) /* the last peer's end may have stopped it again */
        ;
    uv_loop_close(&hub->loop);
}

static void *service(void *argument)
{
    struct hub *hub = argument;
    uv_run(&hub->loop, UV_RUN_DEFAULT);
    close_loop(hub);
    return NULL;
}

/* The program's signals belong to its other threads. */
static int create_thread(struct hub *hub)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&hub->thread, NULL, service, hub);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

/* --- start and stop --- */

static void make_epoch(char ret[EPOCH_BYTES])
{
    uint8_t random[(EPOCH_BYTES - 1) / 2];
    random_bytes(random, sizeof random);
    hex_encode(random, sizeof random, ret);
}

static enum status check_options(const struct hub_options *options, struct error *err)
{
    const struct hub_callbacks *callbacks = &options->callbacks;
    if (!callbacks->agent_opened || !callbacks->agent_message || !callbacks->agent_frame ||
        !callbacks->agent_closed || !callbacks->viewer_allowed)
        return error_set(err, STATUS_INVALID, "starting the hub: a callback is missing");
    enum status status = timers_check(&options->timers, err);
    if (status)
        return status;
    if (options->data_frame_bytes == 0 || options->data_frame_bytes > FRAME_PAYLOAD_BYTES_MAX)
        return error_set(err, STATUS_INVALID,
                         "starting the hub: data_frame_bytes is %u, allowed is 1 to %d",
                         options->data_frame_bytes, FRAME_PAYLOAD_BYTES_MAX);
    return STATUS_OK;
}

static void free_hub(struct hub *hub)
{
    commands_discard(hub);
    while (hub->channels)
        channel_remove(&hub->channels, hub->channels);
    shared_unref(hub->heartbeat);
    peer_table_done(&hub->table);
    pthread_mutex_destroy(&hub->lock);
    free(hub->scratch);
    free(hub);
}

enum status hub_start(const struct hub_options *options, struct hub **ret, struct error *err)
{
    enum status status = check_options(options, err);
    if (status)
        return status;
    struct hub *hub = calloc(1, sizeof *hub);
    uint8_t *scratch = malloc(LWS_PRE + FRAME_HEADER_BYTES + FRAME_PAYLOAD_BYTES_MAX);
    if (!hub || !scratch || uv_loop_init(&hub->loop)) {
        free(scratch);
        free(hub);
        return error_set(err, STATUS_NO_MEMORY, "starting the hub: no memory for its loop");
    }
    hub->options = *options;
    hub->scratch = scratch;
    hub->commands_end = &hub->commands;
    pthread_mutex_init(&hub->lock, NULL);
    peer_table_init(&hub->table);
    make_epoch(hub->epoch);
    start_timers(hub);
    status = server_start(hub, err);
    if (status == STATUS_OK) {
        int error = create_thread(hub);
        if (error)
            status = error_set_errno(err, error, "starting the hub: creating its thread");
    }
    if (status) {
        close_loop(hub);
        free_hub(hub);
        return status;
    }
    *ret = hub;
    return STATUS_OK;
}

void hub_drain(struct hub *hub, uint32_t drain_ms)
{
    commands_post_stop(hub, drain_ms);
    pthread_join(hub->thread, NULL);
    hub->is_drained = true;
}

void hub_stop(struct hub *hub, uint32_t drain_ms)
{
    if (!hub)
        return;
    if (!hub->is_drained)
        hub_drain(hub, drain_ms);
    free_hub(hub);
}
