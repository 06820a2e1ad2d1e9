/* The callbacks that libmicrohttpd calls for each connection and request. context: struct http. */
#ifndef RAVEN_COORDINATOR_HTTP_DISPATCH_H
#define RAVEN_COORDINATOR_HTTP_DISPATCH_H

#include <microhttpd.h>

void dispatch_connection(void *context, struct MHD_Connection *connection, void **peer,
                         enum MHD_ConnectionNotificationCode code);
void *dispatch_uri(void *context, const char *uri, struct MHD_Connection *connection);
enum MHD_Result dispatch_request(void *context, struct MHD_Connection *connection, const char *url,
                                 const char *method, const char *version, const char *data,
                                 size_t *data_bytes, void **request);
void dispatch_completed(void *context, struct MHD_Connection *connection, void **request,
                        enum MHD_RequestTerminationCode code);

#endif
