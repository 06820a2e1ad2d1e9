/* Making and freeing the messages between the agent's threads. Any thread. */
#include "agent/core_mail.h"

#include <stdlib.h>
#include <string.h>

void worker_mail_free(struct worker_mail *mail)
{
    if (mail && mail->mail.type == WORKER_DELTA)
        delta_in_free(mail->delta);
    free(mail);
}

struct core_mail *core_mail_create(enum core_mail_type type)
{
    struct core_mail *mail = calloc(1, sizeof *mail);
    if (mail)
        mail->mail.type = type;
    return mail;
}

void core_mail_free(struct core_mail *mail)
{
    if (!mail)
        return;
    shared_unref(mail->payload);
    free(mail->order);
    free(mail);
}
