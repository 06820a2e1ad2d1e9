/* Real files: whole updates come back in order, anything else is removed. */
#include "agent/session/outbox.h"

#include "common/base/bytes.h"
#include "common/base/checksum.h"
#include "common/base/file.h"
#include "common/base/id.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

struct world {
    char dir[64];
    struct wire_offer taken[32];
    struct shared *payloads[32];
    size_t count;
};

static void take(void *user, const struct wire_offer *offer, struct shared *payload)
{
    struct world *world = user;
    world->taken[world->count] = *offer;
    world->payloads[world->count++] = payload;
}

static size_t load(struct world *world)
{
    size_t damaged = 0;
    while (world->count > 0)
        shared_unref(world->payloads[--world->count]);
    assert_int_equal(outbox_load(world->dir, take, world, &damaged, NULL), STATUS_OK);
    return damaged;
}

static int set_up(void **state)
{
    struct world *world = calloc(1, sizeof *world);
    snprintf(world->dir, sizeof world->dir, "/tmp/raven-outbox-XXXXXX");
    assert_non_null(mkdtemp(world->dir));
    assert_int_equal(outbox_open(world->dir, NULL), STATUS_OK);
    *state = world;
    return 0;
}

static int tear_down(void **state)
{
    struct world *world = *state;
    while (world->count > 0)
        shared_unref(world->payloads[--world->count]);
    assert_int_equal(file_remove_tree(world->dir, NULL), STATUS_OK);
    free(world);
    return 0;
}

static struct wire_offer save(struct world *world, const char *text)
{
    struct wire_offer offer = {.stream = 3, .base = 7, .steps = 30, .samples = 240, .loss = 2.5};
    id_make(offer.lease, "lea");
    id_make(offer.job, "job");
    offer.bytes = strlen(text);
    sha256_of(text, strlen(text), offer.sha256);
    struct shared *payload = shared_create(text, strlen(text));
    assert_int_equal(outbox_save(world->dir, &offer, payload, NULL), STATUS_OK);
    shared_unref(payload);
    return offer;
}

static void saved_updates_come_back_in_order(void **state)
{
    struct world *world = *state;
    struct wire_offer first = save(world, "the first\n\npayload");
    usleep(15000); /* the file system's clock may be coarse */
    struct wire_offer second = save(world, "the second");
    assert_int_equal(load(world), 0);
    assert_int_equal(world->count, 2);
    assert_string_equal(world->taken[0].lease, first.lease);
    assert_string_equal(world->taken[1].lease, second.lease);
    assert_int_equal(world->taken[0].samples, 240);
    assert_memory_equal(shared_data(world->payloads[0]), "the first\n\npayload", 18);
    outbox_remove(world->dir, first.lease);
    assert_int_equal(load(world), 0);
    assert_int_equal(world->count, 1);
    assert_string_equal(world->taken[0].lease, second.lease);
}

/* Cut at every length, or with any byte changed, a file is not taken for an update. */
static void damaged_files_are_removed(void **state)
{
    struct world *world = *state;
    struct wire_offer offer = save(world, "payload");
    char path[PATH_BYTES];
    assert_int_equal(path_format(path, "%s/%s", world->dir, offer.lease), STATUS_OK);
    struct buffer whole;
    buffer_init(&whole, 1 << 20);
    assert_int_equal(file_read(path, &whole, NULL), STATUS_OK);
    for (size_t bytes = 0; bytes < whole.bytes; bytes += 1 + bytes / 16) {
        assert_int_equal(file_write_atomic(path, whole.data, bytes, 0600, NULL), STATUS_OK);
        assert_int_equal(load(world), 1);
        assert_int_equal(world->count, 0);
        assert_int_equal(access(path, F_OK), -1);
    }
    for (size_t at = whole.bytes - 7; at < whole.bytes; at++) {
        whole.data[at] ^= 1;
        assert_int_equal(file_write_atomic(path, whole.data, whole.bytes, 0600, NULL), STATUS_OK);
        whole.data[at] ^= 1;
        assert_int_equal(load(world), 1);
        assert_int_equal(world->count, 0);
    }
    buffer_done(&whole);
}

static void leftovers_and_strangers_are_no_updates(void **state)
{
    struct world *world = *state;
    save(world, "payload");
    char path[PATH_BYTES];
    assert_int_equal(path_format(path, "%s/lea_half-written.tmp", world->dir), STATUS_OK);
    assert_int_equal(file_write_atomic(path, "x", 1, 0600, NULL), STATUS_OK);
    assert_int_equal(load(world), 0);
    assert_int_equal(world->count, 1);
    assert_int_equal(access(path, F_OK), -1);
}

static void a_disk_that_refuses_is_named(void **state)
{
    (void)state;
    struct wire_offer offer = {.lease = "lea_x"};
    struct shared *payload = shared_create("abc", 3);
    struct error err = {0};
    assert_int_not_equal(outbox_save("/proc/nowhere", &offer, payload, &err), STATUS_OK);
    assert_non_null(strstr(err.text, "/proc/nowhere"));
    shared_unref(payload);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(saved_updates_come_back_in_order, set_up, tear_down),
        cmocka_unit_test_setup_teardown(damaged_files_are_removed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(leftovers_and_strangers_are_no_updates, set_up, tear_down),
        cmocka_unit_test(a_disk_that_refuses_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
