/* Inside coordinator/store: the rows that are posted, and how each is written. A row is copied when
 * it is posted; it borrows nothing from its caller. */
#ifndef RAVEN_COORDINATOR_STORE_ROWS_H
#define RAVEN_COORDINATOR_STORE_ROWS_H

#include "coordinator/store/pq.h"
#include "coordinator/store/store.h"

enum row_kind {
    ROW_EVENT,
    ROW_JOB_STATE,
    ROW_SESSION_OPENED,
    ROW_SESSION_CLOSED,
    ROW_LEASE,
    ROW_POINT,
    ROW_ENROL,
};

struct row_job_state {
    char job[ID_BYTES];
    char state[16];
    char reason[161];
    int64_t at_ms;
};

struct row_session {
    char id[ID_BYTES];
    char volunteer[ID_BYTES]; /* opened only */
    char text[64];            /* opened: address; closed: end reason */
    int64_t at_ms;
};

struct row_enrol {
    uint8_t invite_hash[SHA256_BYTES];
    struct store_volunteer volunteer; /* what is asked for, then what was created or found */
    store_enrol_fn done;
    void *context;
    enum status answer; /* of the database, valid once the row's transaction is committed */
    const char *sentence;
};

struct row {
    struct row *next;
    uint64_t seq; /* 1, 2, … in order of posting */
    enum row_kind kind;
    bool refused; /* the database does not take these values */
    union {
        struct store_event event;
        struct row_job_state job_state;
        struct row_session session;
        struct store_lease lease;
        struct store_point point;
        struct row_enrol enrol;
    };
};

/* Within the writer's transaction. STATUS_INVALID: this row is refused, the transaction is broken;
 * all else means that the whole batch has to be written again. */
enum status row_write(struct pq *pq, struct row *row, int64_t deadline_us,
                      struct error *err) MUST_CHECK;

/* enrol.c */
enum status row_write_enrol(struct pq *pq, struct row_enrol *enrol, int64_t deadline_us,
                            struct error *err) MUST_CHECK;

#endif
