/* A sweeper thread looks once a second for connections over their deadline and shuts their sockets
 * down; libmicrohttpd notices and closes them. Its surprise: the lock is held during shutdown(), so
 * that a descriptor cannot be closed and used again for someone else in between. */
#include "coordinator/http/peers.h"

#include "common/base/clock.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

struct peers {
    pthread_mutex_t lock;
    pthread_cond_t stopped;
    pthread_t thread;
    bool stopping;
    struct peer *first;
};

static void shut_overdue(struct peers *peers)
{
    int64_t now = clock_monotonic_us();
    for (struct peer *peer = peers->first; peer; peer = peer->next)
        if (peer->deadline_us && peer->deadline_us < now) {
            peer->deadline_us = 0;
            shutdown(peer->fd, SHUT_RDWR);
        }
}

static void *sweep(void *argument)
{
    struct peers *peers = argument;
    pthread_mutex_lock(&peers->lock);
    while (!peers->stopping) {
        struct timespec next;
        clock_gettime(CLOCK_MONOTONIC, &next);
        next.tv_sec++;
        pthread_cond_timedwait(&peers->stopped, &peers->lock, &next);
        shut_overdue(peers);
    }
    pthread_mutex_unlock(&peers->lock);
    return NULL;
}

static void release(struct peers *peers)
{
    pthread_cond_destroy(&peers->stopped);
    pthread_mutex_destroy(&peers->lock);
    free(peers);
}

enum status peers_start(struct peers **ret, struct error *err)
{
    struct peers *peers = calloc(1, sizeof *peers);
    if (!peers)
        return error_set(err, STATUS_NO_MEMORY, "no memory for the HTTP deadlines");
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&peers->stopped, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&peers->lock, NULL);
    int failed = pthread_create(&peers->thread, NULL, sweep, peers);
    if (failed) {
        release(peers);
        return error_set_errno(err, failed, "cannot start the thread of HTTP deadlines");
    }
    *ret = peers;
    return STATUS_OK;
}

void peers_stop(struct peers *peers)
{
    if (!peers)
        return;
    pthread_mutex_lock(&peers->lock);
    peers->stopping = true;
    pthread_cond_signal(&peers->stopped);
    pthread_mutex_unlock(&peers->lock);
    pthread_join(peers->thread, NULL);
    release(peers);
}

struct peer *peer_open(struct peers *peers, int fd)
{
    struct peer *peer = calloc(1, sizeof *peer);
    if (!peer)
        return NULL;
    peer->owner = peers;
    peer->fd = fd;
    pthread_mutex_lock(&peers->lock);
    peer->next = peers->first;
    if (peers->first)
        peers->first->previous = peer;
    peers->first = peer;
    pthread_mutex_unlock(&peers->lock);
    return peer;
}

void peer_close(struct peer *peer)
{
    if (!peer)
        return;
    struct peers *peers = peer->owner;
    pthread_mutex_lock(&peers->lock);
    if (peer->previous)
        peer->previous->next = peer->next;
    else
        peers->first = peer->next;
    if (peer->next)
        peer->next->previous = peer->previous;
    pthread_mutex_unlock(&peers->lock);
    free(peer);
}

void peer_expect(struct peer *peer, int64_t within_ms)
{
    pthread_mutex_lock(&peer->owner->lock);
    peer->deadline_us = within_ms ? clock_monotonic_us() + within_ms * 1000 : 0;
    pthread_mutex_unlock(&peer->owner->lock);
}
