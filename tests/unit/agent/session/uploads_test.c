/* Uploads survive sessions: whatever byte a session breaks at, the frames of the next one complete
 * the same payload under the same stream number. */
#include "agent/session/uploads.h"

#include "common/base/rng.h"
#include "common/wire/frame.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct shared *make_payload(struct rng *rng, size_t bytes)
{
    uint8_t *data = malloc(bytes);
    for (size_t i = 0; i < bytes; i++)
        data[i] = (uint8_t)rng_u64(rng);
    struct shared *payload = shared_create(data, bytes);
    free(data);
    return payload;
}

static void pain_E21_an_upload_goes_on_at_every_break(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 11);
    for (int round = 0; round < 300; round++) {
        size_t bytes = 1 + (size_t)rng_below(&rng, 5000);
        struct uploads uploads;
        uploads_init(&uploads);
        struct shared *payload = make_payload(&rng, bytes);
        struct wire_offer offer = {.lease = "lea_1"};
        struct upload *upload;
        assert_int_equal(uploads_add(&uploads, &offer, payload, &upload), STATUS_OK);
        uint64_t stream = upload->offer.stream;
        assert_int_equal(upload->offer.bytes, bytes);
        assert_false(uploads_have_data(&uploads)); /* not before it is wanted */

        uint8_t *got = calloc(1, bytes);
        size_t received = 0;
        while (received < bytes) {
            uploads_rewind(&uploads);
            assert_int_equal(uploads.items[0].offer.stream, stream);
            assert_int_equal(uploads_want(&uploads, stream, received, 0), STATUS_OK);
            size_t frames = (size_t)rng_below(&rng, 6);
            uint8_t out[FRAME_HEADER_BYTES + 700];
            for (size_t i = 0; i <= frames; i++) {
                size_t out_bytes = uploads_next_frame(&uploads, 1 + (size_t)rng_below(&rng, 700),
                                                      UINT64_MAX, 0, out);
                if (out_bytes == 0)
                    break;
                struct frame frame;
                assert_int_equal(frame_read(out, out_bytes, &frame), STATUS_OK);
                if (i == frames && frames > 0)
                    break; /* the connection broke: this frame is lost */
                assert_int_equal(frame.offset, received);
                memcpy(got + received, frame.payload, frame.payload_bytes);
                received += frame.payload_bytes;
            }
        }
        assert_memory_equal(got, shared_data(payload), bytes);
        struct upload answered;
        assert_true(uploads_answer(&uploads, "lea_1", &answered));
        assert_ptr_equal(answered.payload, payload);
        assert_false(uploads_answer(&uploads, "lea_1", &answered));
        shared_unref(payload);
        free(got);
    }
}

static void test_hostile_wants(void **state)
{
    (void)state;
    struct uploads uploads;
    uploads_init(&uploads);
    struct wire_offer offer = {.lease = "lea_1"};
    struct upload *upload;
    assert_int_equal(uploads_add(&uploads, &offer, shared_create("abc", 3), &upload), STATUS_OK);
    uint64_t stream = upload->offer.stream;
    assert_int_equal(uploads_want(&uploads, stream, 4, 0), STATUS_INVALID);
    assert_int_equal(uploads_want(&uploads, stream, UINT64_MAX, 0), STATUS_INVALID);
    assert_int_equal(uploads_want(&uploads, stream + 1, 0, 0), STATUS_NOT_FOUND);
    assert_false(uploads_have_data(&uploads));
    assert_int_equal(uploads_want(&uploads, stream, 3, 0), STATUS_OK); /* has it all */
    assert_false(uploads_have_data(&uploads));
    uploads_done(&uploads);
}

static void test_full_and_in_order(void **state)
{
    (void)state;
    struct uploads uploads;
    uploads_init(&uploads);
    struct wire_offer offer = {0};
    struct upload *upload;
    for (size_t i = 0; i < UPLOADS_MAX; i++) {
        offer.lease[0] = (char)('a' + (int)i);
        assert_int_equal(uploads_add(&uploads, &offer, shared_create("xy", 2), &upload), STATUS_OK);
        assert_int_equal(upload->offer.stream, i + 1);
    }
    struct shared *extra = shared_create("z", 1);
    assert_int_equal(uploads_add(&uploads, &offer, extra, &upload), STATUS_BUSY);
    struct upload answered;
    assert_true(uploads_answer(&uploads, "c", &answered));
    shared_unref(answered.payload);
    assert_int_equal(uploads_add(&uploads, &offer, extra, &upload), STATUS_OK);
    assert_int_equal(upload->offer.stream, UPLOADS_MAX + 1);
    uploads_done(&uploads);
}

static void test_window_and_acks(void **state)
{
    (void)state;
    struct uploads uploads;
    uploads_init(&uploads);
    struct wire_offer offer = {.lease = "lea_1"};
    struct rng rng;
    rng_seed(&rng, 5);
    struct shared *payload = make_payload(&rng, 1000);
    struct upload *upload;
    assert_int_equal(uploads_add(&uploads, &offer, payload, &upload), STATUS_OK);
    uint64_t stream = upload->offer.stream;
    uint8_t out[FRAME_HEADER_BYTES + 300];
    assert_int_equal(uploads_want(&uploads, stream, 100, 1), STATUS_OK);
    assert_int_equal(uploads_next_frame(&uploads, 300, 500, 7, out), FRAME_HEADER_BYTES + 300);
    assert_int_equal(uploads.progress_us, 7); /* from now on something waits for an ack */
    assert_int_equal(uploads_next_frame(&uploads, 300, 500, 8, out), FRAME_HEADER_BYTES + 300);
    assert_int_equal(uploads_unacked_bytes(&uploads), 600);
    assert_int_equal(uploads_next_frame(&uploads, 300, 500, 9, out), 0); /* the window is full */
    assert_true(uploads_have_data(&uploads));
    assert_int_equal(uploads.progress_us, 7);

    assert_int_equal(uploads_ack(&uploads, stream, 800, 10), 0); /* more than was sent: a lie */
    assert_int_equal(uploads_ack(&uploads, stream + 1, 400, 10), 0);
    assert_int_equal(uploads_ack(&uploads, stream, 400, 11), 300);
    assert_int_equal(uploads_ack(&uploads, stream, 400, 12), 0);
    assert_int_equal(uploads_ack(&uploads, stream, 300, 12), 0);
    assert_int_equal(uploads.progress_us, 11);
    assert_int_equal(uploads_next_frame(&uploads, 300, 500, 13, out), FRAME_HEADER_BYTES + 300);

    uploads_rewind(&uploads); /* the session broke */
    assert_int_equal(uploads_unacked_bytes(&uploads), 0);
    assert_int_equal(uploads_ack(&uploads, stream, 700, 14), 0);
    assert_int_equal(uploads_next_frame(&uploads, 300, 500, 14, out), 0);
    uploads_done(&uploads);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pain_E21_an_upload_goes_on_at_every_break),
        cmocka_unit_test(test_hostile_wants),
        cmocka_unit_test(test_window_and_acks),
        cmocka_unit_test(test_full_and_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
