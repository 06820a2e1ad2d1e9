/* Values that go into a statement and come out of a result. Plain functions, any thread.
 * Surprising: numbers travel as text, so that one form serves every integer width; only bytea goes
 * in binary. */
#include "coordinator/store/pq.h"

#include "common/base/bytes.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int add(struct pq_args *args, const char *value, int length, int format)
{
    assert(args->count < PQ_ARGS_MAX); /* statements are constant: a test meets this at once */
    int at = args->count++;
    args->values[at] = value;
    args->lengths[at] = length;
    args->formats[at] = format;
    return at;
}

static char *add_number(struct pq_args *args)
{
    int at = add(args, NULL, 0, 0);
    args->values[at] = args->numbers[at];
    return args->numbers[at];
}

void pq_add_text(struct pq_args *args, const char *text)
{
    (void)add(args, text, 0, 0);
}

void pq_add_bytes(struct pq_args *args, const void *data, size_t bytes)
{
    (void)add(args, data, (int)bytes, 1);
}

void pq_add_i64(struct pq_args *args, int64_t value)
{
    (void)snprintf(add_number(args), sizeof *args->numbers, "%" PRId64, value);
}

void pq_add_u64(struct pq_args *args, uint64_t value)
{
    (void)snprintf(add_number(args), sizeof *args->numbers, "%" PRIu64, value);
}

void pq_add_f64(struct pq_args *args, double value)
{
    if (isfinite(value))
        (void)snprintf(add_number(args), sizeof *args->numbers, "%.17g", value);
    else
        (void)add(args, NULL, 0, 0);
}

void pq_add_bool(struct pq_args *args, bool value)
{
    pq_add_text(args, value ? "t" : "f");
}

const char *pq_text(const PGresult *result, int row, int column)
{
    return PQgetvalue(result, row, column); /* "" for NULL */
}

int64_t pq_i64(const PGresult *result, int row, int column)
{
    return strtoll(PQgetvalue(result, row, column), NULL, 10);
}

uint64_t pq_u64(const PGresult *result, int row, int column)
{
    return strtoull(PQgetvalue(result, row, column), NULL, 10);
}

bool pq_bytes(const PGresult *result, int row, int column, void *ret, size_t bytes)
{
    const char *text = PQgetvalue(result, row, column); /* \x and hex digits */
    return strncmp(text, "\\x", 2) == 0 && hex_decode(text + 2, ret, bytes);
}
