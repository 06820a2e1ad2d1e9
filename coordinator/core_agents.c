/* Who is connected: sessions from handshake to end, enrolment by invite, one session per volunteer
 * (the newest connection wins). The hub's callbacks run on its thread and only post; the
 * core_agent_ functions run on the loop's thread. */
#include "common/base/bytes.h"
#include "common/base/clock.h"
#include "common/base/rng.h"
#include "common/codec/codec.h"
#include "coordinator/core_internal.h"

#include <math.h>
#include <sodium.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define SPREAD_MS_PER_AGENT 10u
#define SPREAD_SAME_MS 500u /* a smaller change is not told */

/* --- the hub's thread ---------------------------------------------------------------------- */

/* Messages vary from 30 bytes to 18 KiB in memory: a mail is only as long as its type. */
static size_t message_bytes(enum wire_type type)
{
    switch (type) {
#define MESSAGE(name, sender, purpose)                                                             \
    case WIRE_##name:                                                                              \
        return offsetof(struct wire_message, name) + sizeof(struct wire_##name);
#include "common/wire/messages.def"
    default:
        return sizeof(struct wire_message);
    }
}

static void on_opened(void *context, uint64_t peer, const char *address)
{
    struct core *core = context;
    struct mail_opened *mail = calloc(1, sizeof *mail);
    if (mail) {
        mail->peer = peer;
        text_copy(mail->address, sizeof mail->address, address);
    }
    if (core_mail(core, MAIL_AGENT_OPENED, (struct mail *)mail))
        hub_close(core->hub, peer, END_INTERNAL, "the coordinator is overloaded", 10000);
}

static void on_message(void *context, uint64_t peer, const struct wire_message *message)
{
    struct core *core = context;
    size_t bytes = message_bytes(message->type);
    struct mail_message *mail = NULL;
    if (mailbox_count(core->box) < MAIL_COUNT_BUSY)
        mail = calloc(1, offsetof(struct mail_message, message) + bytes);
    if (mail) {
        mail->peer = peer;
        memcpy(&mail->message, message, bytes);
    }
    if (core_mail(core, MAIL_AGENT_MESSAGE, (struct mail *)mail))
        hub_close(core->hub, peer, END_INTERNAL, "the coordinator is overloaded", 10000);
}

static void on_frame(void *context, uint64_t peer, const struct frame *frame)
{
    struct core *core = context;
    if (frame->kind != FRAME_UPDATE) {
        hub_close(core->hub, peer, END_PROTOCOL_ERROR, "agents send frames of kind update only", 0);
        return;
    }
    struct mail_frame *mail = NULL;
    if (mailbox_count(core->box) < MAIL_COUNT_BUSY)
        mail = malloc(sizeof *mail + frame->payload_bytes);
    if (mail) {
        memset(mail, 0, sizeof *mail);
        mail->peer = peer;
        mail->stream = frame->stream;
        mail->offset = frame->offset;
        mail->bytes = frame->payload_bytes;
        memcpy(mail->payload, frame->payload, frame->payload_bytes);
    }
    if (core_mail(core, MAIL_AGENT_FRAME, (struct mail *)mail)) {
        hub_close(core->hub, peer, END_INTERNAL, "the coordinator is overloaded", 10000);
        return;
    }
    /* From here, not from the core's loop: the agent measures its link by it, not the loop's load.
     */
    struct wire_message ack = {
        .type = WIRE_ack,
        .ack = {.stream = frame->stream, .received = frame->offset + frame->payload_bytes}};
    hub_send(core->hub, peer, &ack);
}

static void on_closed(void *context, uint64_t peer, enum end_reason reason, const char *detail)
{
    struct core *core = context;
    struct mail_closed *mail = core_mail_make(sizeof *mail);
    mail->peer = peer;
    mail->reason = reason;
    text_copy(mail->detail, sizeof mail->detail, detail);
    core_mail_surely(core, MAIL_AGENT_CLOSED, &mail->mail);
}

static bool on_viewer(void *context, const struct hub_viewer_handshake *handshake)
{
    struct core *core = context;
    return core->viewer_allowed && core->viewer_allowed(core->viewer_context, handshake);
}

struct hub_callbacks core_hub_callbacks(struct core *core)
{
    return (struct hub_callbacks){.context = core,
                                  .agent_opened = on_opened,
                                  .agent_message = on_message,
                                  .agent_frame = on_frame,
                                  .agent_closed = on_closed,
                                  .viewer_allowed = on_viewer};
}

/* --- the loop's thread --------------------------------------------------------------------- */

struct session *session_by_peer(struct core *core, uint64_t peer)
{
    for (struct session *session = core->sessions; session; session = session->next)
        if (session->peer == peer)
            return session;
    return NULL;
}

struct volunteer *volunteer_by_id(struct core *core, const char *id)
{
    for (struct volunteer *volunteer = core->volunteers; volunteer; volunteer = volunteer->next)
        if (strcmp(volunteer->id, id) == 0)
            return volunteer;
    return NULL;
}

static struct volunteer *volunteer_by_key(struct core *core, const uint8_t key[32])
{
    for (struct volunteer *volunteer = core->volunteers; volunteer; volunteer = volunteer->next)
        if (memcmp(volunteer->public_key, key, 32) == 0)
            return volunteer;
    return NULL;
}

enum status core_volunteer_add(struct core *core, const struct store_volunteer *row)
{
    if (volunteer_by_id(core, row->id))
        return STATUS_OK;
    struct volunteer *volunteer = calloc(1, sizeof *volunteer);
    if (!volunteer)
        return STATUS_NO_MEMORY;
    text_copy(volunteer->id, sizeof volunteer->id, row->id);
    text_copy(volunteer->label, sizeof volunteer->label, row->label);
    memcpy(volunteer->public_key, row->public_key, sizeof volunteer->public_key);
    volunteer->revoked = strcmp(row->state, "revoked") == 0;
    volunteer->updates_applied = row->updates_applied;
    volunteer->samples = row->samples;
    volunteer->loss = (double)NAN;
    for (size_t i = 0; i < UPLOADS_MAX; i++)
        volunteer->uploads[i].fd = -1;
    volunteer->next = core->volunteers;
    core->volunteers = volunteer;
    return STATUS_OK;
}

void core_agent_opened(struct core *core, const struct mail_opened *mail)
{
    struct session *session = calloc(1, sizeof *session);
    if (!session) {
        hub_close(core->hub, mail->peer, END_INTERNAL, "out of memory", 10000);
        return;
    }
    session->peer = mail->peer;
    text_copy(session->address, sizeof session->address, mail->address);
    random_bytes(session->nonce, sizeof session->nonce);
    session->challenged_ms = clock_wall_ms();
    session->loss = (double)NAN;
    session->next = core->sessions;
    core->sessions = session;

    struct wire_message challenge = {.type = WIRE_challenge};
    challenge.challenge.protocol = WIRE_PROTOCOL;
    challenge.challenge.server_time_ms = (uint64_t)session->challenged_ms;
    memcpy(challenge.challenge.nonce, session->nonce, sizeof session->nonce);
    hub_send(core->hub, session->peer, &challenge);
}

void core_agent_closed(struct core *core, const struct mail_closed *mail)
{
    struct session **link = &core->sessions;
    while (*link && (*link)->peer != mail->peer)
        link = &(*link)->next;
    struct session *session = *link;
    if (!session)
        return;
    *link = session->next;
    struct volunteer *volunteer = session->volunteer;
    if (volunteer) {
        auth_agent_token_end(core->auth, session->token);
        if (volunteer->session == session) {
            volunteer->session = NULL;
            volunteer_rewind_uploads(volunteer);
        }
        volunteer->seen_us = clock_monotonic_us();
        if (store_post_session_closed(core->store, session->id, end_reason_name(mail->reason),
                                      clock_wall_ms()))
            core_event(core, "store.full", "error", session->id, "a session's end is not kept");
        core_event(core, "volunteer.disconnected",
                   mail->reason == END_AGENT_STOPPED ? "info" : "warn", volunteer->id,
                   "%s left: %s", volunteer->label,
                   mail->detail[0] ? mail->detail : end_reason_text(mail->reason));
    }
    free(session);
}

/* The moments at which a lost fleet comes back are spread over this: about 100 sessions a second.
 */
static uint64_t reconnect_spread_ms(const struct core *core)
{
    struct hub_counters counters;
    hub_read_counters(core->hub, &counters);
    return counters.agents * SPREAD_MS_PER_AGENT;
}

static void send_welcome(struct core *core, struct session *session)
{
    struct wire_message message = {.type = WIRE_welcome};
    struct wire_welcome *welcome = &message.welcome;
    text_copy(welcome->session, sizeof welcome->session, session->id);
    text_copy(welcome->volunteer, sizeof welcome->volunteer, session->volunteer->id);
    text_copy(welcome->download_token, sizeof welcome->download_token, session->token);
    welcome->server_time_ms = (uint64_t)clock_wall_ms();
    welcome->ping_ms = core->hub_options.timers.ping_ms;
    welcome->ping_min_ms = core->hub_options.timers.ping_min_ms;
    welcome->silence_ms = core->hub_options.timers.silence_ms;
    welcome->stall_ms = core->hub_options.timers.stall_ms;
    session->spread_ms = welcome->reconnect_spread_ms = reconnect_spread_ms(core);
    welcome->data_frame_bytes = core->hub_options.data_frame_bytes;
    hub_send(core->hub, session->peer, &message);
}

void core_spread_tick(struct core *core)
{
    uint64_t spread_ms = reconnect_spread_ms(core);
    struct wire_message message = {.type = WIRE_spread, .spread.reconnect_spread_ms = spread_ms};
    for (struct session *session = core->sessions; session; session = session->next) {
        bool grown = spread_ms > session->spread_ms * 5 / 4 + SPREAD_SAME_MS;
        bool shrunk = spread_ms * 2 + SPREAD_SAME_MS < session->spread_ms;
        if (!session->volunteer || (!grown && !shrunk))
            continue;
        session->spread_ms = spread_ms;
        hub_send(core->hub, session->peer, &message);
    }
}

static void accept_session(struct core *core, struct session *session, struct volunteer *volunteer)
{
    if (volunteer->session)
        hub_close(core->hub, volunteer->session->peer, END_REPLACED, end_reason_text(END_REPLACED),
                  0);
    session->volunteer = volunteer;
    volunteer->session = session;
    id_make(session->id, "ses");
    if (auth_agent_token_make(core->auth, volunteer->id, session->token)) {
        hub_close(core->hub, session->peer, END_INTERNAL, "out of memory", 10000);
        return;
    }
    text_copy(session->have_job, sizeof session->have_job, session->hello.have_job);
    session->have_version = session->hello.have_version;
    session->have_hash = session->hello.have_hash;
    session->part_bytes = session->hello.part_bytes;
    volunteer_rewind_uploads(volunteer);
    hub_agent_accept(core->hub, session->peer);
    send_welcome(core, session);
    if (store_post_session_opened(core->store, session->id, volunteer->id, session->address,
                                  clock_wall_ms()))
        core_event(core, "store.full", "error", session->id, "a session's start is not kept");
    core_event(
        core, "volunteer.connected", "info", volunteer->id, "%s connected (%s, %llu threads%s%s)",
        volunteer->label, session->hello.cpu, (unsigned long long)session->hello.threads,
        session->hello.last_end[0] ? "; its last session ended: " : "", session->hello.last_end);
}

static bool signature_is_right(const struct session *session, const struct wire_hello *hello)
{
    static const char context[] = WIRE_HELLO_CONTEXT;
    uint8_t text[sizeof context - 1 + 32 + 32];
    memcpy(text, context, sizeof context - 1);
    memcpy(text + sizeof context - 1, session->nonce, 32);
    memcpy(text + sizeof context - 1 + 32, hello->public_key, 32);
    return crypto_sign_verify_detached(hello->signature, text, sizeof text, hello->public_key) == 0;
}

struct enrolment {
    struct core *core;
    uint64_t peer;
};

/* On the store's thread. */
static void on_enrolled(void *context, enum status status, const char *sentence,
                        const struct store_volunteer *volunteer)
{
    struct enrolment *enrolment = context;
    struct mail_enrolled *mail = calloc(1, sizeof *mail);
    if (mail) {
        mail->peer = enrolment->peer;
        mail->status = status;
        text_copy(mail->sentence, sizeof mail->sentence, sentence ? sentence : "");
        if (status == STATUS_OK)
            mail->volunteer = *volunteer;
    }
    if (core_mail(enrolment->core, MAIL_ENROLLED, (struct mail *)mail))
        hub_close(enrolment->core->hub, enrolment->peer, END_INTERNAL, "overloaded", 10000);
    free(enrolment);
}

static void begin_enrolment(struct core *core, struct session *session,
                            const struct wire_hello *hello)
{
    if (!auth_secret_is_wellformed(hello->invite, "inv")) {
        hub_close(core->hub, session->peer, END_INVITE_REFUSED,
                  "the invite is mistyped: it begins with rvn_inv_ and ends with six hex digits",
                  0);
        return;
    }
    struct store_volunteer volunteer = {.threads = (uint32_t)hello->threads,
                                        .memory_bytes = hello->memory_bytes,
                                        .state = "active"};
    memcpy(volunteer.public_key, hello->public_key, sizeof volunteer.public_key);
    text_copy(volunteer.label, sizeof volunteer.label, hello->label);
    text_copy(volunteer.cpu, sizeof volunteer.cpu, hello->cpu);
    text_copy(volunteer.backend, sizeof volunteer.backend, hello->backend);
    text_copy(volunteer.agent_version, sizeof volunteer.agent_version, hello->agent_version);
    uint8_t hash[SHA256_BYTES];
    auth_secret_hash(hello->invite, hash);
    struct enrolment *enrolment = malloc(sizeof *enrolment);
    if (enrolment)
        *enrolment = (struct enrolment){.core = core, .peer = session->peer};
    if (!enrolment || store_post_enrol(core->store, hash, &volunteer, on_enrolled, enrolment)) {
        free(enrolment);
        hub_close(core->hub, session->peer, END_DATABASE_AWAY,
                  "enrolment is not possible now; try again in a minute", 60000);
        return;
    }
    session->enrolling = true;
}

void core_agent_enrolled(struct core *core, const struct mail_enrolled *mail)
{
    struct session *session = session_by_peer(core, mail->peer);
    if (mail->status == STATUS_OK && core_volunteer_add(core, &mail->volunteer) == STATUS_OK) {
        struct volunteer *volunteer = volunteer_by_id(core, mail->volunteer.id);
        core_event(core, "volunteer.enrolled", "info", volunteer->id, "%s enrolled",
                   volunteer->label);
        if (session)
            accept_session(core, session, volunteer);
        return;
    }
    if (!session)
        return;
    if (mail->status == STATUS_DENIED)
        hub_close(core->hub, session->peer, END_INVITE_REFUSED, mail->sentence, 0);
    else
        hub_close(core->hub, session->peer, END_DATABASE_AWAY, "enrolment failed; try again",
                  10000);
}

/* The agent read its clock between challenge and hello: right to half a round trip. */
static int64_t clock_offset_ms(const struct session *session, const struct wire_hello *hello)
{
    int64_t elapsed_ms = clock_wall_ms() - session->challenged_ms;
    return (int64_t)hello->agent_time_ms - (session->challenged_ms + elapsed_ms / 2);
}

void core_agent_hello(struct core *core, struct session *session, const struct wire_hello *hello)
{
    if (session->volunteer || session->enrolling) {
        hub_close(core->hub, session->peer, END_PROTOCOL_ERROR, "a second hello", 0);
        return;
    }
    if (hello->protocol != WIRE_PROTOCOL || !strstr(hello->codecs, CODEC_NAME)) {
        hub_close(core->hub, session->peer, END_VERSION_UNSUPPORTED,
                  "this coordinator speaks another protocol or update code (" CODEC_NAME
                  "); please update the agent",
                  0);
        return;
    }
    if (!signature_is_right(session, hello)) {
        hub_close(core->hub, session->peer, END_SIGNATURE_WRONG,
                  end_reason_text(END_SIGNATURE_WRONG), 0);
        return;
    }
    session->hello = *hello;
    session->clock_offset_ms = clock_offset_ms(session, hello);
    memset(session->hello.invite, 0, sizeof session->hello.invite);
    struct volunteer *volunteer = volunteer_by_key(core, hello->public_key);
    if (volunteer && volunteer->revoked)
        hub_close(core->hub, session->peer, END_REVOKED, end_reason_text(END_REVOKED), 0);
    else if (volunteer)
        accept_session(core, session, volunteer);
    else if (hello->invite[0] == 0)
        hub_close(core->hub, session->peer, END_UNKNOWN_VOLUNTEER,
                  end_reason_text(END_UNKNOWN_VOLUNTEER), 0);
    else
        begin_enrolment(core, session, hello);
}
