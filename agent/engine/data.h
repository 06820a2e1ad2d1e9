/* Turns a job's artifacts into batches. Training samples come from the lease's blocks
 * (common/graph/data_plan.h) in an order that the lease's seed fixes; held-out samples are always
 * the same for the same count. Files are mapped, not loaded. Training thread. */
#ifndef RAVEN_AGENT_ENGINE_DATA_H
#define RAVEN_AGENT_ENGINE_DATA_H

#include "agent/engine/trainer.h"
#include "common/base/rng.h"
#include "common/graph/data_plan.h"
#include "common/tensorfile/idx.h"

struct data_lease {
    uint64_t block_first, block_count, samples; /* samples: in all its blocks */
    uint64_t seed, drawn;                       /* drawn: how many so far */
    struct rng rng;
};

struct data_images {
    struct idx images, labels;
};

struct data {
    enum data_kind kind;
    struct data_plan plan;
    uint64_t job_seed;
    struct data_lease lease;
    /* text */
    const uint8_t *text;
    uint64_t text_bytes, context;
    /* images */
    struct data_images train, held_out;
    uint64_t pixels;
    float brightness[256]; /* pixel value → mean 0, deviation 1 over the training images */
};

enum status data_open(const struct job_spec *spec, const struct trainer_data_paths *paths,
                      struct data **ret, struct error *err) MUST_CHECK;
void data_close(struct data *data);

void data_begin_lease(struct data *data, uint64_t block_first, uint64_t block_count, uint64_t seed);
/* The next `samples` training samples. input: int32_t tokens or float images. */
void data_next(struct data *data, uint32_t samples, void *input, int32_t *target);
/* Held-out samples [first, first + samples) of a fixed choice of `of`, spread over all of them;
 * of ≤ plan.held_out_samples. */
void data_held_out(const struct data *data, uint64_t first, uint32_t samples, uint64_t of,
                   void *input, int32_t *target);

/* One file per kind. */
enum status data_text_open(struct data *data, const struct job_spec *spec,
                           const struct trainer_data_paths *paths, struct error *err) MUST_CHECK;
void data_text_close(struct data *data);
/* Sample `from` the byte at offset. */
void data_text_sample(const struct data *data, uint64_t offset, int32_t *tokens, int32_t *target);

enum status data_images_open(struct data *data, const struct job_spec *spec,
                             const struct trainer_data_paths *paths, struct error *err) MUST_CHECK;
void data_images_close(struct data *data);
void data_images_sample(const struct data *data, const struct data_images *from, uint64_t index,
                        float *image, int32_t *label);

#endif
