/* How a dataset is cut into samples and blocks, and in which order blocks are handed out: the same
 * arithmetic on the coordinator (which hands out positions) and the agent (which reads the data).
 *
 * text: a sample is `context` consecutive bytes and the byte that follows each; the last
 * held_out_ratio of the file is held out. images: a sample is one image and its label; held-out
 * samples are separate files. synthetic: samples are only counted, as many for every
 * job. A block is DATA_BLOCK_SAMPLES consecutive samples of the training part (the last, incomplete
 * one is not used, unless it is the only one). */
#ifndef RAVEN_COMMON_GRAPH_DATA_PLAN_H
#define RAVEN_COMMON_GRAPH_DATA_PLAN_H

#include "common/graph/job_spec.h"

#include <stdint.h>

#define DATA_BLOCK_SAMPLES 256u

struct data_plan {
    uint64_t train_samples;
    uint64_t held_out_samples;
    uint64_t blocks;          /* ≥ 1 */
    uint64_t held_out_offset; /* text: first byte of the held-out part */
};

/* text_bytes: size of the text artifact (kind text); train_images / held_out_images: counts (kind
 * images). STATUS_INVALID when there is less than one batch to train on or one sample held out. */
enum status data_plan_make(const struct job_spec *spec, uint64_t text_bytes, uint64_t train_images,
                           uint64_t held_out_images, struct data_plan *ret,
                           struct error *err) MUST_CHECK;

/* Block at a position of the endless order: each epoch (blocks positions) is its own permutation of
 * 0 … blocks - 1, a function of (seed, epoch) only. */
uint64_t data_plan_block_at(uint64_t seed, uint64_t position, uint64_t blocks);

/* Blocks that a lease of steps × batch_size samples needs: at least 1. */
uint64_t data_plan_lease_blocks(uint64_t steps, uint64_t batch_size);

#endif
