/* Which samples come next. Training thread. Surprising: text is drawn as random windows that may
 * start anywhere inside a block (with repetition), images as a shuffle of the lease's blocks
 * without repetition: windows overlap anyway, images should each be seen once per epoch. */
#include "agent/engine/data.h"

#include <stdlib.h>

enum status data_open(const struct job_spec *spec, const struct trainer_data_paths *paths,
                      struct data **ret, struct error *err)
{
    struct data *data = calloc(1, sizeof *data);
    if (!data)
        return error_set(err, STATUS_NO_MEMORY, "opening the training data: out of memory");
    data->kind = spec->data.kind;
    data->job_seed = spec->training.seed;
    enum status status = data->kind == DATA_TEXT ? data_text_open(data, spec, paths, err)
                                                 : data_images_open(data, spec, paths, err);
    if (!status)
        status = data_plan_make(
            spec, data->text_bytes, data->kind == DATA_IMAGES ? data->train.images.dims[0] : 0,
            data->kind == DATA_IMAGES ? data->held_out.images.dims[0] : 0, &data->plan, err);
    if (status) {
        data_close(data);
        return status;
    }
    data_begin_lease(data, 0, 1, 0);
    *ret = data;
    return STATUS_OK;
}

void data_close(struct data *data)
{
    if (!data)
        return;
    data_text_close(data);
    data_images_close(data);
    free(data);
}

/* Only the one and only block can be short (or long: it also takes what is left over). */
static uint64_t block_samples(const struct data *data)
{
    return data->plan.blocks > 1 ? DATA_BLOCK_SAMPLES : data->plan.train_samples;
}

void data_begin_lease(struct data *data, uint64_t block_first, uint64_t block_count, uint64_t seed)
{
    uint64_t count = block_count > 0 ? block_count : 1;
    uint64_t most = UINT64_MAX / 2 / block_samples(data);
    data->lease = (struct data_lease){
        .block_first = block_first, .block_count = count < most ? count : most, .seed = seed};
    data->lease.samples = data->lease.block_count * block_samples(data);
    rng_seed(&data->lease.rng, seed);
}

static uint64_t block_at(const struct data *data, uint64_t index)
{
    return data_plan_block_at(data->job_seed, data->lease.block_first + index, data->plan.blocks);
}

static void next_text(struct data *data, int32_t *tokens, int32_t *target)
{
    struct data_lease *lease = &data->lease;
    uint64_t block = block_at(data, rng_below(&lease->rng, lease->block_count));
    /* Starts keep the whole window and its last target inside the block's samples. */
    uint64_t starts = (block_samples(data) - 1) * data->context + 1;
    uint64_t offset = block * DATA_BLOCK_SAMPLES * data->context + rng_below(&lease->rng, starts);
    data_text_sample(data, offset, tokens, target);
}

static void next_image(struct data *data, float *image, int32_t *label)
{
    struct data_lease *lease = &data->lease;
    /* The keyed permutation that orders blocks in a job orders samples in a lease as well. */
    uint64_t sample = data_plan_block_at(lease->seed, lease->drawn++, lease->samples);
    uint64_t in_block = block_samples(data);
    uint64_t index = block_at(data, sample / in_block) * DATA_BLOCK_SAMPLES + sample % in_block;
    data_images_sample(data, &data->train, index, image, label);
}

void data_next(struct data *data, uint32_t samples, void *input, int32_t *target)
{
    for (uint32_t i = 0; i < samples; i++) {
        if (data->kind == DATA_TEXT)
            next_text(data, (int32_t *)input + i * data->context, target + i * data->context);
        else
            next_image(data, (float *)input + i * data->pixels, target + i);
    }
}

void data_held_out(const struct data *data, uint64_t first, uint32_t samples, uint64_t of,
                   void *input, int32_t *target)
{
    for (uint32_t i = 0; i < samples; i++) {
        /* 128 bits: counts come from a file's size and a setting. */
        uint64_t index =
            (uint64_t)((unsigned __int128)(first + i) * data->plan.held_out_samples / of);
        if (data->kind == DATA_TEXT)
            data_text_sample(data, data->plan.held_out_offset + index * data->context,
                             (int32_t *)input + i * data->context, target + i * data->context);
        else
            data_images_sample(data, &data->held_out, index, (float *)input + i * data->pixels,
                               target + i);
    }
}
