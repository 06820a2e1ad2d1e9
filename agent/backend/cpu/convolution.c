/* 3 × 3 convolution as a matrix product over a column matrix, a block of pixels at a time. Training
 * thread, tasks on the pool. Surprising: forward is cut by samples, backward by input channels: so
 * each task owns its part of dx and dweight, and no gradient is added up across threads. */
#include "agent/backend/cpu/cpu.h"

#include <string.h>

#define TAPS 9

struct conv_job {
    struct cpu_backend *cpu;
    const struct image_shape *shape;
    const float *x, *weight, *bias, *dy;
    float *y;
    struct gradient dx, dweight;
    struct range samples, channels, outputs;
};

/* A run of pixels of one image, row after row. */
struct pixels {
    size_t begin, count;
};

static size_t image_pixels(const struct image_shape *shape)
{
    return shape->height * shape->width;
}

/* How many pixels fit so that TAPS × channels × pixels floats fit. */
static size_t block_pixels(const struct image_shape *shape, size_t channels, size_t floats)
{
    size_t fit = floats / (TAPS * channels) / TILE_COLUMNS * TILE_COLUMNS;
    size_t all = image_pixels(shape);
    return all < fit ? all : fit;
}

/* The next stretch of pixels that lie in one image row, for a tap's shift. */
struct stretch {
    size_t row, column, count; /* of the output pixels */
    size_t at;                 /* offset in the block */
};

static bool next_stretch(const struct image_shape *shape, const struct pixels *pixels,
                         struct stretch *stretch)
{
    stretch->at += stretch->count;
    if (stretch->at >= pixels->count)
        return false;
    size_t pixel = pixels->begin + stretch->at;
    stretch->row = pixel / shape->width;
    stretch->column = pixel % shape->width;
    size_t left = shape->width - stretch->column, rest = pixels->count - stretch->at;
    stretch->count = left < rest ? left : rest;
    return true;
}

/* The part of a stretch whose tap (ty, tx ∈ 0 … 2) falls inside the image: [skip, skip + count) and
 * where its input begins. */
struct overlap {
    size_t skip, count, input;
};

static struct overlap tap_overlap(const struct image_shape *shape, const struct stretch *stretch,
                                  size_t ty, size_t tx)
{
    size_t row = stretch->row + ty; /* input row + 1 */
    if (row < 1 || row > shape->height)
        return (struct overlap){0};
    size_t skip = stretch->column + tx == 0 ? 1 : 0;
    size_t count = stretch->count - skip;
    size_t last = stretch->column + stretch->count - 1 + tx; /* input column + 1 */
    if (last > shape->width && count > 0)
        count--;
    size_t column = stretch->column + skip + tx; /* input column + 1 */
    return (struct overlap){skip, count, (row - 1) * shape->width + column - 1};
}

/* columns[tap of channel][pixel] = the input under the tap, zero outside the image. */
static void gather_columns(const struct image_shape *shape, const float *image, size_t channels,
                           const struct pixels *pixels, float *columns)
{
    for (size_t i = 0; i < channels * TAPS; i++) {
        const float *plane = image + i / TAPS * image_pixels(shape);
        float *out = columns + i * pixels->count;
        struct stretch stretch = {0};
        while (next_stretch(shape, pixels, &stretch)) {
            struct overlap part = tap_overlap(shape, &stretch, i % TAPS / 3, i % 3);
            float *to = out + stretch.at;
            memset(to, 0, part.skip * sizeof *to);
            memcpy(to + part.skip, plane + part.input, part.count * sizeof *to);
            size_t done = part.skip + part.count;
            memset(to + done, 0, (stretch.count - done) * sizeof *to);
        }
    }
}

/* The reverse: adds each column entry to the input pixel it came from. */
static void scatter_columns(const struct image_shape *shape, const float *columns, size_t channels,
                            const struct pixels *pixels, float *image)
{
    for (size_t i = 0; i < channels * TAPS; i++) {
        float *plane = image + i / TAPS * image_pixels(shape);
        const float *in = columns + i * pixels->count;
        struct stretch stretch = {0};
        while (next_stretch(shape, pixels, &stretch)) {
            struct overlap part = tap_overlap(shape, &stretch, i % TAPS / 3, i % 3);
            const float *from = in + stretch.at + part.skip;
            float *to = plane + part.input;
            for (size_t j = 0; j < part.count; j++)
                to[j] += from[j];
        }
    }
}

static void forward_sample(const struct conv_job *job, size_t sample, uint32_t worker)
{
    const struct image_shape *shape = job->shape;
    size_t all = image_pixels(shape), inner = shape->channels_in * TAPS;
    size_t step = block_pixels(shape, shape->channels_in, CPU_SCRATCH_FLOATS);
    const float *image = job->x + sample * shape->channels_in * all;
    float *columns = job->cpu->scratch[worker];
    float *y = job->y + sample * shape->channels_out * all;
    for (size_t i = 0; i < shape->channels_out; i++) {
        for (size_t j = 0; j < all; j++)
            y[i * all + j] = job->bias[i];
    }
    struct pixels pixels;
    for (pixels.begin = 0; pixels.begin < all; pixels.begin += step) {
        pixels.count = all - pixels.begin < step ? all - pixels.begin : step;
        gather_columns(shape, image, shape->channels_in, &pixels, columns);
        gemm_run(job->cpu->kernels,
                 &(struct gemm){.m = shape->channels_out,
                                .n = pixels.count,
                                .k = inner,
                                .a = matrix_rows(job->weight, inner),
                                .b = matrix_rows(columns, pixels.count),
                                .c = y + pixels.begin,
                                .c_row = all,
                                .accumulate = true},
                 job->cpu->gemm_scratch[worker]);
    }
}

static void forward_task(void *context, size_t task, uint32_t worker)
{
    const struct conv_job *job = context;
    size_t end = range_begin(&job->samples, task + 1);
    for (size_t sample = range_begin(&job->samples, task); sample < end; sample++)
        forward_sample(job, sample, worker);
}

void cpu_conv3x3_forward(struct backend *backend, const struct image_shape *shape, const float *x,
                         const float *weight, const float *bias, float *y)
{
    struct cpu_backend *cpu = cpu_of(backend);
    struct conv_job job = {.cpu = cpu,
                           .shape = shape,
                           .x = x,
                           .weight = weight,
                           .bias = bias,
                           .y = y,
                           .samples = cpu_range(cpu, shape->samples, 1, 1)};
    pool_run(cpu->base.pool, job.samples.tasks, forward_task, &job);
}

/* What one backward task owns. */
struct share {
    size_t channel, channels; /* input */
    size_t output, outputs;   /* of dweight only */
    bool owns_dx;
};

static void weight_gradient(const struct conv_job *job, const struct share *share,
                            const float *image, const float *dy, const struct pixels *pixels,
                            bool accumulate, uint32_t worker)
{
    const struct image_shape *shape = job->shape;
    size_t all = image_pixels(shape), inner = shape->channels_in * TAPS;
    float *columns = job->cpu->scratch[worker];
    gather_columns(shape, image + share->channel * all, share->channels, pixels, columns);
    gemm_run(job->cpu->kernels,
             &(struct gemm){.m = share->outputs,
                            .n = share->channels * TAPS,
                            .k = pixels->count,
                            .a = matrix_rows(dy + share->output * all + pixels->begin, all),
                            .b = matrix_transposed(columns, pixels->count),
                            .c = job->dweight.data + share->output * inner + share->channel * TAPS,
                            .c_row = inner,
                            .accumulate = accumulate},
             job->cpu->gemm_scratch[worker]);
}

static void input_gradient(const struct conv_job *job, const struct share *share, size_t sample,
                           const float *dy, const struct pixels *pixels, uint32_t worker)
{
    const struct image_shape *shape = job->shape;
    size_t all = image_pixels(shape), inner = shape->channels_in * TAPS;
    float *columns = job->cpu->scratch[worker];
    gemm_run(job->cpu->kernels,
             &(struct gemm){.m = share->channels * TAPS,
                            .n = pixels->count,
                            .k = shape->channels_out,
                            .a = matrix_transposed(job->weight + share->channel * TAPS, inner),
                            .b = matrix_rows(dy + pixels->begin, all),
                            .c = columns,
                            .c_row = pixels->count},
             job->cpu->gemm_scratch[worker]);
    scatter_columns(shape, columns, share->channels, pixels,
                    job->dx.data + (sample * shape->channels_in + share->channel) * all);
}

static void backward_share(const struct conv_job *job, const struct share *share, uint32_t worker)
{
    const struct image_shape *shape = job->shape;
    size_t all = image_pixels(shape);
    size_t step = block_pixels(shape, share->channels, CPU_SCRATCH_FLOATS);
    bool accumulate = job->dweight.accumulate;
    for (size_t sample = 0; sample < shape->samples; sample++) {
        const float *image = job->x + sample * shape->channels_in * all;
        const float *dy = job->dy + sample * shape->channels_out * all;
        bool dx = job->dx.data && share->owns_dx;
        struct gradient own = {NULL, job->dx.accumulate};
        if (dx) {
            own.data = job->dx.data + (sample * shape->channels_in + share->channel) * all;
            cpu_gradient_clear(&own, share->channels * all);
        }
        struct pixels pixels;
        for (pixels.begin = 0; pixels.begin < all; pixels.begin += step) {
            pixels.count = all - pixels.begin < step ? all - pixels.begin : step;
            if (job->dweight.data)
                weight_gradient(job, share, image, dy, &pixels, accumulate, worker);
            accumulate = true;
            if (dx)
                input_gradient(job, share, sample, dy, &pixels, worker);
        }
    }
}

static void backward_task(void *context, size_t task, uint32_t worker)
{
    const struct conv_job *job = context;
    size_t channel = task / job->outputs.tasks, output = task % job->outputs.tasks;
    struct share share = {.channel = range_begin(&job->channels, channel),
                          .output = range_begin(&job->outputs, output),
                          .owns_dx = output == 0};
    share.channels = range_begin(&job->channels, channel + 1) - share.channel;
    share.outputs = range_begin(&job->outputs, output + 1) - share.output;
    backward_share(job, &share, worker);
}

struct bias_job {
    struct cpu_backend *cpu;
    const struct image_shape *shape;
    const float *dy;
    struct gradient dbias;
};

static void bias_task(void *context, size_t task, uint32_t worker)
{
    (void)worker;
    const struct bias_job *job = context;
    size_t all = image_pixels(job->shape);
    float sum = job->dbias.accumulate ? job->dbias.data[task] : 0.0f;
    for (size_t sample = 0; sample < job->shape->samples; sample++)
        sum +=
            job->cpu->kernels->sum(all, job->dy + (sample * job->shape->channels_out + task) * all);
    job->dbias.data[task] = sum;
}

void cpu_conv3x3_backward(struct backend *backend, const struct image_shape *shape, const float *x,
                          const float *weight, const float *dy, struct gradient dx,
                          struct gradient dweight, struct gradient dbias)
{
    struct cpu_backend *cpu = cpu_of(backend);
    struct conv_job job = {.cpu = cpu,
                           .shape = shape,
                           .x = x,
                           .weight = weight,
                           .dy = dy,
                           .dx = dx,
                           .dweight = dweight,
                           .channels = cpu_range(cpu, shape->channels_in, 1, 1),
                           .outputs = {.count = shape->channels_out, .tasks = 1, .multiple = 1}};
    if (shape->channels_in < backend->threads) /* too few channels to share: cut dweight's rows */
        job.outputs = cpu_range(cpu, shape->channels_out, TILE_ROWS, TILE_ROWS);
    if (dx.data || dweight.data)
        pool_run(cpu->base.pool, job.channels.tasks * job.outputs.tasks, backward_task, &job);
    if (dbias.data) {
        struct bias_job bias = {cpu, shape, dy, dbias};
        pool_run(cpu->base.pool, shape->channels_out, bias_task, &bias);
    }
}
