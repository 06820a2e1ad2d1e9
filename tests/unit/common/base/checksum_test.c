/* Tests of checksum.c against published vectors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/bytes.h"
#include "common/base/checksum.h"

static void xxh3_known_answers(void **state)
{
    (void)state;
    assert_true(checksum_xxh3("", 0) == UINT64_C(0x2D06800538D394C2));
    assert_true(checksum_xxh3_seeded("", 0, 0) == checksum_xxh3("", 0));
    assert_true(checksum_xxh3_seeded("abc", 3, 1) != checksum_xxh3("abc", 3));
    assert_true(checksum_xxh3("abc", 3) == UINT64_C(0x78AF5F94892F3950));
}

static void sha256_known_answer_whole_and_in_pieces(void **state)
{
    (void)state;
    uint8_t expected[SHA256_BYTES], whole[SHA256_BYTES], pieces[SHA256_BYTES];
    assert_true(hex_decode("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
                           expected, sizeof expected));
    sha256_of("abc", 3, whole);
    assert_memory_equal(whole, expected, sizeof whole);
    struct sha256 sha;
    sha256_init(&sha);
    sha256_update(&sha, "a", 1);
    sha256_update(&sha, "", 0);
    sha256_update(&sha, "bc", 2);
    sha256_final(&sha, pieces);
    assert_memory_equal(pieces, expected, sizeof pieces);
}

static void xxh3_of_pieces_is_that_of_the_whole(void **state)
{
    (void)state;
    uint8_t data[5000];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)(i * 7 + i / 256);
    for (size_t piece = 1; piece < sizeof data; piece += 1 + piece / 2) {
        struct xxh3 xxh;
        xxh3_init(&xxh);
        for (size_t at = 0; at < sizeof data; at += piece)
            xxh3_update(&xxh, data + at, sizeof data - at < piece ? sizeof data - at : piece);
        assert_true(xxh3_final(&xxh) == checksum_xxh3(data, sizeof data));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(xxh3_known_answers),
        cmocka_unit_test(xxh3_of_pieces_is_that_of_the_whole),
        cmocka_unit_test(sha256_known_answer_whole_and_in_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
