/* The core's inside, shared by core.c (life), core_session.c (what the coordinator says),
 * core_uploads.c (updates on their way up), core_choice.c (the controller), core_job.c (getting a
 * job and its replica) and core_reports.c (what the threads say). Everything is touched by the
 * session thread only. */
#ifndef RAVEN_AGENT_CORE_INTERNAL_H
#define RAVEN_AGENT_CORE_INTERNAL_H

#include "agent/control/adapt.h"
#include "agent/control/goodput.h"
#include "agent/control/machine.h"
#include "agent/core.h"
#include "agent/core_fetch.h"
#include "agent/core_mail.h"
#include "agent/core_worker.h"
#include "agent/gpu/gpu_watch.h"
#include "agent/session/deltas.h"
#include "agent/session/session.h"
#include "agent/session/uploads.h"
#include "agent/status/socket.h"

#include <uv.h>

#define CORE_LOG "agent"

struct core {
    struct core_settings settings;
    struct core_outcome outcome;
    struct machine machine;
    uint32_t threads;

    uv_loop_t loop;
    bool loop_ready;
    uv_poll_t inbox_poll;
    uv_async_t stop_async;
    uv_timer_t ask_timer, tick_timer, join_timer;
    unsigned handles; /* open */

    struct session *session;
    struct mailbox *inbox;
    struct worker *worker;       /* NULL for join */
    struct fetcher *fetcher;     /* NULL for join */
    struct gpu_watch *gpu_watch; /* NULL for join */
    struct status_board *board;
    struct status_server *server;

    char base_url[288];
    char token[81]; /* of this session */
    char volunteer[32];

    /* the job */
    char job[ID_BYTES];  /* wanted or loaded; empty: none */
    bool job_loaded;     /* by the worker */
    bool preparing;      /* artifacts or a replica are on their way: ask for nothing */
    bool replica_coming; /* a replica is being fetched */
    uint64_t parameters;
    struct job_spec spec;             /* of job */
    char have_job[ID_BYTES];          /* the replica that the worker holds; empty: none */
    uint64_t have_version, have_hash; /* with what the worker has been given to merge */

    /* asking for work */
    bool wanted; /* by the worker */
    uint64_t nonce;
    bool retry_pending; /* ask_timer runs */

    struct uploads uploads;
    struct deltas deltas;
    char outbox[PATH_BYTES];
    int64_t answers_due_us; /* offer again then; 0: nothing waits */

    /* the controller */
    struct goodput up, down;
    int64_t lost_us;  /* when the session was lost, 0: it stands */
    int64_t asked_us; /* since when nothing was heard though an answer is due, 0: none is due */
    double step_ms, overhead_ms, fleet_step_ms;
    uint64_t active, delta_bytes;
    struct adapt adapt;
    struct adapt_choice choice; /* in force */
    int64_t told_us;            /* when the coordinator last heard of it */
};

/* core.c */
void core_set_state(struct core *core, const char *state, const char *why);
void core_note_trouble(struct core *core, const char *text);
void core_finish(struct core *core); /* leave the loop */

/* core_session.c */
extern const struct session_events core_session_events;
void core_say(struct core *core, const struct wire_message *message);
/* Sends the outstanding request, unless something stands against it. */
void core_ask(struct core *core);
void core_note_asked(struct core *core); /* something was said that is answered at once */
void core_ask_later(struct core *core, uint64_t wait_ms);
void core_order(struct core *core, struct worker_mail *mail); /* to the worker; takes mail */
void core_tell_have(struct core *core, const char *job, uint64_t version, uint64_t hash);

/* core_uploads.c */
enum status core_open_outbox(struct core *core, struct error *err) MUST_CHECK;
void core_take_update(struct core *core, struct core_mail *mail);
void core_offer_all(struct core *core); /* a new session */
void core_take_want(struct core *core, const struct wire_want *want);
void core_take_ack(struct core *core, const struct wire_ack *ack);
void core_take_result(struct core *core, const struct wire_result *result);
size_t core_next_frame(void *user, size_t payload_bytes_max, uint64_t window_bytes, uint8_t *ret);
void core_uploads_tick(struct core *core);
void core_uploads_lost(struct core *core); /* the session ended */

/* core_choice.c */
void core_choose(struct core *core);        /* steps, k and leases ahead, for the next request */
void core_forget_choice(struct core *core); /* another job */

/* core_job.c */
void core_take_job(struct core *core, const struct wire_job *job);
void core_take_snapshot(struct core *core, const struct wire_snapshot *snapshot);
void core_take_cancel(struct core *core, const struct wire_cancel *cancel);
void core_forget_preparation(struct core *core); /* the session ended */

/* core_reports.c */
void core_take_report(struct core *core, struct core_mail *mail);

#endif
