/* The real core with hub, ledger and PostgreSQL, a listener in front of it, and scripted agents
 * ("pcs") that speak raven-agent.v1 to it over TCP. The clock of the whole program can be set
 * forward, and two slow things can be made slower (see CMakeLists.txt: --wrap). */
#ifndef RAVEN_TESTS_CORE_FIXTURE_H
#define RAVEN_TESTS_CORE_FIXTURE_H

#include "common/base/bytes.h"
#include "common/base/rng.h"
#include "common/codec/codec.h"
#include "common/tensorfile/replica_file.h"
#include "coordinator/aggregate/aggregate.h"
#include "coordinator/core.h"
#include "coordinator/job/job.h"
#include "tests/support/encode.h"
#include "tests/unit/coordinator/hub/ws_client.h"
#include "tests/unit/coordinator/store/fixture.h"

#include <pthread.h>
#include <sodium.h>
#include <stdatomic.h>
#include <sys/stat.h>

#define JOB_PARAMETERS 1024
#define QUEUE_BYTES_MAX (1u << 20)
#define SILENCE_S 15 /* of a pc that waits for an answer; shorter than between two pings */

struct world {
    struct fixture database; /* first: the store's fixture works on it */
    struct auth *auth;
    struct core *core;
    int listener;
    uint16_t port;
    pthread_t acceptor;
    atomic_uint_fast64_t peers; /* adopted so far: the newest one's number */
    char job[ID_BYTES];
};

struct pc {
    struct world *world;
    struct ws_client client;
    const char *address; /* to connect from */
    uint8_t public_key[32], secret_key[64];
    char invite[AUTH_SECRET_BYTES];
    char session[ID_BYTES];
    char have_job[ID_BYTES];
    uint64_t have_version, have_hash, nonce, stream;
    struct wire_message in; /* the last one */
};

/* --- what is wrapped ------------------------------------------------------------------------ */

static atomic_llong clock_ahead_us;
static atomic_int apply_takes_ms, create_takes_ms;

int64_t __real_clock_monotonic_us(void);
int64_t __wrap_clock_monotonic_us(void);
int64_t __wrap_clock_monotonic_us(void)
{
    return __real_clock_monotonic_us() + atomic_load(&clock_ahead_us);
}

static inline void clock_advance_s(int64_t seconds)
{
    atomic_fetch_add(&clock_ahead_us, seconds * 1000000);
}

static inline void hold(atomic_int *takes_ms)
{
    for (int ms = atomic_load(takes_ms); ms > 0 && atomic_load(takes_ms) > 0; ms -= 10)
        clock_sleep_us(10000);
}

enum status __real_aggregate_apply(struct aggregate *aggregate, const struct codec_payload *payload,
                                   float weight, const float *factors, struct error *err);
enum status __wrap_aggregate_apply(struct aggregate *aggregate, const struct codec_payload *payload,
                                   float weight, const float *factors, struct error *err);
enum status __wrap_aggregate_apply(struct aggregate *aggregate, const struct codec_payload *payload,
                                   float weight, const float *factors, struct error *err)
{
    hold(&apply_takes_ms);
    return __real_aggregate_apply(aggregate, payload, weight, factors, err);
}

enum status __real_job_create(const struct job_create_options *options, struct error *err);
enum status __wrap_job_create(const struct job_create_options *options, struct error *err);
enum status __wrap_job_create(const struct job_create_options *options, struct error *err)
{
    hold(&create_takes_ms);
    return __real_job_create(options, err);
}

/* --- the world ------------------------------------------------------------------------------ */

static inline bool no_viewer(void *context, const struct hub_viewer_handshake *handshake)
{
    (void)context, (void)handshake;
    return false;
}

static inline void *accept_all(void *context)
{
    struct world *world = context;
    for (;;) {
        struct sockaddr_in address;
        socklen_t bytes = sizeof address;
        char text[INET_ADDRSTRLEN];
        int fd = accept4(world->listener, (struct sockaddr *)&address, &bytes,
                         SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0)
            return NULL;
        atomic_fetch_add(&world->peers, 1);
        hub_adopt(core_hub(world->core), fd,
                  inet_ntop(AF_INET, &address.sin_addr, text, sizeof text));
    }
}

static inline void world_core_start(struct world *world)
{
    char jobs[PATH_BYTES], uploads[PATH_BYTES];
    struct error err = {0};
    fixture_ok(path_format(jobs, "%s/jobs", world->database.dir), &err);
    fixture_ok(path_format(uploads, "%s/uploads", world->database.dir), &err);
    struct core_options options = {.jobs_dir = jobs,
                                   .ledger_segment_bytes = 1u << 20,
                                   .uploads_dir = uploads,
                                   .store = world->database.store,
                                   .auth = world->auth,
                                   .hub = {.timers = {20000, 45000, 60000, 80000},
                                           .hello_deadline_ms = 30000,
                                           .data_frame_bytes = FRAME_PAYLOAD_BYTES_MAX,
                                           .agent_queue_bytes_max = QUEUE_BYTES_MAX,
                                           .viewers_max = 1},
                                   .viewer_allowed = no_viewer};
    fixture_ok(core_start(&options, &world->core, &err), &err);
    atomic_store(&world->peers, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    world->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(world->listener, (struct sockaddr *)&address, bytes), 0);
    assert_int_equal(listen(world->listener, 64), 0);
    assert_int_equal(getsockname(world->listener, (struct sockaddr *)&address, &bytes), 0);
    world->port = ntohs(address.sin_port);
    assert_int_equal(pthread_create(&world->acceptor, NULL, accept_all, world), 0);
}

static inline void world_core_stop(struct world *world)
{
    if (!world->core)
        return;
    shutdown(world->listener, SHUT_RDWR);
    pthread_join(world->acceptor, NULL);
    close(world->listener);
    core_stop(world->core);
    world->core = NULL;
}

static inline int world_group_setup(void **state)
{
    static struct world world;
    struct error err = {0};
    *state = &world;
    if (fixture_start(&world.database) || chmod(world.database.dir, 0711))
        return -1;
    fixture_ok(auth_create(&world.auth), &err);
    return 0;
}

static inline int world_group_teardown(void **state)
{
    struct world *world = *state;
    auth_free(world->auth);
    return fixture_stop(&world->database);
}

/* A fresh database and core for each test. */
static inline int world_setup(void **state)
{
    struct world *world = *state;
    if (fixture_setup(state))
        return -1;
    world->job[0] = '\0';
    atomic_store(&clock_ahead_us, 0);
    atomic_store(&apply_takes_ms, 0);
    atomic_store(&create_takes_ms, 0);
    world_core_start(world);
    return 0;
}

static inline int world_teardown(void **state)
{
    struct world *world = *state;
    atomic_store(&apply_takes_ms, 0);
    atomic_store(&create_takes_ms, 0);
    world_core_stop(world);
    return fixture_teardown(state);
}

static inline void world_start_job(struct world *world)
{
    static const char spec[] =
        "{\"name\":\"links\",\"model\":{\"preset\":\"synthetic\",\"parameters\":1024,\"step_ms\":1}"
        ","
        "\"data\":{\"kind\":\"synthetic\"},\"training\":{\"batch_size\":8,\"steps_per_lease\":10,"
        "\"total_samples\":100000000},\"update\":{\"adaptive\":false},"
        "\"evaluation\":{\"every_versions\":100000,\"samples\":8}}";
    struct store_job job = {.blocks = 7, .state = "queued", .created_ms = 1};
    struct error err = {0};
    job.spec = strdup(spec);
    job.artifacts = strdup("{}");
    id_make(world->job, "job");
    text_copy(job.id, sizeof job.id, world->job);
    fixture_ok(store_job_create(world->database.store, &job, NULL, NULL, &err), &err);
    fixture_ok(core_job_start(world->core, &job, &err), &err);
    store_job_done(&job);
}

static inline struct core_job_progress world_progress(struct world *world)
{
    struct core_job_progress progress;
    enum status status;
    while ((status = core_job_read(world->core, world->job, &progress)) == STATUS_UNAVAILABLE)
        continue;
    assert_int_equal(status, STATUS_OK);
    return progress;
}

static inline long world_count(struct world *world, const char *sql)
{
    fixture_drain(world->database.store);
    return fixture_number(world->database.conninfo, sql);
}

/* Waits until the query gives this number. */
static inline void world_expect(struct world *world, const char *sql, long wanted)
{
    for (int i = 0; world_count(world, sql) != wanted; i++) {
        if (i == 200 * SILENCE_S)
            fail_msg("%s: not %ld within %d s", sql, wanted, SILENCE_S);
        clock_sleep_us(5000);
    }
}

/* --- pcs ------------------------------------------------------------------------------------ */

static inline void pc_init(struct pc *pc, struct world *world)
{
    struct store_invite invite = {.group = "", .max_uses = 1, .expires_ms = INT64_MAX / 2};
    struct error err = {0};
    *pc = (struct pc){.world = world, .client.fd = -1, .address = "127.0.0.1", .nonce = 100};
    crypto_sign_keypair(pc->public_key, pc->secret_key);
    auth_secret_make("inv", pc->invite);
    auth_secret_hash(pc->invite, invite.hash);
    id_make(invite.id, "inv");
    fixture_ok(store_invite_create(world->database.store, &invite, NULL, NULL, &err), &err);
}

static inline void pc_send(struct pc *pc, const struct wire_message *message)
{
    struct buffer text;
    buffer_init(&text, WIRE_TEXT_BYTES_MAX);
    assert_int_equal(wire_encode(message, &text), STATUS_OK);
    assert_true(ws_send(&pc->client, WS_TEXT, text.data, text.bytes));
    buffer_done(&text);
}

/* Reads the next control message into pc->in; data frames are passed over. */
static inline enum wire_type pc_read(struct pc *pc)
{
    struct error err = {0};
    do {
        if (!ws_read(&pc->client))
            fail_msg("the connection ended, or nothing came for %d s", SILENCE_S);
        if (pc->client.opcode == WS_CLOSE)
            fail_msg("the coordinator closed: %s", (const char *)pc->client.data + 2);
    } while (pc->client.opcode != WS_TEXT);
    if (wire_decode((const char *)pc->client.data, pc->client.bytes, WIRE_FROM_COORDINATOR, &pc->in,
                    &err))
        fail_msg("%s", err.text);
    return pc->in.type;
}

static inline void pc_expect(struct pc *pc, enum wire_type type)
{
    while (pc_read(pc) != type)
        if (pc->in.type == WIRE_bye)
            fail_msg("%s did not come but bye: %s", wire_type_name(type), pc->in.bye.reason);
}

static inline void pc_dial(struct pc *pc)
{
    struct sockaddr_in from = {.sin_family = AF_INET};
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons(pc->world->port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval guard = {.tv_sec = SILENCE_S};
    int small = 16384; /* so that a pc that does not read is soon seen to be slow */
    pc->client = (struct ws_client){.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    setsockopt(pc->client.fd, SOL_SOCKET, SO_RCVTIMEO, &guard, sizeof guard);
    setsockopt(pc->client.fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    assert_int_equal(inet_pton(AF_INET, pc->address, &from.sin_addr), 1);
    assert_int_equal(bind(pc->client.fd, (struct sockaddr *)&from, sizeof from), 0);
    assert_int_equal(connect(pc->client.fd, (struct sockaddr *)&to, sizeof to), 0);
    assert_int_equal(ws_handshake(&pc->client, "/ws/agent", WIRE_SUBPROTOCOL, NULL), 101);
}

static inline void pc_connect(struct pc *pc)
{
    static const char context[] = WIRE_HELLO_CONTEXT;
    uint8_t text[sizeof context - 1 + 64];
    struct wire_message message = {.type = WIRE_hello};
    struct wire_hello *hello = &message.hello;
    pc_dial(pc);
    pc_expect(pc, WIRE_challenge);
    memcpy(text, context, sizeof context - 1);
    memcpy(text + sizeof context - 1, pc->in.challenge.nonce, 32);
    memcpy(text + sizeof context - 1 + 32, pc->public_key, 32);
    hello->protocol = WIRE_PROTOCOL;
    memcpy(hello->public_key, pc->public_key, 32);
    crypto_sign_detached(hello->signature, NULL, text, sizeof text, pc->secret_key);
    text_copy(hello->invite, sizeof hello->invite, pc->invite);
    text_copy(hello->label, sizeof hello->label, "pc");
    text_copy(hello->codecs, sizeof hello->codecs, CODEC_NAME);
    text_copy(hello->have_job, sizeof hello->have_job, pc->have_job);
    hello->have_version = pc->have_version;
    hello->have_hash = pc->have_hash;
    pc_send(pc, &message);
    pc_expect(pc, WIRE_welcome);
    text_copy(pc->session, sizeof pc->session, pc->in.welcome.session);
    pc->stream = 0;
}

/* Without a word: the line is cut (RST). */
static inline void pc_cut(struct pc *pc)
{
    struct linger linger = {.l_onoff = 1};
    setsockopt(pc->client.fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    ws_done(&pc->client);
}

/* Downloads the snapshot in pc->in, as bytes of the version and hash that it names. */
static inline void pc_fetch(struct pc *pc)
{
    struct wire_snapshot offered = pc->in.snapshot;
    struct wire_message have = {.type = WIRE_have};
    struct replica_header header;
    struct shared *file = NULL;
    struct error err = {0};
    static float w[JOB_PARAMETERS];
    fixture_ok(core_job_replica(pc->world->core, offered.job, offered.version, &file), &err);
    fixture_ok(
        replica_read(shared_data(file), shared_bytes(file), JOB_PARAMETERS, &header, w, &err),
        &err);
    shared_unref(file);
    assert_int_equal(header.version, offered.version);
    assert_int_equal(header.hash, offered.hash);
    text_copy(pc->have_job, sizeof pc->have_job, offered.job);
    pc->have_version = header.version;
    pc->have_hash = header.hash;
    text_copy(have.have.job, sizeof have.have.job, offered.job);
    have.have.version = header.version;
    have.have.hash = header.hash;
    pc_send(pc, &have);
}

/* Asks with pc->nonce; fetches a snapshot when sent to one. True: pc->in is a lease; false: a wait.
 */
static inline bool pc_ask(struct pc *pc)
{
    struct wire_message request = {.type = WIRE_request, .request = {.nonce = pc->nonce}};
    pc_send(pc, &request);
    for (;;) {
        switch (pc_read(pc)) {
        case WIRE_lease:
        case WIRE_wait:
            assert_int_equal(pc->in.type == WIRE_lease ? pc->in.lease.nonce : pc->in.wait.nonce,
                             pc->nonce);
            return pc->in.type == WIRE_lease;
        case WIRE_snapshot:
            pc_fetch(pc);
            pc_send(pc, &request);
            break;
        default:
            assert_int_not_equal(pc->in.type, WIRE_bye);
        }
    }
}

/* A training lease under a new nonce; an evaluation is answered on the way. */
static inline struct wire_lease pc_lease(struct pc *pc)
{
    for (;;) {
        pc->nonce++;
        if (!pc_ask(pc))
            fail_msg("no work: %s", pc->in.wait.reason);
        struct wire_lease lease = pc->in.lease;
        if (strcmp(lease.kind, "train") == 0)
            return lease;
        struct wire_message done = {.type = WIRE_evaluation,
                                    .evaluation = {.version = lease.base, .loss = 1, .samples = 8}};
        text_copy(done.evaluation.lease, sizeof done.evaluation.lease, lease.lease);
        text_copy(done.evaluation.job, sizeof done.evaluation.job, lease.job);
        pc_send(pc, &done);
    }
}

/* What the lease made of a residual that is `value` everywhere. */
static inline struct shared *pc_payload(const struct wire_lease *lease, float value)
{
    float residual[JOB_PARAMETERS];
    struct buffer bytes;
    for (size_t i = 0; i < JOB_PARAMETERS; i++)
        residual[i] = value;
    buffer_init(&bytes, 1u << 16);
    assert_int_equal(simple_encode(residual, JOB_PARAMETERS, (uint32_t)lease->k, &bytes),
                     STATUS_OK);
    struct shared *payload = shared_create(bytes.data, bytes.bytes);
    buffer_done(&bytes);
    return payload;
}

static inline void pc_offer(struct pc *pc, const struct wire_lease *lease,
                            const struct shared *payload)
{
    struct wire_message message = {.type = WIRE_offer,
                                   .offer = {.stream = ++pc->stream,
                                             .base = lease->base,
                                             .steps = lease->steps,
                                             .samples = 80,
                                             .loss = 1,
                                             .bytes = shared_bytes(payload)}};
    text_copy(message.offer.lease, sizeof message.offer.lease, lease->lease);
    text_copy(message.offer.job, sizeof message.offer.job, lease->job);
    sha256_of(shared_data(payload), shared_bytes(payload), message.offer.sha256);
    pc_send(pc, &message);
}

/* The stream that pc->in, a want, asks for. */
static inline void pc_upload(struct pc *pc, const struct shared *payload)
{
    uint8_t data[FRAME_HEADER_BYTES + 4096];
    struct frame frame = {.kind = FRAME_UPDATE,
                          .stream = (uint32_t)pc->in.want.stream,
                          .payload = shared_data(payload),
                          .payload_bytes = shared_bytes(payload)};
    assert_true(shared_bytes(payload) <= 4096);
    assert_true(ws_send(&pc->client, WS_BINARY, data, frame_write(&frame, data)));
}

/* Offers and sends; pc->in is the result. */
static inline void pc_update(struct pc *pc, const struct wire_lease *lease, float value)
{
    struct shared *payload = pc_payload(lease, value);
    pc_offer(pc, lease, payload);
    pc_expect(pc, WIRE_want);
    pc_upload(pc, payload);
    pc_expect(pc, WIRE_result);
    shared_unref(payload);
    assert_string_equal(pc->in.result.lease, lease->lease);
    assert_string_equal(pc->in.result.verdict, "applied");
}

#endif
