/* Tests of mailbox.c: order, bound, close, the descriptor, threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/mailbox.h"

#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

static bool is_readable(const struct mailbox *box)
{
    struct pollfd pollfd = {.fd = mailbox_fd(box), .events = POLLIN};
    return poll(&pollfd, 1, 0) == 1;
}

static void first_in_first_out_with_a_bound(void **state)
{
    (void)state;
    struct mailbox *box;
    struct mail mails[3] = {{.type = 0}, {.type = 1}, {.type = 2}};
    assert_int_equal(mailbox_create(2, &box), STATUS_OK);
    assert_null(mailbox_take(box, 0));
    assert_false(is_readable(box));
    assert_int_equal(mailbox_post(box, &mails[0]), STATUS_OK);
    assert_int_equal(mailbox_post(box, &mails[1]), STATUS_OK);
    assert_int_equal(mailbox_post(box, &mails[2]), STATUS_BUSY);
    assert_int_equal(mailbox_count(box), 2);
    assert_true(is_readable(box));
    assert_ptr_equal(mailbox_take(box, -1), &mails[0]);
    assert_true(is_readable(box));
    assert_ptr_equal(mailbox_take(box, 5), &mails[1]);
    assert_false(is_readable(box));
    assert_null(mailbox_take(box, 1));
    mailbox_free(box);
}

static void close_refuses_posts_and_delivers_the_rest(void **state)
{
    (void)state;
    struct mailbox *box;
    struct mail mail = {.type = 1}, late = {.type = 2};
    assert_int_equal(mailbox_create(9, &box), STATUS_OK);
    assert_int_equal(mailbox_post(box, &mail), STATUS_OK);
    mailbox_close(box);
    mailbox_close(box);
    assert_int_equal(mailbox_post(box, &late), STATUS_CLOSED);
    assert_ptr_equal(mailbox_take(box, -1), &mail);
    assert_true(is_readable(box)); /* a polling loop must still see the end */
    assert_null(mailbox_take(box, -1));
    assert_false(is_readable(box)); /* and then must not spin */
    assert_null(mailbox_take(box, -1));
    mailbox_free(box);
}

struct sender {
    struct mailbox *box;
    int id;
};

static void *post_many(void *arg)
{
    struct sender *sender = arg;
    for (int i = 0; i < 2000; i++) {
        struct mail *mail = malloc(sizeof *mail);
        mail->type = sender->id * 10000 + i;
        while (mailbox_post(sender->box, mail) == STATUS_BUSY)
            continue;
    }
    return NULL;
}

static void many_threads_lose_nothing_and_keep_their_order(void **state)
{
    (void)state;
    struct mailbox *box;
    assert_int_equal(mailbox_create(16, &box), STATUS_OK);
    struct sender senders[3] = {{box, 0}, {box, 1}, {box, 2}};
    pthread_t threads[3];
    int next[3] = {0};
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, post_many, &senders[i]), 0);
    for (int i = 0; i < 6000; i++) {
        struct mail *mail = mailbox_take(box, -1);
        assert_non_null(mail);
        int id = mail->type / 10000;
        assert_int_equal(mail->type % 10000, next[id]++);
        free(mail);
    }
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_null(mailbox_take(box, 0));
    mailbox_free(box);
}

static void *close_box(void *arg)
{
    mailbox_close(arg);
    return NULL;
}

static void close_wakes_a_waiting_receiver(void **state)
{
    (void)state;
    struct mailbox *box;
    pthread_t thread;
    assert_int_equal(mailbox_create(1, &box), STATUS_OK);
    assert_int_equal(pthread_create(&thread, NULL, close_box, box), 0);
    assert_null(mailbox_take(box, -1));
    assert_int_equal(pthread_join(thread, NULL), 0);
    mailbox_free(box);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_in_first_out_with_a_bound),
        cmocka_unit_test(close_refuses_posts_and_delivers_the_rest),
        cmocka_unit_test(many_threads_lose_nothing_and_keep_their_order),
        cmocka_unit_test(close_wakes_a_waiting_receiver),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
