/* Known answers: every operator on fixed inputs, compared with stored fingerprints. Training
 * thread, before the first lease. Surprising: the answers come from an independent program in
 * double precision (tests/ops/selftest_reference.py), so this also catches an error of ours, not
 * only of the device. */
#include "agent/backend/backend.h"

#include <math.h>
#include <string.h>

#define ARENA_FLOATS 8192
#define TOLERANCE 1e-4 /* of 1 + |answer|: fp32 sums of a few hundred terms */

struct arena {
    struct backend *backend;
    float *memory;
    size_t used;
};

/* Exactly representable, without a visible pattern. */
static float value(size_t i, size_t salt)
{
    return (float)((int)((i * 37 + salt * 11) % 101) - 50) / 64.0f;
}

static float *blank(struct arena *arena, size_t count)
{
    float *memory = arena->memory + arena->used;
    arena->used += count;
    memset(memory, 0, count * sizeof *memory);
    return memory;
}

static float *fill(struct arena *arena, size_t count, size_t salt)
{
    float *memory = blank(arena, count);
    for (size_t i = 0; i < count; i++)
        memory[i] = value(i, salt);
    return memory;
}

static double fingerprint(const float *data, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += (double)data[i] * (double)value(i, 99);
    return sum;
}

static struct gradient into(float *data)
{
    return (struct gradient){.data = data};
}

/* Each case: forward fingerprint in ret[0], that of all its gradients, side by side, in ret[1]. */

static void run_linear(struct arena *arena, double ret[2])
{
    struct backend *backend = arena->backend;
    struct linear_shape shape = {.rows = 7, .in = 9, .out = 18};
    float *x = fill(arena, 63, 1), *weight = fill(arena, 162, 2), *bias = fill(arena, 18, 3);
    float *y = blank(arena, 126), *dy = fill(arena, 126, 7), *d = blank(arena, 63 + 162 + 18);
    backend->linear_forward(backend, &shape, x, weight, bias, y);
    backend->linear_backward(backend, &shape, x, weight, dy, into(d), into(d + 63),
                             into(d + 63 + 162));
    ret[0] = fingerprint(y, 126);
    ret[1] = fingerprint(d, 63 + 162 + 18);
}

static void run_layernorm(struct arena *arena, double ret[2])
{
    struct backend *backend = arena->backend;
    struct norm_shape shape = {.rows = 5, .width = 19};
    float *x = fill(arena, 95, 1), *gain = fill(arena, 19, 2), *bias = fill(arena, 19, 3);
    float *y = blank(arena, 95), *dy = fill(arena, 95, 7), *d = blank(arena, 95 + 38);
    float *saved = blank(arena, 10);
    backend->layernorm_forward(backend, &shape, x, gain, bias, y, saved);
    backend->layernorm_backward(backend, &shape, x, gain, dy, saved, into(d), into(d + 95),
                                into(d + 95 + 19));
    ret[0] = fingerprint(y, 95);
    ret[1] = fingerprint(d, 95 + 38);
}

static void run_embed(struct arena *arena, double ret[2])
{
    struct backend *backend = arena->backend;
    struct embed_shape shape = {.rows = 8, .width = 6, .context = 4, .vocabulary = 5};
    int32_t *tokens = (int32_t *)(void *)blank(arena, 8);
    for (int32_t i = 0; i < 8; i++)
        tokens[i] = (3 * i + 1) % 5;
    float *table = fill(arena, 30, 1), *positions = fill(arena, 24, 2);
    float *y = blank(arena, 48), *dy = fill(arena, 48, 7), *d = blank(arena, 54);
    backend->embed_forward(backend, &shape, tokens, table, positions, y);
    backend->embed_backward(backend, &shape, tokens, dy, into(d), into(d + 30));
    ret[0] = fingerprint(y, 48);
    ret[1] = fingerprint(d, 54);
}

static void run_attention(struct arena *arena, double ret[2])
{
    struct backend *backend = arena->backend;
    struct attention_shape shape = {.samples = 2, .context = 7, .width = 8, .heads = 2};
    float *qkv = fill(arena, 336, 1), *y = blank(arena, 112), *dy = fill(arena, 112, 7);
    float *d = blank(arena, 336), *saved = blank(arena, 28);
    backend->attention_forward(backend, &shape, qkv, y, saved);
    backend->attention_backward(backend, &shape, qkv, dy, saved, into(d));
    ret[0] = fingerprint(y, 112);
    ret[1] = fingerprint(d, 336);
}

static void run_gelu(struct arena *arena, double ret[2])
{
    struct backend *backend = arena->backend;
    float *x = fill(arena, 37, 1), *y = blank(arena, 37), *dy = fill(arena, 37, 7);
    float *d = blank(arena, 37);
    for (size_t i = 0; i < 37; i++)
        x[i] *= 4;
    backend->gelu_forward(backend, 37, x, y);
    backend->gelu_backward(backend, 37, x, dy, into(d));
    ret[0] = fingerprint(y, 37);
    ret[1] = fingerprint(d, 37);
}

static void run_relu(struct arena *arena, double ret[2])
{
    struct backend *backend = arena->backend;
    float *x = fill(arena, 37, 1), *y = blank(arena, 37), *dy = fill(arena, 37, 7);
    float *d = blank(arena, 37);
    backend->relu_forward(backend, 37, x, y);
    backend->relu_backward(backend, 37, x, dy, into(d));
    ret[0] = fingerprint(y, 37);
    ret[1] = fingerprint(d, 37);
}

static void run_add(struct arena *arena, double ret[2])
{
    struct backend *backend = arena->backend;
    float *a = fill(arena, 37, 1), *b = fill(arena, 37, 2), *y = blank(arena, 37);
    float *dy = fill(arena, 37, 7), *d = blank(arena, 74);
    backend->add_forward(backend, 37, a, b, y);
    backend->add_backward(backend, 37, dy, into(d));
    backend->add_backward(backend, 37, dy, into(d + 37));
    ret[0] = fingerprint(y, 37);
    ret[1] = fingerprint(d, 74);
}

static void run_conv3x3(struct arena *arena, double ret[2])
{
    struct backend *backend = arena->backend;
    struct image_shape shape = {
        .samples = 2, .channels_in = 3, .channels_out = 4, .height = 5, .width = 6};
    float *x = fill(arena, 180, 1), *weight = fill(arena, 108, 2), *bias = fill(arena, 4, 3);
    float *y = blank(arena, 240), *dy = fill(arena, 240, 7), *d = blank(arena, 180 + 108 + 4);
    backend->conv3x3_forward(backend, &shape, x, weight, bias, y);
    backend->conv3x3_backward(backend, &shape, x, weight, dy, into(d), into(d + 180),
                              into(d + 180 + 108));
    ret[0] = fingerprint(y, 240);
    ret[1] = fingerprint(d, 180 + 108 + 4);
}

static void run_maxpool2(struct arena *arena, double ret[2])
{
    struct backend *backend = arena->backend;
    struct image_shape shape = {.samples = 2, .channels_in = 3, .height = 5, .width = 6};
    float *x = fill(arena, 180, 1), *y = blank(arena, 36), *dy = fill(arena, 36, 7);
    float *d = blank(arena, 180);
    uint8_t *saved = (uint8_t *)blank(arena, 9);
    backend->maxpool2_forward(backend, &shape, x, y, saved);
    backend->maxpool2_backward(backend, &shape, dy, saved, into(d));
    ret[0] = fingerprint(y, 36);
    ret[1] = fingerprint(d, 180);
}

static void run_cross_entropy(struct arena *arena, double ret[2])
{
    struct backend *backend = arena->backend;
    struct loss_shape shape = {.rows = 6, .classes = 11};
    float *logits = fill(arena, 66, 1), *saved = blank(arena, 66), *d = blank(arena, 66);
    int32_t *target = (int32_t *)(void *)blank(arena, 6);
    for (int32_t i = 0; i < 6; i++)
        target[i] = (5 * i + 2) % 11;
    for (size_t i = 0; i < 66; i++)
        logits[i] *= 4;
    uint64_t hits;
    backend->cross_entropy_forward(backend, &shape, logits, target, saved, &ret[0], &hits);
    backend->cross_entropy_backward(backend, &shape, target, saved, into(d));
    ret[0] *= (double)value(0, 99);
    ret[1] = fingerprint(d, 66);
}

/* Two steps; ret[1] is the second gradient's sum of squares. */
static void run_adamw(struct arena *arena, double ret[2])
{
    struct backend *backend = arena->backend;
    float *x = fill(arena, 21, 1), *m = blank(arena, 21), *v = blank(arena, 21);
    struct adamw settings = {.learning_rate = 0.05,
                             .beta1 = 0.9,
                             .beta2 = 0.95,
                             .weight_decay = 0.1,
                             .gradient_scale = 0.5};
    for (settings.step = 1; settings.step <= 2; settings.step++) {
        float *gradient = fill(arena, 21, 1 + settings.step);
        backend->adamw(backend, &settings, 21, x, gradient, m, v);
        ret[1] = 0.25 * backend->sum_squares(backend, 21, gradient);
    }
    ret[0] = fingerprint(x, 21);
}

static const struct known_answer {
    const char *name;
    void (*run)(struct arena *arena, double ret[2]);
    double forward, backward;
} answers[] = {
    {"linear", run_linear, 4.23611832, -6.34673309},
    {"layernorm", run_layernorm, -7.18339749, 6.48545007},
    {"embed", run_embed, -3.24438477, 2.85351563},
    {"attention", run_attention, 1.5785571, 2.46747536},
    {"gelu", run_gelu, 0.774472361, 1.12709701},
    {"relu", run_relu, 0.0947265625, 1.30810547},
    {"add", run_add, -6.4753418, 3.26147461},
    {"conv3x3", run_conv3x3, -3.56991959, 14.2719345},
    {"maxpool2", run_maxpool2, -0.353271484, -0.153076172},
    {"cross_entropy", run_cross_entropy, 10.6434974, 0.0805007102},
    {"adamw", run_adamw, -0.689852664, 1.01550293},
};

static bool agrees(double got, double want)
{
    return fabs(got - want) <= TOLERANCE * (1 + fabs(want)); /* false for NaN */
}

enum status backend_selftest(struct backend *backend, struct error *err)
{
    float *memory = backend->allocate(backend, ARENA_FLOATS * sizeof *memory);
    if (!memory)
        return error_set(err, STATUS_NO_MEMORY, "testing %s: out of memory", backend->name);
    enum status status = STATUS_OK;
    for (size_t i = 0; i < sizeof answers / sizeof answers[0] && !status; i++) {
        struct arena arena = {.backend = backend, .memory = memory};
        double got[2] = {NAN, NAN};
        answers[i].run(&arena, got);
        if (!agrees(got[0], answers[i].forward) || !agrees(got[1], answers[i].backward))
            status = error_set(err, STATUS_CORRUPT,
                               "%s computes %s wrongly: %.9g and %.9g instead of %.9g and %.9g; "
                               "this device must not train",
                               backend->name, answers[i].name, got[0], got[1], answers[i].forward,
                               answers[i].backward);
    }
    backend->release(backend, memory);
    return status;
}
