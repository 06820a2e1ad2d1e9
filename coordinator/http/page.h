/* Pages of lists: {"data":[…],"has_more":false,"next_cursor":null}. */
#ifndef RAVEN_COORDINATOR_HTTP_PAGE_H
#define RAVEN_COORDINATOR_HTTP_PAGE_H

#include <jansson.h>
#include <stdbool.h>

struct request;

/* Steals rows. The cursor is the id of the last row. */
void respond_page(struct request *request, json_t *rows, bool has_more);

#endif
