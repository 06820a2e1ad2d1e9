/* The table against a plain array, through growth and removal in every order. */
#include "coordinator/hub/peer_table.h"

#include "common/base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#define PEERS 3000

static struct agent *fake_agent(uint64_t peer)
{
    return (struct agent *)(uintptr_t)(peer * 16);
}

static void test_matches_a_plain_array(void **state)
{
    (void)state;
    static bool is_there[PEERS + 1];
    struct peer_table table;
    struct rng rng;
    size_t count = 0;
    rng_seed(&rng, 7);
    peer_table_init(&table);
    assert_null(peer_table_get(&table, 1));
    for (int i = 0; i < 40000; i++) {
        uint64_t peer = 1 + rng_below(&rng, PEERS);
        if (is_there[peer]) {
            assert_ptr_equal(peer_table_get(&table, peer), fake_agent(peer));
            peer_table_remove(&table, peer);
            count--;
        } else {
            assert_null(peer_table_get(&table, peer));
            peer_table_remove(&table, peer); /* not there: nothing happens */
            assert_int_equal(peer_table_put(&table, peer, fake_agent(peer)), STATUS_OK);
            count++;
        }
        is_there[peer] = !is_there[peer];
        assert_int_equal(table.count, count);
    }
    for (uint64_t peer = 1; peer <= PEERS; peer++)
        assert_ptr_equal(peer_table_get(&table, peer), is_there[peer] ? fake_agent(peer) : NULL);
    peer_table_done(&table);
}

static void test_stays_small_when_peers_come_and_go(void **state)
{
    (void)state;
    struct peer_table table;
    peer_table_init(&table);
    for (uint64_t peer = 1; peer < 200000; peer++) {
        assert_int_equal(peer_table_put(&table, peer, fake_agent(peer)), STATUS_OK);
        if (peer > 20)
            peer_table_remove(&table, peer - 20);
    }
    assert_int_equal(table.count, 20);
    assert_int_equal(table.slot_count, 64);
    assert_null(peer_table_get(&table, 0));
    peer_table_done(&table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matches_a_plain_array),
        cmocka_unit_test(test_stays_small_when_peers_come_and_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
