/* The controller's place in the core: gathers what is measured, decides before each request, tells
 * the worker how many leases to hold, and the coordinator what was decided and why. Session thread.
 */
#include "agent/core_internal.h"

#include "common/base/bytes.h"
#include "common/base/clock.h"
#include "common/base/log.h"

#include <stdlib.h>
#include <string.h>

#define TELL_US (10 * 1000000ll) /* also when nothing has changed */

void core_forget_choice(struct core *core)
{
    core->adapt = (struct adapt){0};
    core->choice = (struct adapt_choice){0};
    core->step_ms = core->overhead_ms = core->fleet_step_ms = 0.0;
    core->active = core->delta_bytes = 0;
    core->told_us = 0;
}

static struct adapt_inputs gather(const struct core *core, int64_t now_us)
{
    int64_t up_us = goodput_longest_stall_us(&core->up, now_us);
    int64_t down_us = goodput_longest_stall_us(&core->down, now_us);
    return (struct adapt_inputs){
        .parameters = core->parameters,
        .step_ms = core->step_ms,
        .fleet_step_ms = core->fleet_step_ms,
        .up_bytes_per_s = core->up.bytes_per_s,
        .down_bytes_per_s = core->down.bytes_per_s,
        .rtt_ms = session_rtt_ms(core->session),
        .overhead_ms = core->overhead_ms,
        .active = core->active > 0 ? core->active : 1,
        .delta_bytes = core->delta_bytes,
        .longest_stall_ms = (double)(up_us > down_us ? up_us : down_us) / 1e3,
    };
}

static void show(struct core *core, const struct adapt_inputs *inputs)
{
    struct status_fields *fields = status_board_lock(core->board);
    fields->lease_steps = core->choice.steps;
    fields->lease_k = core->choice.k;
    text_copy(fields->choice_reason, sizeof fields->choice_reason, core->choice.reason);
    fields->up_kbytes_per_s = inputs->up_bytes_per_s / 1e3;
    fields->down_kbytes_per_s = inputs->down_bytes_per_s / 1e3;
    status_board_unlock(core->board);
}

static void tell(struct core *core, const struct adapt_inputs *inputs)
{
    const struct adapt_choice *chosen = &core->choice;
    struct wire_message message = {.type = WIRE_choice};
    struct wire_choice *choice = &message.choice;
    text_copy(choice->job, sizeof choice->job, core->job);
    choice->steps = chosen->steps;
    choice->k = chosen->k;
    choice->ahead = chosen->ahead;
    choice->step_ms = inputs->step_ms;
    choice->up_bytes_per_s = inputs->up_bytes_per_s;
    choice->down_bytes_per_s = inputs->down_bytes_per_s;
    choice->rtt_ms = inputs->rtt_ms;
    choice->transfer_ms = chosen->transfer_ms;
    choice->compute_ms = chosen->compute_ms;
    text_copy(choice->reason, sizeof choice->reason, chosen->reason);
    core_say(core, &message);
}

static void order_ahead(struct core *core)
{
    struct worker_mail *mail = calloc(1, sizeof *mail);
    if (mail) {
        mail->mail.type = WORKER_AHEAD;
        mail->ahead = core->choice.ahead;
    }
    core_order(core, mail);
}

void core_choose(struct core *core)
{
    if (core->job[0] == '\0')
        return;
    int64_t now_us = clock_monotonic_us();
    struct adapt_inputs inputs = gather(core, now_us);
    struct adapt_choice before = core->choice;
    adapt_choose(&core->adapt, &core->spec, &inputs, &core->choice);
    const struct adapt_choice *now = &core->choice;
    show(core, &inputs);
    if (now->ahead != before.ahead)
        order_ahead(core);
    bool changed = now->steps != before.steps || now->k != before.k || now->ahead != before.ahead;
    if (changed)
        log_info(CORE_LOG, "next leases: %llu steps, k %llu, %llu ahead: %s",
                 (unsigned long long)now->steps, (unsigned long long)now->k,
                 (unsigned long long)now->ahead, now->reason);
    if (changed || now_us - core->told_us > TELL_US) {
        core->told_us = now_us;
        tell(core, &inputs);
    }
}
