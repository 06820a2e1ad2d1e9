/* A bounded queue from any thread to one receiver. Surprising: the eventfd is written and drained
 * under the mutex, so "fd readable" and "messages wait" never disagree; closing makes the fd
 * readable once more, to wake a receiver that sleeps, until it has seen the end. */
#include "common/base/mailbox.h"

#include "common/base/clock.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct mailbox {
    pthread_mutex_t mutex;
    struct mail *head, *tail;
    size_t count, count_max;
    int fd;
    bool signalled; /* the eventfd's counter is not 0 */
    bool closed;
};

enum status mailbox_create(size_t count_max, struct mailbox **ret)
{
    struct mailbox *box = calloc(1, sizeof *box);
    if (!box)
        return STATUS_NO_MEMORY;
    box->count_max = count_max;
    box->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (box->fd < 0) {
        free(box);
        return STATUS_SYSTEM;
    }
    if (pthread_mutex_init(&box->mutex, NULL) != 0) {
        (void)close(box->fd);
        free(box);
        return STATUS_NO_MEMORY;
    }
    *ret = box;
    return STATUS_OK;
}

void mailbox_free(struct mailbox *box)
{
    if (!box)
        return;
    (void)close(box->fd);
    (void)pthread_mutex_destroy(&box->mutex);
    free(box);
}

/* Call with the mutex held. The counter goes 0 → 1 → 0 only, so neither call can block or fail. */
static void set_signal(struct mailbox *box, bool on)
{
    if (box->signalled == on)
        return;
    box->signalled = on;
    eventfd_t drained;
    if (on)
        (void)eventfd_write(box->fd, 1);
    else
        (void)eventfd_read(box->fd, &drained);
}

enum status mailbox_post(struct mailbox *box, struct mail *mail)
{
    enum status status = STATUS_OK;
    (void)pthread_mutex_lock(&box->mutex);
    if (box->closed) {
        status = STATUS_CLOSED;
    } else if (box->count >= box->count_max) {
        status = STATUS_BUSY;
    } else {
        mail->next = NULL;
        if (box->tail)
            box->tail->next = mail;
        else
            box->head = mail;
        box->tail = mail;
        box->count++;
        set_signal(box, true);
    }
    (void)pthread_mutex_unlock(&box->mutex);
    return status;
}

void mailbox_close(struct mailbox *box)
{
    (void)pthread_mutex_lock(&box->mutex);
    if (!box->closed) {
        box->closed = true;
        set_signal(box, true);
    }
    (void)pthread_mutex_unlock(&box->mutex);
}

static struct mail *take_now(struct mailbox *box, bool *ret_closed)
{
    (void)pthread_mutex_lock(&box->mutex);
    struct mail *mail = box->head;
    if (mail) {
        box->head = mail->next;
        if (!box->head)
            box->tail = NULL;
        box->count--;
        mail->next = NULL;
    }
    *ret_closed = box->closed;
    if (!box->head && (!mail || !box->closed))
        set_signal(box, false);
    (void)pthread_mutex_unlock(&box->mutex);
    return mail;
}

struct mail *mailbox_take(struct mailbox *box, int timeout_ms)
{
    int64_t deadline_us = clock_monotonic_us() + (int64_t)timeout_ms * 1000;
    int wait_ms = timeout_ms;
    for (;;) {
        bool closed;
        struct mail *mail = take_now(box, &closed);
        if (mail || closed || wait_ms == 0)
            return mail;
        struct pollfd pollfd = {.fd = box->fd, .events = POLLIN};
        (void)poll(&pollfd, 1, wait_ms); /* EINTR only costs one more turn */
        if (timeout_ms > 0) {
            int64_t left_ms = (deadline_us - clock_monotonic_us() + 999) / 1000;
            wait_ms = left_ms < 0 ? 0 : (int)left_ms;
        }
    }
}

int mailbox_fd(const struct mailbox *box)
{
    return box->fd;
}

size_t mailbox_count(struct mailbox *box)
{
    (void)pthread_mutex_lock(&box->mutex);
    size_t count = box->count;
    (void)pthread_mutex_unlock(&box->mutex);
    return count;
}
