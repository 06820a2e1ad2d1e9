/* The API on the real parts: PostgreSQL, store, core and HTTP server in one process. Uploads in
 * hostile variants, downloads by range, jobs, invites, first setup, idempotency. */
#include "coordinator/store/private_postgres.h"
#include "tests/unit/coordinator/http/fixture.h"

#include <jansson.h>
#include <poll.h>
#include <sys/stat.h>

#define JSON "Content-Type: application/json\r\n"
#define OCTETS "Content-Type: application/offset+octet-stream\r\n"
#define TEXT_BYTES 200000u

struct world {
    char dir[64], artifacts[PATH_BYTES];
    struct private_postgres *postgres;
    struct store *store;
    struct auth *auth;
    struct core *core;
    struct site site;
    char setup[AUTH_SECRET_BYTES], key[AUTH_SECRET_BYTES];
    char text[TEXT_BYTES];
    char text_id[ID_BYTES]; /* uploaded by the first upload test */
    unsigned keys_used;
};

static void must(enum status status, const struct error *err)
{
    if (status)
        fail_msg("%s: %s", status_text(status), err->text);
}

static void progress(const char *sentence)
{
    print_message("# %s\n", sentence);
}

static bool nobody(void *context, const struct hub_viewer_handshake *handshake)
{
    (void)context;
    (void)handshake;
    return false;
}

static void start_core(struct world *world)
{
    char jobs[PATH_BYTES], uploads[PATH_BYTES];
    struct error err = {0};
    must(path_format(jobs, "%s/jobs", world->dir), &err);
    must(path_format(uploads, "%s/uploads", world->dir), &err);
    struct core_options options = {.jobs_dir = jobs,
                                   .uploads_dir = uploads,
                                   .ledger_segment_bytes = 1u << 20,
                                   .store = world->store,
                                   .auth = world->auth,
                                   .hub = {.timers = {20000, 45000, 60000, 80000, 5000},
                                           .hello_deadline_ms = 5000,
                                           .data_frame_bytes = 32768,
                                           .agent_queue_bytes_max = 1u << 20,
                                           .viewers_max = 1},
                                   .viewer_allowed = nobody};
    must(core_start(&options, &world->core, &err), &err);
}

static int open_world(void **state)
{
    struct world *world = calloc(1, sizeof *world);
    struct error err = {0};
    char postgres[PATH_BYTES];
    uint8_t hash[SHA256_BYTES];
    assert_non_null(world);
    *state = world;
    strcpy(world->dir, "/tmp/raven-api-XXXXXX");
    assert_non_null(mkdtemp(world->dir));
    assert_int_equal(chmod(world->dir, 0711), 0); /* PostgreSQL may be another user */
    must(path_format(postgres, "%s/postgres", world->dir), &err);
    must(path_format(world->artifacts, "%s/artifacts", world->dir), &err);
    must(file_make_dirs(world->artifacts, 0700, &err), &err);
    must(private_postgres_start(postgres, progress, &world->postgres, &err), &err);
    must(store_open(private_postgres_conninfo(world->postgres), RAVEN_SOURCE_DIR "/sql",
                    &world->store, &err),
         &err);
    must(auth_create(&world->auth), &err);
    auth_secret_make("set", world->setup);
    auth_secret_hash(world->setup, hash);
    auth_setup_arm(world->auth, hash, 60000);
    start_core(world);
    struct http_options options = {.core = world->core,
                                   .store = world->store,
                                   .auth = world->auth,
                                   .artifacts_dir = world->artifacts,
                                   .artifact_bytes_max = 1u << 20};
    site_open(&world->site, &options);
    for (size_t i = 0; i < TEXT_BYTES; i++)
        world->text[i] = (char)('a' + (i * i / 7) % 26);
    return 0;
}

static int close_world(void **state)
{
    struct world *world = *state;
    site_close(&world->site);
    core_stop(world->core);
    auth_free(world->auth);
    store_close(world->store);
    private_postgres_stop(world->postgres);
    assert_int_equal(file_remove_tree(world->dir, NULL), STATUS_OK);
    free(world);
    return 0;
}

static struct answer ask(struct world *world, const char *method, const char *path,
                         const char *more, const void *body, size_t bytes)
{
    char head[512];
    snprintf(head, sizeof head, "Authorization: Bearer %s\r\n%s", world->key, more);
    return site_ask(&world->site, method, path, head, body, bytes);
}

static struct answer get(struct world *world, const char *path)
{
    return ask(world, "GET", path, "", NULL, 0);
}

/* A creating POST with a key of its own. */
static struct answer post(struct world *world, const char *path, const char *body)
{
    char more[128];
    snprintf(more, sizeof more, JSON "Idempotency-Key: test-%u\r\n", world->keys_used++);
    return ask(world, "POST", path, more, body, strlen(body));
}

/* The text of a field of an answer's JSON. */
static void field(const struct answer *answer, const char *name, char *ret, size_t bytes)
{
    json_t *json = json_loadb(answer->body, answer->body_bytes, 0, NULL);
    const char *text = json_string_value(json_object_get(json, name));
    if (!text)
        fail_msg("no %s in %s", name, answer->body);
    text_copy(ret, bytes, text);
    json_decref(json);
}

/* --- setup ----------------------------------------------------------------------------------- */

static void test_first_setup_works_once(void **state)
{
    struct world *world = *state;
    char body[160];
    expect(site_ask(&world->site, "GET", "/livez", "", NULL, 0), 200, "ok");
    snprintf(body, sizeof body, "{\"setup_token\":\"%s\"}", world->setup);
    struct answer answer = site_ask(&world->site, "POST", "/v1/session", JSON, body, strlen(body));
    assert_int_equal(answer.status, 201);
    assert_non_null(answer_header(&answer, "Set-Cookie"));
    field(&answer, "key", world->key, sizeof world->key);
    answer_done(&answer);
    expect(site_ask(&world->site, "POST", "/v1/session", JSON, body, strlen(body)), 401, NULL);
    expect(get(world, "/v1/me"), 200, "keys:admin");
}

/* --- artifacts ------------------------------------------------------------------------------- */

static void declaration(const char *kind, const void *data, size_t bytes, char ret[512])
{
    uint8_t hash[SHA256_BYTES];
    char hex[SHA256_HEX_BYTES];
    sha256_of(data, bytes, hash);
    hex_encode(hash, sizeof hash, hex);
    snprintf(ret, 512,
             "{\"kind\":\"%s\",\"filename\":\"a file \\\"x\\\".bin\",\"size_bytes\":%zu,"
             "\"sha256\":\"%s\"}",
             kind, bytes, hex);
}

static void declare(struct world *world, const char *kind, const void *data, size_t bytes,
                    char ret_id[ID_BYTES])
{
    char body[512], location[128];
    declaration(kind, data, bytes, body);
    struct answer answer = post(world, "/v1/artifacts", body);
    if (answer.status != 201)
        fail_msg("%d %s", answer.status, answer.body);
    field(&answer, "id", ret_id, ID_BYTES);
    snprintf(location, sizeof location, "/v1/artifacts/%s/upload", ret_id);
    assert_string_equal(answer_header(&answer, "Location"), location);
    answer_done(&answer);
}

static struct answer patch(struct world *world, const char *id, const char *offset,
                           const void *data, size_t bytes)
{
    char path[128], more[128];
    snprintf(path, sizeof path, "/v1/artifacts/%s/upload", id);
    snprintf(more, sizeof more, OCTETS "%s%s%s", offset ? "Upload-Offset: " : "",
             offset ? offset : "", offset ? "\r\n" : "");
    return ask(world, "PATCH", path, more, data, bytes);
}

static void expect_offset(struct world *world, const char *id, const char *offset)
{
    char path[128];
    snprintf(path, sizeof path, "/v1/artifacts/%s/upload", id);
    struct answer answer = ask(world, "HEAD", path, "", NULL, 0);
    assert_int_equal(answer.status, 200);
    assert_string_equal(answer_header(&answer, "Upload-Offset"), offset);
    answer_done(&answer);
}

static void expect_state(struct world *world, const char *id, const char *state)
{
    char path[128], text[32];
    snprintf(path, sizeof path, "/v1/artifacts/%s", id);
    struct answer answer = get(world, path);
    assert_int_equal(answer.status, 200);
    field(&answer, "state", text, sizeof text);
    assert_string_equal(text, state);
    answer_done(&answer);
}

static unsigned count_files(const struct world *world, const char *ending)
{
    char command[PATH_BYTES + 64], line[32] = "";
    snprintf(command, sizeof command, "ls -A %s | grep -c -- '%s$'", world->artifacts, ending);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    if (!fgets(line, sizeof line, pipe))
        line[0] = 0;
    pclose(pipe);
    return (unsigned)atoi(line);
}

static void test_upload_in_pieces(void **state)
{
    struct world *world = *state;
    char id[ID_BYTES], body[512];
    declare(world, "dataset_text", world->text, TEXT_BYTES, id);
    expect_offset(world, id, "0");
    expect(patch(world, id, "0", world->text, 1000), 204, NULL);
    expect_offset(world, id, "1000");
    struct answer wrong = patch(world, id, "999", world->text + 999, 10);
    assert_int_equal(wrong.status, 409);
    assert_non_null(strstr(wrong.body, "upload-offset-mismatch"));
    assert_string_equal(answer_header(&wrong, "Upload-Offset"), "1000");
    answer_done(&wrong);
    expect(patch(world, id, "1001", world->text, 10), 409, "continues at 1000");
    expect(patch(world, id, NULL, world->text, 10), 400, "Upload-Offset");
    expect(patch(world, id, "-1", world->text, 10), 400, NULL);
    expect(patch(world, id, "0x3e8", world->text, 10), 400, NULL);
    expect(patch(world, id, "99999999999999999999", world->text, 10), 400, NULL);
    expect(patch(world, id, "1000", world->text, TEXT_BYTES), 413, "too-large");
    expect_offset(world, id, "1000");
    expect(patch(world, id, "1000", world->text + 1000, TEXT_BYTES - 1000), 204, NULL);
    expect_state(world, id, "ready");
    expect_offset(world, id, "200000");
    expect(patch(world, id, "200000", world->text, 1), 409, "ready");
    assert_int_equal(count_files(world, ".part"), 0);
    declaration("dataset_text", world->text, TEXT_BYTES, body); /* known: nothing to upload */
    expect(post(world, "/v1/artifacts", body), 200, id);
    text_copy(world->text_id, sizeof world->text_id, id);
}

/* The client vanishes in the middle; what arrived is kept and the rest follows. */
static void test_upload_survives_a_cut(void **state)
{
    struct world *world = *state;
    char id[ID_BYTES], head[512], path[128];
    const char *data = world->text + 5;
    declare(world, "dataset_text", data, 50000, id);
    int fd = site_dial(&world->site);
    int length = snprintf(head, sizeof head,
                          "PATCH /v1/artifacts/%s/upload HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                          "Authorization: Bearer %s\r\n" OCTETS
                          "Upload-Offset: 0\r\nContent-Length: 50000\r\n\r\n",
                          id, world->key);
    send_all(fd, head, (size_t)length);
    send_all(fd, data, 20000);
    snprintf(path, sizeof path, "/v1/artifacts/%s/upload", id);
    char offset[32] = "0";
    for (int i = 0; i < 1000 && strcmp(offset, "20000") != 0; i++) {
        struct answer answer = ask(world, "HEAD", path, "", NULL, 0);
        text_copy(offset, sizeof offset, answer_header(&answer, "Upload-Offset"));
        answer_done(&answer);
    }
    assert_string_equal(offset, "20000");
    expect(patch(world, id, "20000", data + 20000, 30000), 409, "Another request");
    close(fd);
    struct answer rest = {0};
    for (int i = 0; i < 1000 && rest.status != 204; i++) { /* until the cut has been noticed */
        answer_done(&rest);
        rest = patch(world, id, "20000", data + 20000, 30000);
        assert_true(rest.status == 204 || rest.status == 409);
    }
    assert_int_equal(rest.status, 204);
    answer_done(&rest);
    expect_state(world, id, "ready");
}

static void test_bad_contents_are_rejected(void **state)
{
    static const uint8_t not_idx[] = {0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0};
    static const uint8_t huge_idx[] = {0,    0,    8,    3,    0xff, 0xff, 0xff, 0xff, 0xff,
                                       0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1};
    struct world *world = *state;
    char id[ID_BYTES];
    declare(world, "dataset_text", "right", 5, id);
    expect(patch(world, id, "0", "wrong", 5), 460, "checksum-mismatch");
    expect_state(world, id, "rejected");
    expect(patch(world, id, "0", "right", 5), 409, "rejected");
    declare(world, "dataset_idx", not_idx, sizeof not_idx, id);
    expect(patch(world, id, "0", not_idx, sizeof not_idx), 415, "IDX");
    expect_state(world, id, "rejected");
    declare(world, "dataset_idx", huge_idx, sizeof huge_idx, id);
    expect(patch(world, id, "0", huge_idx, sizeof huge_idx), 415, NULL);
    assert_int_equal(count_files(world, ".part"), 0);
}

static void test_bad_declarations(void **state)
{
    static const char sha[] = "0000000000000000000000000000000000000000000000000000000000000000";
    struct world *world = *state;
    char body[512];
    expect(post(world, "/v1/artifacts", "{}"), 422, "4 values need attention");
    expect(post(world, "/v1/artifacts",
                "{\"kind\":\"pickle\",\"filename\":\"../x\",\"size_bytes\":0,\"sha256\":\"zz\"}"),
           422, "4 values need attention");
    snprintf(body, sizeof body,
             "{\"kind\":\"dataset_text\",\"filename\":\"x\",\"size_bytes\":1048577,"
             "\"sha256\":\"%s\"}",
             sha);
    expect(post(world, "/v1/artifacts", body), 413, "--artifact-mib-max");
    expect(get(world, "/v1/artifacts/art_01JD0000000000000000000000"), 404, NULL);
    expect(get(world, "/v1/artifacts/..."), 400, NULL);
    expect(patch(world, "art_01JD0000000000000000000000", "0", "x", 1), 404, NULL);
    expect(ask(world, "PATCH", "/v1/artifacts/art_01JD0000000000000000000000/upload", JSON, "x", 1),
           415, "application/offset+octet-stream");
}

static void test_downloads(void **state)
{
    struct world *world = *state;
    char path[128], more[256], etag[128], token[AUTH_SECRET_BYTES];
    snprintf(path, sizeof path, "/v1/artifacts/%s/content", world->text_id);
    struct answer whole = get(world, path);
    assert_int_equal(whole.status, 200);
    assert_int_equal(whole.body_bytes, TEXT_BYTES);
    assert_memory_equal(whole.body, world->text, TEXT_BYTES);
    assert_non_null(strstr(answer_header(&whole, "Content-Security-Policy"), "sandbox"));
    assert_string_equal(answer_header(&whole, "Content-Disposition"),
                        "attachment; filename=\"a_file__x_.bin\"");
    text_copy(etag, sizeof etag, answer_header(&whole, "ETag"));
    assert_memory_equal(etag, "\"sha256-", 8);
    answer_done(&whole);

    struct answer part = ask(world, "GET", path, "Range: bytes=100-299\r\n", NULL, 0);
    assert_int_equal(part.status, 206);
    assert_string_equal(answer_header(&part, "Content-Range"), "bytes 100-299/200000");
    assert_int_equal(part.body_bytes, 200);
    assert_memory_equal(part.body, world->text + 100, 200);
    answer_done(&part);
    struct answer outside = ask(world, "GET", path, "Range: bytes=200000-\r\n", NULL, 0);
    assert_int_equal(outside.status, 416);
    assert_string_equal(answer_header(&outside, "Content-Range"), "bytes */200000");
    answer_done(&outside);
    snprintf(more, sizeof more, "If-None-Match: %s\r\n", etag);
    expect(ask(world, "GET", path, more, NULL, 0), 304, NULL);
    snprintf(more, sizeof more, "Range: bytes=0-0\r\nIf-Range: %s\r\n", etag);
    expect(ask(world, "GET", path, more, NULL, 0), 206, NULL);
    expect(ask(world, "GET", path, "Range: bytes=0-0\r\nIf-Range: \"old\"\r\n", NULL, 0), 200,
           NULL);
    struct answer head = ask(world, "HEAD", path, "", NULL, 0);
    assert_string_equal(answer_header(&head, "Content-Length"), "200000");
    answer_done(&head);

    assert_int_equal(auth_agent_token_make(world->auth, "vol_01JD0000000000000000000000", token),
                     STATUS_OK);
    snprintf(more, sizeof more, "Authorization: Bearer %s\r\n", token);
    expect(site_ask(&world->site, "GET", path, more, NULL, 0), 200, NULL);
    auth_agent_token_end(world->auth, token);
    expect(site_ask(&world->site, "GET", path, more, NULL, 0), 401, NULL);
}

/* --- jobs ------------------------------------------------------------------------------------ */

static void text_job(const struct world *world, char ret[1024])
{
    snprintf(ret, 1024,
             "{\"name\":\"a job\",\"model\":{\"preset\":\"gpt\",\"layers\":1,\"width\":16,"
             "\"heads\":2,\"context\":16,\"vocabulary\":256},\"data\":{\"kind\":\"text\","
             "\"train\":\"%s\"},\"training\":{\"batch_size\":4,\"total_samples\":1000}}",
             world->text_id);
}

static void test_job_life(void **state)
{
    struct world *world = *state;
    char body[1024], id[ID_BYTES], path[128], text[64];
    text_job(world, body);
    expect(post(world, "/v1/jobs?dry_run=true", body), 200, "\"parameters\":");
    expect(post(world, "/v1/jobs?dry_run=yes", body), 400, "dry_run");
    expect(get(world, "/v1/jobs"), 200, "\"data\":[]");
    struct answer made = post(world, "/v1/jobs", body);
    assert_int_equal(made.status, 201);
    field(&made, "id", id, sizeof id);
    snprintf(path, sizeof path, "/v1/jobs/%s", id);
    assert_string_equal(answer_header(&made, "Location"), path);
    answer_done(&made);
    expect(get(world, path), 200, "\"progress\":{\"version\":0");
    expect(get(world, "/v1/jobs?limit=1"), 200, id);

    snprintf(path, sizeof path, "/v1/jobs/%s/replica", id);
    struct answer replica = get(world, path);
    assert_int_equal(replica.status, 200);
    assert_memory_equal(replica.body, "RVW1", 4);
    assert_int_equal(replica.body_bytes, 48 + 4 * load_u64(replica.body + 8));
    struct answer tail = ask(world, "GET", path, "Range: bytes=-16\r\n", NULL, 0);
    assert_int_equal(tail.status, 206);
    assert_memory_equal(tail.body, replica.body + replica.body_bytes - 16, 16);
    answer_done(&replica);
    answer_done(&tail);

    snprintf(path, sizeof path, "/v1/jobs/%s/cancel", id);
    expect(ask(world, "POST", path, JSON, "{\"why\":1}", 9), 422, "/why");
    struct answer cancelled = ask(world, "POST", path, JSON, "{\"reason\":\"enough\"}",
                                  strlen("{\"reason\":\"enough\"}"));
    assert_int_equal(cancelled.status, 202);
    field(&cancelled, "state", text, sizeof text);
    assert_string_equal(text, "cancelled");
    field(&cancelled, "reason", text, sizeof text);
    assert_string_equal(text, "enough");
    answer_done(&cancelled);
    expect(ask(world, "POST", path, JSON, "{}", 2), 200, "\"enough\"");
    expect(get(world, "/v1/jobs/job_01JD0000000000000000000000"), 404, NULL);
    expect(get(world, "/v1/jobs/x"), 404, NULL);
}

static void test_job_complaints_come_together(void **state)
{
    struct world *world = *state;
    struct answer answer =
        post(world, "/v1/jobs",
             "{\"name\":\"x\",\"model\":{\"preset\":\"mlp\",\"inputs\":784,\"hidden\":[8],"
             "\"classes\":10},\"data\":{\"kind\":\"images\","
             "\"images\":\"art_01JD0000000000000000000000\","
             "\"labels\":\"art_01JD0000000000000000000001\","
             "\"held_out_images\":\"art_01JD0000000000000000000002\","
             "\"held_out_labels\":\"art_01JD0000000000000000000003\"},"
             "\"training\":{\"batch_size\":0,\"total_samples\":1000},\"typo\":1}");
    assert_int_equal(answer.status, 422);
    static const char *const pointers[] = {"/data/images",          "/data/labels",
                                           "/data/held_out_images", "/data/held_out_labels",
                                           "/training/batch_size",  "/typo"};
    for (size_t i = 0; i < COUNT_OF(pointers); i++)
        assert_non_null(strstr(answer.body, pointers[i]));
    answer_done(&answer);
}

static void upload_idx(struct world *world, const void *data, size_t bytes, char ret_id[ID_BYTES])
{
    declare(world, "dataset_idx", data, bytes, ret_id);
    expect(patch(world, ret_id, "0", data, bytes), 204, NULL);
}

static void image_job(const char *images, const char *labels, const char *held_images,
                      const char *held_labels, unsigned inputs, unsigned classes, char ret[1024])
{
    snprintf(ret, 1024,
             "{\"name\":\"images\",\"model\":{\"preset\":\"mlp\",\"inputs\":%u,\"hidden\":[8],"
             "\"classes\":%u},\"data\":{\"kind\":\"images\",\"images\":\"%s\",\"labels\":\"%s\","
             "\"held_out_images\":\"%s\",\"held_out_labels\":\"%s\"},"
             "\"training\":{\"batch_size\":2,\"total_samples\":100}}",
             inputs, classes, images, labels, held_images, held_labels);
}

static void synthetic_job(const char *parameters, const char *update, char ret[1024])
{
    snprintf(ret, 1024,
             "{\"name\":\"links\",\"model\":{\"preset\":\"synthetic\",\"parameters\":%s,"
             "\"step_ms\":50},\"data\":{\"kind\":\"synthetic\"},"
             "\"training\":{\"batch_size\":8,\"total_samples\":1000},\"update\":%s}",
             parameters, update);
}

static void test_a_synthetic_job_needs_no_artifacts(void **state)
{
    struct world *world = *state;
    char body[1024], id[ID_BYTES], path[128];
    synthetic_job("100000", "{}", body);
    expect(post(world, "/v1/jobs?dry_run=true", body), 200, "\"parameters\":100000");
    struct answer made = post(world, "/v1/jobs", body);
    assert_int_equal(made.status, 201);
    field(&made, "id", id, sizeof id);
    answer_done(&made);
    snprintf(path, sizeof path, "/v1/jobs/%s", id);
    expect(get(world, path), 200, "\"progress\":{\"version\":0");
    snprintf(path, sizeof path, "/v1/jobs/%s/cancel", id);
    expect(ask(world, "POST", path, JSON, "{}", 2), 202, "cancelled");
}

/* What agents may choose must fit too, not only what they start with. */
static void test_updates_must_fit_into_the_ledger(void **state)
{
    struct world *world = *state;
    char body[1024];
    synthetic_job("2000000000", "{\"k_per_chunk\":16}", body);
    expect(post(world, "/v1/jobs?dry_run=true", body), 422, "/update/k_max");
    synthetic_job("2000000000", "{\"k_per_chunk\":16,\"k_max\":16}", body);
    expect(post(world, "/v1/jobs?dry_run=true", body), 200, NULL);
    synthetic_job("2000000000", "{\"k_per_chunk\":16,\"adaptive\":false}", body);
    expect(post(world, "/v1/jobs?dry_run=true", body), 200, NULL);
    synthetic_job("2000000000", "{\"k_per_chunk\":256}", body);
    expect(post(world, "/v1/jobs?dry_run=true", body), 422, "/update/values");
}

static void test_images_must_fit(void **state)
{
    struct world *world = *state;
    uint8_t images[16 + 8 * 4] = {0, 0, 8, 3, 0, 0, 0, 8, 0, 0, 0, 2, 0, 0, 0, 2};
    uint8_t labels[8 + 8] = {0, 0, 8, 1, 0, 0, 0, 8, 0, 1, 2, 3, 0, 1, 2, 3};
    uint8_t fewer[8 + 7] = {0, 0, 8, 1, 0, 0, 0, 7};
    char images_id[ID_BYTES], labels_id[ID_BYTES], fewer_id[ID_BYTES], body[1024];
    upload_idx(world, images, sizeof images, images_id);
    upload_idx(world, labels, sizeof labels, labels_id);
    upload_idx(world, fewer, sizeof fewer, fewer_id);
    image_job(images_id, labels_id, images_id, labels_id, 4, 4, body);
    expect(post(world, "/v1/jobs?dry_run=true", body), 200, NULL);
    image_job(images_id, labels_id, images_id, labels_id, 5, 4, body);
    expect(post(world, "/v1/jobs?dry_run=true", body), 422, "5 inputs");
    image_job(images_id, labels_id, images_id, labels_id, 4, 3, body);
    expect(post(world, "/v1/jobs?dry_run=true", body), 422, "largest label is 3");
    image_job(images_id, fewer_id, images_id, labels_id, 4, 4, body);
    expect(post(world, "/v1/jobs?dry_run=true", body), 422, "7 labels for 8 images");
    image_job(labels_id, labels_id, images_id, labels_id, 4, 4, body);
    expect(post(world, "/v1/jobs?dry_run=true", body), 422, "needs 3");
    image_job(world->text_id, labels_id, images_id, labels_id, 4, 4, body);
    expect(post(world, "/v1/jobs?dry_run=true", body), 422, "a dataset_idx is needed");
}

/* --- idempotency, invites, lists ------------------------------------------------------------- */

static void test_repeated_creation(void **state)
{
    struct world *world = *state;
    char body[1024], first_id[ID_BYTES], second_id[ID_BYTES];
    static const char key[] = JSON "Idempotency-Key: the-same\r\n";
    text_job(world, body);
    struct answer first = ask(world, "POST", "/v1/jobs", key, body, strlen(body));
    struct answer second = ask(world, "POST", "/v1/jobs", key, body, strlen(body));
    assert_int_equal(first.status, 201);
    assert_int_equal(second.status, 201);
    assert_null(answer_header(&first, "Idempotency-Replayed"));
    assert_string_equal(answer_header(&second, "Idempotency-Replayed"), "true");
    assert_string_equal(first.body, second.body);
    field(&first, "id", first_id, sizeof first_id);
    field(&second, "id", second_id, sizeof second_id);
    assert_string_equal(first_id, second_id);
    answer_done(&first);
    answer_done(&second);
    strcat(body, " ");
    expect(ask(world, "POST", "/v1/jobs", key, body, strlen(body)), 422, "idempotency-key-reused");
    /* The same key on another path is another key. */
    expect(ask(world, "POST", "/v1/invites", key, "{}", 2), 201, NULL);
    expect(ask(world, "POST", "/v1/jobs", JSON "Idempotency-Key: a b\r\n", body, strlen(body)), 400,
           "idempotency-key-missing");
}

static void test_invites(void **state)
{
    struct world *world = *state;
    static const char key[] = JSON "Idempotency-Key: invite-1\r\n";
    char token[AUTH_SECRET_BYTES], again[AUTH_SECRET_BYTES], command[300];
    static const char body[] = "{\"group\":\"lab\",\"max_uses\":3,\"expires_in_seconds\":3600}";
    struct answer first = ask(world, "POST", "/v1/invites", key, body, strlen(body));
    assert_int_equal(first.status, 201);
    field(&first, "token", token, sizeof token);
    field(&first, "command", command, sizeof command);
    assert_true(auth_secret_is_wellformed(token, "inv"));
    assert_non_null(strstr(command, token));
    assert_non_null(strstr(command, "raven-agent join http://127.0.0.1:"));
    answer_done(&first);
    struct answer second = ask(world, "POST", "/v1/invites", key, body, strlen(body));
    field(&second, "token", again, sizeof again);
    assert_string_equal(token, again);
    answer_done(&second);
    expect(post(world, "/v1/invites", "{\"max_uses\":0,\"expires_in_seconds\":1,\"x\":1}"), 422,
           "3 values need attention");
    expect(post(world, "/v1/invites", "{\"group\":\"12345678901234567890123456789012345678901\"}"),
           422, "/group");
}

static void test_lists(void **state)
{
    struct world *world = *state;
    char cursor[ID_BYTES], path[128], id[ID_BYTES];
    struct answer first = get(world, "/v1/artifacts?limit=1");
    assert_int_equal(first.status, 200);
    assert_non_null(strstr(first.body, "\"has_more\":true"));
    field(&first, "next_cursor", cursor, sizeof cursor);
    answer_done(&first);
    snprintf(path, sizeof path, "/v1/artifacts?limit=1&cursor=%s", cursor);
    struct answer second = get(world, path);
    field(&second, "next_cursor", id, sizeof id);
    assert_string_not_equal(id, cursor);
    answer_done(&second);
    expect(get(world, "/v1/volunteers"), 200, "\"data\":[]");
    expect(get(world, "/v1/events?limit=200"), 200, "artifact.rejected");
    expect(get(world, "/v1/events?after=1&limit=1"), 200, "\"next_cursor\":\"2\"");
    expect(get(world, "/v1/events?after=x"), 400, NULL);
}

static void test_no_secret_is_stored(void **state)
{
    struct world *world = *state;
    char command[PATH_BYTES];
    for (int i = 0; i < 1000 && store_queued(world->store) > 0; i++)
        usleep(1000);
    snprintf(command, sizeof command, "grep -rqE 'rvn_(sk|inv|set)_' %s/postgres", world->dir);
    assert_int_not_equal(system(command), 0);
}

static void test_the_database_is_away(void **state)
{
    struct world *world = *state;
    private_postgres_stop(world->postgres);
    world->postgres = NULL;
    struct answer answer = get(world, "/v1/jobs");
    assert_int_equal(answer.status, 503);
    assert_non_null(answer_header(&answer, "Retry-After"));
    assert_non_null(strstr(answer.body, "/problems/unavailable"));
    assert_null(strstr(answer.body, "connection"));
    answer_done(&answer);
    expect(get(world, "/v1/me"), 200, NULL); /* needs no database */
    expect(get(world, "/livez"), 200, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_setup_works_once),
        cmocka_unit_test(test_upload_in_pieces),
        cmocka_unit_test(test_upload_survives_a_cut),
        cmocka_unit_test(test_bad_contents_are_rejected),
        cmocka_unit_test(test_bad_declarations),
        cmocka_unit_test(test_downloads),
        cmocka_unit_test(test_job_life),
        cmocka_unit_test(test_job_complaints_come_together),
        cmocka_unit_test(test_a_synthetic_job_needs_no_artifacts),
        cmocka_unit_test(test_updates_must_fit_into_the_ledger),
        cmocka_unit_test(test_images_must_fit),
        cmocka_unit_test(test_repeated_creation),
        cmocka_unit_test(test_invites),
        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_no_secret_is_stored),
        cmocka_unit_test(test_the_database_is_away),
    };
    return cmocka_run_group_tests(tests, open_world, close_world);
}
