/* The commands that a running lab understands: one table, one dispatcher, plain text or JSON
 * answers. Pure but for the links it changes. */
#ifndef RAVEN_NETLAB_REQUESTS_H
#define RAVEN_NETLAB_REQUESTS_H

#include "common/base/buffer.h"
#include "tests/netlab/link.h"

#define REQUEST_WORDS_MAX 64

struct links {
    struct link *links;
    size_t count;
    struct events *events;
    int hub_fd; /* the hub's network namespace */
};

/* words[0] is the command. The answer goes to `answer`; for "enter" *ret_fd becomes the namespace's
 * file descriptor, which stays the lab's. On failure answer is as it was. */
enum status requests_handle(struct links *links, char **words, size_t count, int64_t now_ns,
                            struct buffer *answer, int *ret_fd, struct error *err) MUST_CHECK;
bool requests_knows(const char *command);
void requests_print_help(FILE *out);

#endif
