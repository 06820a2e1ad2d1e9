/* The dashboard's files, read once at start and served from memory by a table lookup: no path that
 * comes from a request ever reaches the file system. */
#ifndef RAVEN_COORDINATOR_HTTP_STATIC_FILES_H
#define RAVEN_COORDINATOR_HTTP_STATIC_FILES_H

#include "common/base/status.h"

#include <stdbool.h>

struct request;
struct static_files;

/* web_dir NULL: only a small page that says that the dashboard was not built. */
enum status static_files_load(const char *web_dir, struct static_files **ret,
                              struct error *err) MUST_CHECK;
void static_files_free(struct static_files *files); /* NULL is fine */

/* Answers GET and HEAD of a file, and of every page of the dashboard (which routes them itself)
 * with index.html. False: no such file. */
bool static_files_respond(const struct static_files *files, struct request *request);

#endif
